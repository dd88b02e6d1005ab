"""Resource claims in the live scheduler: what they ask of a node, and which devices are promised to which pods.

A device is taken when a claim's status says so, or when it is promised to a pod that is being bound; `preparing`
writes promises down. Kubernetes' claim controller frees devices when pods have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from grove.api.core import DeviceClass, NodeSelector, Pod, ResourceClaim, ResourceSlice
from grove.api.meta import Key
from grove.scheduler.cluster.node_table import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.cel import NotUnderstood
from grove.scheduler.devices.claim_requests import ClaimRequests, counted, read_claim_requests, set_name
from grove.scheduler.devices.device_allocation import allot
from grove.scheduler.devices.device_counts import ClaimsVacancy, DeviceCounts
from grove.scheduler.devices.device_inventory import (
    DEVICES,
    SHARED,
    Device,
    DeviceId,
    DeviceInventory,
    DeviceRequest,
    allocated,
)
from grove.scheduler.devices.shared_claims import DeviceNodes
from grove.scheduler.model.facts import NodeTerm, NodeTerms, PodFacts, Requests, node_terms
from grove.scheduler.model.seams import NO_NEEDS, Needs, Refusal, Vacancy
from grove.scheduler.sources.node_sources import FollowedCluster, FollowedSource


class ClaimPromise(msgspec.Struct):
    """Devices for a claim that is not allocated yet, and the pods (by uid) on their way that use it."""

    chosen: list[tuple[DeviceRequest, Device]]
    claim: str
    """Its uid: another claim of its name may ask for something else."""
    users: set[str] = msgspec.field(default_factory=set)


class DeviceClaims(FollowedSource):
    """`write` gives a pod the devices that its claims were promised."""

    name = "device claims"
    counts = DEVICES

    def __init__(self, cluster: FollowedCluster, write: Callable[[DeviceClaims, Pod, float], Awaitable[str]]) -> None:
        super().__init__(cluster)
        self._write = write
        self._find: Callable[[Key], ResourceClaim | None] = lambda key: None
        self.classes: dict[str, DeviceClass] = {}
        self._devices = DeviceInventory()
        self._given: dict[Key, set[DeviceId]] = {}
        self._promises: dict[Key, ClaimPromise] = {}
        self._counts = DeviceCounts()
        self._taken_now: set[DeviceId] | None = None
        self._freed = asyncio.Event()
        """Set when a claim gave devices back."""

    def follow(self) -> None:
        self._find = self._cache.add(ResourceClaim).get
        self._cache.on_event(DeviceClass, self._class_changed)
        self._cache.on_event(ResourceSlice, self._slice_changed)
        self._cache.on_event(ResourceClaim, self._claim_changed)

    # What there is

    def amounts(self, node: str) -> dict[str, int]:
        """Free devices of a node, by what waiting pods ask for."""
        return self._counts.free(node, self._devices.local.get(node, ()), self._taken())

    def vacancy(self, asked: Collection[str], nodes: Callable[[], Collection[str]]) -> Vacancy | None:
        if not any(name.startswith(DEVICES) for name in asked):
            return None
        given: dict[str, list[tuple[frozenset[DeviceId], frozenset[str]]]] = {}
        for key, ids in self._given.items():
            for node in self._devices.nodes_of(ids):
                given.setdefault(node, []).append((frozenset(ids), self._users(key)))
        devices = {node: tuple(self._devices.local.get(node, ())) for node in nodes()}
        return ClaimsVacancy(devices, frozenset(self._taken()), given, self._counts.copy())

    def _users(self, key: Key) -> frozenset[str]:
        claim = self._find(key)
        return frozenset(user.uid for user in claim.status.reserved_for) if claim is not None else frozenset()

    def departed_pods(self) -> dict[str, list[str]]:
        departed: dict[str, list[str]] = {}
        for key, ids in self._given.items():
            claim = self._find(key)
            for user in claim.status.reserved_for if claim is not None else ():
                pod = self._cluster.pods.get(Key(key.namespace, user.name))
                if pod is None or pod.metadata.uid != user.uid:
                    for node in self._devices.nodes_of(ids):
                        departed.setdefault(node, []).append(user.uid)
        return departed

    def needs(self, pod: Pod) -> Needs:
        """The requests of a pending pod's claims on a node."""
        if not pod.spec.resource_claims or pod.spec.node_name:
            return NO_NEEDS
        marks: dict[str, int] = {}
        own: list[ClaimRequests] = []
        shared: list[ClaimRequests] = []
        terms: list[NodeTerms] = []
        for name, is_own in claim_names(pod):
            claim = self._find(Key(pod.metadata.namespace, name)) if name else None
            if claim is None or claim.metadata.is_deleting:
                return Needs(blocked=f'resourceclaim "{name or pod.metadata.name}" does not exist (yet)')
            if claim.status.allocation is not None:
                only = claim.status.allocation.get("nodeSelector")
                if only is not None:
                    terms.append(node_terms(msgspec.convert(only, NodeSelector)) or ())
                continue
            try:
                claims_requests, wide = self._read(claim)
            except NotUnderstood as err:
                return Needs(blocked=f'resourceclaim "{name}": {err}')
            terms += map(self._reach_of, wide)
            if is_own:
                own.append(claims_requests)
            elif claims_requests.requests:
                marks[SHARED] = 0  # where its users go is decided with them; see `decisions.Sharing`
                shared.append(claims_requests)
        whole = set_name(own)
        asked = {**marks, **_asked(own)}
        kinds: dict[str, DeviceRequest | tuple[ClaimRequests, ...]] = {
            device_request.resource: device_request
            for claims_requests in (*own, *shared)
            for device_request in claims_requests.asked()
        }
        if whole:
            kinds[whole] = tuple(own)
        return Needs(tuple(sorted(asked.items())), tuple(t for t in terms if t != ANYWHERE), kinds=kinds)

    def replacement(self, pod: Pod) -> Requests:
        """The requests of the claims that were made for the pod alone. The next pod gets equal claims."""
        names = [name for name, is_own in claim_names(pod) if is_own and name] if pod.spec.resource_claims else []
        claims = [claim for name in names if (claim := self._find(Key(pod.metadata.namespace, name))) is not None]
        try:
            return tuple(sorted(_asked([self._read(claim)[0] for claim in claims]).items())) if claims else ()
        except NotUnderstood:
            return ()

    def _read(self, claim: ResourceClaim) -> tuple[ClaimRequests, list[DeviceRequest]]:
        """The requests of a claim on its node, and on devices that several nodes reach. Raises NotUnderstood."""
        claims_requests = read_claim_requests(claim.spec, self.classes)
        wide = [
            device_request
            for device_request in claims_requests.asked()
            if any(map(device_request.matches, self._devices.wide))
        ]
        if wide and not claims_requests.is_plain:
            raise NotUnderstood("alternatives, constraints and `All` are not understood for devices of several nodes")
        return claims_requests.only(either for either in claims_requests.requests if either[0] not in wide), wide

    def learn(self, kinds: Mapping[str, DeviceRequest | tuple[ClaimRequests, ...]]) -> None:
        """Counts nodes by single requests, and by all requests of a pod together."""
        if self._counts.learn(kinds):
            self._stale.update(self._devices.local)

    def keep(self, kinds: Collection[str]) -> Collection[str]:
        gone = self._counts.keep(kinds)
        if gone:
            self._stale.update(self._devices.local)
        return gone

    def _reach_of(self, device_request: DeviceRequest) -> NodeTerms:
        """Where a device of those that several nodes reach can be had."""
        terms: list[NodeTerm] = []
        for device in self._devices.wide:
            if device_request.matches(device) and device.id not in self._taken():
                reach = device.reach
                if reach is None:
                    return ANYWHERE
                terms += reach
        return tuple(dict.fromkeys(terms))

    def shared(self, pod: Pod) -> tuple[set[str], dict[Key, ClaimRequests]]:
        """Nodes where shared claims of a waiting pod are promised, and what the claims without a node ask of one."""
        nodes: set[str] = set()
        free: dict[Key, ClaimRequests] = {}
        for name, is_own in claim_names(pod):
            key = Key(pod.metadata.namespace, name)
            claim = self._find(key) if name and not is_own else None
            if claim is None or claim.status.allocation is not None:
                continue
            if (promised := self._promises.get(key)) is not None:
                nodes |= {device.node for _, device in promised.chosen if device.node}
                continue
            claims_requests, _ = self._read(claim)
            if claims_requests.requests:
                free[key] = claims_requests
        return nodes, free

    def sites(self, snapshot: Snapshot, near: Mask, leaving: Collection[str] = ()) -> DeviceNodes:
        """Nodes with devices of their own, to choose from for shared claims; pods in `leaving` have none."""
        return DeviceNodes(snapshot, self._devices.local, self._not_free(leaving), near)

    def _taken(self) -> set[DeviceId]:
        """Devices that are given or promised, or not for us to give; worked out again after a change."""
        if self._taken_now is None:
            promised = ({device.id for _, device in promise.chosen} for promise in self._promises.values())
            self._taken_now = self._devices.odd.union(*self._given.values(), *promised)
        return self._taken_now

    def _not_free(self, leaving: Collection[str]) -> set[DeviceId]:
        """Devices that cannot be promised: what pods that make way have is not among them."""
        if not leaving:
            return self._taken()
        kept = (ids for key, ids in self._given.items() if not (users := self._users(key)) or not users <= set(leaving))
        promised = ({device.id for _, device in promise.chosen} for promise in self._promises.values())
        return self._devices.odd.union(*kept, *promised)

    # Promises

    def _promise(self, node: str, pods: Sequence[PodFacts]) -> Refusal | None:
        users = [pod for pod in map(self._pod, pods) if pod is not None and pod.spec.resource_claims]
        trouble = self._give(node, users) if users else ""
        return Refusal(node, trouble) if trouble else None

    def _give(self, node: str, users: Sequence[Pod]) -> str:
        """Sets devices of a node aside for all claims of pods at once; what stands in the way, if so."""
        new: dict[Key, ClaimRequests] = {}
        uids: dict[Key, str] = {}
        uses: list[tuple[Key, str]] = []
        for pod in users:
            for name, _ in claim_names(pod):
                key = Key(pod.metadata.namespace, name)
                claim = self._find(key)
                if claim is None:
                    return f'resourceclaim "{name}" is gone'
                if claim.status.allocation is not None:
                    continue
                known = self._promises.get(key)
                if known is not None and any(device.node not in ("", node) for _, device in known.chosen):
                    return f'resourceclaim "{name}" is shared and has its devices on another node'
                uses.append((key, pod.metadata.uid))
                try:
                    if known is None and key not in new:
                        new[key], uids[key] = read_claim_requests(claim.spec, self.classes), claim.metadata.uid
                except NotUnderstood as err:
                    return f'resourceclaim "{name}": {err}'
        if new:
            wide = self._devices.wide
            reached = [device for device in wide if device.reach is None or self._cluster.meets(device.reach, node)]
            near = [*self._devices.local.get(node, ()), *reached]
            chosen = allot(list(new.values()), near, self._not_free(self._cluster.sources.making_way))
            if chosen is None:
                names = ", ".join(f'"{key.name}"' for key in sorted(new)[:3])
                return f"node {node} has not the free devices for resourceclaims {names}"
            self._promises.update((key, ClaimPromise(got, uids[key])) for key, got in zip(new, chosen, strict=True))
            self._taken_now = None
            self._stale.add(node)
        for key, uid in uses:
            self._promises[key].users.add(uid)
        return ""

    def prepare(self, facts: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        """Writes the pod's devices into its claims."""
        pod = self._pod(facts)
        return self._write(self, pod, deadline_s) if pod is not None and pod.spec.resource_claims else None

    def find_promise(self, key: Key) -> ClaimPromise | None:
        """The devices that are set aside for a claim."""
        return self._promises.get(key)

    async def until_free(self, key: Key, deadline_s: float) -> None:
        """Waits until no other claim has the devices of this one.

        A claim that is deleted gives its devices back a moment later. Ends at the deadline in any case.
        """
        loop = asyncio.get_running_loop()
        while loop.time() < deadline_s and not self.is_free(key):
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self._freed.wait()

    def is_free(self, key: Key) -> bool:
        """True if no other claim has the devices that are set aside for a claim."""
        promise = self._promises.get(key)
        chosen = {device.id for _, device in promise.chosen} if promise is not None else set()
        return all(chosen.isdisjoint(ids) for other, ids in self._given.items() if other != key)

    def release(self, uid: str) -> None:
        """Forgets what was promised to a pod that will not be bound after all."""
        for key in [key for key, promise in self._promises.items() if uid in promise.users]:
            self._promises[key].users.discard(uid)
            if not self._promises[key].users:
                self._forget(key)
                if (
                    uid in self._cluster.counted.reserved
                ):  # others need not follow the claim, or reach the device, where it was
                    self._cluster.reader.help_dependents()

    def _forget(self, key: Key) -> None:
        promise = self._promises.pop(key, None)
        if promise is not None:
            self._taken_now = None
            self._stale.update(device.node for _, device in promise.chosen if device.node)

    # Events

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        key = (new or old).metadata.key  # type: ignore[union-attr]
        before = self._given.pop(key, set())
        after = allocated(new.status.allocation) if new is not None else set()
        self._taken_now = None
        if after:
            self._given[key] = after
        if after or new is None:
            self._forget(key)
        if before - after:
            self._freed.set()
        self._stale.update(self._devices.nodes_of(before ^ after))
        if old is None or new is None or old.status.allocation != new.status.allocation:
            self._cluster.reader.help_dependents()

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        changed = self._devices.change(old, new)
        for node in changed:
            self._counts.forget(node)
        self._stale.update(changed)
        self._taken_now = None
        self._cluster.reader.help_dependents()

    def _class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        if new is None:
            assert old is not None
            self.classes.pop(old.metadata.name, None)
        else:
            self.classes[new.metadata.name] = new
        self._cluster.reader.help_dependents()


ANYWHERE: NodeTerms = (NodeTerm(),)
"""Stands for no condition while terms are gathered; it never leaves this module."""


def _asked(claims_requests: Sequence[ClaimRequests]) -> dict[str, int]:
    """The requests of one pod's claims, by the counted resources of nodes."""
    return {**counted(claims_requests), **({whole: 1} if (whole := set_name(claims_requests)) else {})}


def claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Names of a pod's claims, empty while one is still to be made, and whether it was made for this pod alone."""
    made = {status.get("name"): status.get("resourceClaimName") for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if named := entry.get("resourceClaimName"):
            yield str(named), False
        elif entry.get("name") not in made:
            yield "", True
        elif made[entry.get("name")]:
            yield str(made[entry.get("name")]), True
