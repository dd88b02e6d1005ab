"""What rules need from other objects, as arguments: no module of this package reads a cluster while it decides.

A review says what it needs (`Needs`), the server fetches it from the cluster (`Known`), the rules look it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from grove.api import kai
from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.meta import Json, Key, Resource
from grove.api.node import PriorityClass
from grove.api.topology import ClusterTopologyBinding

LISTED: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (
        PriorityClass.RESOURCE,
        ElasticQuota.RESOURCE,
        kai.Queue.RESOURCE,
        Reservation.RESOURCE,
        ClusterTopologyBinding.RESOURCE,
    )
}
"""Kinds that are looked at as a whole: objects a set refers to by name or label, and topologies by their levels."""

T = TypeVar("T")


class LookupFailed(Exception):
    """The object may exist; reading it did not work."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Names that a review will look up."""

    topologies: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    sets: frozenset[Key] = frozenset()
    lists: frozenset[str] = frozenset()
    """Kinds in `LISTED`."""
    metrics: frozenset[tuple[str, str]] = frozenset()
    """Metrics APIs and names that their discovery may list."""
    templates: frozenset[Key] = frozenset()
    """ResourceClaimTemplates of other namespaces, of which `user` must be allowed to know."""
    user: Json = field(default_factory=dict)
    """Who asks, as the review says it."""

    def __bool__(self) -> bool:
        return bool(self.topologies or self.queues or self.sets or self.lists or self.metrics or self.templates)


@dataclass(frozen=True, slots=True)
class Known:
    """Fetched answers; an exception stands for an object that could not be read.

    A lookup returns None if the object does not exist. It raises `LookupFailed` if the read failed.
    """

    topologies: Mapping[str, Json | Exception | None] = field(default_factory=dict)
    queues: Mapping[str, Json | Exception | None] = field(default_factory=dict)
    sets: Mapping[Key, Json | Exception | None] = field(default_factory=dict)
    lists: Mapping[str, list[Json] | Exception | None] = field(default_factory=dict)
    metrics: Mapping[tuple[str, str], bool | Exception | None] = field(default_factory=dict)
    templates: Mapping[Key, bool | Exception | None] = field(default_factory=dict)

    def find_topology(self, name: str) -> Json | None:
        return _answer(self.topologies.get(name))

    def find_queue(self, name: str) -> Json | None:
        """A Volcano Queue."""
        return _answer(self.queues.get(name))

    def find_set(self, key: Key) -> Json | None:
        return _answer(self.sets.get(key))

    def find_all(self, kind: str) -> list[Json] | None:
        """All objects of a kind in `LISTED`, in all namespaces; None when the cluster has no such kind."""
        return _answer(self.lists.get(kind))

    def is_listed(self, api: str, name: str) -> bool:
        """True if discovery of a metrics API lists a name.

        A name without a look-up counts as listed, so it causes no warning.
        """
        return _answer(self.metrics.get((api, name), True)) is True

    def may_read_template(self, key: Key) -> bool:
        """True if the user may read a ResourceClaimTemplate. A template without a look-up is not allowed."""
        return _answer(self.templates.get(key)) is True


def _answer(answer: T | Exception | None) -> T | None:
    if isinstance(answer, Exception):
        raise LookupFailed(str(answer) or type(answer).__name__) from answer
    return answer
