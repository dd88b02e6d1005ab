"""On which node the pods that share a claim stand, while nobody has its devices yet. Pure: `sharing` asks.

Devices of a node serve pods on that node alone, so all users of a claim go there, and so do all claims of such a pod
and their users: a `Lot` has one home. Homes are guesses that the placement of the whole gang proves or refuses; they
come best first, each lot counted against what the lots before it would take, and then with one choice after another
replaced by the next best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grove.api.meta import Key
from grove.api.selector import Requirement
from grove.scheduler.cluster.nodes import Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.allot import Wants, allot, counted
from grove.scheduler.devices.devices import Device, DeviceId
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.model.facts import NodeTerm, PodFacts, Requests
from grove.scheduler.model.gang import Gang

Open = Mapping[Key, Wants]
"""What claims ask of one node, by claim."""


@dataclass(frozen=True, slots=True)
class Lot:
    claims: Open
    users: tuple[PodFacts, ...]

    @property
    def name(self) -> str:
        return min(key.name for key in self.claims)


def lots(users: Iterable[tuple[PodFacts, Open]]) -> list[Lot]:
    """Pods and their claims, those together that a common pod ties together; in the order of the pods."""
    found: list[Lot] = []
    for pod, claims in users:
        tied = [lot for lot in found if lot.claims.keys() & claims.keys()]
        joined: dict[Key, Wants] = {}
        for lot in tied:
            joined |= lot.claims
        merged = Lot({**joined, **claims}, (*(user for lot in tied for user in lot.users), pod))
        if tied:
            found[found.index(tied[0])] = merged
            found = [lot for lot in found if lot not in tied[1:]]
        else:
            found.append(merged)
    return found


class Sites:
    """Nodes that have devices of their own, and what is free on them. `near` are rows to be preferred."""

    def __init__(
        self, snapshot: Snapshot, devices: Mapping[str, Sequence[Device]], taken: Collection[DeviceId], near: Mask
    ) -> None:
        self._snapshot, self._devices = snapshot, devices
        self._names = sorted(name for name in devices if name in snapshot.nodes.row_of)
        self._rows: Ints = np.array([snapshot.nodes.row_of[name] for name in self._names], dtype=np.int64)
        self._near = near[self._rows]
        self._taken = set(taken)
        counts = [sum(one.id not in self._taken for one in devices[name]) for name in self._names]
        self._spare = np.array(counts, dtype=np.int64)

    def homes(self, lots: Sequence[Lot]) -> Iterator[tuple[str, ...]]:
        """A node for each lot, again and again until no other choice is left."""
        for total in range(len(self._names) * len(lots) + 1):
            fresh = False
            for skips in _sums(total, len(lots)):
                found = self._chosen(lots, skips)
                if found is not None:
                    fresh = True
                    yield found
            if not fresh:
                return

    def lacking(self, lots: Sequence[Lot]) -> Lot | None:
        """The first lot that has no node even by itself."""
        return next((lot for lot in lots if self._chosen([lot], (0,)) is None), None)

    def _chosen(self, lots: Sequence[Lot], skips: Sequence[int]) -> tuple[str, ...] | None:
        asked = [_together(lot) for lot in lots]
        for requests in asked:
            self._snapshot.amounts(requests)  # what was never asked for before gets a row, before rows are copied
        free, spare, taken = self._snapshot.free[:, self._rows].copy(), self._spare.copy(), set(self._taken)
        found = []
        for lot, requests, skip in zip(lots, asked, skips, strict=True):
            need = self._snapshot.column_of(requests)
            at = self._best(lot, need, free, spare, taken, skip)
            if at is None:
                return None
            site, devices = at
            free[:, site] -= need
            spare[site] -= len(devices)
            taken |= devices
            found.append(self._names[site])
        return tuple(found)

    def _best(
        self, lot: Lot, need: Ints, free: Ints, spare: Ints, taken: set[DeviceId], skip: int
    ) -> tuple[int, set[DeviceId]] | None:
        whole = np.ones(len(self._names), dtype=np.bool_)
        some = np.zeros(len(self._names), dtype=np.bool_)
        for shape in {pod.shape for pod in lot.users}:
            allowed = allowed_mask(self._snapshot, shape)[self._rows]
            whole &= allowed
            some |= allowed & _fits(free, self._snapshot.column_of(shape.requests))
        whole &= _fits(free, need)
        order = sorted(
            np.flatnonzero(some | whole).tolist(),
            key=lambda site: (not whole[site], not self._near[site], -spare[site], self._names[site]),
        )
        for site in order:
            got = allot(list(lot.claims.values()), self._devices[self._names[site]], taken)
            if got is None:
                continue
            if skip == 0:
                return site, {device.id for chosen in got for _, device in chosen}
            skip -= 1
        return None


def _sums(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _sums(total - first, parts - 1):
            yield (first, *rest)


def _together(lot: Lot) -> Requests:
    """What all users of a lot ask for, the shared devices once."""
    total = counted(lot.claims.values())
    for pod in lot.users:
        total.update(dict(pod.shape.requests))
    return tuple(sorted(total.items()))


def _fits(free: Ints, need: Ints) -> Mask:
    """Columns that hold all of it; what is not asked for may well be short."""
    asked = np.flatnonzero(need > 0)
    fits: Mask = np.logical_and.reduce(free[asked] >= need[asked, None], axis=0)
    return fits


def bound_to(pod: PodFacts, nodes: Iterable[str]) -> PodFacts:
    """The pod, to be placed on a node that is each of these."""
    terms = tuple((NodeTerm(names=(Requirement("metadata.name", "In", frozenset((node,))),)),) for node in nodes)
    return pod.shaped(replace(pod.shape, volumes=(*pod.shape.volumes, *terms))) if terms else pod


def at_homes(gang: Gang, lots: Sequence[Lot], homes: Sequence[str]) -> Gang:
    """The gang with its sharing pods at home; the first user of a lot asks for the shared devices."""
    changed: dict[str, PodFacts | None] = {}
    for lot, home in zip(lots, homes, strict=True):
        for number, pod in enumerate(lot.users):
            moved = bound_to(pod, (home,))
            if number == 0:
                asked = counted(lot.claims.values())
                asked.update(dict(moved.shape.requests))
                moved = moved.shaped(replace(moved.shape, requests=tuple(sorted(asked.items()))))
            changed[pod.uid] = moved
    return gang.with_pods(changed)
