"""Undo of a change: the operator replaces every pod that the change created, and keeps all others."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, take_back, uids, updated, versions, wl2

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.simulated

ON_DELETE, ROLLING = {"type": "OnDelete"}, {"type": "RollingRecreate"}
GROUP, CLIQUE = (PodCliqueScalingGroup, "wl-1-sg-x", "pc-b"), (PodClique, "wl-1-pc-a", "pc-a")
Part = tuple[type[Object], str, str]

OPERATING = Operating(start_s=0.2)


async def edit(world: World, patch: Json) -> None:
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)


async def pause(world: World, paused: bool) -> None:
    await edit(world, {"metadata": {"annotations": {key.ROLLOUT_PAUSED: "true" if paused else None}}})


async def switch(world: World, strategy: Json) -> None:
    await edit(world, {"spec": {"updateStrategy": strategy}})
    await world.quiet()


async def lose(world: World, *hostnames: str) -> None:
    for pod in await world.pods():
        if pod.spec.hostname in hostnames:
            await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    await world.quiet()


async def changed(world: World) -> set[str]:
    """Host names of the pods that are from the change, and names of the cliques that would make such pods."""
    pods = {host for host, version in (await versions(world)).items() if version}
    return pods | {one.metadata.name for one in await world.list(PodClique) if "version" in one.metadata.labels}


@pytest.mark.parametrize("part", [pytest.param(GROUP, id="group"), pytest.param(CLIQUE, id="clique")])
@pytest.mark.parametrize(
    ("state", "after_s"),
    [("broken", 0.1), ("broken", 0.3), ("broken", 20.0), ("sound", 0.8), ("paused", 0.1), ("paused", 20.0)],
)
async def test_what_scaling_made_from_a_change_goes_with_it(
    world: World, state: str, part: Part, after_s: float
) -> None:
    """Scaled is a replica whose turn had not come: a new pod has its clique's template."""
    kind, name, template = part
    await world.apply(wl2(replicas=2))
    await world.available("wl")
    before = await uids(world)
    if state == "broken":
        world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    else:
        world.nodes.start_s = 2.0  # so that the first replica is still in hand
    await pause(world, state == "paused")

    await change(world, "wl", template)
    await asyncio.sleep(after_s)
    await world.scale(kind, name, 3)
    await asyncio.sleep(after_s)
    new = {one for one in await changed(world) if one.startswith("wl-1")}
    assert bool(new) == (kind is PodCliqueScalingGroup)
    await take_back(world, "wl", template)
    await asyncio.sleep(10)
    await pause(world, False)
    await updated(world, "wl")

    assert await changed(world) == set()
    after = await uids(world)
    assert {host for host in before if before[host] != after[host]} <= {host for host in before if "wl-0" in host}


@pytest.mark.parametrize("template", ["pc-a", "pc-b"])
async def test_what_ondelete_only_announced_is_taken_back_and_nothing_restarts(world: World, template: str) -> None:
    await world.apply(wl2(strategy=ON_DELETE))
    await world.available("wl")
    before = await uids(world)
    await change(world, "wl", template)
    await world.quiet()
    assert await changed(world)
    await switch(world, ROLLING)

    await take_back(world, "wl", template)
    await updated(world, "wl")

    assert await changed(world) == set()
    assert await uids(world) == before
    await lose(world, "wl-0-pc-a-0", "wl-0-sg-x-0-pc-b-0")
    assert await changed(world) == set()


@pytest.mark.parametrize(
    ("template", "lost", "replaced"),
    [
        ("pc-a", "wl-0-pc-a-1", {"wl-0-pc-a-1"}),
        ("pc-b", "wl-0-sg-x-1-pc-b-0", {"wl-0-sg-x-1-pc-b-0", *(f"wl-0-sg-x-1-pc-c-{at}" for at in range(3))}),
    ],
)
async def test_what_ondelete_replaced_is_replaced_again(
    world: World, template: str, lost: str, replaced: set[str]
) -> None:
    await world.apply(wl2(strategy=ON_DELETE))
    await world.available("wl")
    await change(world, "wl", template)
    await world.quiet()
    await lose(world, lost)
    before = await uids(world)
    await switch(world, ROLLING)

    await take_back(world, "wl", template)
    await updated(world, "wl")

    assert await changed(world) == set()
    after = await uids(world)
    assert {host for host in before if before[host] != after[host]} == replaced


@pytest.mark.parametrize(("template", "lost"), [("pc-a", "wl-0-pc-a-1"), ("pc-b", "wl-0-sg-x-1-pc-b-0")])
async def test_under_ondelete_the_set_says_when_the_last_pod_of_a_change_has_gone(
    world: World, template: str, lost: str
) -> None:
    await world.apply(wl2(strategy=ON_DELETE))
    await world.available("wl")
    await change(world, "wl", template)
    await world.quiet()
    await lose(world, lost)

    await take_back(world, "wl", template)
    await world.quiet()
    assert await changed(world) == {lost}
    assert (await world.get(PodCliqueSet, "wl")).status.updated_replicas == 0

    await lose(world, lost)
    assert await changed(world) == set()
    assert (await world.get(PodCliqueSet, "wl")).status.updated_replicas == 1


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
@pytest.mark.parametrize("after_s", [0.0185, 0.019, 0.0195, 0.02, 0.021])
async def test_an_undo_at_the_moment_at_which_a_clique_gets_its_template(
    world: World, kind: str, after_s: float
) -> None:
    """The set sees a clique of which nothing was replaced. At the same moment the clique begins to replace pods."""
    await world.apply(pcs("wl", clique("a", 3, min_available=1), strategy={"type": kind}))
    await world.available("wl")
    await world.ready(3)
    await world.quiet(for_s=3)

    await change(world, "wl", "a")
    await asyncio.sleep(after_s)
    await take_back(world, "wl", "a")
    await updated(world, "wl")

    assert set((await versions(world)).values()) == {""}
    found = (await world.get(PodClique, "wl-0-a")).status
    assert (found.updated_replicas, found.ready_replicas) == (3, 3)
