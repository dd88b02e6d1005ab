"""The node for the pods that share a claim, while its devices are not allocated yet. Pure: the loop's `Sharing` asks.

Devices of a node serve pods on that node alone. So all users of a claim go to one node, with all claims of such a pod
and their users: `SharedClaims` have one node. The placement of the whole gang confirms or refuses this guess.

Choices come best first. Each counts what those before it would take. Then one node after another is replaced by the
next best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grove.api.meta import Key
from grove.api.selector import Requirement
from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.claim_requests import ClaimRequests, counted
from grove.scheduler.devices.device_allocation import allot
from grove.scheduler.devices.device_inventory import Device, DeviceId
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.model.facts import NodeTerm, PodFacts, Requests
from grove.scheduler.model.gang import Gang

OpenClaims = Mapping[Key, ClaimRequests]
"""What claims ask of one node, by claim."""


@dataclass(frozen=True, slots=True)
class SharedClaims:
    """Claims that have to be met on one node, because pods share them, and all their users."""

    claims: OpenClaims
    users: tuple[PodFacts, ...]

    @property
    def name(self) -> str:
        return min(key.name for key in self.claims)


def tied_claims(users: Iterable[tuple[PodFacts, OpenClaims]]) -> list[SharedClaims]:
    """Pods and their claims, those together that a common pod ties together; in the order of the pods."""
    groups: list[SharedClaims] = []
    for pod, claims in users:
        tied = [group for group in groups if group.claims.keys() & claims.keys()]
        joined: dict[Key, ClaimRequests] = {}
        for group in tied:
            joined |= group.claims
        merged = SharedClaims({**joined, **claims}, (*(user for group in tied for user in group.users), pod))
        if tied:
            groups[groups.index(tied[0])] = merged
            groups = [group for group in groups if group not in tied[1:]]
        else:
            groups.append(merged)
    return groups


class DeviceNodes:
    """Nodes that have devices of their own, and what is free on them. `near` are rows to be preferred."""

    def __init__(
        self, snapshot: Snapshot, devices: Mapping[str, Sequence[Device]], taken: Collection[DeviceId], near: Mask
    ) -> None:
        self._snapshot, self._devices = snapshot, devices
        self._names = sorted(name for name in devices if name in snapshot.nodes.row_of)
        self._rows: Ints = np.array([snapshot.nodes.row_of[name] for name in self._names], dtype=np.int64)
        self._near = near[self._rows]
        self._taken = set(taken)
        counts = [sum(device.id not in self._taken for device in devices[name]) for name in self._names]
        self._spare = np.array(counts, dtype=np.int64)

    def choices(self, shared: Sequence[SharedClaims]) -> Iterator[tuple[str, ...]]:
        """A node for each of them, again and again until no other choice is left."""
        for total in range(len(self._names) * len(shared) + 1):
            fresh = False
            for skips in _sums(total, len(shared)):
                nodes = self._chosen(shared, skips)
                if nodes is not None:
                    fresh = True
                    yield nodes
            if not fresh:
                return

    def lacking(self, shared: Sequence[SharedClaims]) -> SharedClaims | None:
        """The first of them that has no node even by itself."""
        return next((claims for claims in shared if self._chosen([claims], (0,)) is None), None)

    def _chosen(self, shared: Sequence[SharedClaims], skips: Sequence[int]) -> tuple[str, ...] | None:
        asked = [_together(group) for group in shared]
        for requests in asked:
            self._snapshot.amounts(requests)  # what was never asked for before gets a row, before rows are copied
        free, spare, taken = self._snapshot.free[:, self._rows].copy(), self._spare.copy(), set(self._taken)
        nodes = []
        for claims, requests, skip in zip(shared, asked, skips, strict=True):
            need = self._snapshot.column_of(requests)
            at = self._best(claims, need, free, spare, taken, skip)
            if at is None:
                return None
            site, devices = at
            free[:, site] -= need
            spare[site] -= len(devices)
            taken |= devices
            nodes.append(self._names[site])
        return tuple(nodes)

    def _best(
        self, claims: SharedClaims, need: Ints, free: Ints, spare: Ints, taken: set[DeviceId], skip: int
    ) -> tuple[int, set[DeviceId]] | None:
        whole = np.ones(len(self._names), dtype=np.bool_)
        some = np.zeros(len(self._names), dtype=np.bool_)
        for shape in {pod.shape for pod in claims.users}:
            allowed = allowed_mask(self._snapshot, shape)[self._rows]
            whole &= allowed
            some |= allowed & _fits(free, self._snapshot.column_of(shape.requests))
        whole &= _fits(free, need)
        order = sorted(
            np.flatnonzero(some | whole).tolist(),
            key=lambda site: (not whole[site], not self._near[site], -spare[site], self._names[site]),
        )
        for site in order:
            got = allot(list(claims.claims.values()), self._devices[self._names[site]], taken)
            if got is None:
                continue
            if skip == 0:
                return site, {device.id for chosen in got for _, device in chosen}
            skip -= 1
        return None


def _sums(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of `parts` numbers."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _sums(total - first, parts - 1):
            yield (first, *rest)


def _together(claims: SharedClaims) -> Requests:
    """The requests of all users together. Shared devices count once."""
    total = counted(claims.claims.values())
    for pod in claims.users:
        total.update(dict(pod.shape.requests))
    return tuple(sorted(total.items()))


def _fits(free: Ints, need: Ints) -> Mask:
    """Columns that hold all of it; what is not asked for may well be short."""
    asked = np.flatnonzero(need > 0)
    fits: Mask = np.logical_and.reduce(free[asked] >= need[asked, None], axis=0)
    return fits


def confined_to(pod: PodFacts, nodes: Iterable[str]) -> PodFacts:
    """The pod, to be placed on a node that is each of these."""
    terms = tuple((NodeTerm(names=(Requirement("metadata.name", "In", frozenset((node,))),)),) for node in nodes)
    return pod.asking(volumes=(*pod.shape.volumes, *terms)) if terms else pod


def on_nodes(gang: Gang, shared: Sequence[SharedClaims], nodes: Sequence[str]) -> Gang:
    """The gang with its sharing pods confined to these nodes; the first user asks for the shared devices."""
    changed: dict[str, PodFacts | None] = {}
    for claims, node in zip(shared, nodes, strict=True):
        for number, pod in enumerate(claims.users):
            moved = confined_to(pod, (node,))
            if number == 0:
                asked = counted(claims.claims.values())
                asked.update(dict(moved.shape.requests))
                moved = moved.asking(requests=tuple(sorted(asked.items())))
            changed[pod.uid] = moved
    return gang.with_pods(changed)
