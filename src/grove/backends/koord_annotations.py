"""The three annotations by which a set speaks to Koordinator: their grammar, and what they become.

`gang-timeout` is a Go duration or whole seconds. `network-topology-zone` is a list of zones in order of preference,
each `zone` or `layer=zone`. `reservation-ref` is a name, a list of names, labels `k=v`, or Koordinator's own JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from grove.api import duration, labels
from grove.api.fields import natural
from grove.api.koordinator import RESERVATION_REF
from grove.api.meta import Json
from grove.api.reservation_ref import InvalidAnnotation, reservation_affinity

ZONE = "scheduling.koordinator.sh/network-topology-zone"
TIMEOUT = labels.GANG_TIMEOUT

LONGEST_S = 2**31 - 1
"""Koordinator's PodGroup holds 32 bits."""
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Zone(NamedTuple):
    """A zone to prefer; without a layer, whichever layer has one of that name."""

    layer: str
    value: str


def timeout_s(text: str) -> int:
    """Whole seconds, at least one; fractions count as a second more."""
    try:
        whole = natural(text)
        seconds = whole if whole is not None else duration.parse(text).total_seconds()
    except duration.InvalidDuration as error:
        raise InvalidAnnotation(f"must be a duration like 90s or 10m, or whole seconds, not {text!r}") from error
    if seconds < 1:
        raise InvalidAnnotation(f"must be at least 1s, not {text!r}")
    if seconds > LONGEST_S:
        raise InvalidAnnotation(f"must be at most {LONGEST_S} seconds, not {text!r}")
    return ceil(seconds)


def zones(text: str) -> tuple[Zone, ...]:
    """Zones in order of preference."""
    ordered: list[Zone] = []
    for part in text.split(","):
        layer, equals, value = part.strip().rpartition("=")
        if not _VALUE.fullmatch(value) or (equals and not _VALUE.fullmatch(layer)):
            raise InvalidAnnotation(f"must be zone or layer=zone, separated by commas, not {text!r}")
        ordered.append(Zone(layer, value))
    return tuple(ordered)


def zone_preferences(wanted: Sequence[Zone], layers: Mapping[str, str]) -> list[Json]:
    """Soft node affinity terms, the first zone weighs most. `layers` are node label keys by layer."""
    terms: list[Json] = []
    for rank, zone in enumerate(wanted):
        keys = [layers[zone.layer]] if zone.layer in layers else [] if zone.layer else list(layers.values())
        weight = max(1, 100 // (rank + 1))
        terms += (
            {
                "weight": weight,
                "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [zone.value]}]},
            }
            for label in keys
        )
    return terms


_GRAMMAR: Mapping[str, Any] = {TIMEOUT: timeout_s, ZONE: zones, RESERVATION_REF: reservation_affinity}


def faults(annotations: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Annotation and what is wrong with it, for each that is wrong."""
    for name, parse in _GRAMMAR.items():
        if name in annotations:
            try:
                parse(annotations[name])
            except InvalidAnnotation as error:
                yield name, str(error)
