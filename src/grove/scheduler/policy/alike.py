"""Which waiting units are alike: whatever refuses one of them refuses the others.

Names and labels do not decide where a gang fits, but for terms that select pods and for policies. So what a gang asks
for is its tree without names, with what policies and running pods' terms see of it. Where its own terms select pods, it
matters also which of its own pods they select. Units that depend on objects of their own (volumes, shared claims) or
have a spread constraint over their set's replicas are like no other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import msgspec

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.device_inventory import SHARED
from grove.scheduler.model.facts import PodScope, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reasons import Reason

Place = tuple[Any, str]
"""A unit's order and its name."""


class AlikeLines:
    """Parked units by what they ask for, each line in order. Those that are like no other are under None."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, list[Place]] = {}

    def join(self, ask: Hashable, place: Place) -> None:
        insort(self._lines.setdefault(ask, []), place)

    def leave(self, ask: Hashable, place: Place) -> None:
        line = self._lines[ask]
        del line[bisect_left(line, place)]
        if not line:
            del self._lines[ask]

    def of(self, ask: Hashable) -> list[Place]:
        return self._lines.get(ask, [])

    def next_of(self, ask: Hashable, last: Place | None) -> Place | None:
        """The first of a line, or the one behind `last`."""
        line = self.of(ask)
        at = bisect_right(line, last) if last is not None else 0
        return line[at] if at < len(line) else None

    def names(self) -> Iterator[str]:
        return (name for line in self._lines.values() for _, name in line)

    def lines(self) -> list[tuple[Hashable, list[Place]]]:
        return list(self._lines.items())


def ask_of(snapshot: Snapshot, gang: Gang) -> Hashable | None:
    """Equal for units that are alike; None for one that is like no other."""
    if gang.spreads:
        return None
    firsts = {pod.shape: pod for group in gang.groups() for pod in group.pods}
    for shape in firsts:
        if shape.volumes or shape.blocked or any(name == SHARED for name, _ in shape.requests):
            return None
    against: tuple[object, ...] = ()
    pods = [pod for group in gang.groups() for pod in group.pods]
    if snapshot.counts.standing_terms():
        against = tuple(frozenset(snapshot.counts.terms_against(pod)) for pod in pods)
    # In the order of the shapes, which is the same for gangs that are alike.
    scopes = list(dict.fromkeys(scope for shape in firsts for scope in _scopes_of(shape)))
    selected = tuple(tuple(snapshot.counts.matches(scope, pod) for scope in scopes) for pod in pods) if scopes else ()
    return (
        _part_asks(gang.root),
        gang.priority,
        gang.may_preempt,
        gang.topology,
        gang.pinned_domain,
        gang.allowed,
        gang.headroom,
        gang.strategy,
        gang.former,
        against,
        selected,
        snapshot.seams.looks_at(gang),
    )


def _scopes_of(shape: Shape) -> Iterator[PodScope]:
    """Which pods its terms select."""
    for term in (*shape.affinity, *shape.anti_affinity, *(term for _, term in shape.preferred_pods)):
        yield term.scope
    for spread in shape.spread:
        yield spread.scope


def _part_asks(part: Branch | PodGroup) -> Hashable:
    if isinstance(part, Branch):
        return (part.required, part.preferred, *map(_part_asks, part.children))
    shapes = tuple(pod.shape for pod in part.pods)
    return (part.minimum, shapes, part.bound, part.required, part.preferred, part.standing, part.earlier_nodes)


def part_names(gang: Gang) -> list[str]:
    """Names of a gang's parts; those of gangs that are alike come in the same order."""

    def names(part: Branch | PodGroup) -> list[str]:
        inner = [] if isinstance(part, PodGroup) else [name for child in part.children for name in names(child)]
        return [part.name, *inner]

    return names(gang.root)


def renamed(why: Reason, names: Mapping[str, str]) -> Reason:
    """A reason of one gang as it reads for another; `names` gives the other's parts by the one's."""
    parts = tuple(renamed(part, names) for part in why.parts)
    return msgspec.structs.replace(why, subject=names.get(why.subject, why.subject), parts=parts)


def kinds_of(why: Reason) -> Hashable:
    """The kinds of a reason and its parts, without names and numbers."""
    return (why.kind, *map(kinds_of, why.parts))
