"""Reads back, before the first decision, what an earlier scheduler held: it is written on the PodGangs, and on
pods without one.

A record that cannot be used becomes an event on its object. Nothing is held for it, and no other gang is affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import structlog

from grove.scheduler.loop.holds.replacements import ABSENT_S
from grove.scheduler.loop.state.counted_pods import HELD
from grove.scheduler.loop.state.gang_trees import family_of, headroom_order, headroom_priority, order_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.facts import Requests, Shape
from grove.scheduler.policy.gang_state import GangState, ReplacedPod
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason
from grove.scheduler.policy.hold_records import ReadHolds, read, read_pod

UNKNOWN_SINCE = datetime.fromtimestamp(0, UTC)

log = structlog.get_logger(__name__)


def enter_recorded(view: View) -> None:
    """Enters the capacity that the PodGangs record as held, for a reader that makes no decisions. Reports no faults."""
    nodes = view.snapshot.nodes.row_of.keys()
    for name, gang in sorted(view.units.gangs.items()):
        holds = recorded(view, gang, nodes)
        if holds.headroom and view.concerns_us(gang):
            order, family, priority = headroom_order(view, gang), family_of(gang), headroom_priority(view, gang)
            uids = (f"{HELD}{gang.uid}/{number}" for number in range(len(holds.headroom)))
            pods = [view.counted.hold(uid, *amount) for uid, amount in zip(uids, holds.headroom, strict=True)]
            reason, since = HoldReason.HEADROOM, UNKNOWN_SINCE
            view.ledger.put(
                CapacityHold(name, order, reason, since, pods=tuple(pods), family=family, lends_below=priority)
            )
        held = holds.waiting
        if held is not None and view.concerns_us(gang) and not view.has_minimum(gang):
            reason, since = HoldReason(held.reason), held.since or UNKNOWN_SINCE
            view.ledger.put(CapacityHold(name, order_of(view, name), reason, since, frozenset(held.nodes)))


def recorded(view: View, gang: GangState, nodes: Collection[str]) -> ReadHolds:
    """What the PodGang says, or the pod if it has none."""
    if gang.has_object:
        return read(gang.podgang, nodes)
    return next((read_pod(pod, nodes) for pod, _ in view.members(gang)), ReadHolds())


class HoldRestorer:
    def __init__(self, view: View, reporter: Reporter) -> None:
        self._view, self._reporter = view, reporter
        self._is_done = False

    def restore(self) -> bool:
        """Takes over every record there is; once. True if this call did it."""
        if self._is_done:
            return False
        self._is_done = True
        nodes = self._view.snapshot.nodes.row_of.keys()
        for name, gang in sorted(self._view.units.gangs.items()):
            try:
                self._take_over(gang, recorded(self._view, gang, nodes))
            except Exception:  # whatever one object says, the scheduler reads the others
                log.exception("hold record cannot be read", gang=name)
        return True

    def _take_over(self, gang: GangState, holds: ReadHolds) -> None:
        for fault in holds.faults:
            self.report(gang, fault)
        gang.recall(holds.former)
        if holds.waiting is not None:
            self._view.units.of(gang.name).recorded = holds.waiting
        if holds.nominated_since is not None:
            self._view.units.of(gang.name).nominated_since = holds.nominated_since
        for pod in self._replaced(gang, holds):
            gang.note_replaced(*pod)

    def _replaced(self, gang: GangState, holds: ReadHolds) -> Iterator[tuple[str, ReplacedPod]]:
        until_s = asyncio.get_running_loop().time() + ABSENT_S
        for group, left in holds.replaced.items():
            known = {replaced.node for replaced in gang.replaced.get(group, ())}
            for number, (node, requests) in enumerate(left):
                if node not in known:
                    uid = f"{gang.uid}/{group}/{number}"
                    yield group, ReplacedPod(uid, node, self._shape(gang, group, requests), until_s)

    def _shape(self, gang: GangState, group: str, requests: Requests) -> Shape:
        """The shape of another pod of the group, with what was recorded."""
        alike = (
            self._view.reader.facts(pod).asking(requests=requests)
            for pod, of in self._view.members(gang)
            if of == group
        )
        return next((facts.shape for facts in alike), Shape(requests))

    def report(self, gang: GangState, fault: str) -> None:
        """Says on the PodGang, or on the pod without one, that the scheduler ignores its record."""
        field = "capacityHolds" if gang.has_object else "nominatedNodeName"
        self._reporter.warn_of_record(gang, f"status.{field} is not used: {fault}")
