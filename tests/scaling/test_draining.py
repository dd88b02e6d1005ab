"""Draining: a unit that goes is marked and not ready for its time before its pods are deleted, at every level."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import change, take_back, uids, updated

from grove.api import labels as key
from grove.api.conditions import IN_PLACE, EventReason
from grove.api.core import Pod
from grove.api.draining import draining_until
from grove.api.meta import Json, Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.errors import Forbidden

simulated = pytest.mark.simulated


def drained(*cliques: Json, seconds: int | None = 30, **more: Any) -> Json:
    manifest = pcs("wl", *cliques, **more)
    if seconds is not None:
        manifest["metadata"].setdefault("annotations", {})[key.DRAIN_SECONDS] = str(seconds)
    return manifest


def of_group(instances: int = 3, minimum: int = 1, **more: Any) -> Json:
    groups = [group("g", "lead", "work", replicas=instances, min_available=minimum)]
    return drained(clique("lead"), clique("work", 2), groups=groups, **more)


class Farewells:
    """Watches pods: how each that was deleted looked in its last moment."""

    def __init__(self, world: World) -> None:
        self._clock = world.cluster.clock
        self._is_sim = world.cluster.is_sim
        self.at_once: set[str] = set()
        """Host names of pods that were deleted without a mark."""
        self.drained: set[str] = set()
        """Those that were deleted with a mark, not ready, and when their time was over."""
        self.early: set[str] = set()
        self.most_down = 0
        self._pods: dict[str, Pod] = {}

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is not None and not new.metadata.is_deleting:
            self._pods[new.metadata.uid] = new
        elif (last := self._pods.pop(pod.metadata.uid, None)) is not None:
            end = draining_until(last)
            if end is None:
                self.at_once.add(pod.spec.hostname)
            elif self._serves(last) or self._clock.now() < end:
                self.early.add(pod.spec.hostname)
            else:
                self.drained.add(pod.spec.hostname)
        self._count_down()

    def _serves(self, pod: Pod) -> bool:
        """On a real server a busy kubelet may report late, so there only the operator's own readiness gate counts."""
        return pod.is_ready if self._is_sim else is_true(pod.status.conditions, IN_PLACE)

    def _count_down(self) -> None:
        down = sum(key.DRAINING in one.metadata.annotations or not one.is_ready for one in self._pods.values())
        self.most_down = max(self.most_down, down)


@asynccontextmanager
async def watching(world: World) -> AsyncIterator[Farewells]:
    seen, cache = Farewells(world), Cache(world.client)
    cache.add(Pod, namespace=world.namespace)
    cache.on_event(Pod, seen.on_pod)
    async with cache:
        await cache.wait_synced()
        yield seen
    assert not seen.early, "deleted before the time was over, or while a Service still sent requests"


async def begun(world: World, manifest: Json, pods: int) -> set[str]:
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(pods)
    await world.quiet()
    return set(await world.hostnames())


async def left(world: World, hosts: set[str], timeout_s: float = 120.0) -> None:
    """Waits until exactly these pods are there, ready and without a mark."""

    async def there() -> bool:
        pods = await world.pods()
        return {pod.spec.hostname for pod in pods} == hosts and all(
            pod.is_ready and key.DRAINING not in pod.metadata.annotations for pod in pods
        )

    await world.eventually(there, timeout_s)
    await world.quiet()


async def marked(world: World, hosts: set[str]) -> None:
    """Waits until exactly these pods are marked, and none of them is ready."""

    async def there() -> bool:
        pods = [pod for pod in await world.pods() if key.DRAINING in pod.metadata.annotations]
        return {pod.spec.hostname for pod in pods} == hosts and not any(pod.is_ready for pod in pods)

    await world.eventually(there)


async def annotate(world: World, pod: str, **annotations: str | None) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await world.client.patch(Pod, pod, patch, world.namespace)


async def test_scale_in_of_a_clique_drains_first(world: World) -> None:
    hosts = await begun(world, drained(clique("w", 3, min_available=1), seconds=3), 3)
    gates = [is_true(pod.status.conditions, IN_PLACE) for pod in await world.pods()]
    assert gates == [True] * 3

    async with watching(world) as seen:
        await world.scale(PodClique, "wl-0-w", 2)
        await left(world, hosts - {"wl-0-w-2"})
    assert (seen.drained, seen.at_once) == ({"wl-0-w-2"}, set())
    assert "draining 1 pod until" in await world.event("wl-0-w", EventReason.POD_DRAINING)


@simulated
async def test_scale_in_of_a_group_drains_the_whole_instance(world: World) -> None:
    hosts = await begun(world, of_group(), 9)
    gone = {host for host in hosts if "-g-2-" in host}

    async with watching(world) as seen:
        await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
        await marked(world, gone)
        found = await world.get(PodCliqueScalingGroup, "wl-0-g")
        assert [one.replica_index for one in found.status.draining] == [2]
        assert (found.status.replicas, found.status.available_replicas) == (2, 2)
        assert "wl-0-g-1" in await world.names(PodGang), "the gang stays as long as its pods do"
        await left(world, hosts - gone)
    assert (seen.drained, seen.at_once) == (gone, set())
    assert (await world.get(PodCliqueScalingGroup, "wl-0-g")).status.draining == ()
    assert await world.names(PodGang) == ["wl-0", "wl-0-g-0"]


@simulated
async def test_scale_in_of_a_set_drains_the_whole_replica(world: World) -> None:
    hosts = await begun(world, of_group(2, replicas=3), 18)
    gone = {host for host in hosts if host.startswith("wl-2-")}

    async with watching(world) as seen:
        await world.scale(PodCliqueSet, "wl", 2)
        await marked(world, gone)
        found = await world.get(PodCliqueSet, "wl")
        assert [one.replica_index for one in found.status.draining] == [2]
        assert (found.status.replicas, found.status.available_replicas) == (2, 2)
        assert {"wl-2", "wl-2-g-0"} <= set(await world.names(PodGang))
        await left(world, hosts - gone)
    assert (seen.drained, seen.at_once) == (gone, set())
    assert (await world.get(PodCliqueSet, "wl")).status.draining == ()
    assert not [name for name in await world.names(PodGang) if name.startswith("wl-2")]
    assert not [one for one in await world.names(PodCliqueScalingGroup) if one.startswith("wl-2")]


SCALED: dict[str, tuple[type[Object], str, int]] = {
    "clique": (PodClique, "wl-0-w", 3),
    "group": (PodCliqueScalingGroup, "wl-0-g", 3),
    "set": (PodCliqueSet, "wl", 2),
}
LAST = {"clique": "wl-0-w-2", "group": "wl-0-g-2", "set": "wl-1-"}
"""How the host names of the last unit begin."""


def by_kind(kind: str, **more: Any) -> tuple[Json, int]:
    if kind == "clique":
        return drained(clique("w", 3, min_available=1), **more), 3
    return (of_group(3, **more), 9) if kind == "group" else (of_group(1, replicas=2, **more), 6)


@simulated
@pytest.mark.parametrize("kind", ["clique", "group", "set"])
async def test_scaling_out_again_takes_the_mark_back(world: World, kind: str) -> None:
    manifest, pods = by_kind(kind)
    hosts, (scaled, name, replicas) = await begun(world, manifest, pods), SCALED[kind]
    before = await uids(world)
    gone = {host for host in hosts if host.startswith(LAST[kind])}

    async with watching(world) as seen:
        await world.scale(scaled, name, replicas - 1)
        await marked(world, gone)
        await world.scale(scaled, name, replicas)
        await left(world, hosts)
        await world.cluster.settle(60)
    assert await uids(world) == before
    assert not seen.drained
    assert not seen.at_once


@simulated
@pytest.mark.parametrize("kind", ["clique", "group", "set"])
async def test_draining_outlives_the_operator(world: World, kind: str) -> None:
    manifest, pods = by_kind(kind)
    hosts, (scaled, name, replicas) = await begun(world, manifest, pods), SCALED[kind]
    gone = {host for host in hosts if host.startswith(LAST[kind])}

    async with watching(world) as seen:
        await world.scale(scaled, name, replicas - 1)
        await marked(world, gone)
        ends = {pod.metadata.annotations.get(key.DRAINING) for pod in await world.pods()} - {None}
        await world.restart()
        await marked(world, gone)
        assert {pod.metadata.annotations.get(key.DRAINING) for pod in await world.pods()} - {None} == ends
        await left(world, hosts - gone)
    assert seen.drained == gone


@simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
@pytest.mark.parametrize("strategy", ["RollingRecreate", "Coherent"])
@pytest.mark.parametrize("surge", [0, 1])
async def test_an_update_drains_each_unit_within_its_budget(world: World, kind: str, strategy: str, surge: int) -> None:
    manifest, pods = by_kind(kind, strategy={"type": strategy})
    parts = manifest["spec"]["template"]
    (parts["podCliqueScalingGroups"] if kind == "group" else parts["cliques"])[0]["rollingUpdate"] = (
        {"maxSurge": surge} if surge else {"maxUnavailable": 1}
    )
    hosts = await begun(world, manifest, pods)

    async with watching(world) as seen:
        await change(world, "wl", "w" if kind == "clique" else "lead")
        await updated(world, "wl", 600.0)
        await left(world, hosts, 300.0)
    assert seen.drained >= hosts
    assert not seen.at_once
    if strategy == "RollingRecreate" and not surge:
        assert seen.most_down <= {"clique": 1, "group": 3}[kind], "what drains counts as unavailable"


UNDONE = [
    pytest.param("clique", "w", {"type": "RollingRecreate"}, {"wl-0-w-0"}, id="clique"),
    *(
        pytest.param("group", "lead", strategy, {"wl-0-g-0-lead-0", "wl-0-g-0-work-0", "wl-0-g-0-work-1"}, id=name)
        for name, strategy in {
            "group": {"type": "RollingRecreate"},
            "group in place": {"type": "RollingRecreate", "inPlace": "IfPossible"},
            "coherent group": {"type": "Coherent"},
        }.items()
    ),
]


@simulated
@pytest.mark.parametrize(("kind", "part", "strategy", "first"), UNDONE)
async def test_an_undo_takes_the_mark_back(world: World, kind: str, part: str, strategy: Json, first: set[str]) -> None:
    manifest, pods = by_kind(kind, strategy=strategy)
    hosts = await begun(world, manifest, pods)
    before = await uids(world)

    async with watching(world) as seen:
        await change(world, "wl", part)
        await marked(world, first)
        await take_back(world, "wl", part)
        await left(world, hosts)
        await world.cluster.settle(60)
    assert await uids(world) == before
    assert not seen.drained

    await change(world, "wl", part)
    await updated(world, "wl", 600.0)
    await left(world, hosts, 300.0)
    assert await uids(world) != before


@simulated
async def test_a_unit_that_an_update_passed_is_replaced_although_it_comes_back(world: World) -> None:
    hosts = await begun(world, by_kind("group", seconds=600)[0], 9)

    await world.scale(PodCliqueScalingGroup, "wl-0-g", 1)
    await marked(world, {host for host in hosts if "-g-0-" not in host})
    await change(world, "wl", "lead")
    await updated(world, "wl", 2000.0)
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 3)
    await left(world, hosts, 2000.0)
    await world.available("wl")
    found = await world.get(PodCliqueSet, "wl")
    assert found.status.updated_replicas == 1
    versions = {pod.metadata.labels.get("version") for pod in await world.pods() if "lead" in pod.spec.hostname}
    assert versions == {"two"}


@simulated
async def test_an_update_that_a_scale_in_interrupts_is_completed_when_the_replica_comes_back(world: World) -> None:
    hosts = await begun(world, by_kind("clique", seconds=600)[0], 3)

    await change(world, "wl", "w")
    await marked(world, {"wl-0-w-0"})
    await world.scale(PodCliqueSet, "wl", 0)
    await marked(world, hosts)
    await world.scale(PodCliqueSet, "wl", 1)
    await left(world, hosts, 2000.0)
    await updated(world, "wl")
    assert {pod.metadata.labels.get("version") for pod in await world.pods()} == {"two"}


@simulated
async def test_a_pod_that_is_not_ready_is_not_drained(world: World) -> None:
    hosts = await begun(world, by_kind("clique")[0], 3)
    pod = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-w-1")
    await world.nodes.set_ready(world.namespace, pod.metadata.name, False)
    await world.quiet()

    async with watching(world) as seen:
        await world.scale(PodClique, "wl-0-w", 2)
        await left(world, hosts - {"wl-0-w-1"})
    assert (seen.drained, seen.at_once) == (set(), {"wl-0-w-1"})


@simulated
async def test_the_restart_of_a_gang_after_a_breach_is_not_drained(world: World) -> None:
    hosts = await begun(world, of_group(2, 2, termination_delay="1m"), 6)
    pod = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-g-0-lead-0")
    before = set((await uids(world)).values())

    async with watching(world) as seen:
        world.binder.allow(0)
        await world.delete(Pod, pod.metadata.name, grace_period_s=0)

        async def all_restarted() -> bool:
            return not before & set((await uids(world)).values())

        await world.eventually(all_restarted, 300)
        world.binder.allow(None)
        await left(world, hosts, 300)
    assert seen.at_once == hosts
    assert not seen.drained


async def restarted(world: World, uid: str) -> bool:
    return uid not in {pod.metadata.uid for pod in await world.pods()}


@simulated
async def test_a_person_asks_for_a_restart_and_the_pods_drain(world: World) -> None:
    hosts = await begun(world, by_kind("clique")[0], 3)
    pod = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-w-1")

    async with watching(world) as seen:
        await annotate(world, pod.metadata.name, **{key.RESTART_REQUESTED: "now"})
        await marked(world, {"wl-0-w-1"})
        await world.eventually(lambda: restarted(world, pod.metadata.uid), 120)
        await left(world, hosts)
    assert (seen.drained, seen.at_once) == ({"wl-0-w-1"}, set())


@simulated
async def test_an_update_in_place_waits_until_the_pod_has_drained(world: World) -> None:
    manifest, pods = by_kind("clique", strategy={"type": "RollingRecreate", "inPlace": "IfPossible"})
    hosts = await begun(world, manifest, pods)
    before = await uids(world)
    templates = manifest["spec"]["template"]["cliques"]
    templates[0]["spec"]["podSpec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.11"

    ends: dict[str, datetime] = {}
    async with watching(world) as seen:
        await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": templates}}}, world.namespace)

        async def over() -> bool:
            for pod in await world.pods():
                if (end := draining_until(pod)) is not None:
                    ends[pod.metadata.uid] = end
                elif pod.spec.containers[0].image.endswith("3.11"):
                    assert ends.get(pod.metadata.uid, datetime.max.replace(tzinfo=UTC)) <= world.cluster.clock.now()
            return all(pod.spec.containers[0].image.endswith("3.11") for pod in await world.pods())

        await world.eventually(over, 600)
        await updated(world, "wl", 300)
        await left(world, hosts)
    assert await uids(world) == before
    assert not seen.drained
    assert len(ends) == 3


LATE = {"a year": "2027-06-01T00:00:00Z", "the last year": "9999-12-31T23:59:59Z", "no time": "soon"}


@simulated
@pytest.mark.parametrize("mark", [pytest.param(text, id=name) for name, text in LATE.items()])
async def test_a_mark_that_was_edited_makes_no_pod_wait_longer_than_the_draining_time(world: World, mark: str) -> None:
    hosts = await begun(world, by_kind("clique")[0], 3)
    await world.scale(PodClique, "wl-0-w", 2)
    await marked(world, {"wl-0-w-2"})
    pod = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-w-2")

    async with watching(world) as seen:
        await annotate(world, pod.metadata.name, **{key.DRAINING: mark})
        await left(world, hosts - {"wl-0-w-2"}, 60)
    assert (seen.drained, seen.at_once) == ({"wl-0-w-2"}, set())


@simulated
@pytest.mark.parametrize("kind", ["clique", "group", "set"])
async def test_a_shorter_draining_time_counts_for_what_drains_already(world: World, kind: str) -> None:
    manifest, pods = by_kind(kind, seconds=3600)
    hosts, (scaled, name, replicas) = await begun(world, manifest, pods), SCALED[kind]
    gone = {host for host in hosts if host.startswith(LAST[kind])}

    async with watching(world) as seen:
        await world.scale(scaled, name, replicas - 1)
        await marked(world, gone)
        patch = {"metadata": {"annotations": {key.DRAIN_SECONDS: "30"}}}
        await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
        await left(world, hosts - gone, 60)
    assert (seen.drained, seen.at_once) == (gone, set())


@simulated
async def test_pods_from_before_draining_was_asked_for_drain_without_a_gate(world: World) -> None:
    hosts = await begun(world, drained(clique("w", 3, min_available=1), seconds=None), 3)
    before = await uids(world)
    patch = {"metadata": {"annotations": {key.DRAIN_SECONDS: "30"}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
    await world.cluster.settle(30)
    assert await uids(world) == before, "to ask for draining restarts nothing"

    await world.scale(PodClique, "wl-0-w", 2)

    async def is_marked() -> bool:
        return any(key.DRAINING in pod.metadata.annotations for pod in await world.pods())

    await world.eventually(is_marked)
    assert len(await world.pods()) == 3
    await left(world, hosts - {"wl-0-w-2"})


@simulated
async def test_deletion_cost_on_a_pod_names_the_pod_that_goes(world: World) -> None:
    hosts = await begun(world, drained(clique("w", 3, min_available=1), seconds=None), 3)
    pod = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-w-1")
    await annotate(world, pod.metadata.name, **{key.DELETION_COST: "-10"})
    await world.scale(PodClique, "wl-0-w", 2)
    await left(world, hosts - {"wl-0-w-1"})


@simulated
@pytest.mark.parametrize("kind", ["clique", "group", "set"])
async def test_a_pod_that_may_not_be_marked_goes_at_once(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, pods = by_kind(kind)
    hosts, (scaled, name, replicas) = await begun(world, manifest, pods), SCALED[kind]
    gone = {host for host in hosts if host.startswith(LAST[kind])}
    patch = world.operator_client.patch

    async def refuse(resource: Any, name: str, body: Any, *more: Any, **options: Any) -> Any:
        if resource is Pod and key.DRAINING in str(body):
            raise Forbidden("a policy forbids it")
        return await patch(resource, name, body, *more, **options)

    monkeypatch.setattr(world.operator_client, "patch", refuse)
    async with watching(world) as seen:
        await world.scale(scaled, name, replicas - 1)
        await left(world, hosts - gone)
    assert (seen.drained, seen.at_once) == (set(), gone)


@simulated
async def test_what_draining_costs_in_writes(world: World) -> None:
    async def writes(name: str, seconds: int | None) -> Counter[tuple[str, str]]:
        manifest = drained(clique("w", 3, min_available=1), seconds=seconds)
        manifest["metadata"]["name"] = name
        before = world.writes()
        await world.apply(manifest)
        await world.available(name)
        await world.scale(PodClique, f"{name}-0-w", 2)

        async def scaled() -> bool:
            return len(await world.pods(f"{name}-0-w")) == 2

        await world.eventually(scaled, 120)
        await world.quiet()
        made = world.writes()
        made.subtract(before)
        return Counter({call: count for call, count in made.items() if "pods" in call[1]})

    without, with_ = await writes("plain", None), await writes("drained", 30)
    with_.subtract(without)
    assert sum(without.values()) == 4, "three pods are made, and one is deleted"
    assert {call: count for call, count in with_.items() if count} == {
        ("patch", "pods/status"): 4,
        ("patch", "pods"): 1,
    }, "the gate of every pod opens once; one pod is marked and its gate closes"
