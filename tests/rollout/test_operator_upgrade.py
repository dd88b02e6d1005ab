"""A newer operator takes over: what it would inject differently reaches new pods, and no running one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.operating import Operating, World
from tests.support.workloads import change, uids, updated, versions, wl1

from grove.api import env, labels
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet

Upgrade = Callable[[World], Awaitable[None]]
NEXT_OF_PODS = {"name": "GROVE_NEXT", "value": "pod"}
NEXT_OF_GROUPS = {"name": "GROVE_PCSG_NEXT", "value": "group"}

OPERATING = Operating(startup_image="grove/startup:1.0")


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """The next version has another start-order image, and injects one more variable into pods and member cliques."""
    of_pods, of_groups = env.pod_variables, env.group_variables

    async def take_over(world: World) -> None:
        monkeypatch.setattr(env, "pod_variables", lambda *facts: [*of_pods(*facts), NEXT_OF_PODS])
        monkeypatch.setattr(env, "group_variables", lambda pods: [*of_groups(pods), NEXT_OF_GROUPS])
        monkeypatch.setattr(world, "_startup_image", "grove/startup:2.0")
        await world.restart()
        await world.quiet()

    return take_over


async def images(world: World) -> dict[str, str]:
    """Host name to the image of the start-order container."""
    page = await world.client.list(Pod.RESOURCE, world.namespace)
    found = {}
    for pod in page.items:
        for container in pod["spec"].get("initContainers") or ():
            if container["name"] == labels.STARTUP_CONTAINER:
                found[pod["spec"]["hostname"]] = container["image"]
    return found


async def test_an_upgraded_operator_touches_no_running_pod(world: World, upgrade: Upgrade) -> None:
    await world.apply(wl1(startup="CliqueStartupTypeInOrder"))
    await world.available("wl")
    before, told = await uids(world), await images(world)
    assert set(told.values()) == {"grove/startup:1.0"}

    await upgrade(world)

    assert await uids(world) == before
    assert await images(world) == told
    assert (await world.get(PodCliqueSet, "wl")).status.update_progress is None
    member: Json = await world.client.get(PodClique.RESOURCE, "wl-0-sg-x-0-pc-b", world.namespace)
    names = [one["name"] for one in member["spec"]["podSpec"]["containers"][0]["env"]]
    assert "GROVE_PCSG_NEXT" in names, "what makes new pods is brought up to date"

    await world.scale(PodCliqueSet, "wl", 2)
    await world.available("wl")

    now_ = await images(world)
    assert {host: image for host, image in now_.items() if host.startswith("wl-0")} == told
    assert {image for host, image in now_.items() if host.startswith("wl-1")} == {"grove/startup:2.0"}
    assert before.items() <= (await uids(world)).items()


@pytest.mark.simulated
async def test_an_update_started_by_the_older_operator_is_finished_by_the_newer(world: World, upgrade: Upgrade) -> None:
    world.nodes.start_s = 0.5
    await world.apply(wl1(startup="CliqueStartupTypeInOrder", replicas=2))
    await world.available("wl")

    await change(world, "wl", "pc-a", "pc-b", "pc-c")
    await upgrade(world)
    await updated(world, "wl")

    assert set((await versions(world)).values()) == {"two"}
