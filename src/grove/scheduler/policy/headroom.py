"""Headroom of a set or a scaling group: the replica that capacity is held free for, as a gang that is placed. Pure.

A copy has the pods of a replica that runs, with other uids. The normal search places it, with its topology constraints,
its spread constraints and its priority. The spread of the replicas counts a copy as one more replica. A spread inside
the replica counts the pods of the copy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from grove.api import labels
from grove.api.selector import Selector, of_labels
from grove.scheduler.model.facts import PODS, PodFacts, Requests
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup, UnitSpread
from grove.scheduler.model.reasons import HEADROOM, Reason

COPY = "headroom-copy"
"""Label of the pods of a copy; no pod of the cluster has it."""


class HeadroomState(msgspec.Struct, frozen=True):
    """How many replicas headroom is asked for and held for, and why not for all of them."""

    wanted: int
    held: int = 0
    lent: int = 0
    """Pods of the held replicas whose capacity pods of a lower priority use now."""
    nodes: int = 0
    why: Reason | None = None

    @property
    def is_whole(self) -> bool:
        """True if all of it is held, and nothing of it is lent."""
        return self.held == self.wanted and not self.lent

    @property
    def reason(self) -> Reason:
        numbers = {"wanted": self.wanted, "held": self.held, "lent": self.lent, "nodes": self.nodes}
        return Reason(HEADROOM, numbers=numbers, parts=(self.why,) if self.why is not None else ())


def whole_copies(wanted: Mapping[str, Requests], held: Mapping[str, Requests]) -> int:
    """How many copies have all that their pods request. Both are by uid: that of the copy, a slash, that of the pod."""
    short = {copy_uid(uid) for uid, requests in wanted.items() if held.get(uid) != requests}
    return len({copy_uid(uid) for uid in wanted} - short)


def copy_uid(uid: str) -> str:
    return uid.rpartition("/")[0]


def unit_label(group_names: Collection[str]) -> str:
    """The label that tells the replicas apart: those of a scaling group, or of the set if no pod groups are named."""
    return labels.SCALING_GROUP_REPLICA_INDEX if group_names else labels.REPLICA_INDEX


def whole_replica(base: Gang, scaled: Sequence[Gang]) -> Gang:
    """A replica of a set as one gang: what the replica requires holds for its scaled gangs, so they are below it."""
    root = replace(base.root, children=(*base.root.children, *(gang.root for gang in scaled)))
    return replace(base, root=root, pinned_domain=None, spreads=_merged((base, *scaled)))


def group_replica(base: Gang, names: Collection[str], pin: Pin | None) -> Gang:
    """A replica of a scaling group as a gang: these pod groups, with the constraint that is around them alone."""
    wanted = frozenset(names)
    children = tuple(child for child in base.root.children if _names_in(child) <= wanted)
    spreads = (spread for spread in _merged((base,)) if spread.unit_label != labels.REPLICA_INDEX)
    kept = tuple(replace(spread, units=_only(spread, wanted)) for spread in spreads if _only(spread, wanted))
    return replace(base, root=Branch(base.name, children), pinned_domain=pin, spreads=kept)


def _names_in(part: Branch | PodGroup) -> frozenset[str]:
    if isinstance(part, PodGroup):
        return frozenset((part.name,))
    return frozenset(name for child in part.children for name in _names_in(child))


def _only(spread: UnitSpread, names: frozenset[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((unit, groups) for unit, groups in spread.units if names.issuperset(groups))


def _merged(gangs: Sequence[Gang]) -> tuple[UnitSpread, ...]:
    """The spreads of several gangs of one replica; the parts of a unit that several gangs have are one unit."""
    merged: dict[tuple[str, str, object], UnitSpread] = {}
    for spread in (spread for gang in gangs for spread in gang.spreads):
        at = (spread.key, spread.unit_label, spread.scope)
        known = merged.get(at)
        units = dict(known.units) if known is not None else {}
        for unit, groups in spread.units:
            units[unit] = (*units.get(unit, ()), *groups)
        merged[at] = replace(spread, units=tuple(sorted(units.items())))
    return tuple(merged.values())


def copy_of(replica: Gang, uid: Callable[[PodFacts], str], number: int, priority: int, label: str) -> Gang:
    """One further replica: all its pods are needed, and nothing of it exists yet. `label` tells the replicas apart."""
    name = f"headroom-{number}"
    own_labels = {label: name, COPY: name}

    def empty(part: Branch | PodGroup) -> Branch | PodGroup:
        if isinstance(part, Branch):
            return replace(part, children=tuple(empty(child) for child in part.children), within=())
        pods = tuple(_twin(pod, uid(pod), priority, own_labels) for pod in part.pods)
        return replace(part, minimum=len(pods), pods=pods, bound=(), standing=(), earlier_nodes=(), within=())

    def empty_spread(spread: UnitSpread) -> UnitSpread:
        if spread.unit_label == label:
            return replace(spread, units=((name, tuple(group for _, groups in spread.units for group in groups)),))
        here = Selector((*spread.scope.selector.requirements, *of_labels({COPY: name}).requirements))
        return replace(spread, scope=replace(spread.scope, selector=here))

    root = empty(replica.root)
    assert isinstance(root, Branch)
    return replace(
        replica,
        root=root,
        priority=priority,
        may_preempt=False,
        headroom=(),
        former=frozenset(),
        spreads=tuple(map(empty_spread, replica.spreads)),
    )


def _twin(pod: PodFacts, uid: str, priority: int, own_labels: Mapping[str, str]) -> PodFacts:
    """A pod like another one, without volumes and network scores."""
    shape = msgspec.structs.replace(pod.shape, volumes=(), blocked="", network=None)
    own = {**pod.labels, **own_labels}
    return msgspec.structs.replace(pod, uid=uid, shape=shape, labels=own, node="", priority=priority, terminating=False)


def ask_of_copy(replica: Gang) -> tuple[object, ...]:
    """A key of a copy's requests. It stays equal while the replica has the same pods and constraints."""
    groups = tuple(
        (group.name, group.required, group.preferred, tuple(sorted(pod.shape.requests for pod in group.pods)))
        for group in replica.groups()
    )
    return groups, replica.root.required, replica.root.preferred, replica.pinned_domain, replica.spreads


def counted_amounts(requests: Requests, free: Mapping[str, int]) -> tuple[Requests, bool]:
    """The part of these requests that is free and can be held; and True if the rest is lent."""
    held = tuple((name, max(0, min(amount, free.get(name, 0)))) for name, amount in requests)
    is_lent = any(amount < asked for (name, amount), (_, asked) in zip(held, requests, strict=True) if name != PODS)
    return held, is_lent
