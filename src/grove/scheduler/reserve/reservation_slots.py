"""Reservations as places for pods: who may use one, what it gives, and what the node still has.

A pod uses one reservation. With `Aligned` (the default) it takes from the reservation first and the rest from the node.
With `Restricted` it takes the resources that the reservation holds only from there. What several pods may take from the
same reservation is counted one after the other, in the order of the reservations.

The choice of reservations is made for all pods of a node at once. It is first what the search has counted, then any
other possible one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

from grove.api.koordinator import RESERVATION_ORDER, Reservation
from grove.api.pod import Pod, Toleration
from grove.api.reservation_ref import is_meant, tolerations
from grove.scheduler.filters.node_filters import tolerates
from grove.scheduler.model.facts import PODS, SLOT, PodFacts, Requests
from grove.scheduler.model.gang import Gang

RESTRICTED = "Restricted"
MOST_SLOTS = 10_000


@dataclass(slots=True)
class PlacedReservation:
    """A reservation that stands on a node, with what is used of it by uid of the pods that do."""

    reservation: Reservation
    node: str
    amounts: Mapping[str, int]
    users: dict[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.reservation.metadata.name

    @property
    def once(self) -> bool:
        return self.reservation.spec.allocate_once is not False

    @property
    def order(self) -> tuple[int, str]:
        """The lower order goes first; without one it goes last."""
        text = self.reservation.metadata.labels.get(RESERVATION_ORDER, "")
        return (int(text) if text.lstrip("-").isdigit() and int(text) else 2**31, self.name)

    def left(self) -> dict[str, int]:
        """The unused part; empty for a reservation of one pod that is in use."""
        if self.once and self.users:
            return dict.fromkeys(self.amounts, 0)
        left = dict(self.amounts)
        for used in self.users.values():
            for resource, amount in used.items():
                if resource in left:
                    left[resource] = max(0, left[resource] - amount)
        return left

    def used_by(self, is_user: Callable[[str], bool]) -> PlacedReservation:
        """The same as if only these pods used it, by uid."""
        return replace(self, users={uid: used for uid, used in self.users.items() if is_user(uid)})

    def given_to(self, uid: str) -> Requests:
        """The amounts of the reservation that one of its users has."""
        used = self.users[uid]
        return tuple(sorted((r, min(used[r], most)) for r, most in self.amounts.items() if used.get(r)))

    def rest_for(self, requests: Requests) -> Requests | None:
        """The amounts that a pod needs from the node beside the reservation; None if it cannot use the reservation."""
        return None if self.once and self.users else self._rest(self.left(), requests)

    def _rest(self, left: Mapping[str, int], requests: Requests) -> Requests | None:
        rest, given = [], False
        for resource, amount in requests:
            more = max(0, amount - left.get(resource, 0))
            if more and resource in self.amounts and self.reservation.spec.allocate_policy == RESTRICTED:
                return None
            given = given or more < amount
            if more:
                rest.append((resource, more))
        return tuple(rest) if given else None

    def uses(self, requests: Requests) -> list[tuple[Requests, int]]:
        """The amounts that equal pods need from the node beside the reservation, each with the number of such pods.

        Each need is larger than the one before: first the pods that get all they ask for, then the pod that gets a
        remainder.
        """
        uses: list[tuple[Requests, int]] = []
        left = {} if self.once and self.users else self.left()
        while (rest := self._rest(left, requests)) is not None:
            given = [(left[name], amount) for name, amount in requests if amount and left.get(name)]
            alike = 1 if self.once else max(1, min(MOST_SLOTS, *(have // amount for have, amount in given)))
            uses.append((rest, alike))
            if self.once:
                break
            for name, amount in requests:
                if name in left:
                    left[name] = max(0, left[name] - alike * amount)
        return uses


def may_use(
    held: PlacedReservation, pod: Pod, affinity: Mapping[str, object] | None, bears: Sequence[Toleration]
) -> bool:
    """True if a pod is an owner of a reservation, selects no other one, and tolerates its taints."""
    spec = held.reservation.spec
    if spec.unschedulable or not held.reservation.is_owned_by(pod):
        return False
    if affinity is not None and not is_meant(affinity, held.reservation):
        return False
    borne = (*bears, *(tolerations(affinity) if affinity is not None else ()))
    return all(
        any(tolerates(toleration, taint) for toleration in borne)
        for taint in spec.taints
        if taint.effect != "PreferNoSchedule"
    )


@dataclass(frozen=True, slots=True)
class Slots:
    """Reservations that leave pods of one kind the same need of the node. `name` is what nodes are counted by."""

    requests: Requests
    rest: Requests
    reservations: frozenset[str]

    @property
    def name(self) -> str:
        text = repr((self.requests, self.rest, sorted(self.reservations)))
        return f"{SLOT}{sha256(text.encode()).hexdigest()[:12]}"

    def on(self, held: Iterable[PlacedReservation]) -> int:
        """How many such pods the reservations of one node can take."""
        mine = (placed_reservation for placed_reservation in held if placed_reservation.name in self.reservations)
        return sum(
            count
            for placed_reservation in mine
            for rest, count in placed_reservation.uses(self.requests)
            if rest == self.rest
        )

    def pick(self, held: Iterable[PlacedReservation]) -> PlacedReservation | None:
        """The reservation of a node to use next: one that leaves a pod no more to be had from the node than counted."""
        counted = dict(self.rest)
        fits = (
            placed_reservation
            for placed_reservation in held
            if placed_reservation.name in self.reservations
            and (rest := placed_reservation.rest_for(self.requests)) is not None
            and all(amount <= counted.get(name, 0) for name, amount in rest)
        )
        return min(fits, key=lambda placed_reservation: placed_reservation.order, default=None)


class ReservationsVacancy:
    """The amounts that pods give back when they leave. Amounts of a reservation return to it, not to the node."""

    def __init__(self, held: Mapping[str, Sequence[PlacedReservation]]) -> None:
        """By node, with pods on the node as their users."""
        self._held = held

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        freed: dict[str, int] = {}
        for placed_reservation in self._held.get(node, ()):
            rest = {user: used for user, used in placed_reservation.users.items() if user not in uids}
            if len(rest) < len(placed_reservation.users):
                now, then = placed_reservation.left(), replace(placed_reservation, users=rest).left()
                for resource, left in then.items():
                    freed[resource] = freed.get(resource, 0) + now[resource] - left
        return freed


def without_reservations(gang: Gang) -> Gang:
    """The gang with pods that do without reservations, as far as they may; itself if nothing is changed by that."""
    changed: dict[str, PodFacts | None] = {}
    for pod in (pod for group in gang.groups() for pod in group.pods):
        every = (pod.shape.requests, *pod.shape.alternatives)
        ways = [way for way in every if not any(name.startswith(SLOT) for name, _ in way)]
        if 0 < len(ways) < len(every):
            changed[pod.uid] = pod.asking(requests=ways[0], alternatives=tuple(ways[1:]))
    return gang.with_pods(changed)


def slots_for(requests: Requests, usable: Iterable[PlacedReservation]) -> list[Slots]:
    """The ways such a pod can use these reservations, those that ask least of the node first."""
    by_rest: dict[Requests, set[str]] = {}
    for placed_reservation in usable:
        for rest, _ in placed_reservation.uses(requests):
            by_rest.setdefault(rest, set()).add(placed_reservation.name)
    ordered = sorted(by_rest.items(), key=lambda item: (sum(a for r, a in item[0] if r != PODS), item[0]))
    return [Slots(requests, rest, frozenset(names)) for rest, names in ordered]


MOST_STEPS = 5_000
"""Uses of reservations that are tried for the pods of one node."""


class PodOnNode(NamedTuple):
    """A pod that may use some reservations of its node, or has to."""

    uid: str
    requests: Requests
    usable: frozenset[str] = frozenset()
    must: bool = False


class ReservationUse(NamedTuple):
    """The reservation that a pod uses, or none, and what it needs of its node besides."""

    held: PlacedReservation | None
    rest: Requests


class Undecided(Exception):
    """The steps have ended before every way was tried."""


def reservations_for(
    pods: Sequence[PodOnNode], held: Sequence[PlacedReservation], free: Mapping[str, int]
) -> dict[str, ReservationUse] | None:
    """The reservation of each pod of a node, in the order of use, so that the rest fits on the node; None if none does.

    It tries every order, because each use changes what the next pod can take. It tries equal pods once, and skips
    orders that led to the same amounts before. Raises Undecided after MOST_STEPS steps.
    """
    left = [MOST_STEPS]
    here = {
        placed_reservation.name: replace(placed_reservation, users=dict(placed_reservation.users))
        for placed_reservation in held
    }
    uses: dict[str, ReservationUse] = {}
    failed: set[object] = set()

    def settle(waiting: tuple[PodOnNode, ...], free: Mapping[str, int]) -> bool:
        if not waiting:
            return True
        amounts = tuple(tuple(placed_reservation.left().values()) for placed_reservation in here.values())
        state = (tuple(pod.uid for pod in waiting), amounts, tuple(sorted(free.items())))
        if state in failed:
            return False
        for pod in {pod[1:]: pod for pod in reversed(waiting)}.values():
            others = tuple(other for other in waiting if other is not pod)
            for reservation in (
                *(placed_reservation for name, placed_reservation in here.items() if name in pod.usable),
                *(() if pod.must else (None,)),
            ):
                left[0] -= 1
                if left[0] < 0:
                    raise Undecided
                rest = reservation.rest_for(pod.requests) if reservation is not None else pod.requests
                if rest is None or any(free.get(name, 0) < amount for name, amount in rest):
                    continue
                if reservation is not None:
                    reservation.users[pod.uid] = dict(pod.requests)
                uses[pod.uid] = ReservationUse(reservation, rest)
                if settle(others, {**free, **{name: free.get(name, 0) - amount for name, amount in rest}}):
                    return True
                del uses[pod.uid]
                if reservation is not None:
                    del reservation.users[pod.uid]
        failed.add(state)
        return False

    return uses if settle(tuple(pods), free) else None


def cannot_share(
    pods: Sequence[PodOnNode], held: Sequence[PlacedReservation], free: Mapping[str, int]
) -> list[PodOnNode]:
    """Of pods that cannot all be there a few that cannot either; the later ones rather than the first."""
    kept = list(pods)
    for pod in pods:
        fewer = [other for other in kept if other is not pod]
        with suppress(Undecided):
            if fewer and reservations_for(fewer, held, free) is None:
                kept = fewer
    return kept


def as_counted(
    pods: Sequence[PodFacts], held: Sequence[PlacedReservation], slots: Mapping[str, Slots]
) -> dict[str, ReservationUse] | None:
    """Reservations as the search has counted on them; None if they are not there for all of them at once."""
    here = [replace(reservation, users=dict(reservation.users)) for reservation in held]
    uses: dict[str, ReservationUse] = {}
    for pod in sorted((pod for pod in pods if slot_of(pod.shape.requests)), key=_rest_size):
        counted = slots.get(slot_of(pod.shape.requests))
        placed_reservation = counted.pick(here) if counted is not None else None
        if placed_reservation is None:
            return None
        uses[pod.uid] = ReservationUse(placed_reservation, placed_reservation.rest_for(pod.shape.used) or ())
        placed_reservation.users[pod.uid] = dict(pod.shape.used)
    return uses


def slot_of(requests: Requests) -> str:
    """The place in reservations among requests, if there is one."""
    return next((name for name, _ in requests if name.startswith(SLOT)), "")


def _rest_size(pod: PodFacts) -> int:
    """How much was counted on of the node: the pod that needs least uses a reservation first."""
    return sum(amount for name, amount in pod.shape.requests if name != PODS)
