"""Label and field selectors as predicates over stored JSON; the rules themselves are `grove.api.selector`'s.

A predicate is None when the text selects everything, so the common case costs nothing per object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TypeAlias

import msgspec

from grove.api import selector
from grove.api.meta import Json
from grove.api.pod import LabelSelector
from grove.kube.errors import BadRequest

Match: TypeAlias = Callable[[Json], bool]


def label_match(text: str) -> Match | None:
    wanted = _parse(text)
    if wanted == selector.EVERYTHING:
        return None
    return lambda obj: wanted.matches(obj["metadata"].get("labels") or {})


@lru_cache(maxsize=4096)
def exact_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Labels and the only value that the selector allows each."""
    wanted = _parse(text).requirements
    return tuple(
        (requirement.key, min(requirement.values))
        for requirement in wanted
        if requirement.operator == "In" and len(requirement.values) == 1
    )


@lru_cache(maxsize=4096)
def _parse(text: str) -> selector.Selector:
    try:
        return selector.parse(text)
    except selector.InvalidSelector as error:
        raise BadRequest(f"unable to parse requirement: {error}", code=400, reason="BadRequest") from error


def selector_match(wanted: Json | None) -> Match:
    """The predicate of a LabelSelector object (as in a disruption budget); none selects nothing, empty everything."""
    parsed = selector.of(None if wanted is None else msgspec.convert(wanted, LabelSelector))
    return lambda obj: parsed.matches(obj["metadata"].get("labels") or {})


def field_match(text: str, supported: Collection[str]) -> Match | None:
    """The predicate of a field selector; a field the kind does not index is a BadRequest, as on a real server."""
    try:
        terms = selector.parse_fields(text)
    except selector.InvalidSelector as error:
        raise BadRequest(f"invalid field selector: {error}", code=400, reason="BadRequest") from error
    for term in terms:
        if term.path not in ("metadata.name", "metadata.namespace") and term.path not in supported:
            raise BadRequest(f"field label not supported: {term.path}", code=400, reason="BadRequest")
    if not terms:
        return None
    return lambda obj: all(term.matches(obj) for term in terms)


def both(first: Match | None, second: Match | None) -> Match | None:
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)
