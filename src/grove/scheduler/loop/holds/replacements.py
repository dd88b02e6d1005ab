"""Holds the capacity of pods that are being replaced, for the pods that replace them.

The module records each pod that terminates. When the pod no longer exists, the snapshot counts the same amounts on its
node at once, in the ledger's name. So no unit behind its gang takes them. The number of held pods is what the gang
still lacks: references or minimum, whichever is more, less the pods that have a place. A replacement that gets another
node ends the hold on the first one. A gang without any pod holds nothing for longer than `ABSENT_S`, because its pods
are not replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec.structs import replace

from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.clock import Clock
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.loop.state.counted_pods import HELD
from grove.scheduler.loop.state.gang_trees import gang_order
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.gang_state import GangState, ReplacedPod, repair_of
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason
from grove.scheduler.policy.waiting_queue import Stage

ABSENT_S = 30.0
"""A gang without any pod gets new ones within this time, or it is not made again."""


class Replacements:
    def __init__(self, view: View, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self._gangs: dict[str, GangState] = {}
        """By the uid of each pod that is leaving, the gang that referred to it: by now it may refer to others."""
        self._lacking_pods: set[str] = set()
        """Gangs that had replaced pods at their last look."""
        view.counted.on_given_back = self.refresh

    def note_leaving(self, pod: PodFacts, known: Pod) -> None:
        """The pod begins to terminate, or is gone without that."""
        gang = self._view.units.gang_with(Key(pod.namespace, pod.name))
        if gang is not None and pod.node:
            self._gangs[pod.uid] = gang
            if pod.uid in gang.moving:
                return  # its replacement has a hold already
            gang.note_replaced(pod.group, self.replaced(pod, known))
            if gang.returns:
                hold = self._view.ledger.find(gang.name, HoldReason.REPLACEMENT) or self._empty(gang)
                self._view.ledger.put(replace(hold, awaited=hold.awaited | {pod.uid}))

    def replaced(self, pod: PodFacts, known: Pod) -> ReplacedPod:
        shape = self._view.sources.with_counted(pod, known).shape
        return ReplacedPod(pod.uid, pod.node, shape, asyncio.get_running_loop().time() + ABSENT_S)

    def note_gone(self, pod: PodFacts) -> None:
        """The pod is off its node: its hold begins at this moment."""
        gang = self._gangs.pop(pod.uid, None)
        if gang is None or not self._view.units.is_current(gang):
            return
        self._view.changes.mark(gang.name, fresh=True)  # its replacement may have waited for it to go
        group, replaced = gang.find_replaced(pod.uid)
        if replaced is None or not gang.returns or gang.podgang.metadata.is_deleting:
            return
        loop = asyncio.get_running_loop()
        gang.renew_replaced(group, pod.uid, until_s := loop.time() + ABSENT_S)
        loop.call_at(until_s, self._look_again, gang)
        hold = self._view.ledger.find(gang.name, HoldReason.REPLACEMENT) or self._empty(gang)
        if (counted := self._count(replaced)) is not None:
            awaited = hold.awaited - {pod.uid}
            self._view.ledger.put(replace(hold, pods=(*hold.pods, counted), awaited=awaited))

    def forget(self, uid: str) -> None:
        """The pod is gone with its node: there is nothing to hold."""
        self._gangs.pop(uid, None)

    def _look_again(self, gang: GangState) -> None:
        if self._view.units.is_current(gang) and self._view.ledger.find(gang.name, HoldReason.REPLACEMENT) is not None:
            self._view.changes.mark(gang.name)

    def note_node_changed(self, node: str) -> None:
        """The node may be open again for pods that replace others: their gangs hold it before any unit is placed."""
        for name in sorted(self._lacking_pods):
            gang = self._view.units.gangs.get(name)
            if gang is not None and any(
                replaced_pod.node == node for left in gang.replaced.values() for replaced_pod in left
            ):
                self._view.changes.mark(name, fresh=True)

    def refresh(self, gang: GangState) -> None:
        """Holds what the gang's missing pods had, and no more."""
        ledger = self._view.ledger
        if not self._has_pods(gang) and self._is_over(gang):
            gang.cannot_return()
        if not gang.returns or not any(gang.replaced.values()):
            self.end(gang.name)
            return
        self._lacking_pods.add(gang.name)
        hold = ledger.find(gang.name, HoldReason.REPLACEMENT) or self._empty(gang)
        lacking, breached = self._lacking(gang)
        find = self._view.snapshot.find_pod
        known = {pod.uid: pod for pod in hold.pods if find(pod.uid) is not None}
        pods: list[PodFacts] = []
        awaited: set[str] = set()
        for group, left in gang.replaced.items():
            count = lacking.get(group, 0)
            for replaced_pod in left[len(left) - count :] if count else ():
                if find(replaced_pod.uid) is not None:
                    awaited.add(replaced_pod.uid)
                elif (counted := self._kept(known, replaced_pod)) is not None:
                    pods.append(counted)
        kept = {pod.uid for pod in pods}
        for pod in hold.pods:
            if pod.uid not in kept:
                self._free(pod)
        order = gang_order(self._view, gang, repair_of(gang) if breached else Stage.RETURNING)
        ledger.put(replace(hold, order=order, pods=tuple(pods), awaited=frozenset(awaited)))

    def end(self, gang: str) -> None:
        """All holds end."""
        self._lacking_pods.discard(gang)
        for hold in self._view.ledger.end(gang, HoldReason.REPLACEMENT):
            for pod in hold.pods:
                self._free(pod)

    def give_up(self, hold: CapacityHold, nodes: frozenset[str]) -> None:
        """A unit ahead takes the held capacity of these nodes."""
        kept = tuple(pod for pod in hold.pods if pod.node not in nodes)
        for pod in hold.pods:
            if pod.node in nodes:
                self._free(pod)
        gang = self._view.units.gangs.get(hold.owner)
        for left in gang.replaced.values() if gang is not None else ():
            left[:] = [replaced_pod for replaced_pod in left if replaced_pod.node not in nodes]
        self._view.ledger.put(replace(hold, pods=kept))

    def due_to_leave(self, gang: GangState) -> Iterator[tuple[PodFacts, float]]:
        """Pods of the gang that will be replaced and still have capacity, and in how many seconds they should be gone.

        They terminate, or they are gone and their devices are given back a moment later.
        """
        hold = self._view.ledger.find(gang.name, HoldReason.REPLACEMENT)
        if hold is None:
            return
        now, now_s, find = self._clock.now(), asyncio.get_running_loop().time(), self._view.snapshot.find_pod
        for uid in sorted(hold.awaited):
            if (end := self._view.grace_end(uid)) is not None and (pod := find(uid)) is not None:
                yield pod, (end - now).total_seconds()
        gone = {f"{HELD}{replaced_pod.uid}": replaced_pod for left in gang.replaced.values() for replaced_pod in left}
        for pod in hold.pods:
            requests = pod.shape.requests
            if (gone_pod := gone.get(pod.uid)) is not None and self._view.sources.not_counted(requests) != requests:
                yield replace(pod, uid=gone_pod.uid), gone_pod.until_s - ABSENT_S - now_s

    def _has_pods(self, gang: GangState) -> bool:
        return any(not pod.metadata.is_deleting for pod, _ in self._view.members(gang))

    def _is_over(self, gang: GangState) -> bool:
        now_s = asyncio.get_running_loop().time()
        return all(replaced_pod.until_s <= now_s for left in gang.replaced.values() for replaced_pod in left)

    def _empty(self, gang: GangState) -> CapacityHold:
        order = gang_order(self._view, gang, repair_of(gang))
        return CapacityHold(gang.name, order, HoldReason.REPLACEMENT, self._clock.now())

    def _lacking(self, gang: GangState) -> tuple[dict[str, int], bool]:
        """By group, how many pods will come for a place; and whether the minimum is not complete without them."""
        node_of = self._view.counted.node_of
        placed = self._view.count(gang, lambda pod: pod.metadata.uid not in gang.moving and node_of(pod))
        named = {group.name: len(group.pod_references) for group in gang.podgang.spec.podgroups}
        wanted = {group: max(named.get(group, 0), minimum) for group, minimum in gang.minima.items()}
        breached = any(placed[group] < minimum for group, minimum in gang.minima.items())
        return {group: max(0, wanted[group] - placed[group]) for group in wanted}, breached

    def _kept(self, known: dict[str, PodFacts], replaced_pod: ReplacedPod) -> PodFacts | None:
        """What is counted for a replaced pod; None if its node cannot take the replacement."""
        counted = known.get(f"{HELD}{replaced_pod.uid}")
        if counted is None:
            return self._count(replaced_pod)
        return counted if self._is_usable(replaced_pod) and self._has_capacity(replaced_pod, more=False) else None

    def _count(self, replaced_pod: ReplacedPod) -> PodFacts | None:
        """Counts what a replaced pod had, unless its node is closed to it or the capacity is taken already."""
        if not self._is_usable(replaced_pod) or not self._has_capacity(replaced_pod, more=True):
            return None
        return self._view.counted.hold(f"{HELD}{replaced_pod.uid}", replaced_pod.node, replaced_pod.shape.requests)

    def _is_usable(self, replaced_pod: ReplacedPod) -> bool:
        snapshot = self._view.snapshot
        row = snapshot.nodes.row_of.get(replaced_pod.node)
        return row is not None and bool(allowed_mask(snapshot, replaced_pod.shape)[row])

    def _has_capacity(self, replaced_pod: ReplacedPod, *, more: bool) -> bool:
        """Whether its node has this amount free, or is at least not over its capacity.

        What sources count is left out: devices are given back a moment after their pod is gone.
        """
        snapshot = self._view.snapshot
        row = snapshot.nodes.row_of[replaced_pod.node]
        asked = snapshot.amounts(self._view.sources.not_counted(replaced_pod.shape.requests))
        return all(snapshot.free[r, row] >= (amount if more else 0) for r, amount in asked)

    def _free(self, pod: PodFacts) -> None:
        if self._view.counted.end_hold(pod.uid):
            self._view.changes.relief.add(pod.node)
            self._view.changes.wake()
