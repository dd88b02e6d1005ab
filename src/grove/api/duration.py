"""Durations as Go and Kubernetes write them: `4h0m0s`, `1m30s`, `250ms`.

Nanoseconds are the exact unit on the wire; the rest of Grove reckons with `timedelta`, which has microseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu; Go takes both
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = r"(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)"
_WHOLE = re.compile(rf"(?P<sign>[+-]?)(?P<parts>0|(?:{_PART})+)", re.ASCII)
_PARTS = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LARGEST_NS = 2**63 - 1
_LONGEST_TEXT = 1000


class InvalidDuration(ValueError):
    """The text is not a duration."""


def parse_ns(text: str) -> int:
    """Nanoseconds; fractions of one are cut off."""
    if len(text) > _LONGEST_TEXT:
        raise InvalidDuration(f"not a duration: {text[:20]!r} and {len(text) - 20} more characters")
    shape = _WHOLE.fullmatch(text)
    if shape is None:
        raise InvalidDuration(f"not a duration: {text!r} (write it like 90s, 1h30m or 250ms)")
    total = 0
    for digits, fraction, unit in _PARTS.findall(shape["parts"]):
        scale = _UNITS_NS[unit]
        total += int(digits or 0) * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
    if total > _LARGEST_NS:
        raise InvalidDuration(f"duration too long: {text!r}")
    return -total if shape["sign"] == "-" else total


def parse(text: str) -> timedelta:
    """A time span, to the microsecond (cut, not rounded)."""
    nanoseconds = parse_ns(text)
    microseconds = abs(nanoseconds) // 1000
    return timedelta(microseconds=microseconds if nanoseconds >= 0 else -microseconds)


def format_ns(nanoseconds: int) -> str:
    """Go's own spelling: hours, minutes and seconds, or one smaller unit below a second."""
    if nanoseconds < 0:
        return "-" + format_ns(-nanoseconds)
    if nanoseconds == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if nanoseconds < _UNITS_NS[unit] * 1000:
            return _decimal(nanoseconds, _UNITS_NS[unit]) + unit
    minutes, rest = divmod(nanoseconds, _UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, _UNITS_NS["s"]) + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def format(span: timedelta) -> str:
    return format_ns((span // timedelta(microseconds=1)) * 1000)


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).zfill(len(str(scale)) - 1).rstrip('0')}"
