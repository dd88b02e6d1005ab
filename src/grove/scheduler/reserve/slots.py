"""Reservations as places for pods: who may use one, what it gives, what is left to be had from the node.

A pod uses one reservation. `Aligned` (and nothing said): it takes from the reservation first and the rest from the
node. `Restricted`: of resources that the reservation holds, only from it. What several pods may take from the same
reservation is counted one after the other, in the order of the reservations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

from grove.api.koordinator import RESERVATION_ORDER, Reservation
from grove.api.pod import Pod, Toleration
from grove.api.reservation_ref import is_meant, tolerations
from grove.scheduler.filters.taints import tolerates
from grove.scheduler.model.facts import PODS, SLOT, Requests, Shape

RESTRICTED = "Restricted"
MOST_SLOTS = 10_000
MOST_STEPS = 5_000
"""Uses of reservations that are tried for the pods of one node."""


@dataclass(slots=True)
class Held:
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
        said = self.reservation.metadata.labels.get(RESERVATION_ORDER, "")
        return (int(said) if said.lstrip("-").isdigit() and int(said) else 2**31, self.name)

    def left(self) -> dict[str, int]:
        """What nobody uses yet; nothing of a reservation for one pod that has its pod."""
        if self.once and self.users:
            return dict.fromkeys(self.amounts, 0)
        found = dict(self.amounts)
        for used in self.users.values():
            for resource, amount in used.items():
                if resource in found:
                    found[resource] = max(0, found[resource] - amount)
        return found

    def rest_for(self, requests: Requests) -> Requests | None:
        """What a pod would need of the node besides; None if the reservation is not for such a pod."""
        if self.once and self.users:
            return None
        left, rest, given = self.left(), [], False
        for resource, amount in requests:
            more = max(0, amount - left.get(resource, 0))
            if more and resource in self.amounts and self.reservation.spec.allocate_policy == RESTRICTED:
                return None
            given = given or more < amount
            if more:
                rest.append((resource, more))
        return tuple(rest) if given else None

    def takes(self, requests: Requests, rest: Requests) -> int:
        """How many pods that need `rest` besides it can take, one after the other."""
        if self.rest_for(requests) != rest:
            return 0
        if self.once:
            return 1
        asked = [(self.left()[r], amount) for r, amount in requests if r in self.amounts and amount]
        if any(amount > left for left, amount in asked):
            return 1  # the next one would need more of the node
        return min(MOST_SLOTS, *(left // amount for left, amount in asked)) if asked else 0


def may_use(held: Held, pod: Pod, affinity: Mapping[str, object] | None, bears: Sequence[Toleration]) -> bool:
    """Whether a pod is an owner of a reservation, asks for no other, and bears its taints."""
    spec = held.reservation.spec
    if spec.unschedulable or not held.reservation.is_owned_by(pod):
        return False
    if affinity is not None and not is_meant(affinity, held.reservation):
        return False
    borne = (*bears, *(tolerations(affinity) if affinity is not None else ()))
    return all(
        any(tolerates(one, taint) for one in borne) for taint in spec.taints if taint.effect != "PreferNoSchedule"
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

    def on(self, held: Iterable[Held]) -> int:
        """How many such pods the reservations of one node can take."""
        return sum(one.takes(self.requests, self.rest) for one in held if one.name in self.reservations)

    def pick(self, held: Iterable[Held]) -> Held | None:
        """The reservation of a node to use next."""
        fits = (one for one in held if one.name in self.reservations and one.takes(self.requests, self.rest))
        return min(fits, key=lambda one: one.order, default=None)


class ReservationsVacancy:
    """What pods used of a reservation for many goes back to it when they leave, and not to the node."""

    def __init__(self, held: Mapping[str, Sequence[Held]]) -> None:
        """By node, with pods on the node as their users."""
        self._held = held

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for one in self._held.get(node, ()):
            rest = {user: used for user, used in one.users.items() if user not in uids}
            if len(rest) < len(one.users):
                now, then = one.left(), replace(one, users=rest).left()
                for resource, left in then.items():
                    found[resource] = found.get(resource, 0) + now[resource] - left
        return found


class Guest(NamedTuple):
    """A pod that may use some reservations of its node, or has to."""

    uid: str
    requests: Requests
    usable: frozenset[str]
    must: bool = False


def housed(
    guests: Sequence[Guest], held: Sequence[Held], free: Mapping[str, int], steps: int = MOST_STEPS
) -> dict[str, Held | None] | None:
    """Which reservation each guest of a node uses, or none, so that the node has the rest for all; None if no way is
    found within the steps. Every order of using a reservation is tried, as each leaves the next something else."""
    left = [steps]
    users = {one.name: dict(one.users) for one in held}
    found: dict[str, Held | None] = {}

    def settle(open_: tuple[Guest, ...], free: Mapping[str, int]) -> bool:
        if not open_:
            return True
        for guest in open_:
            others = tuple(one for one in open_ if one is not guest)
            for one in (*(one for one in held if one.name in guest.usable), *(() if guest.must else (None,))):
                left[0] -= 1
                if left[0] < 0:
                    return False
                now = replace(one, users=users[one.name]) if one is not None else None
                rest = now.rest_for(guest.requests) if now is not None else guest.requests
                if rest is None or any(free.get(name, 0) < amount for name, amount in rest):
                    continue
                if one is not None:
                    users[one.name][guest.uid] = dict(guest.requests)
                found[guest.uid] = one
                if settle(others, {**free, **{name: free.get(name, 0) - amount for name, amount in rest}}):
                    return True
                if one is not None:
                    del users[one.name][guest.uid]
        return False

    return found if settle(tuple(guests), free) else None


def outside(shape: Shape) -> Shape:
    """The shape without the ways that use a reservation; as it is, if it has no other way."""
    ways = [one for one in (shape.requests, *shape.alternatives) if not any(name.startswith(SLOT) for name, _ in one)]
    return replace(shape, requests=ways[0], alternatives=tuple(ways[1:])) if ways else shape


def slots_for(requests: Requests, usable: Iterable[Held]) -> list[Slots]:
    """The ways such a pod can use these reservations, those that ask least of the node first."""
    by_rest: dict[Requests, set[str]] = {}
    for one in usable:
        rest = one.rest_for(requests)
        if rest is not None:
            by_rest.setdefault(rest, set()).add(one.name)
    ordered = sorted(by_rest.items(), key=lambda item: (sum(a for r, a in item[0] if r != PODS), item[0]))
    return [Slots(requests, rest, frozenset(names)) for rest, names in ordered]
