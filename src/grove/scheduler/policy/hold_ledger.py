"""Capacity that is held for one unit: one value (`CapacityHold`), one ledger, one question. Pure.

Six kinds of holders hold capacity in the same way:

- a binding attempt,
- a nomination,
- a gang that has waited long,
- a pending Reservation,
- a pod that is being replaced,
- the headroom of a set.

Three laws:

- A hold excludes only units behind its owner in the order. A unit ahead of the owner may take the capacity, but only
  if it has no place elsewhere that is as good. Units of a queue that gives back what it borrowed count as behind the
  owner.
- A hold ends when its owner is placed, is deleted, or can no longer be placed through it. No clock ends it.
  Headroom is for units that do not exist yet: it ends when a unit of its set takes it, or when none is asked for.
- A hold starts an eviction only if everything that it needs can be freed by it now.

The snapshot counts the amounts of all holds as taken, under the uids in `CapacityHold.pods`. So the ledger answers
which of them are open to a unit: its own, and those of owners behind it. Whole nodes are closed by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum

import msgspec
from msgspec.structs import replace

from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.waiting_queue import Order


class HoldReason(Enum):
    """Why capacity is held; the value is what a PodGang's status says."""

    BINDING = "Binding"
    NOMINATED = "Nominated"
    WAITED_LONG = "WaitedLong"
    OVERTAKEN = "Overtaken"
    REPLACEMENT = "Replacement"
    RESERVATION = "Reservation"
    HEADROOM = "Headroom"


COMMITTED = (HoldReason.BINDING, HoldReason.RESERVATION)
"""The API server may have accepted these already: no unit can take them any more."""
LONG_WAIT = (HoldReason.WAITED_LONG, HoldReason.OVERTAKEN)


class CapacityHold(msgspec.Struct, frozen=True):
    """Capacity that is held for one unit, and since when."""

    owner: str
    order: Order
    reason: HoldReason
    since: datetime
    nodes: frozenset[str] = frozenset()
    """Nodes that are held whole."""
    pods: tuple[PodFacts, ...] = ()
    """Amounts on nodes, as pods that the snapshot counts there."""
    awaited: frozenset[str] = frozenset()
    """Uids of terminating pods: what they still use is held too."""
    taken_back_from: frozenset[str] = frozenset()
    """Queues that gave the capacity back to the owner's queue. Their units count as behind the owner, whatever
    their priority: between queues the share decides. Else owner and borrower evict each other for ever."""
    quota: tuple[PodFacts, ...] = ()
    """Pods for which the quota of their queues is held."""
    family: str = ""
    """The set whose units may all use it as their own; for headroom."""
    lends_below: int | None = None
    """Units of a lower priority than this may use it while its owner does not need it; for headroom."""

    def is_lent_to(self, priority: int | None) -> bool:
        """True if a unit of this priority may use it for the time being."""
        return self.lends_below is not None and priority is not None and priority < self.lends_below


class ClosedCapacity(msgspec.Struct, frozen=True):
    """The ledger's answer to one unit."""

    nodes: Mapping[str, CapacityHold]
    """Nodes that are held whole for a unit ahead of it."""
    own: frozenset[str]
    """Uids that the snapshot counts for this unit itself: they do not stand in its way."""
    behind: tuple[CapacityHold, ...]
    """Holds of units behind it, which it may take if it finds no other place; the last in order first."""
    awaited: frozenset[str]
    """Terminating pods whose capacity is held for a unit ahead of it."""
    quota: tuple[CapacityHold, ...] = ()
    """Holds of units ahead of it that include quota."""
    headrooms: tuple[CapacityHold, ...] = ()
    """Headroom that it may use: of its own set, and what is in `behind`."""
    headrooms_ahead: tuple[CapacityHold, ...] = ()
    """Headroom of other sets that is closed to it."""
    nodes_behind: frozenset[str] = frozenset()
    """Nodes that are held whole for units behind it, without those where something is held for itself."""

    @property
    def open_uids(self) -> frozenset[str]:
        """Uids of all that does not stand in its way: its own, and those of units behind it."""
        return self.own.union(pod.uid for hold in self.behind for pod in hold.pods)


class Ledger:
    """All holds, by owner and reason. An owner has at most one hold for each reason.

    Committed holds are kept apart: there are thousands when a large fleet starts, and no answer depends on them.
    """

    def __init__(self) -> None:
        self._open: dict[str, dict[HoldReason, CapacityHold]] = {}
        self._committed: dict[str, dict[HoldReason, CapacityHold]] = {}

    def __iter__(self) -> Iterator[CapacityHold]:
        for of_owner in (*self._open.values(), *self._committed.values()):
            yield from list(of_owner.values())

    def open_owners(self) -> Iterable[str]:
        """Units for which capacity is held that is not committed."""
        return self._open.keys()

    def find(self, owner: str, *reasons: HoldReason) -> CapacityHold | None:
        """The owner's hold for the first of these reasons that it has one for."""
        for reason in reasons:
            of_owner = self._of(reason).get(owner)
            if of_owner is not None and reason in of_owner:
                return of_owner[reason]
        return None

    def of(self, owner: str) -> list[CapacityHold]:
        """All holds of an owner that are not committed."""
        return list(self._open.get(owner, {}).values())

    def owners(self, *reasons: HoldReason) -> list[str]:
        """Who has a hold for one of these reasons, by name."""
        return sorted(
            {owner for reason in reasons for owner, of_owner in self._of(reason).items() if reason in of_owner}
        )

    def _of(self, reason: HoldReason) -> dict[str, dict[HoldReason, CapacityHold]]:
        return self._committed if reason in COMMITTED else self._open

    def put(self, hold: CapacityHold) -> None:
        """Enters a hold in place of the owner's hold for the same reason. A hold of nothing is no hold."""
        if hold.nodes or hold.pods or hold.awaited or hold.quota:
            self._of(hold.reason).setdefault(hold.owner, {})[hold.reason] = hold
        else:
            self.end(hold.owner, hold.reason)

    def end(self, owner: str, *reasons: HoldReason) -> list[CapacityHold]:
        """Ends the owner's holds for these reasons, or all of them if none is given; what there was."""
        ended: list[CapacityHold] = []
        for holds in (self._open, self._committed):
            known = holds.get(owner)
            if known is None:
                continue
            ended += [known.pop(reason) for reason in (reasons or tuple(known)) if reason in known]
            if not known:
                del holds[owner]
        return ended

    def reorder(self, rank_of: Callable[[str], tuple[int, ...]]) -> None:
        """Ranks have changed: a hold comes where its owner comes now. Headroom has a priority of its own."""
        for owner, of_owner in self._open.items():
            for reason, hold in of_owner.items():
                if reason is not HoldReason.HEADROOM:
                    of_owner[reason] = replace(hold, order=hold.order._replace(rank=rank_of(owner)))

    def closed_to(
        self,
        unit: str,
        order: Order,
        queues: frozenset[str] = frozenset(),
        family: str = "",
        priority: int | None = None,
    ) -> ClosedCapacity:
        """Which capacity is closed to a unit that comes at this place in the order and is charged to these queues.

        `family` is its set. Headroom is lent to units of a lower `priority` than its own.
        """
        nodes: dict[str, CapacityHold] = {}
        own: set[str] = set()
        behind: list[CapacityHold] = []
        awaited: set[str] = set()
        quota: list[CapacityHold] = []
        headrooms: list[CapacityHold] = []
        ahead: list[CapacityHold] = []
        nodes_behind: set[str] = set()
        for hold in (hold for of_owner in self._open.values() for hold in of_owner.values()):
            if hold.family:
                if hold.family == family or hold.owner == unit:
                    own.update(pod.uid for pod in hold.pods)
                    headrooms.append(hold)
                elif hold.is_lent_to(priority) or not hold.order < order:
                    behind.append(hold)
                    headrooms.append(hold)
                else:
                    ahead.append(hold)
            elif hold.owner == unit:
                own.update(pod.uid for pod in hold.pods)
            elif hold.order < order or not queues.isdisjoint(hold.taken_back_from):
                for node in hold.nodes:
                    known = nodes.get(node)
                    if known is None or hold.order < known.order:
                        nodes[node] = hold
                awaited.update(hold.awaited)
                if hold.quota:
                    quota.append(hold)
            else:
                nodes_behind.update(hold.nodes)
                if hold.pods:
                    behind.append(hold)
        behind.sort(key=lambda hold: hold.order, reverse=True)
        if nodes_behind:
            nodes_behind.difference_update(pod.node for hold in self.of(unit) for pod in hold.pods)
        return ClosedCapacity(
            nodes,
            frozenset(own),
            tuple(behind),
            frozenset(awaited),
            tuple(quota),
            tuple(headrooms),
            tuple(ahead),
            frozenset(nodes_behind),
        )
