"""How many devices nodes have free, by what pods ask for; and what they would have without some of their pods.

Nodes of a fleet are much alike, and so are their devices. What a device can serve is computed once for a list of
devices. How many sets of claims a node holds is computed once for each pattern of free devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from grove.scheduler.devices.claim_requests import ClaimRequests
from grove.scheduler.devices.device_allocation import copies, device_signature
from grove.scheduler.devices.device_inventory import ANY, Device, DeviceId, DeviceRequest

MOST_PATTERNS = 16_384
"""Patterns of free devices that are remembered; then they are counted again."""


@dataclass(slots=True)
class _Layout:
    """Devices of one node. By request, a bit for each that matches; by set of claims, a number for what matters."""

    devices: Sequence[Device]
    matching: dict[str, int] = field(default_factory=dict)
    pattern: dict[str, int] = field(default_factory=dict)


class DeviceCounts:
    def __init__(self) -> None:
        self.asked: dict[str, DeviceRequest] = {}
        self.sets: dict[str, tuple[ClaimRequests, ...]] = {}
        self._layouts: dict[str, _Layout] = {}
        self._patterns: dict[tuple[object, ...], int] = {}
        self._copies: dict[tuple[str, int, int], int] = {}

    def copy(self) -> DeviceCounts:
        """The same kinds and what is known of nodes, for another thread."""
        twin = DeviceCounts()
        twin.asked, twin.sets, twin._copies = dict(self.asked), dict(self.sets), dict(self._copies)
        twin._patterns = dict(self._patterns)
        return twin

    def learn(self, kinds: Mapping[str, DeviceRequest | tuple[ClaimRequests, ...]]) -> bool:
        """Counts by these kinds from now on; whether one of them is new."""
        new = kinds.keys() - self.asked.keys() - self.sets.keys()
        for name in new:
            if isinstance(kind := kinds[name], DeviceRequest):
                self.asked[name] = kind
            else:
                self.sets[name] = kind
        return bool(new)

    def keep(self, names: Collection[str]) -> set[str]:
        """Drops all other kinds; which those are."""
        gone = (self.asked.keys() | self.sets.keys()) - set(names)
        if gone:
            self.asked = {name: kind for name, kind in self.asked.items() if name not in gone}
            self.sets = {name: kind for name, kind in self.sets.items() if name not in gone}
            self._layouts.clear()
            self._patterns.clear()
            self._copies.clear()
        return gone

    def free(self, node: str, devices: Sequence[Device], taken: Collection[DeviceId]) -> dict[str, int]:
        """Free devices of a node, by what is asked for."""
        free = sum(1 << d for d, device in enumerate(devices) if device.id not in taken)
        if not free:
            return {}
        layout = self._layouts.get(node)
        if layout is None or layout.devices is not devices:
            layout = self._layouts[node] = _Layout(devices)
        counts = {name: (self._matching(layout, name) & free).bit_count() for name in self.asked}
        counts[ANY] = free.bit_count()
        for name, claims_requests in self.sets.items():
            key = (name, self._pattern(layout, name), free)
            if key not in self._copies:
                if len(self._copies) >= MOST_PATTERNS:
                    self._copies.clear()
                self._copies[key] = copies(claims_requests, devices, taken)
            counts[name] = self._copies[key]
        return counts

    def forget(self, node: str) -> None:
        """The node has other devices now, or none."""
        self._layouts.pop(node, None)

    def _matching(self, layout: _Layout, name: str) -> int:
        if name not in layout.matching:
            device_request = self.asked[name]
            layout.matching[name] = sum(
                1 << d for d, device in enumerate(layout.devices) if device_request.matches(device)
            )
        return layout.matching[name]

    def _pattern(self, layout: _Layout, name: str) -> int:
        if name not in layout.pattern:
            signature = (name, *device_signature(self.sets[name], layout.devices))
            layout.pattern[name] = self._patterns.setdefault(signature, len(self._patterns))
        return layout.pattern[name]


class ClaimsVacancy:
    """The devices that become free on nodes without some pods: devices of claims that no other pod uses."""

    def __init__(
        self,
        devices: Mapping[str, Sequence[Device]],
        taken: frozenset[DeviceId],
        given: Mapping[str, Sequence[tuple[frozenset[DeviceId], frozenset[str]]]],
        counts: DeviceCounts,
    ) -> None:
        """`given` has, by node, the devices of each claim and the uids of its users."""
        self._devices, self._taken, self._given, self._counts = devices, taken, given, counts

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        back = self.given_back(set(uids), self._given.get(node, ()))
        if not back:
            return {}
        devices = self._devices.get(node, ())
        before, after = (self._counts.free(node, devices, taken) for taken in (self._taken, self._taken - back))
        return {name: amount - before.get(name, 0) for name, amount in after.items()}

    @staticmethod
    def given_back(
        gone: Collection[str], claims: Sequence[tuple[frozenset[DeviceId], frozenset[str]]]
    ) -> frozenset[DeviceId]:
        """Devices of the claims all of whose users are gone."""
        return frozenset(id_ for ids, users in claims if users and users <= set(gone) for id_ in ids)
