"""`headlessServiceConfig.perRevision`: each revision of a replica has a headless Service while it has pods."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import change, take_back, updated

from grove.api import labels as key
from grove.api.core import Pod, Service
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet

pytestmark = pytest.mark.real_in("soak")


def disaggregated(replicas: int = 1, **strategy: object) -> Json:
    found = pcs(
        "wl",
        clique("router", 2, min_available=1),
        clique("decode"),
        groups=[group("g", "decode", replicas=2, min_available=1)],
        strategy={"type": "Coherent", **strategy},
        replicas=replicas,
    )
    found["spec"]["template"]["headlessServiceConfig"] = {"publishNotReadyAddresses": True, "perRevision": True}
    return found


async def services(world: World) -> dict[str, str]:
    """The revision that each Service selects, by its name; empty for that of all pods of the replica."""
    page = await world.client.list(Service.RESOURCE, world.namespace, labels=f"{key.PART_OF}=wl")
    return {one["metadata"]["name"]: one["spec"]["selector"].get(key.REVISION, "") for one in page.items}


async def revisions(world: World) -> set[str]:
    return {pod.metadata.labels[key.REVISION] for pod in await world.pods()}


async def test_a_revision_has_a_service_while_it_has_pods(world: World) -> None:
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(4)
    (old,) = await revisions(world)
    assert await services(world) == {"wl-0": "", f"wl-0-{old}": old}

    world.nodes.start_s = 3.0
    await change(world, "wl", "router", "decode")

    async def both() -> bool:
        return len(await services(world)) == 3 and len(await revisions(world)) == 2

    await world.eventually(both)
    (new,) = await revisions(world) - {old}
    assert await services(world) == {"wl-0": "", f"wl-0-{old}": old, f"wl-0-{new}": new}

    await updated(world, "wl")
    assert await revisions(world) == {new}
    assert await services(world) == {"wl-0": "", f"wl-0-{new}": new}


@pytest.mark.simulated
async def test_each_replica_has_the_services_of_its_own_pods(world: World) -> None:
    await world.apply(disaggregated(3, rollingUpdate={"partition": 2}))
    await world.available("wl")
    await world.ready(12)
    (old,) = await revisions(world)

    await change(world, "wl", "router", "decode")
    await world.quiet()

    (new,) = await revisions(world) - {old}
    want = {"wl-0": "", f"wl-0-{old}": old, "wl-1": "", f"wl-1-{old}": old, "wl-2": "", f"wl-2-{new}": new}
    assert await services(world) == want
    before = world.writes()
    await world.quiet(for_s=20)
    assert world.writes() == before

    await world.scale(PodCliqueSet, "wl", 1)
    await world.quiet()
    assert await services(world) == {"wl-0": "", f"wl-0-{old}": old}
    await take_back(world, "wl", "router", "decode")
    await world.quiet()
    assert await services(world) == {"wl-0": "", f"wl-0-{old}": old}


@pytest.mark.simulated
async def test_pods_that_are_updated_in_place_move_to_the_service_of_their_revision(world: World) -> None:
    manifest = disaggregated(inPlace="IfPossible")
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(4)
    (old,), pods = await revisions(world), {pod.metadata.uid for pod in await world.pods()}

    cliques = manifest["spec"]["template"]["cliques"]
    for one in cliques:
        for container in one["spec"]["podSpec"]["containers"]:
            container["image"] = "registry.k8s.io/pause:3.12"
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": cliques}}}, world.namespace)
    await updated(world, "wl")

    (new,) = await revisions(world)
    assert new != old
    assert {pod.metadata.uid for pod in await world.pods()} == pods
    assert await services(world) == {"wl-0": "", f"wl-0-{new}": new}


@pytest.mark.simulated
async def test_a_lost_pod_keeps_the_service_and_turning_it_off_removes_it(world: World) -> None:
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(4)
    before = {one.metadata.uid for one in (await world.client.list(Service, world.namespace)).items}

    for pod in await world.pods():
        await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    await world.ready(4)
    await world.quiet()
    assert {one.metadata.uid for one in (await world.client.list(Service, world.namespace)).items} == before

    off = {"spec": {"template": {"headlessServiceConfig": {"perRevision": False}}}}
    await world.client.patch(PodCliqueSet, "wl", off, world.namespace)
    await world.quiet()
    assert await services(world) == {"wl-0": ""}
    assert (await world.get(PodCliqueSet, "wl")).status.update_progress is None
