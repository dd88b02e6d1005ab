"""What is written to Reservations: those that wait get a place (`PendingReservations`), others say who uses them.

Those whose template names this scheduler wait in the queue like gangs, in the order of their priority and age. They
may not use what is held for units ahead of them. Reservations with the same pod-group label are one unit:
a whole PodCliqueSet gets capacity, or none of it does. What was placed is counted at once and written after; a
scheduler that dies in between finds the rest and places it again. A group that waits long gets nodes held, and its
members name these nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import structlog

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.fields import mapping, natural
from grove.api.koordinator import MIN_AVAILABLE, POD_GROUP, Reservation
from grove.api.meta import Json, Key
from grove.api.podgang import HeldCapacity
from grove.kube.clock import Clock
from grove.scheduler.loop.state.gang_trees import order_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PODS, PodFacts, Shape
from grove.scheduler.model.gang import Gang, PodGroup, gang_of
from grove.scheduler.model.reading import read_pod
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.hold_ledger import LONG_WAIT, CapacityHold, HoldReason
from grove.scheduler.policy.waiting_queue import WaitingQueue
from grove.scheduler.reserve.reservation_status import (
    AVAILABLE,
    FAILED,
    HOLD,
    NODE_HELD,
    PENDING,
    HeldNode,
    ended,
    expiry_of,
    held_node,
    placed_status,
    unplaced_status,
)
from grove.scheduler.sources.reservation_writer import ReservationWriter

RESERVATION = "reservation:"
"""Units that are pending Reservations are called so, with their group."""
log = structlog.get_logger(__name__)


class PendingReservation(msgspec.Struct, frozen=True):
    """Reservations of one group that wait for a place together: a unit in the queue like a gang."""

    name: str
    tree: Gang
    members: tuple[Reservation, ...]

    @property
    def created_s(self) -> float:
        created = (member.metadata.creation_timestamp for member in self.members)
        return min((moment.timestamp() for moment in created if moment is not None), default=0.0)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.members[0].metadata.labels


class PendingReservations:
    """Offers pending Reservations to the queue, and writes down what became of them."""

    def __init__(
        self, view: View, queue: WaitingQueue, status: ReservationWriter, clock: Clock, *, say: Callable[[Reason], str]
    ) -> None:
        self._view, self._queue, self._status, self._clock, self._say = view, queue, status, clock, say
        self._offered: set[str] = set()
        """Names of the units; what is remembered of each is in its record."""
        self.has_read_holds = False
        """Whether the ledger has what an earlier scheduler held. Before that its records are not replaced."""

    def turn(self) -> None:
        """Offers every group that is whole and waits; withdraws those that do not wait any more."""
        waiting: dict[str, list[Reservation]] = {}
        sizes: Counter[str] = Counter()
        for reservation in self._view.cache.list(Reservation):
            if not self._is_ours(reservation):
                continue
            group = reservation.metadata.labels.get(POD_GROUP, "") or reservation.metadata.uid
            sizes[group] += 1
            is_placed = self._status.unwritten(reservation).get("phase") == AVAILABLE
            if reservation.status.phase in ("", PENDING) and not is_placed:
                waiting.setdefault(group, []).append(reservation)
        names = {
            f"{RESERVATION}{group}": members
            for group, members in sorted(waiting.items())
            if sizes[group] >= max(_least(member) for member in members)
        }
        for name in self._offered - names.keys():
            self._forget(name)
        self._end_written(
            {
                reservation.metadata.uid
                for reservation in self._view.cache.list(Reservation)
                if self._is_unwritten(reservation)
            }
        )
        for name, members in names.items():
            try:
                self._offer(name, members)
            except Exception:  # an unreadable one must not stop all others
                log.exception("reservation cannot be read", group=name)
                self._forget(name)

    def _is_unwritten(self, reservation: Reservation) -> bool:
        return bool(self._status.unwritten(reservation))

    def _end_written(self, unwritten: set[str]) -> None:
        """Ends the holds of reservations whose place is written: from then on they are counted as any other."""
        for hold in self._view.ledger:
            is_written = not any(pod.uid.removeprefix(HOLD) in unwritten for pod in hold.pods)
            if hold.reason is HoldReason.RESERVATION and is_written:
                self._view.ledger.end(hold.owner, HoldReason.RESERVATION)

    def _forget(self, name: str) -> None:
        self._offered.discard(name)
        self._queue.withdraw(name)
        self._view.units.drop(name)

    def _is_ours(self, reservation: Reservation) -> bool:
        spec = mapping((reservation.spec.template or {}).get("spec"))
        return spec.get("schedulerName") == self._view.scheduler_name and not reservation.metadata.is_deleting

    def _offer(self, name: str, members: list[Reservation]) -> None:
        now = self._clock.now()
        over = [member for member in members if (at := expiry_of(member)) is not None and at <= now]
        for member in over:
            if not self._status.unwritten(member):
                self._status.say(
                    member, ended(member, FAILED, "Expired", "its time was over before it found a place", now)
                )
        members = [member for member in members if member not in over]
        versions = tuple(sorted(f"{member.metadata.uid}/{member.metadata.generation}" for member in members))
        self._offered.add(name)
        unit = self._view.units.of(name)
        if unit.reservation_versions != versions:
            unit.reservation_versions, unit.reservation = versions, None
            unit.reservation = self._read(name, members)
        if unit.reservation is None:
            self._queue.withdraw(name)
        elif name not in self._queue:
            self._queue.offer(name, order_of(self._view, name), asyncio.get_running_loop().time())
        if unit.reservation is not None and self.has_read_holds:
            self._say_unplaced(name, self._now(unit.reservation))

    def _read(self, name: str, members: list[Reservation]) -> PendingReservation | None:
        """The group as a unit; None if it must wait."""
        wanted = [(member, facts) for member in members if (facts := self._facts(member)) is not None]
        right = [member for member, _ in wanted]
        if wrong := [member.metadata.name for member in members if member not in right]:
            self._say_unplaced(name, right, f"{wrong[0]} of its group is wrong, and a group is placed whole")
        if wrong or not right:
            return None
        pods = tuple(facts for _, facts in wanted)
        tree = gang_of(name, [PodGroup(name, len(pods), pods)])
        priority = max(facts.priority for facts in pods)
        return PendingReservation(name, replace(tree, priority=priority, may_preempt=False), tuple(right))

    def commit(self, unit: PendingReservation, placement: Placement) -> None:
        """The group has its place: the snapshot counts it now, and the writer writes it."""
        now, snapshot = self._clock.now(), self._view.snapshot
        by_uid = {member.metadata.uid: member for member in self._now(unit)}
        for facts in placement.pods:
            member = by_uid[facts.uid]
            amounts = {name: amount for name, amount in facts.shape.requests if name != PODS}
            hold = Shape(tuple(sorted(amounts.items())))
            snapshot.add_pod(PodFacts(f"{HOLD}{member.metadata.uid}", "", member.metadata.name, hold, node=facts.node))
            self._status.say(member, placed_status(member, facts.node, amounts, now))
        held = tuple(
            pod for member in unit.members if (pod := snapshot.find_pod(f"{HOLD}{member.metadata.uid}")) is not None
        )
        order = order_of(self._view, unit.name)
        self._view.ledger.put(CapacityHold(unit.name, order, HoldReason.RESERVATION, now, pods=held))
        self._forget(unit.name)
        log.info("reserved", group=unit.name, reservations=len(placement.pods), domain=placement.domain)

    def refuse(self, unit: PendingReservation, why: Reason) -> None:
        self._say_unplaced(unit.name, self._now(unit), self._say(why))

    def _now(self, unit: PendingReservation) -> list[Reservation]:
        """Its members as they are by now: their status may have been written since it was offered."""
        cache = self._view.cache
        return [cache.get(Reservation, member.metadata.key) or member for member in unit.members]

    def _say_unplaced(self, name: str, members: list[Reservation], why: str | None = None) -> None:
        """What each of them should say. Each names one of the held nodes of their group."""
        hold = self._view.ledger.find(name, *LONG_WAIT)
        nodes = iter(sorted(hold.nodes) if hold is not None else ())
        for member in sorted(members, key=lambda member: member.metadata.name):
            held = None
            if hold is not None and (node := next(nodes, None)) is not None:
                held = HeldNode(node, hold.reason.value, hold.since.replace(microsecond=0))
            status = unplaced_status(member, why, held, self._clock.now())
            if status is not None and not self._status.unwritten(member):  # the next look reports what is new
                self._status.say(member, status)

    def recorded(self, unit: PendingReservation) -> HeldCapacity | None:
        """The nodes that an earlier scheduler held for the group, as its members say; None if they cannot be used."""
        held = [record for member in self._now(unit) if (record := held_node(member)) is not None]
        if not held:
            return None
        nodes = sorted({record.node for record in held})
        reasons = {record.reason for record in held}
        if unknown := [node for node in nodes if node not in self._view.snapshot.nodes.row_of]:
            self.report_record(unit, f"there is no node {unknown[0]}")
            return None
        if wrong := sorted(reasons - {reason.value for reason in LONG_WAIT}):
            self.report_record(unit, f"unknown reason {wrong[0]!r}")
            return None
        return HeldCapacity(reason=held[0].reason, since=min(record.since for record in held), nodes=tuple(nodes))

    def report_record(self, unit: PendingReservation, fault: str) -> None:
        """Says on the first of the group that the record of what is held for it is not used."""
        text = f"condition {NODE_HELD} is not used: {fault}"
        self._status.tell(unit.members[0], EventReason.INVALID_CAPACITY_HOLD, text)

    def _priority(self, spec: Json) -> int:
        """What the template's class says: a real pod gets it from admission."""
        named = self._view.priorities.get(Key("", str(spec.get("priorityClassName") or "")))
        return named.value if named is not None else 0

    def _facts(self, reservation: Reservation) -> PodFacts | None:
        """The reservation as a pod that waits."""
        template = reservation.spec.template or {}
        meta = mapping(template.get("metadata"))
        body: Json = {
            "metadata": {
                "name": reservation.metadata.name,
                "namespace": meta.get("namespace") or "default",
                "uid": reservation.metadata.uid,
                "labels": {**mapping(meta.get("labels")), **reservation.metadata.labels},
            },
            "spec": {"priority": self._priority(mapping(template.get("spec"))), **mapping(template.get("spec"))},
        }
        try:
            facts = read_pod(msgspec.convert(body, Pod))
        except msgspec.ValidationError as error:
            self._status.tell(reservation, "InvalidReservation", f"its template cannot be read: {error}")
            return None
        if facts.shape.blocked or any(amount < 0 for _, amount in facts.shape.requests):
            self._status.tell(reservation, "InvalidReservation", facts.shape.blocked or "a request is negative")
            return None
        if not any(owner.object or owner.controller or owner.label_selector for owner in reservation.spec.owners):
            self._status.tell(reservation, "NobodyMatches", "no owner is named: no pod can ever use it")
        return facts


def _least(reservation: Reservation) -> int:
    """How many of its group must exist before any gets a node."""
    return natural(reservation.metadata.annotations.get(MIN_AVAILABLE, "")) or 1
