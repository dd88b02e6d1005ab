"""Random quantities of a fleet file: `8`, `4h`, `uniform(1h, 3h)`, `lognormal(2h, 1.0)`, `choice(1:6, 8:1)`.

A quantity is parsed once and drawn often. Times are seconds. Every stream of draws has a name, so that two runs with
other settings draw the same arrivals, sizes and failures.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from grove.api import duration

_CALL = re.compile(r"(?P<name>[a-z]+)\((?P<rest>.*)\)", re.ASCII)
_DAYS = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>[dw])", re.ASCII)
_DAY_S = {"d": 86400.0, "w": 7 * 86400.0}
SHAPES = "a value, uniform(low, high), exponential(mean), lognormal(median, sigma) or choice(value:weight, …)"

Draw = Callable[[random.Random], float]


class BadAmount(ValueError):
    """The text is not a quantity; the message says why."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity that may be random. `mean` is exact for every shape."""

    text: str
    mean: float
    least: float
    draw: Draw

    @property
    def is_fixed(self) -> bool:
        """True if every draw gives the same value."""
        return self.least == self.mean


def stream(seed: int, name: str) -> random.Random:
    """The random stream of this name; streams do not disturb each other."""
    return random.Random(f"{seed}/{name}")


def seconds(text: str) -> float:
    """A time: a Go duration, or days and weeks as `30d` and `2w`."""
    if (days := _DAYS.fullmatch(text.strip())) is not None:
        return float(days["count"]) * _DAY_S[days["unit"]]
    try:
        return duration.parse(text.strip()).total_seconds()
    except duration.InvalidDuration as error:
        raise BadAmount(f"{text!r} is not a time: write it like 90s, 1h30m or 30d") from error


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise BadAmount(f"{text!r} is not a number") from error
    if not math.isfinite(value):
        raise BadAmount(f"{text!r} is not a finite number")
    return value


def parse(given: str | float, unit: Callable[[str], float]) -> Amount:
    """Reads a quantity whose values have this unit (`seconds` or `number`)."""
    text = str(given).strip()
    call = _CALL.fullmatch(text)
    if call is None:
        value = unit(text)
        return _checked(Amount(text, value, value, lambda _rng: value))
    parts = [part.strip() for part in call["rest"].split(",")]
    match call["name"], parts:
        case "uniform", [low, high]:
            return _checked(_uniform(text, unit(low), unit(high)))
        case "exponential", [mean]:
            return _checked(_exponential(text, unit(mean)))
        case "lognormal", [median, sigma]:
            return _checked(_lognormal(text, unit(median), number(sigma)))
        case "choice", [*rows]:
            return _checked(_choice(text, rows, unit))
    raise BadAmount(f"{text!r} is not a quantity: write {SHAPES}")


def _checked(amount: Amount) -> Amount:
    if amount.least < 0:
        raise BadAmount(f"{amount.text!r} must not be negative")
    return amount


def _uniform(text: str, low: float, high: float) -> Amount:
    if low > high:
        raise BadAmount(f"{text!r}: the first value is above the second")
    return Amount(text, (low + high) / 2, low, lambda rng: rng.uniform(low, high))


def _exponential(text: str, mean: float) -> Amount:
    if mean <= 0:
        raise BadAmount(f"{text!r}: the mean must be above 0")
    return Amount(text, mean, 0.0, lambda rng: rng.expovariate(1.0 / mean))


def _lognormal(text: str, median: float, sigma: float) -> Amount:
    if median <= 0 or not 0 <= sigma <= 4:
        raise BadAmount(f"{text!r}: the median must be above 0, and sigma between 0 and 4")
    mu = math.log(median)
    return Amount(text, math.exp(mu + sigma * sigma / 2), 0.0, lambda rng: rng.lognormvariate(mu, sigma))


def _choice(text: str, rows: list[str], unit: Callable[[str], float]) -> Amount:
    values, weights = [], []
    for row in rows:
        value, _, weight = row.rpartition(":")
        values.append(unit(value if value else weight))
        weights.append(number(weight) if value else 1.0)
    if min(weights) < 0 or sum(weights) <= 0:
        raise BadAmount(f"{text!r}: weights must be at least 0, and one above 0")
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    return Amount(text, mean, min(values), lambda rng: rng.choices(values, weights)[0])
