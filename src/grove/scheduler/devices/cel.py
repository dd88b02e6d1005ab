"""The part of CEL that device selectors are written in, as people use it; the rest is refused by name, never guessed.

    device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model in ["h100", "h200"]
    device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0 || !device.attributes["x.io"].shared

Understood are `&&`, `||`, `!`, brackets, comparisons, `in`, and `device.driver`, attributes and capacities. A device
that lacks what a selector speaks of does not match.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from grove.api.quantity import exact

Value: TypeAlias = Any
"""A string, a number, a truth value, a list of them, or `ABSENT`."""


class Described(Protocol):
    """What a selector sees of a device; attributes and capacities by qualified name."""

    @property
    def driver(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, Value]: ...
    @property
    def capacity(self) -> Mapping[str, Value]: ...


Read: TypeAlias = Callable[[Described], Value]


class NotUnderstood(ValueError):
    """The selector uses something this reader does not know; the text quotes the selector."""


class _Absent:
    def __bool__(self) -> bool:
        return False


ABSENT = _Absent()

_TOKEN = re.compile(r'\s*(?:(\d+(?:\.\d+)?)|("[^"\\]*"|\'[^\'\\]*\')|(&&|\|\||[=!<>]=|[<>!()\[\],.])|([A-Za-z_]\w*))')
_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@lru_cache(maxsize=1024)
def selector(text: str) -> Callable[[Described], bool]:
    """A selector as a function. Raises NotUnderstood."""
    try:
        reader = _Reader(text)
        read = reader.either()
        reader.expect_end()
    except (ValueError, IndexError) as err:
        raise NotUnderstood(f"selector {text!r} is not understood") from err
    return lambda device: read(device) is True


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        text = text.strip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(text[at:])
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._tokens[self._at]
        if wanted and token not in wanted:
            raise ValueError(token)
        self._at += 1
        return token

    def expect_end(self) -> None:
        if self._at != len(self._tokens):
            raise ValueError(self._peek())

    def either(self) -> Read:
        found = self._both()
        while self._peek() == "||":
            self._take()
            found = _or(found, self._both())
        return found

    def _both(self) -> Read:
        found = self._compared()
        while self._peek() == "&&":
            self._take()
            found = _and(found, self._compared())
        return found

    def _compared(self) -> Read:
        if self._peek() == "!":
            self._take()
            inner = self._compared()
            return lambda device: ABSENT if (value := inner(device)) is ABSENT else value is False
        left = self._operand()
        sign = self._peek()
        if sign in _COMPARE:
            self._take()
            return _comparison(_COMPARE[sign], left, self._operand())
        if sign == "in":
            self._take()
            return _comparison(lambda a, b: a in b, left, self._operand())
        return left

    def _operand(self) -> Read:
        token = self._take()
        if token == "(":
            inner = self.either()
            self._take(")")
            return inner
        if token == "[":
            items: list[Value] = []
            while self._peek() != "]":
                items.append(_literal(self._take()))
                if self._peek() == ",":
                    self._take()
            self._take("]")
            return lambda _: items
        if token != "device":
            value = _literal(token)
            return lambda _: value
        self._take(".")
        part = self._take("driver", "attributes", "capacity")
        if part == "driver":
            return lambda device: device.driver
        self._take("[")
        domain = _literal(self._take())
        self._take("]")
        self._take(".")
        name = f"{domain}/{self._take()}"
        if part == "attributes":
            return lambda device: device.attributes.get(name, ABSENT)
        return self._measured(lambda device: device.capacity.get(name, ABSENT))

    def _measured(self, amount: Read) -> Read:
        """A capacity is a quantity: it is compared by `compareTo(quantity("…"))`, and by nothing else."""
        for token in (".", "compareTo", "(", "quantity", "("):
            self._take(token)
        limit = exact(str(_literal(self._take())))
        self._take(")")
        self._take(")")
        return _comparison(lambda have, least: (have > least) - (have < least), amount, lambda _: limit)


def _literal(token: str) -> Value:
    if token[0] in "\"'":
        return token[1:-1]
    if token in ("true", "false"):
        return token == "true"
    return float(token) if "." in token else int(token)


def _comparison(compare: Callable[[Value, Value], Value], left: Read, right: Read) -> Read:
    def read(device: Described) -> Value:
        a, b = left(device), right(device)
        if a is ABSENT or b is ABSENT:
            return ABSENT
        try:
            return compare(a, b)
        except TypeError:
            return ABSENT  # apples and pears: CEL calls it an error, and the device does not match

    return read


def _and(left: Read, right: Read) -> Read:
    return lambda device: left(device) is True and right(device) is True


def _or(left: Read, right: Read) -> Read:
    return lambda device: left(device) is True or right(device) is True
