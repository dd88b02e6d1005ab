"""Updates with surge from the outside: new units come first, and no capacity is missing while old ones are replaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World, operating
from tests.support.workloads import change, counting, set_quota, take_back, uids, updated, versions

from grove.api import labels as key
from grove.api.core import PodDisruptionBudget
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(start_s=1.0)


def manifest(kind: str = "clique", replicas: int = 4, minimum: int = 2, surge: int = 1, **more: Any) -> Json:
    """A standalone clique `w`, or a group `g` of the cliques `a` and `b`, of this number of units."""
    own = {"maxSurge": surge}
    if kind == "clique":
        found = pcs("wl", clique("w", replicas, min_available=minimum), **more)
        found["spec"]["template"]["cliques"][0]["rollingUpdate"] = own
        return found
    found = pcs(
        "wl",
        clique("a"),
        clique("b"),
        groups=[group("g", "a", "b", replicas=replicas, min_available=minimum)],
        **more,
    )
    found["spec"]["template"]["podCliqueScalingGroups"][0]["rollingUpdate"] = own
    return found


CHANGED = {"clique": ("w",), "group": ("a", "b")}
PODS = {"clique": 1, "group": 2}


async def begun(world: World, obj: Json, pods: int) -> set[str]:
    await world.apply(obj)
    await world.available("wl")
    await world.ready(pods)
    return set(await uids(world))


async def settled(world: World, hosts: set[str]) -> None:
    """Waits until exactly these host names are there, all ready."""
    for _ in range(300):
        pods = [pod for pod in await world.pods() if not pod.metadata.is_deleting]
        if {pod.spec.hostname for pod in pods} == hosts and len(pods) == len(hosts) and all(p.is_ready for p in pods):
            return
        await asyncio.sleep(1)
    raise AssertionError(sorted(pod.spec.hostname for pod in await world.pods()))


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
@pytest.mark.parametrize(("replicas", "minimum", "surge"), [(4, 2, 1), (3, 3, 1), (4, 1, 2), (1, 1, 1), (2, 1, 5)])
async def test_no_capacity_is_missing(world: World, kind: str, replicas: int, minimum: int, surge: int) -> None:
    hosts = await begun(world, manifest(kind, replicas, minimum, surge), replicas * PODS[kind])

    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await updated(world, "wl")
        await settled(world, hosts)

    for part in CHANGED[kind]:
        assert seen.least[part] >= replicas
        assert replicas < seen.most[part] <= replicas + surge
    assert {seen.deleted[host] for host in seen.hosts} == {1}, "no unit is taken twice"
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_without_a_place_in_time_the_update_takes_old_units_down_first(world: World, kind: str) -> None:
    """The nodes have no place for a surge unit. The update says so, removes it, and goes on as without surge."""
    hosts = await begun(world, manifest(kind, 3, 1), 3 * PODS[kind])
    world.binder.has_places(len(hosts))

    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await asyncio.sleep(30)
        assert not seen.deleted, "the scheduler has a minute"
        await updated(world, "wl")
        await settled(world, hosts)

    extra = {host for host in seen.hosts if host not in hosts}
    assert len(extra) == PODS[kind], "one surge unit was tried"
    assert {seen.least[part] for part in CHANGED[kind]} == {2}, "maxUnavailable is 1"
    assert {seen.deleted[host] for host in hosts} == {1}
    assert "takes old units down first" in await world.event("wl", "SurgeNotPlaced")


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
@pytest.mark.parametrize("surge", [1, 2])
async def test_surge_units_leave_the_place_that_a_replaced_unit_needs(world: World, kind: str, surge: int) -> None:
    """The surge units have places. Then capacity is lost, so a replaced unit has no place while they are there."""
    hosts = await begun(world, manifest(kind, 3, 1, surge), 3 * PODS[kind])

    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])

        async def has_surge_units() -> bool:
            bound = [pod for pod in await world.pods() if pod.is_bound]
            return len(bound) == (3 + surge) * PODS[kind]

        await world.eventually(has_surge_units)
        world.binder.has_places(len(hosts))
        await updated(world, "wl", timeout_s=900)
        await settled(world, hosts)

    assert all(seen.least[part] >= 2 for part in CHANGED[kind]), "maxUnavailable is 1"
    assert {seen.deleted[host] for host in hosts} == {1}
    assert "SurgeNotPlaced" in await world.event_reasons("wl")


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_surge_units_stay_while_the_old_pods_end(world: World, kind: str) -> None:
    """The place of a replaced unit is free when its old pods have ended, which may take long."""
    hosts = await begun(world, manifest(kind, 2, 1), 2 * PODS[kind])
    world.binder.has_places(3 * PODS[kind])
    world.nodes.stop_s = 200.0

    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await updated(world, "wl", timeout_s=1800)
        await settled(world, hosts)

    assert all(seen.least[part] >= 2 for part in CHANGED[kind]), seen.least
    assert "SurgeNotPlaced" not in await world.event_reasons("wl")


@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_a_quota_that_refuses_surge_units_does_not_stop_the_update(world: World, kind: str) -> None:
    hosts = await begun(world, manifest(kind, 3, 1), 3 * PODS[kind])
    await set_quota(world, pods=str(len(hosts)))

    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await updated(world, "wl", timeout_s=600)
        await settled(world, hosts)

    assert set(seen.hosts) == hosts, "the quota has no place for a surge unit"
    assert {seen.least[part] for part in CHANGED[kind]} == {2}, "maxUnavailable is 1"
    assert "takes old units down first" in await world.event("wl", "SurgeNotPlaced")


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_autoscalers_and_disruption_budgets_see_what_is_there(world: World, kind: str) -> None:
    """The scale asks for 3 throughout and counts the surge unit. A budget counts no fewer healthy pods than before."""
    await begun(world, manifest(kind, 3, 1), 3 * PODS[kind])
    (scaled, name), whole = _scaled(kind), 3 * PODS[kind]
    spec = {"minAvailable": whole, "selector": {"matchLabels": {key.PART_OF: "wl"}}}
    meta = {"name": "whole", "namespace": world.namespace}
    await world.client.create(PodDisruptionBudget, {"metadata": meta, "spec": spec})
    scales: set[tuple[int, int]] = set()
    healthy: set[int] = set()

    async def look() -> None:
        while True:
            part = await world.get(scaled, name)
            scales.add((part.spec.replicas, part.status.replicas))
            budget = await world.client.get(PodDisruptionBudget.RESOURCE, "whole", world.namespace)
            if "status" in budget:
                healthy.add(budget["status"]["currentHealthy"])
            await asyncio.sleep(0.1)

    looking = asyncio.create_task(look())
    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await updated(world, "wl")
    looking.cancel()

    assert {wanted for wanted, _ in scales} == {3}
    assert max(there for _, there in scales) == seen.most[CHANGED[kind][0]] == 4
    assert min(healthy) == whole
    assert max(healthy) <= whole + PODS[kind]


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
@pytest.mark.parametrize("after_s", [0.5, 2.5])
@pytest.mark.parametrize("replicas", [6, 2, 0])
async def test_scaling_in_the_middle(world: World, kind: str, after_s: float, replicas: int) -> None:
    hosts = await begun(world, manifest(kind, 4, 1), 4 * PODS[kind])
    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await asyncio.sleep(after_s)
        await world.scale(*_scaled(kind), replicas)
        await updated(world, "wl")
        await asyncio.sleep(30)

    found = await versions(world)
    assert len(found) == replicas * PODS[kind]
    assert set(found.values()) <= {"two"}
    if kind == "group" or replicas == 6:
        assert found.keys() == _hosts(kind, replicas), hosts
    assert all(seen.least[part] >= min(4, replicas) for part in CHANGED[kind])


def _scaled(kind: str) -> tuple[Any, str]:
    return (PodClique, "wl-0-w") if kind == "clique" else (PodCliqueScalingGroup, "wl-0-g")


def _hosts(kind: str, replicas: int) -> set[str]:
    if kind == "clique":
        return {f"wl-0-w-{index}" for index in range(replicas)}
    return {f"wl-0-g-{index}-{member}-0" for index in range(replicas) for member in "ab"}


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
@pytest.mark.parametrize("after_s", [0.5, 1.6, 4.0])
async def test_undo_in_the_middle_leaves_what_was_there_before(world: World, kind: str, after_s: float) -> None:
    hosts = await begun(world, manifest(kind, 3, 1), 3 * PODS[kind])
    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await asyncio.sleep(after_s)
        await take_back(world, "wl", *CHANGED[kind])
        await updated(world, "wl")
        await settled(world, hosts)

    assert set((await versions(world)).values()) == {""}
    assert all(seen.least[part] >= 3 for part in CHANGED[kind]), seen.least


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_pause_and_restarts_of_the_operator(world: World, kind: str) -> None:
    hosts = await begun(world, manifest(kind, 3, 1), 3 * PODS[kind])

    async def pause(value: str | None) -> None:
        patch = {"metadata": {"annotations": {key.ROLLOUT_PAUSED: value}}}
        await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)

    world.binder.has_places(len(hosts))
    async with counting(world) as seen:
        await change(world, "wl", *CHANGED[kind])
        await asyncio.sleep(5)
        await pause("true")
        await asyncio.sleep(200)
        assert not seen.deleted, "a pause takes nothing, and its time does not count"
        world.binder.has_places(None)
        world.binder.allow(None)
        await pause(None)
        for _ in range(6):
            await asyncio.sleep(0.9)
            await world.restart()
        await updated(world, "wl")
        await settled(world, hosts)

    assert all(seen.least[part] >= 3 for part in CHANGED[kind]), seen.least
    assert {seen.deleted[host] for host in hosts} == {1}


@pytest.mark.simulated
async def test_a_version_that_never_starts_costs_no_capacity(world: World) -> None:
    await begun(world, manifest("clique", 3, 1), 3)
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    async with counting(world) as seen:
        await change(world, "wl", "w")
        await asyncio.sleep(600)
        assert not seen.deleted
    assert seen.least["w"] == 3


@pytest.mark.simulated
async def test_a_coherent_slice_goes_when_the_surge_units_of_all_parts_are_ready(world: World) -> None:
    obj = pcs(
        "wl",
        clique("f", 2, min_available=1),
        clique("p"),
        groups=[group("g", "p", replicas=2, min_available=1)],
        strategy={"type": "Coherent"},
    )
    obj["spec"]["template"]["cliques"][0]["rollingUpdate"] = {"maxSurge": 1}
    obj["spec"]["template"]["podCliqueScalingGroups"][0]["rollingUpdate"] = {"maxSurge": 1}
    hosts = await begun(world, obj, 4)
    world.nodes.hold = lambda pod: pod.metadata.name.startswith("wl-0-g-2")
    async with counting(world) as seen:
        await change(world, "wl", "f", "p")
        await asyncio.sleep(30)
        assert not seen.deleted, "the surge replica of the group is not ready"
        assert {one.spec.hostname for one in seen.pods.values()} - hosts == {"wl-0-f-2", "wl-0-g-2-p-0"}
        (held,) = await world.pods("wl-0-g-2-p")
        world.nodes.hold = lambda pod: False
        await world.nodes.set_ready(world.namespace, held.metadata.name, True)
        await updated(world, "wl")
        await settled(world, hosts)

    assert seen.least["f"] >= 2
    assert seen.least["p"] >= 2
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
async def test_slices_go_on_after_a_change_that_was_taken_back_and_made_again_at_once(world: World) -> None:
    """The parts never saw that it was taken back. A new slice must not wait for an answer that they gave before."""
    hosts = await begun(world, manifest("clique", 4, 1, strategy={"type": "Coherent"}), 4)
    first = (await world.get(PodCliqueSet, "wl")).status.current_generation_hash
    await change(world, "wl", "w")

    async def until(has_happened: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(10_000):
            if await has_happened():
                return
            await asyncio.sleep(0.001)
        raise AssertionError

    async def has_begun() -> bool:
        progress = (await world.get(PodClique, "wl-0-w")).status.update_progress
        return progress is not None and progress.ready_pods_selected_to_update is not None

    async def is_recorded() -> bool:
        return (await world.get(PodCliqueSet, "wl")).status.current_generation_hash == first

    await until(has_begun)
    await take_back(world, "wl", "w")
    await until(is_recorded)
    await change(world, "wl", "w")

    await updated(world, "wl")
    await settled(world, hosts)
    assert set((await versions(world)).values()) == {"two"}


QUICK = "updates: {surgePlacementTimeout: 5s}"


@pytest.mark.parametrize(
    "has_place",
    [
        pytest.param(True, id="with-a-place", marks=pytest.mark.real_in("test")),
        pytest.param(False, id="without-a-place"),
    ],
)
async def test_surge_at_both_levels(cluster: object, has_place: bool) -> None:
    obj = pcs("wl", clique("w", 2, min_available=1), clique("a"), groups=[group("g", "a", replicas=2, min_available=1)])
    for part in (obj["spec"]["template"]["cliques"][0], obj["spec"]["template"]["podCliqueScalingGroups"][0]):
        part["rollingUpdate"] = {"maxSurge": 1}
    async with operating(cluster, config="" if has_place else QUICK) as world:
        world.nodes.start_s = 0.2
        hosts = await begun(world, obj, 4)
        if not has_place:
            world.binder.has_places(4)
        async with counting(world) as seen:
            await change(world, "wl", "w", "a")
            await updated(world, "wl")
            await settled(world, hosts)

        assert seen.hosts - hosts == {"wl-0-w-2", "wl-0-g-2-a-0"}
        assert (seen.least["w"], seen.least["a"]) == ((2, 2) if has_place else (1, 1))
        assert {seen.deleted[host] for host in hosts} == {1}
        assert ("SurgeNotPlaced" in await world.event_reasons("wl")) is not has_place


async def test_sixty_pods_updated_coherently_while_they_are_scaled_and_a_node_dies(cluster: object) -> None:
    obj = pcs(
        "wl",
        clique("f", 12, min_available=2),
        clique("p"),
        clique("d"),
        groups=[
            group("prefill", "p", replicas=16, min_available=2),
            group("decode", "d", replicas=32, min_available=4),
        ],
        strategy={"type": "Coherent"},
    )
    async with operating(cluster) as world:
        world.nodes.start_s = 0.5
        await begun(world, obj, 60)
        async with counting(world) as seen:
            await change(world, "wl", "f", "p", "d")
            await asyncio.sleep(2)
            await world.scale(PodCliqueScalingGroup, "wl-0-decode", 36)
            await world.scale(PodClique, "wl-0-f", 10)
            await asyncio.sleep(1)
            dies = world.nodes.names[0]
            await world.nodes.remove_node(dies)
            on_it = [pod for pod in seen.pods.values() if pod.spec.node_name == dies]
            await updated(world, "wl")
            await world.ready(62)
        found = await versions(world)

    assert len(found) == 62
    assert set(found.values()) == {"two"}
    lost = Counter(pod.metadata.labels[key.CLIQUE_NAME] for pod in on_it)
    spared = {"f": 10 - 2, "p": 16 - 2, "d": 32 - 4}
    assert lost
    assert {part: seen.least[part] >= least - lost[part] for part, least in spared.items()} == dict.fromkeys(
        "fpd", True
    )
    again = {pod.spec.hostname for pod in on_it} | (seen.deleted.keys() - found.keys())
    twice = {host: count for host, count in seen.deleted.items() if count > 1 + (host in again)}
    assert twice == {}, "the update takes no unit twice; a dead node and scaling take others"
