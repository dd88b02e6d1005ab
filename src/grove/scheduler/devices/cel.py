"""The part of CEL that device selectors are written in, as people use it; the rest is refused by name, never guessed.

    device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model in ["h100", "h200"]
    device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0 || !device.attributes["x.io"].shared

It supports `&&`, `||`, `!`, brackets, comparisons, `in`, and `device.driver`, attributes and capacities. A device that
lacks an attribute of the selector does not match. This part of CEL differs from Python only in its operators, so
Python's own parser reads it. From the tree it takes only what is listed here.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from grove.api.quantity import exact

Value: TypeAlias = Any
"""A string, a number, a truth value, a list of them, or `ABSENT`."""


class Described(Protocol):
    """The properties of a device that a selector reads: attributes and capacities by qualified name."""

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
_IN_PYTHON = {"&&": "and", "||": "or", "!": "not", "in": "in", "true": "True", "false": "False"}
_COMPARE: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
}


@lru_cache(maxsize=1024)
def selector(text: str) -> Callable[[Described], bool]:
    """A selector as a function. Raises NotUnderstood."""
    try:
        read = _read(ast.parse(_in_python(text.strip()), mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as err:
        raise NotUnderstood(f"selector {text!r} is not understood") from err
    return lambda device: read(device) is True


def _in_python(text: str) -> str:
    """Names get an underscore at their end, so that none of them means anything to Python."""
    words, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(text[at:])
        number, string, _, name = token.groups()
        word = token[0].strip()
        if string:
            word = f"({string[1:-1]!r})"  # in brackets, for Python would join two in a row
        elif number:
            word = repr(float(number) if "." in number else int(number))
        else:
            word = _IN_PYTHON.get(word, f"{name}_" if name else word)
        words.append(word)
        at = token.end()
    return " ".join(words)


def _read(node: ast.expr) -> Read:
    match node:
        case ast.BoolOp(ast.And(), parts):
            both = [_read(part) for part in parts]
            return lambda device: all(part(device) is True for part in both)
        case ast.BoolOp(ast.Or(), parts):
            either = [_read(part) for part in parts]
            return lambda device: any(part(device) is True for part in either)
        case ast.UnaryOp(ast.Not(), part):
            inner = _read(part)
            return lambda device: ABSENT if (value := inner(device)) is ABSENT else value is False
        case ast.Compare(left, [sign], [right]) if type(sign) in _COMPARE:
            return _comparison(_COMPARE[type(sign)], _read(left), _read(right))
        case ast.Constant(value):
            return lambda _: value
        case ast.List(items) if all(isinstance(item, ast.Constant) for item in items):
            values = ast.literal_eval(node)
            return lambda _: values
        case ast.Attribute(ast.Name("device_"), "driver_"):
            return lambda device: device.driver
        case ast.Attribute(
            ast.Subscript(ast.Attribute(ast.Name("device_"), "attributes_"), ast.Constant(str(domain))), key
        ):
            name = f"{domain}/{key[:-1]}"
            return lambda device: device.attributes.get(name, ABSENT)
        case ast.Call(ast.Attribute(amount, "compareTo_"), [ast.Call(ast.Name("quantity_"), [ast.Constant(given)])]):
            limit = exact(str(given))
            return _comparison(lambda have, least: (have > least) - (have < least), _capacity(amount), lambda _: limit)
    raise ValueError(ast.dump(node))


def _capacity(node: ast.expr) -> Read:
    """A capacity is a quantity: it is compared by `compareTo(quantity("…"))`, and by nothing else."""
    match node:
        case ast.Attribute(
            ast.Subscript(ast.Attribute(ast.Name("device_"), "capacity_"), ast.Constant(str(domain))), key
        ):
            name = f"{domain}/{key[:-1]}"
            return lambda device: device.capacity.get(name, ABSENT)
    raise ValueError(ast.dump(node))


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
