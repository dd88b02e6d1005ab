"""Koordinator's Reservations as a source: capacity on nodes that counts as used for every pod but the owners.

What a reservation has left is counted on its node like a pod. A pod that may use it asks for a place in it instead of
capacity on the node. Its reservation is written on the pod before the bind, so a restart finds it there.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec
import structlog

from grove.api.core import Pod
from grove.api.fields import parsed
from grove.api.koordinator import RESERVATION_AFFINITY, RESERVATION_ALLOCATED, RESERVATION_IGNORED, Reservation
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.scheduler.model.facts import SLOT, PodFacts, Requests, Shape
from grove.scheduler.model.reading import pod_requests
from grove.scheduler.model.seams import NO_NEEDS, Needs, Refusal, Vacancy
from grove.scheduler.reserve.reservation_slots import (
    PlacedReservation,
    PodOnNode,
    ReservationsVacancy,
    ReservationUse,
    Slots,
    Undecided,
    as_counted,
    cannot_share,
    may_use,
    reservations_for,
    slots_for,
)
from grove.scheduler.reserve.reservation_status import (
    AVAILABLE,
    HOLD,
    PENDING,
    ReservationRef,
    amounts_of,
    expiry_of,
    is_there,
    node_of,
    reservation_of,
)
from grove.scheduler.sources.node_sources import FollowedCluster, FollowedSource, PodAnnotationWriter
from grove.scheduler.sources.reservation_writer import ReservationWriter

PROMISE = "promise:"

log = structlog.get_logger(__name__)


class ReservationPromise(msgspec.Struct, frozen=True):
    """The reservation that a pod uses or will use. Empty if it needs none."""

    reservation: ReservationRef
    node: str


class ReservationSource(FollowedSource):
    name = "reservations"
    counts = SLOT

    def __init__(
        self,
        cluster: FollowedCluster,
        client: Client,
        status: ReservationWriter,
        clock: Clock,
        *,
        count_use: Callable[[], None],
    ) -> None:
        super().__init__(cluster)
        self.status, self._clock, self._count_use = status, clock, count_use
        self._held: dict[str, PlacedReservation] = {}
        self._on: dict[str, dict[str, PlacedReservation]] = {}
        self._slots: dict[str, Slots] = {}
        self._promised: dict[str, ReservationPromise] = {}
        self._bound: set[str] = set()
        """Uids of pods on nodes that use a reservation: they are counted there themselves."""
        self._notes = PodAnnotationWriter(client, RESERVATION_ALLOCATED, "its reservation")
        self._timer: asyncio.TimerHandle | None = None

    def follow(self) -> None:
        self._cache.add(Reservation)
        self.status.follow()
        self._cache.on_event(Reservation, self._changed)
        self._cache.on_event(Pod, self._pod_changed)

    # What there is

    def amounts(self, node: str) -> dict[str, int]:
        here = self._on.get(node)
        return {name: slots.on(here.values()) for name, slots in self._slots.items()} if here else {}

    def needs(self, pod: Pod) -> Needs:
        if pod.spec.node_name or pod.metadata.labels.get(RESERVATION_IGNORED) == "true":
            return NO_NEEDS
        asked = pod.metadata.annotations.get(RESERVATION_AFFINITY)
        if not asked and not self._held:
            return NO_NEEDS
        try:
            affinity = parsed(asked) if asked else None
        except ValueError:
            return Needs(blocked=f"{RESERVATION_AFFINITY} is not JSON")
        usable = [
            placed_reservation
            for placed_reservation in self._held.values()
            if may_use(placed_reservation, pod, affinity, pod.spec.tolerations)
        ]
        ways = slots_for(pod_requests(pod), usable)
        if not ways:
            if affinity is None:
                return NO_NEEDS
            return Needs(blocked="no reservation that it asks for is free and for it")
        kinds = {way.name: way for way in ways}
        instead = tuple(tuple(sorted((*slots.rest, (name, 1)))) for name, slots in kinds.items())
        return Needs(instead=instead, only=affinity is not None, kinds=kinds)

    def learn(self, kinds: Mapping[str, Slots]) -> None:
        for name, slots in kinds.items():
            if name not in self._slots:
                self._slots[name] = slots
                self._stale.update(self._held[held].node for held in slots.reservations)

    def keep(self, kinds: Collection[str]) -> Collection[str]:
        gone = self._slots.keys() - set(kinds)
        if gone:
            self._slots = {name: slots for name, slots in self._slots.items() if name not in gone}
            self._stale.update(self._on)
        return gone

    # The life of a placement

    def _promise(self, node: str, pods: Sequence[PodFacts]) -> Refusal | None:
        fresh = [pod for pod in pods if pod.uid not in self._promised]
        if not any(map(self._is_asked, fresh)):
            return None
        chosen = as_counted(fresh, self._without_leavers(node), self._slots) or self._in_any_way(node, fresh)
        if isinstance(chosen, Refusal):
            return chosen
        self._keep(node, fresh, chosen)
        return None

    def _in_any_way(self, node: str, pods: Sequence[PodFacts]) -> dict[str, ReservationUse] | Refusal:
        """Any other way to place them: what one pod uses of a reservation is not there for the next."""
        pods_here = []
        for pod in pods:
            known = self._pod(pod)
            needs = self.needs(known) if known is not None else NO_NEEDS
            usable = frozenset(name for slots in needs.kinds.values() for name in slots.reservations)
            pods_here.append(PodOnNode(pod.uid, pod.shape.used, usable, needs.only))
        here, free = self._without_leavers(node), self._free(node)
        try:
            reservations = reservations_for(pods_here, here, free)
        except Undecided:
            return Refusal(node, "its reservations may be used up", tuple(pod.uid for pod in pods_here))
        if reservations is None:
            together = tuple(pod.uid for pod in cannot_share(pods_here, here, free))
            return Refusal(node, "its reservations are used up", together)
        counted_on = {pod.uid for pod in pods if self._is_asked(pod)}
        return {uid: use for uid, use in reservations.items() if use.held is not None or uid in counted_on}

    def _free(self, node: str) -> dict[str, int]:
        """The free amounts of a node beside its reservations, after the evicted pods are gone."""
        snapshot, leavers = self._cluster.snapshot, self._cluster.sources.making_way
        row = snapshot.nodes.row_of.get(node)
        if row is None:
            return {}
        free = Counter({name: int(snapshot.free[r, row]) for r, name in enumerate(snapshot.resources)})
        for pod in (pod for uid in leavers if (pod := snapshot.find_pod(uid)) is not None and pod.node == node):
            free.update(dict(pod.shape.requests))
        free.update(ReservationsVacancy({node: self._with_bound(node)}).freed(node, leavers))
        return free

    def _without_leavers(self, node: str) -> list[PlacedReservation]:
        """Reservations of a node without the pods that make way; a reservation for one use ends with its pod."""
        leavers = self._cluster.sources.making_way
        return [
            placed_reservation
            if placed_reservation.once
            else placed_reservation.used_by(lambda uid: uid not in leavers)
            for placed_reservation in self._on.get(node, {}).values()
        ]

    def _keep(self, node: str, pods: Sequence[PodFacts], chosen: Mapping[str, ReservationUse]) -> None:
        """Keeps what was chosen for pods on their way, and what they need of the node beyond what was counted."""
        for pod in (pod for pod in pods if pod.uid in chosen):
            use = chosen[pod.uid]
            meta = use.held.reservation.metadata if use.held is not None else None
            self._promised[pod.uid] = ReservationPromise(
                ReservationRef(meta.name, meta.uid) if meta is not None else ReservationRef(), node
            )
            if use.held is not None:
                self._on[node][use.held.name].users[pod.uid] = dict(pod.shape.used)
            counted = dict(pod.shape.requests)
            more = tuple((name, need) for name, amount in use.rest if (need := amount - counted.get(name, 0)) > 0)
            if more:
                self._cluster.snapshot.add_pod(PodFacts(f"{PROMISE}{pod.uid}", "", node, Shape(more), node=node))
        self._stale.add(node)

    def release(self, uid: str) -> None:
        promise = self._promised.pop(uid, None)
        if promise is not None:
            self._cluster.snapshot.remove_pod(f"{PROMISE}{uid}")
        held = self._find(promise) if promise is not None else None
        if held is not None and uid not in self._bound:
            held.users.pop(uid, None)
            self._stale.add(held.node)
            self._hold(held)
            if uid in self._cluster.counted.reserved:  # pods that were read meanwhile do not count what it leaves
                self._forget_slots()
                self._cluster.reader.read_all_again()

    def prepare(self, pod: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        promise = self._promised.get(pod.uid)
        held = self._find(promise) if promise is not None else None
        if held is None:
            return self._notes.write(pod, None) if self._notes.may_be_on(pod.uid, self._pod(pod)) else None
        meta = held.reservation.metadata
        return self._use(pod, json.dumps({"name": meta.name, "uid": meta.uid}))

    def _find(self, use: ReservationPromise) -> PlacedReservation | None:
        held = self._held.get(use.reservation.name)
        is_it = held is not None and held.node == use.node and use.reservation.is_of(held.reservation)
        return held if is_it else None

    async def _use(self, pod: PodFacts, text: str) -> str:
        """Writes on the pod which reservation it uses."""
        trouble = await self._notes.write(pod, text)
        if not trouble:
            self._count_use()
        return trouble

    def vacancy(self, asked: Collection[str], nodes: Callable[[], Collection[str]]) -> Vacancy | None:
        if all(placed_reservation.once or not placed_reservation.users for placed_reservation in self._held.values()):
            return None
        held_on = {node: held for node in nodes() if (held := self._with_bound(node))}
        return ReservationsVacancy(held_on) if held_on else None

    def _with_bound(self, node: str) -> list[PlacedReservation]:
        """Reservations for many on a node, with the pods there that use them."""
        shared = (
            placed_reservation.used_by(self._bound.__contains__)
            for placed_reservation in self._on.get(node, {}).values()
            if not placed_reservation.once
        )
        return [placed_reservation for placed_reservation in shared if placed_reservation.users]

    # Following

    def _changed(self, old: Reservation | None, new: Reservation | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]
        before = self._held.pop(name, None)
        if old is not None and new is None:
            self.status.forget(old)
        if before is not None:
            here = self._on[before.node]
            here.pop(name, None)
            if not here:
                del self._on[before.node]
            self._stale.add(before.node)
            self._cluster.snapshot.remove_pod(_hold_uid(before.reservation))
            self._cluster.changes.relief.add(before.node)
        elif new is None or new.status.phase not in ("", PENDING):  # placed by us, and maybe never seen to stand
            self._cluster.snapshot.remove_pod(_hold_uid(new or old))  # type: ignore[arg-type]
        if new is not None and (node := node_of(new, self._clock.now())):
            amounts, faults = amounts_of(new)
            for fault in faults:
                self.status.tell(new, "InvalidReservation", fault)
            held = PlacedReservation(new, node, amounts, {})
            for pod in self.status.users(new):
                self._bound.add(pod.metadata.uid)
                held.users[pod.metadata.uid] = dict(pod_requests(pod))
            for uid, promise in self._promised.items():
                if promise.reservation.is_of(new) and before is not None and uid in before.users:
                    held.users.setdefault(uid, before.users[uid])
            self._held[name] = held
            self._on.setdefault(node, {})[name] = held
            self._hold(held)
        if new is not None and new.status.phase == AVAILABLE:
            self.status.touch(name)
        if before is not None and name not in self._held:
            self._keep_promises(before)
        is_over = before is not None and name not in self._held
        if is_over or before is None or new is None or _said(before.reservation) != _said(new):
            self._forget_slots()
            self._stale.update(placed_reservation.node for placed_reservation in self._held.values())
            self._cluster.reader.read_all_again()
        self._set_timer()

    def _forget_slots(self) -> None:
        self._cluster.snapshot.forget(self._slots)
        self._slots.clear()

    def _keep_promises(self, gone: PlacedReservation) -> None:
        """A reservation ended while pods are being bound into it: their capacity stays theirs until they are bound."""
        for uid in gone.users:
            if uid in self._promised and uid not in self._bound:
                hold = PodFacts(f"{PROMISE}{uid}", "", gone.name, Shape(gone.given_to(uid)), node=gone.node)
                self._cluster.snapshot.add_pod(hold)

    def _hold(self, held: PlacedReservation) -> None:
        """Counts on the node what of a reservation no bound pod uses: promises are part of it until their bind."""
        uid = _hold_uid(held.reservation)
        self._cluster.snapshot.remove_pod(uid)
        if requests := self._kept_by(held):
            self._cluster.snapshot.add_pod(PodFacts(uid, "", held.name, Shape(requests), node=held.node))
        elif held.once:
            self._cluster.changes.relief.add(held.node)

    def _kept_by(self, held: PlacedReservation) -> Requests:
        left = held.used_by(self._bound.__contains__).left()
        return tuple(sorted((name, amount) for name, amount in left.items() if amount))

    def kept(self) -> dict[str, Requests]:
        by_node: dict[str, Counter[str]] = {}
        for held in self._held.values():
            by_node.setdefault(held.node, Counter()).update(dict(self._kept_by(held)))
        return {node: tuple(sorted(amounts.items())) for node, amounts in by_node.items()}

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid, promise = pod.metadata.uid, self._promised.get(pod.metadata.uid)
        if new is None or new.is_bound:
            self._notes.forget(uid)
            if promise is not None:
                self._cluster.snapshot.remove_pod(f"{PROMISE}{uid}")
                if not promise.reservation.name:
                    del self._promised[uid]
        use = promise or ReservationPromise(reservation_of(pod), pod.spec.node_name)
        if not use.reservation.name:
            return
        held = self._find(use)
        uses = new is not None and is_there(new)
        if uses == (uid in self._bound) and held is not None and (uid in held.users) == uses:
            return
        if uses:
            self._bound.add(uid)
            self._promised.pop(uid, None)
        elif uid in self._bound or new is None:
            self._bound.discard(uid)
        else:
            return  # it is on its way
        if held is not None:
            if uses:
                held.users[uid] = dict(pod_requests(pod))
            else:
                held.users.pop(uid, None)
            self._hold(held)
            self._stale.add(held.node)
            if not held.once:
                self._forget_slots()
                self._cluster.reader.read_all_again()
            self.status.touch(held.name)

    def _set_timer(self) -> None:
        """Wakes when the next reservation is over by its time."""
        due = [
            at
            for placed_reservation in self._held.values()
            if (at := expiry_of(placed_reservation.reservation)) is not None
        ]
        if self._timer is not None:
            self._timer.cancel()
        if due:
            wait_s = max(0.0, (min(due) - self._clock.now()).total_seconds())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _expire(self) -> None:
        for held in list(self._held.values()):
            if not node_of(held.reservation, self._clock.now()):
                self.status.touch(held.name)
                self._changed(held.reservation, held.reservation)
        self._set_timer()  # the clock may have been set back since: then nothing is over yet


def _said(reservation: Reservation) -> tuple[object, ...]:
    """The parts of a reservation that decide its users and its amounts."""
    return (
        reservation.spec,
        reservation.metadata.labels,
        reservation.status.phase,
        reservation.status.node_name,
        reservation.status.allocatable,
    )


def _hold_uid(reservation: Reservation) -> str:
    return f"{HOLD}{reservation.metadata.uid}"
