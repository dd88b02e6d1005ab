"""What is made while an update holds still, below a partition or in a pause, is made from the templates of before."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, lose, pause, updated, versions

from grove.api import labels as key
from grove.api.core import ControllerRevision
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(start_s=0.2)


async def kept(world: World) -> None:
    """Waits until the operator has written down the first template."""

    async def is_kept() -> bool:
        return bool((await world.client.list(ControllerRevision, world.namespace)).items)

    await world.eventually(is_kept)


async def lower(world: World, strategy: dict[str, object]) -> None:
    patch = {"spec": {"updateStrategy": {**strategy, "rollingUpdate": {"partition": 0}}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)


@pytest.mark.simulated
@pytest.mark.parametrize("restart", [False, True])
async def test_replicas_of_a_set_that_come_below_the_partition_are_old(world: World, restart: bool) -> None:
    strategy = {"type": "RollingRecreate", "rollingUpdate": {"partition": 3}}
    config = group("g", "b", replicas=1, min_available=1)
    await world.apply(pcs("wl", clique("a"), clique("b"), groups=[config], replicas=2, strategy=strategy))
    await world.available("wl")
    await kept(world)
    revision = (await world.get(PodClique, "wl-0-a")).metadata.labels[key.REVISION]
    await change(world, "wl", "a", "b")
    await world.quiet()
    if restart:
        await world.restart()

    await world.scale(PodCliqueSet, "wl", 4)
    await world.ready(8)
    await world.quiet()

    assert await versions(world) == {
        **{f"wl-{replica}-{part}-0": "" for replica in (0, 1, 2) for part in ("a", "g-0-b")},
        "wl-3-a-0": "two",
        "wl-3-g-0-b-0": "two",
    }
    made = await world.get(PodClique, "wl-2-a")
    assert made.metadata.labels[key.REVISION] == revision
    before = world.writes()
    await world.quiet(for_s=20)
    assert world.writes() == before

    await lower(world, strategy)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


async def test_a_clique_that_is_deleted_below_the_partition_comes_back_old(world: World) -> None:
    strategy = {"type": "Coherent", "rollingUpdate": {"partition": 1}}
    await world.apply(pcs("wl", clique("a", 2), replicas=2, strategy=strategy))
    await world.available("wl")
    await kept(world)
    await change(world, "wl", "a")
    await world.quiet()

    for name in ("wl-0-a", "wl-1-a"):
        await world.delete(PodClique, name)
        await world.quiet()
    await world.ready(4)

    assert await versions(world) == {"wl-0-a-0": "", "wl-0-a-1": "", "wl-1-a-0": "two", "wl-1-a-1": "two"}


@pytest.mark.simulated
async def test_replicas_of_a_group_that_come_below_its_partition_are_old(world: World) -> None:
    config = group("g", "a", replicas=2, min_available=1, rollingUpdate={"partition": 3})
    await world.apply(pcs("wl", clique("a"), groups=[config]))
    await world.available("wl")
    await kept(world)
    await change(world, "wl", "a")
    await world.quiet()

    await world.scale(PodCliqueScalingGroup, "wl-0-g", 4)
    await world.ready(4)
    await world.quiet()

    want = {"wl-0-g-0-a-0": "", "wl-0-g-1-a-0": "", "wl-0-g-2-a-0": "", "wl-0-g-3-a-0": "two"}
    assert await versions(world) == want
    lowered = {"spec": {"template": {"podCliqueScalingGroups": [{**config, "rollingUpdate": {"partition": 0}}]}}}
    await world.client.patch(PodCliqueSet, "wl", lowered, world.namespace)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
async def test_what_scaling_adds_during_a_pause_is_old(world: World) -> None:
    config = group("g", "b", replicas=1, min_available=1)
    await world.apply(pcs("wl", clique("a"), clique("b"), groups=[config]))
    await world.available("wl")
    await kept(world)
    await pause(world, True)
    await change(world, "wl", "a", "b")
    await world.quiet()

    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await world.scale(PodClique, "wl-0-a", 2)
    await world.scale(PodCliqueSet, "wl", 2)
    await world.ready(6)

    assert set((await versions(world)).values()) == {""}
    await pause(world, False)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
async def test_a_half_updated_clique_gets_old_pods_during_a_pause(world: World, kind: str) -> None:
    await world.apply(pcs("wl", clique("a", 4, min_available=1), strategy={"type": kind}))
    await world.available("wl")
    await world.ready(4)
    await kept(world)
    world.nodes.start_s = 5.0
    await change(world, "wl", "a")

    async def is_begun() -> bool:
        found = await versions(world)
        return "two" in found.values() and len(found) == 4

    await world.eventually(is_begun)
    await pause(world, True)
    await world.ready(4)
    half = await versions(world)
    assert set(half.values()) == {"", "two"}

    await world.scale(PodClique, "wl-0-a", 5)
    await world.ready(5)
    lost = next(host for host, version in half.items() if not version)
    await lose(world, lost)
    await world.ready(5)

    assert await versions(world) == {**half, "wl-0-a-4": ""}
    await pause(world, False)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
async def test_surge_pods_stay_new_during_a_pause(world: World) -> None:
    manifest = pcs("wl", clique("a", 3, min_available=1))
    manifest["spec"]["template"]["cliques"][0]["rollingUpdate"] = {"maxSurge": 1}
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(3)
    await kept(world)
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "a")

    async def has_surge() -> bool:
        return "wl-0-a-3" in await versions(world)

    await world.eventually(has_surge)
    await pause(world, True)
    for host in ("wl-0-a-1", "wl-0-a-3"):
        await lose(world, host)

    assert await versions(world) == {"wl-0-a-0": "", "wl-0-a-1": "", "wl-0-a-2": "", "wl-0-a-3": "two"}


@pytest.mark.simulated
async def test_surge_replicas_of_a_group_stay_new_during_a_pause(world: World) -> None:
    config = group("g", "a", replicas=3, min_available=1, rollingUpdate={"maxSurge": 1})
    await world.apply(pcs("wl", clique("a"), groups=[config]))
    await world.available("wl")
    await world.ready(3)
    await kept(world)
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "a")

    async def has_surge() -> bool:
        return "wl-0-g-3-a-0" in await versions(world)

    await world.eventually(has_surge)
    await pause(world, True)
    for name in ("wl-0-g-1-a", "wl-0-g-3-a"):
        await world.delete(PodClique, name)
        await world.quiet()

    want = {"wl-0-g-0-a-0": "", "wl-0-g-1-a-0": "", "wl-0-g-2-a-0": "", "wl-0-g-3-a-0": "two"}
    assert await versions(world) == want


@pytest.mark.simulated
async def test_a_pod_that_the_update_replaced_comes_back_new_during_a_pause(world: World) -> None:
    await world.apply(pcs("wl", clique("a", 4, min_available=1)))
    await world.available("wl")
    await world.ready(4)
    await kept(world)
    world.nodes.start_s = 5.0
    await change(world, "wl", "a")

    async def has_replaced_one() -> bool:
        progress = (await world.get(PodClique, "wl-0-a")).status.update_progress
        selected = progress.ready_pods_selected_to_update if progress is not None else None
        return selected is not None and bool(selected.updated_indexes)

    await world.eventually(has_replaced_one)
    await pause(world, True)
    await world.ready(4)
    half = await versions(world)
    assert set(half.values()) == {"", "two"}

    for host in half:
        await lose(world, host)
        await world.ready(4)

    assert await versions(world) == half
    await pause(world, False)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
async def test_a_group_that_grows_in_a_replica_that_waits_for_its_turn_stays_old(world: World) -> None:
    config = group("g", "b", replicas=1, min_available=1)
    await world.apply(pcs("wl", clique("a"), clique("b"), groups=[config], replicas=2))
    await world.available("wl")
    await kept(world)
    world.nodes.start_s = 20.0
    await change(world, "wl", "a", "b")

    async def is_begun() -> bool:
        return "two" in (await versions(world)).values()

    await world.eventually(is_begun)
    await world.scale(PodCliqueScalingGroup, "wl-1-g", 2)
    await world.delete(PodClique, "wl-1-a")
    await world.quiet()

    found = await versions(world)
    assert {host: version for host, version in found.items() if host.startswith("wl-1-")} == {
        "wl-1-a-0": "",
        "wl-1-g-0-b-0": "",
        "wl-1-g-1-b-0": "",
    }
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
async def test_one_edit_that_changes_templates_and_replicas_adds_old_replicas_below_the_partition(
    world: World, kind: str
) -> None:
    strategy = {"type": kind, "rollingUpdate": {"partition": 2}}
    await world.apply(pcs("wl", clique("a"), replicas=1, strategy=strategy))
    await world.available("wl")
    await kept(world)

    await change(world, "wl", "a", replicas=3)
    await world.ready(3)
    await world.quiet()

    assert await versions(world) == {"wl-0-a-0": "", "wl-1-a-0": "", "wl-2-a-0": "two"}


@pytest.mark.simulated
async def test_the_revision_that_an_update_started_from_outlives_the_limit(world: World) -> None:
    manifest = pcs(
        "wl", clique("a"), replicas=2, strategy={"type": "RollingRecreate", "rollingUpdate": {"partition": 2}}
    )
    manifest["metadata"]["annotations"] = {key.REVISION_HISTORY_LIMIT: "1"}
    await world.apply(manifest)
    await world.available("wl")
    await kept(world)
    for version in ("two", "three", "four"):
        await change(world, "wl", "a", to=version)
        await world.quiet(for_s=3)

    await world.delete(PodClique, "wl-0-a")
    await world.quiet()
    await world.ready(2)

    assert await versions(world) == {"wl-0-a-0": "", "wl-1-a-0": ""}
