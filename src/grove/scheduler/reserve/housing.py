"""Which reservations of a node its pods use, all at once: as the search has counted, or in any other way there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from grove.scheduler.model.facts import PODS, SLOT, PodFacts, Requests
from grove.scheduler.reserve.slots import Held, Slots

MOST_STEPS = 5_000
"""Uses of reservations that are tried for the pods of one node."""


class Guest(NamedTuple):
    """A pod that may use some reservations of its node, or has to."""

    uid: str
    requests: Requests
    usable: frozenset[str] = frozenset()
    must: bool = False


class Use(NamedTuple):
    """The reservation that a pod uses, or none, and what it needs of its node besides."""

    held: Held | None
    rest: Requests


class Undecided(Exception):
    """The steps have ended before every way was tried."""


def housed(
    guests: Sequence[Guest], held: Sequence[Held], free: Mapping[str, int], steps: int = MOST_STEPS
) -> dict[str, Use] | None:
    """What each guest of a node uses, in the order of use, so that the node has the rest for all; None if it cannot be.

    Every order is tried, as each use leaves the next something else; guests that are alike are tried once, and so is
    what led to the same amounts before. Raises Undecided after so many steps.
    """
    left = [steps]
    here = {one.name: replace(one, users=dict(one.users)) for one in held}
    found: dict[str, Use] = {}
    failed: set[object] = set()

    def settle(waiting: tuple[Guest, ...], free: Mapping[str, int]) -> bool:
        if not waiting:
            return True
        amounts = tuple(tuple(one.left().values()) for one in here.values())
        state = (tuple(one.uid for one in waiting), amounts, tuple(sorted(free.items())))
        if state in failed:
            return False
        for guest in {one[1:]: one for one in reversed(waiting)}.values():
            others = tuple(one for one in waiting if one is not guest)
            for one in (*(one for name, one in here.items() if name in guest.usable), *(() if guest.must else (None,))):
                left[0] -= 1
                if left[0] < 0:
                    raise Undecided
                rest = one.rest_for(guest.requests) if one is not None else guest.requests
                if rest is None or any(free.get(name, 0) < amount for name, amount in rest):
                    continue
                if one is not None:
                    one.users[guest.uid] = dict(guest.requests)
                found[guest.uid] = Use(one, rest)
                if settle(others, {**free, **{name: free.get(name, 0) - amount for name, amount in rest}}):
                    return True
                del found[guest.uid]
                if one is not None:
                    del one.users[guest.uid]
        failed.add(state)
        return False

    return found if settle(tuple(guests), free) else None


def crowd(guests: Sequence[Guest], held: Sequence[Held], free: Mapping[str, int]) -> list[Guest]:
    """Of guests that cannot all be housed a few that cannot either; the later ones rather than the first."""
    kept = list(guests)
    for guest in guests:
        fewer = [one for one in kept if one is not guest]
        with suppress(Undecided):
            if fewer and housed(fewer, held, free) is None:
                kept = fewer
    return kept


def as_counted(pods: Sequence[PodFacts], held: Sequence[Held], slots: Mapping[str, Slots]) -> dict[str, Use] | None:
    """Reservations as the search has counted on them; None if they are not there for all of them at once."""
    here = [replace(one, users=dict(one.users)) for one in held]
    found: dict[str, Use] = {}
    for pod in sorted((pod for pod in pods if slot_of(pod.shape.requests)), key=_rest_size):
        counted = slots.get(slot_of(pod.shape.requests))
        one = counted.pick(here) if counted is not None else None
        if one is None:
            return None
        found[pod.uid] = Use(one, one.rest_for(pod.shape.used) or ())
        one.users[pod.uid] = dict(pod.shape.used)
    return found


def slot_of(requests: Requests) -> str:
    """The place in reservations among requests, if there is one."""
    return next((name for name, _ in requests if name.startswith(SLOT)), "")


def _rest_size(pod: PodFacts) -> int:
    """How much was counted on of the node: whoever needs least uses a reservation first."""
    return sum(amount for name, amount in pod.shape.requests if name != PODS)
