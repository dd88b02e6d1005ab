"""The workloads of the behaviour catalogue, and eyes for what happens to pods while they change.

WL1: everything is needed (10 pods, all in the base gang). WL2: minimums of one (a scaled gang, tolerance everywhere).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World

QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")


def wl1(name: str = "wl", delay: str = "4h", **fields: Any) -> Json:
    """`pc-a` 2 of 2 beside two needed replicas of `pc-b` 1 of 1 with `pc-c` 3 of 3."""
    return pcs(
        name,
        clique("pc-a", 2),
        clique("pc-b", 1),
        clique("pc-c", 3),
        groups=[group("sg-x", "pc-b", "pc-c", replicas=2, min_available=2)],
        termination_delay=delay,
        **fields,
    )


def wl2(name: str = "wl", delay: str = "4h", pc_c_min: int = 1, **fields: Any) -> Json:
    """The same shape with minimums of one, so one copy of the group is scaled."""
    return pcs(
        name,
        clique("pc-a", 2, min_available=1),
        clique("pc-b", 1),
        clique("pc-c", 3, min_available=pc_c_min),
        groups=[group("sg-x", "pc-b", "pc-c", replicas=2, min_available=1)],
        termination_delay=delay,
        **fields,
    )


async def set_quota(world: World, pods: str) -> None:
    """The namespace may have this number of pods."""
    meta = {"name": "limit", "namespace": world.namespace}
    await world.client.create(QUOTA, {"metadata": meta, "spec": {"hard": {"pods": pods}}})

    async def in_force() -> bool:
        quota = await world.client.get(QUOTA, "limit", world.namespace)
        return world.cluster.is_sim or "hard" in (quota.get("status") or {})

    await world.eventually(in_force)


async def uids(world: World, clique_name: str = "") -> dict[str, str]:
    """Host name to UID of the pods that stay."""
    return {pod.spec.hostname: pod.metadata.uid for pod in await world.pods(clique_name)}


async def ready_pods(world: World) -> list[Pod]:
    return [pod for pod in await world.pods() if pod.is_ready]


async def change(world: World, name: str, *cliques: str, to: str = "two", **spec: Any) -> PodCliqueSet:
    """Changes the templates of these cliques (an environment variable), as a user's edit would; `spec` goes with it."""
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, name, world.namespace)
    templates = found["spec"]["template"]["cliques"]
    for template in templates:
        if template["name"] in cliques:
            template["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "VERSION", "value": to}]
            template["labels"] = {"version": to}
    patch = {"spec": {"template": {"cliques": templates}, **spec}}
    changed: PodCliqueSet = await world.client.patch(PodCliqueSet, name, patch, world.namespace)
    return changed


async def take_back(world: World, name: str, *cliques: str) -> PodCliqueSet:
    """Makes the templates of these cliques again what they were before any `change`."""
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, name, world.namespace)
    templates = found["spec"]["template"]["cliques"]
    for template in templates:
        if template["name"] in cliques:
            del template["spec"]["podSpec"]["containers"][0]["env"], template["labels"]
    back: PodCliqueSet = await world.client.patch(
        PodCliqueSet, name, {"spec": {"template": {"cliques": templates}}}, world.namespace
    )
    return back


async def pause(world: World, paused: bool) -> None:
    patch = {"metadata": {"annotations": {key.ROLLOUT_PAUSED: "true" if paused else None}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
    await world.quiet()


async def lose(world: World, hostname: str) -> None:
    """Deletes the pod of this host name without grace."""
    for pod in await world.pods():
        if pod.spec.hostname == hostname:
            await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    await world.quiet()


async def versions(world: World, clique_name: str = "") -> dict[str, str]:
    """Host name to the version that `change` put into the template; empty for the first."""
    page = await world.client.list(Pod.RESOURCE, world.namespace)
    found = {}
    for pod in page.items:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta or (clique_name and meta["labels"].get(key.POD_CLIQUE) != clique_name):
            continue
        env = pod["spec"]["containers"][0].get("env") or ()
        found[pod["spec"]["hostname"]] = next((one["value"] for one in env if one["name"] == "VERSION"), "")
    return found


async def updated(world: World, name: str, timeout_s: float = 120.0) -> PodCliqueSet:
    """The set, once the update of its newest generation has ended and everything is available again."""

    async def over() -> bool:
        found: PodCliqueSet = await world.get(PodCliqueSet, name)
        progress = found.status.update_progress
        return (
            found.status.observed_generation == found.metadata.generation
            and progress is not None
            and progress.update_ended_at is not None
            and found.status.updated_replicas == found.status.available_replicas == found.spec.replicas
        )

    await world.eventually(over, timeout_s)
    await world.quiet()
    return await world.get(PodCliqueSet, name)


class Witness:
    """Watches pods and keeps how many of each unit were down at the same time, at most.

    A unit is a clique (counted in pods), a group (counted in its replicas) or the set (counted in replicas). A place in
    it is down while it had a ready pod before and has none now.
    """

    def __init__(self) -> None:
        self.ready: dict[str, set[str]] = {}
        self.known: dict[str, str] = {}
        self.worst: dict[str, int] = {}
        self.deleted: list[str] = []

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        host, uid = pod.spec.hostname, pod.metadata.uid
        alive = self.ready.setdefault(host, set())
        if new is not None and new.is_ready and not new.metadata.is_deleting:
            alive.add(uid)
            self.known[host] = pod.metadata.labels[key.POD_CLIQUE]
        else:
            alive.discard(uid)
        if old is not None and not old.metadata.is_deleting and (new is None or new.metadata.is_deleting):
            self.deleted.append(host)
        self._count(pod.metadata.labels)

    def _count(self, labels: dict[str, str]) -> None:
        down = [host for host in self.known if not self.ready[host]]
        by_clique: dict[str, int] = {}
        of_groups: dict[str, set[str]] = {}
        replicas: set[str] = set()
        for host in down:
            clique_name = self.known[host]
            by_clique[clique_name] = by_clique.get(clique_name, 0) + 1
            parts = clique_name.split("-")
            replicas.add(parts[1])
            if "-sg-x-" in clique_name:
                of_groups.setdefault(clique_name.split("-sg-x-")[0], set()).add(clique_name.split("-sg-x-")[1][0])
        by_group = {f"{name}/replicas": len(one) for name, one in of_groups.items()}
        seen = {**by_clique, **by_group, "replicas": len(replicas)}
        for unit, count in seen.items():
            self.worst[unit] = max(self.worst.get(unit, 0), count)

    def forget(self, *hosts: str) -> None:
        """Places that are not expected to come back."""
        for host in hosts:
            self.known.pop(host, None)


@asynccontextmanager
async def watching(world: World) -> AsyncIterator[Witness]:
    """A witness with a watch of its own, synced before the block begins."""
    witness, cache = Witness(), Cache(world.client)
    cache.add(Pod, namespace=world.namespace)
    cache.on_event(Pod, witness.on_pod)
    async with cache:
        await cache.wait_synced()
        yield witness


async def holds(world: World, for_s: float, says: Callable[[], Any]) -> None:
    """Fails if `says` stops being true within the time."""
    end = asyncio.get_running_loop().time() + for_s
    while asyncio.get_running_loop().time() < end:
        answer = await says()
        assert answer, answer
        await asyncio.sleep(min(0.5, for_s / 4))


class Capacity:
    """Watches pods: the fewest that were ready, the most that were there, and how often each host name was deleted."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.pods: dict[str, Pod] = {}
        self.least: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.deleted: Counter[str] = Counter()
        self.hosts: set[str] = set()

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or new.metadata.is_deleting:
            self.pods.pop(pod.metadata.uid, None)
            if old is not None and not old.metadata.is_deleting:
                self.deleted[pod.spec.hostname] += 1
        else:
            self.pods[pod.metadata.uid] = new
            self.hosts.add(new.spec.hostname)
        ready, there = Counter[str](), Counter[str]()
        for one in self.pods.values():
            ready[one.metadata.labels[key.CLIQUE_NAME]] += one.is_ready
            there[one.metadata.labels[key.CLIQUE_NAME]] += 1
        for part, count in there.items():
            self.least[part] = min(self.least.get(part, ready[part]), ready[part])
            self.most[part] = max(self.most[part], count)


@asynccontextmanager
async def counting(world: World) -> AsyncIterator[Capacity]:
    cache = Cache(world.client)
    cache.add(Pod, namespace=world.namespace)
    seen = Capacity(cache)
    async with cache:
        await cache.wait_synced()
        seen.pods = {pod.metadata.uid: pod for pod in cache.list(Pod)}
        cache.on_event(Pod, seen.on_pod)
        yield seen
