"""Which Reservations a set asks for: the annotation `reservation-ref` of a set, and Koordinator's own JSON.

A reference is a name, a list of names, labels `k=v`, or Koordinator's reservation-affinity. A pod with a reference is
placed on a matching reservation or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from grove.api.fields import parsed
from grove.api.koordinator import Reservation
from grove.api.meta import Json
from grove.api.pod import NodeSelectorTerm, Toleration
from grove.api.selector import InvalidSelector, Selector, of_labels, requirements_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class InvalidAnnotation(ValueError):
    """The value is not of the annotation's grammar; the message shows what is."""


def reservation_affinity(text: str) -> Json:
    """Koordinator's own form of a reference to reservations."""
    if text.lstrip().startswith("{"):
        try:
            given = parsed(text)
        except ValueError as error:
            raise InvalidAnnotation(f"is not JSON: {error}") from error
        known = {"name", "reservationSelector", "requiredDuringSchedulingIgnoredDuringExecution", "tolerations"}
        if not isinstance(given, dict) or not given or not set(given) <= known:
            raise InvalidAnnotation(f"JSON may have {', '.join(sorted(known))}")
        return dict(given)
    parts = [part.strip() for part in text.split(",")]
    if all("=" in part for part in parts):
        pairs = [part.partition("=") for part in parts]
        if not all(_KEY.fullmatch(k) and _VALUE.fullmatch(v) for k, _, v in pairs):
            raise InvalidAnnotation(f"labels are written k=v, separated by commas, not {text!r}")
        return {"reservationSelector": {k: v for k, _, v in pairs}}
    if not all(_NAME.fullmatch(part) for part in parts):
        raise InvalidAnnotation(f"must be names of Reservations, labels k=v, or JSON, not {text!r}")
    if len(parts) == 1:
        return {"name": parts[0]}
    # A term a name: alternatives, each with exactly one value, as the scheduler reads them.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in parts]
    return {_REQUIRED: {"reservationSelectorTerms": terms}}


def is_meant(affinity: Mapping[str, Any], reservation: Reservation) -> bool:
    """True if a reservation affinity selects this reservation.

    If it has a name, only the name counts. Terms are alternatives.
    """
    meta = reservation.metadata
    if name := affinity.get("name"):
        return bool(name == meta.name)
    if isinstance(labels := affinity.get("reservationSelector"), dict) and not of_labels(labels).matches(meta.labels):
        return False
    if not isinstance(required := affinity.get(_REQUIRED), dict):
        return bool(labels)
    fields = {"metadata.name": meta.name}
    try:
        terms = msgspec.convert(required.get("reservationSelectorTerms") or [], list[NodeSelectorTerm])
        return any(
            Selector(requirements_of(term.match_expressions)).matches(meta.labels)
            and Selector(requirements_of(term.match_fields)).matches(fields)
            for term in terms
            if term.match_expressions or term.match_fields
        )
    except (msgspec.ValidationError, InvalidSelector):
        return False


def matching(affinity: Mapping[str, Any], reservations: Iterable[Reservation]) -> list[Reservation]:
    return [reservation for reservation in reservations if is_meant(affinity, reservation)]


def tolerations(affinity: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """The taints of a reservation that a pod which asks for it tolerates."""
    try:
        return tuple(msgspec.convert(affinity.get("tolerations") or [], list[Toleration]))
    except msgspec.ValidationError:
        return ()
