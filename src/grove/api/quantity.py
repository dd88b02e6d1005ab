"""Kubernetes quantities (`1500m`, `8Gi`, `2e3`) as exact integers.

CPU is counted in thousandths of a core, everything else in whole units. What does not divide is rounded up, as
Kubernetes does, so that a request is never counted too small. No floats anywhere: sums of requests must be exact.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

Quantity = str | int | float
"""As found on the wire. A float comes from hand-written YAML (`cpu: 0.5`) and is read by its decimal spelling."""

CPU = "cpu"
CARDS = "gpu"
"""GPUs of any vendor as KAI's queues count them, in thousandths."""

_SHAPE = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?\d{1,3}))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = 2**63 - 1
_LONGEST_TEXT = 1000


class InvalidQuantity(ValueError):
    """The text is not a quantity."""


def exact(quantity: Quantity) -> Fraction:
    """The number a quantity stands for, in whole units."""
    return _exact(quantity if isinstance(quantity, str) else repr(quantity))


def milli(quantity: Quantity) -> int:
    """Thousandths, rounded up."""
    return _milli(quantity if isinstance(quantity, str) else repr(quantity))


def whole(quantity: Quantity) -> int:
    """Whole units, rounded up."""
    return _whole(quantity if isinstance(quantity, str) else repr(quantity))


def amount(resource: str, quantity: Quantity) -> int:
    """A resource in the unit we count it in: CPU in thousandths, all others whole."""
    return milli(quantity) if resource == CPU else whole(quantity)


def format_milli(value: int) -> str:
    """Thousandths as Kubernetes writes them: `1500m`, but `2` for 2000."""
    return f"{value}m" if value % 1000 else _decimal(value // 1000)


def format_bytes(value: int) -> str:
    """Bytes with the largest binary suffix that loses nothing."""
    for suffix, bits in reversed(_BINARY.items()):
        if value and value % (1 << bits) == 0:
            return f"{value >> bits}{suffix}"
    return str(value)


def format_amount(resource: str, value: int) -> str:
    """The inverse of `amount`, in the notation people expect of that resource."""
    if resource == CPU:
        return format_milli(value)
    if resource == CARDS:
        return f"{value / 1000:g}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return format_bytes(value)
    return str(value)


def _decimal(value: int) -> str:
    for suffix in ("E", "P", "T", "G", "M", "k"):
        if value and value % 10 ** _DECIMAL[suffix] == 0:
            return f"{value // 10 ** _DECIMAL[suffix]}{suffix}"
    return str(value)


# A cluster of 100,000 pods holds a few hundred different quantities: parse each text once.
@lru_cache(maxsize=8192)
def _exact(text: str) -> Fraction:
    if len(text) > _LONGEST_TEXT:
        raise InvalidQuantity(f"not a quantity: {text[:20]!r} and {len(text) - 20} more characters")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise InvalidQuantity(f"not a quantity: {text!r}")
    value = Fraction(shape["number"])
    if shape["suffix"] in _BINARY:
        value *= 2 ** _BINARY[shape["suffix"]]
    else:
        power = _DECIMAL[shape["suffix"]] if shape["suffix"] else int(shape["exponent"] or 0)
        value *= Fraction(10) ** power
    # Kubernetes keeps no more than 9 decimal places (rounding away from zero) and no more than 63 bits.
    nano = value * 10**9
    if nano.denominator != 1:
        value = Fraction(math.ceil(nano) if nano > 0 else math.floor(nano), 10**9)
    return max(Fraction(-_LARGEST), min(value, Fraction(_LARGEST)))


@lru_cache(maxsize=8192)
def _milli(text: str) -> int:
    return max(-_LARGEST, min(math.ceil(_exact(text) * 1000), _LARGEST))


@lru_cache(maxsize=8192)
def _whole(text: str) -> int:
    return math.ceil(_exact(text))
