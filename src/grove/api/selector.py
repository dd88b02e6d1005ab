"""Label selectors: as text (`app=web,tier in (a,b),!old`), as objects, and what they match.

The same rules serve list and watch calls, services, budgets and affinity. A field selector is simpler: equality only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from grove.api.meta import Json
from grove.api.pod import LabelSelector, SelectorRequirement

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


class InvalidSelector(ValueError):
    """The text or object is not a selector."""


class Requirement(NamedTuple):
    """One condition on the labels; all of a selector's must hold."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """NotIn and DoesNotExist hold for an absent key, everything else needs it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)):
            return False
        return int(value) > int(bound) if self.operator == "Gt" else int(value) < int(bound)


class Selector(NamedTuple):
    """Requirements that must all hold; none at all means everything matches, `nothing` that nothing does."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(r.matches(labels) for r in self.requirements)


class FieldRequirement(NamedTuple):
    """`path` is dotted (`spec.nodeName`); an absent field counts as empty."""

    path: str
    value: str
    equal: bool = True

    def matches(self, obj: Json) -> bool:
        value: object = obj
        for part in self.path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == self.value) is self.equal


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*))?"
    r")\s*(?:,|$)"
)
_COMPARISONS: dict[str, Operator] = {
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
    "in": "In",
    "notin": "NotIn",
}
_OPERATORS: tuple[Operator, ...] = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def parse(text: str) -> Selector:
    """A selector from the text that `kubectl -l` and list calls take; empty text matches everything."""
    if not text.strip():
        return EVERYTHING
    requirements, at = [], 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or (text[term.end() - 1] == "," and not text[term.end() :].strip()):
            raise InvalidSelector(f"not a label selector: {text!r} (at {text[at:]!r})")
        requirements.append(_requirement_of(term))
        at = term.end()
    return Selector(tuple(requirements))


def parse_fields(text: str) -> tuple[FieldRequirement, ...]:
    """A field selector: `metadata.name=a,spec.nodeName!=b`."""
    requirements = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        path, operator, value = _split_field(term)
        requirements.append(FieldRequirement(path, value, operator != "!="))
    return tuple(requirements)


def of(selector: LabelSelector | None) -> Selector:
    """A selector from an object's; no selector at all matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    equal = (Requirement(k, "In", frozenset((v,))) for k, v in selector.match_labels.items())
    return Selector((*equal, *requirements_of(selector.match_expressions)))


def requirements_of(expressions: Iterable[SelectorRequirement]) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, _operator(e.operator), frozenset(e.values)) for e in expressions)


def of_labels(labels: Mapping[str, str]) -> Selector:
    """A selector for objects that carry all of these labels."""
    return Selector(tuple(Requirement(k, "In", frozenset((v,))) for k, v in labels.items()))


def _operator(name: str) -> Operator:
    for known in _OPERATORS:
        if known == name:
            return known
    raise InvalidSelector(f"unknown selector operator {name!r}")


def _requirement_of(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return Requirement(term["absent_key"], "DoesNotExist")
    if term["set"]:
        values = frozenset(v.strip() for v in term["values"].split(","))
        return Requirement(term["key"], _COMPARISONS[term["set"]], values)
    if term["op"]:
        return Requirement(term["key"], _COMPARISONS[term["op"]], frozenset((term["value"],)))
    return Requirement(term["key"], "Exists")


def _split_field(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, sign, value = term.partition(operator)
        if sign and path:
            return path.strip(), operator, value.strip()
    raise InvalidSelector(f"not a field selector: {term!r}")
