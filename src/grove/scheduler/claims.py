"""Resource claims as the live scheduler meets them: what they ask of a node, promises, and writing them down.

A device is taken when a claim's status says so, or when it is promised to a pod whose binding is on its way. Before a
pod is bound, each of its claims gets its allocation, if it has none, and the pod's name. Taking devices back when pods
have gone is the work of Kubernetes' own claim controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from grove.api.core import DeviceClass, NodeSelector, Pod, ResourceClaim, ResourceSlice
from grove.api.meta import Json, Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import Conflict, ConnectionLost, KubeError, TooManyRequests, Unavailable
from grove.scheduler.devicecel import NotUnderstood
from grove.scheduler.devices import (
    SHARED,
    Asked,
    Device,
    DeviceId,
    allocated,
    allocation,
    choose,
    read_devices,
    read_requests,
)
from grove.scheduler.facts import NodeTerm, NodeTerms, PodFacts, Requests
from grove.scheduler.homes import Sites
from grove.scheduler.nodes import Mask
from grove.scheduler.podreq import node_terms
from grove.scheduler.snapshot import Snapshot

FINALIZER = "resource.kubernetes.io/delete-protection"
MOST_USERS = 256
RETRY_S = 1.0

Needs = tuple[Requests, tuple[NodeTerms, ...], str]
"""Devices to be counted on the node, where the rest can be reached, and why no node will do."""
NOTHING: Needs = ((), (), "")


@dataclass(slots=True)
class Promise:
    """Devices for a claim that is not allocated yet, and the pods (by uid) on their way that use it."""

    chosen: list[tuple[Asked, Device]]
    users: set[str] = field(default_factory=set)


class DeviceClaims:
    """`changed` is called when a claim or device may help a waiting pod, `recount` with nodes whose devices changed.

    `reaches(terms, node)` says whether a node meets terms.
    """

    def __init__(
        self, changed: Callable[[], None], recount: Callable[[Iterable[str]], None],
        reaches: Callable[[NodeTerms, str], bool],
    ) -> None:  # fmt: skip
        self._changed, self._recount, self._reaches = changed, recount, reaches
        self._find: Callable[[Key], ResourceClaim | None] = lambda key: None
        self._classes: dict[str, DeviceClass] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._local: dict[str, list[Device]] = {}
        self._wide: list[Device] = []
        self._given: dict[Key, set[DeviceId]] = {}
        self._promises: dict[Key, Promise] = {}
        self._asked: dict[str, Asked] = {}
        self._taken_now: set[DeviceId] | None = None

    async def follow(self, cache: Cache, client: Client) -> None:
        """Has the cache follow claims and devices, where the cluster knows such things."""
        while True:
            try:
                if not await client.serves(ResourceSlice):
                    return
                break
            except (ConnectionLost, TooManyRequests, Unavailable):
                await asyncio.sleep(RETRY_S)  # nothing can be followed before the server answers
        self._find = cache.add(ResourceClaim).get
        cache.on_event(DeviceClass, self._class_changed)
        cache.on_event(ResourceSlice, self._slice_changed)
        cache.on_event(ResourceClaim, self._claim_changed)

    # What there is

    def amounts(self, node: str) -> dict[str, int]:
        """Free devices of a node, by what was ever asked for."""
        free = [device for device in self._local.get(node, ()) if device.id not in self._taken()]
        return {name: sum(map(asked.matches, free)) for name, asked in self._asked.items()} if free else {}

    def needs(self, pod: Pod) -> Needs:
        """What a pending pod's claims ask of a node."""
        if not pod.spec.resource_claims:
            return NOTHING
        counted: dict[str, int] = {}
        terms: list[NodeTerms] = []
        for name, is_own in _claim_names(pod):
            claim = self._find(Key(pod.metadata.namespace, name)) if name else None
            if claim is None or claim.metadata.is_deleting:
                return (), (), f'resourceclaim "{name or pod.metadata.name}" does not exist (yet)'
            if claim.status.allocation is not None:
                only = claim.status.allocation.get("nodeSelector")
                if only is not None:
                    terms.append(node_terms(msgspec.convert(only, NodeSelector)) or ())
                continue
            try:
                asked = read_requests(claim.spec, self._classes)
            except NotUnderstood as err:
                return (), (), f'resourceclaim "{name}": {err}'
            self._learn(asked)
            local = [one for one in asked if not any(map(one.matches, self._wide))]
            terms += [self._reach_of(one) for one in asked if one not in local]
            if not is_own and local:
                counted[SHARED] = 0  # where its users go is decided with them; see `sharing`
                continue
            for one in local:
                counted[one.resource] = counted.get(one.resource, 0) + one.count
        return tuple(sorted(counted.items())), tuple(t for t in terms if t != ANYWHERE), ""

    def _learn(self, asked: Iterable[Asked]) -> None:
        new = {one.resource: one for one in asked if one.resource not in self._asked}
        if new:
            self._asked.update(new)
            self._recount(list(self._local))

    def _reach_of(self, one: Asked) -> NodeTerms:
        """Where a device of those that several nodes reach can be had."""
        found: list[NodeTerm] = []
        for device in self._wide:
            if one.matches(device) and device.id not in self._taken():
                reach = device.reach
                if reach is None:
                    return ANYWHERE
                found += reach
        return tuple(dict.fromkeys(found))

    def shared(self, pod: Pod) -> tuple[set[str], dict[Key, tuple[Asked, ...]]]:
        """Where shared claims of a waiting pod are promised, and what those that nobody has ask of one node."""
        homes: set[str] = set()
        free: dict[Key, tuple[Asked, ...]] = {}
        for name, is_own in _claim_names(pod):
            key = Key(pod.metadata.namespace, name)
            claim = self._find(key) if name and not is_own else None
            if claim is None or claim.status.allocation is not None:
                continue
            if (promised := self._promises.get(key)) is not None:
                homes |= {device.node for _, device in promised.chosen if device.node}
                continue
            asked = read_requests(claim.spec, self._classes)
            if local := tuple(one for one in asked if not any(map(one.matches, self._wide))):
                free[key] = local
        return homes, free

    def sites(self, snapshot: Snapshot, near: Mask) -> Sites:
        """Nodes with devices of their own, to choose homes of shared claims from."""
        return Sites(snapshot, self._local, self._taken(), near)

    def _taken(self) -> set[DeviceId]:
        """Devices that are given or promised; worked out again after a change."""
        if self._taken_now is None:
            promised = ({device.id for _, device in promise.chosen} for promise in self._promises.values())
            self._taken_now = set().union(*self._given.values(), *promised)
        return self._taken_now

    # Promises

    def promise(self, pods: Iterable[tuple[Pod, str]]) -> str:
        """Sets devices aside for pods on their nodes, for all of them or for none; what stands in the way, if so."""
        made: list[str] = []
        for pod, node in pods:
            for name, _ in _claim_names(pod):
                if trouble := self._promise(Key(pod.metadata.namespace, name), pod.metadata.uid, node):
                    for uid in [*made, pod.metadata.uid]:
                        self.release(uid)
                    return trouble
            made.append(pod.metadata.uid)
        return ""

    def _promise(self, key: Key, uid: str, node: str) -> str:
        claim = self._find(key)
        if claim is None:
            return f'resourceclaim "{key.name}" is gone'
        if claim.status.allocation is not None:
            return ""
        promise = self._promises.get(key)
        if promise is None:
            reached = [device for device in self._wide if device.reach is None or self._reaches(device.reach, node)]
            try:
                asked = read_requests(claim.spec, self._classes)
            except NotUnderstood as err:
                return f'resourceclaim "{key.name}": {err}'
            chosen = choose(asked, [*self._local.get(node, ()), *reached], self._taken())
            if chosen is None:
                return f'node {node} has not the free devices that resourceclaim "{key.name}" asks for'
            promise = self._promises[key] = Promise(chosen)
            self._taken_now = None
            self._recount([node])
        elif any(device.node not in ("", node) for _, device in promise.chosen):
            return f'resourceclaim "{key.name}" is shared and has its devices on another node'
        promise.users.add(uid)
        return ""

    def release(self, uid: str) -> None:
        """Forgets what was promised to a pod that will not be bound after all."""
        for key in [key for key, promise in self._promises.items() if uid in promise.users]:
            self._promises[key].users.discard(uid)
            if not self._promises[key].users:
                self._forget(key)

    def _forget(self, key: Key) -> None:
        promise = self._promises.pop(key, None)
        if promise is not None:
            self._taken_now = None
            self._recount({device.node for _, device in promise.chosen if device.node})

    # Writing it down

    def prepare(
        self, client: Client, find: Callable[[Key], Pod | None]
    ) -> Callable[[PodFacts, float], Awaitable[str] | None]:
        """What a binder does for a pod's claims before it binds it: nothing (None), or writes that end with trouble."""

        def prepare(facts: PodFacts, _: float) -> Awaitable[str] | None:
            pod = find(Key(facts.namespace, facts.name))
            return self._write(client, pod) if pod is not None and pod.spec.resource_claims else None

        return prepare

    async def _write(self, client: Client, pod: Pod) -> str:
        try:
            for name, _ in _claim_names(pod):
                while not await self._write_one(client, Key(pod.metadata.namespace, name), pod):
                    pass  # somebody else wrote to it in between; it is read again
        except KubeError as err:
            return f"a resource claim could not be given to the pod: {err}"
        except Lost as err:
            return str(err)
        return ""

    async def _write_one(self, client: Client, key: Key, pod: Pod) -> bool:
        """Allocates a claim if need be and reserves it for the pod; False when it changed under our hands."""
        claim = await client.get(ResourceClaim, key.name, key.namespace)
        users = claim.status.reserved_for
        if any(user.uid == pod.metadata.uid for user in users):
            return True
        if len(users) >= MOST_USERS:
            raise Lost(f'resourceclaim "{key.name}" has {MOST_USERS} users already')
        me = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        status: Json = {"reservedFor": [*(msgspec.to_builtins(user) for user in users), me]}
        try:
            if claim.status.allocation is None:
                promise = self._promises.get(key)
                if promise is None:
                    raise Lost(f'resourceclaim "{key.name}" lost its devices before the pod was bound')
                status["allocation"] = allocation(promise.chosen, claim.spec, self._classes)
                if FINALIZER not in claim.metadata.finalizers:
                    meta = {
                        "resourceVersion": claim.metadata.resource_version,
                        "finalizers": [*claim.metadata.finalizers, FINALIZER],
                    }
                    claim = await client.patch(ResourceClaim, key.name, {"metadata": meta}, key.namespace)
            version = {"resourceVersion": claim.metadata.resource_version}
            patch = {"metadata": version, "status": status}
            await client.patch(ResourceClaim, key.name, patch, key.namespace, subresource="status")
        except Conflict:
            return False
        return True

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
        if before != after:
            nodes = {n for n, devices in self._local.items() if any(d.id in before ^ after for d in devices)}
            self._recount(nodes)
        if old is None or new is None or old.status.allocation != new.status.allocation:
            self._changed()

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if new is None:
            assert old is not None
            self._slices.pop(old.metadata.name, None)
        else:
            self._slices[new.metadata.name] = new
        nodes = set(self._local)
        self._local, self._wide = {}, []
        for device in read_devices(self._slices.values()):
            if device.node:
                self._local.setdefault(device.node, []).append(device)
            else:
                self._wide.append(device)
        touched = {one.spec.get("nodeName") or "" for one in (old, new) if one is not None}
        self._recount((nodes ^ set(self._local)) | (touched & (nodes | set(self._local))))
        self._changed()

    def _class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        if new is None:
            assert old is not None
            self._classes.pop(old.metadata.name, None)
        else:
            self._classes[new.metadata.name] = new
        self._changed()


class Lost(Exception):
    """What was promised is not to be had any more; the text says why."""


ANYWHERE: NodeTerms = (NodeTerm(),)
"""Stands for no condition while terms are gathered; it never leaves this module."""


def _claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Names of a pod's claims, empty while one is still to be made, and whether it was made for this pod alone."""
    made = {one.get("name"): one.get("resourceClaimName") for one in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if named := entry.get("resourceClaimName"):
            yield str(named), False
        elif entry.get("name") not in made:
            yield "", True
        elif made[entry.get("name")]:
            yield str(made[entry.get("name")]), True
