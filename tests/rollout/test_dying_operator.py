"""An operator may die at any write of an update. The next operator continues the same update.

No unit is taken twice, and no part has fewer ready units than its budget allows.
"""

from __future__ import annotations

import asyncio
import copy
import random
from contextlib import suppress

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.mortal import DyingClient
from tests.support.operating import Operating, World
from tests.support.running import beside
from tests.support.workloads import counting, updated

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.errors import KubeError
from grove.operator.wiring import Operator

pytestmark = pytest.mark.simulated

OPERATING = Operating(start_s=0.5)

HOSTS = {
    *(f"wl-0-front-{index}" for index in range(4)),
    *(f"wl-0-prefill-{index}-p-0" for index in range(2)),
    *(f"wl-0-decode-{index}-d-0" for index in range(4)),
}
LEAST = {
    "Coherent": {"front": 2, "p": 1, "d": 2},
    "RollingRecreate": {"front": 3, "p": 1, "d": 3},
    "surge": {"front": 4, "p": 2, "d": 4},
}
LEAST_WRITES = 75
"""Every update has at least this number of writes."""
WRITES = (*range(3, LEAST_WRITES, 12), *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, 160)))
"""The write of which the operator dies."""
SYNCED_S = 10.0
"""After this number of seconds, an operator that found nothing to do has read everything."""


def manifest(kind: str, surge: int, in_place: bool) -> Json:
    budget = {"maxSurge": surge}
    front = {**clique("front", 4, min_available=2), "rollingUpdate": budget}
    return pcs(
        "wl",
        front,
        clique("p"),
        clique("d"),
        groups=[
            group("prefill", "p", replicas=2, min_available=1, rollingUpdate=budget),
            group("decode", "d", replicas=4, min_available=2, rollingUpdate=budget),
        ],
        strategy={"type": kind, "inPlace": "IfPossible" if in_place else "Never"},
    )


def changed(obj: Json) -> Json:
    """The patch that gives all cliques another image."""
    templates = copy.deepcopy(obj["spec"]["template"]["cliques"])
    for template in templates:
        template["labels"] = {"version": "two"}
        template["spec"]["podSpec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.11"
    return {"spec": {"template": {"cliques": templates}}}


async def work_until_dead(world: World, client: DyingClient) -> None:
    """Runs an operator with this client, and the next operator when it has died."""
    operator = Operator(client, world.config, clock=world.cluster.clock, rng=random.Random(7))  # type: ignore[arg-type]
    with suppress(KubeError):
        async with operator.running():
            await client.died.wait()
    await asyncio.sleep(0.3)
    await world.start()


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
@pytest.mark.parametrize("surge", [0, 1], ids=["no surge", "surge"])
@pytest.mark.parametrize("in_place", [False, True], ids=["recreated", "in place"])
@pytest.mark.parametrize("writes", WRITES)
async def test_the_next_operator_continues_the_update(
    world: World, kind: str, surge: int, in_place: bool, writes: int
) -> None:
    obj = manifest(kind, surge, in_place)
    await world.apply(obj)
    await world.available("wl")
    await world.ready(len(HOSTS))
    await world.stop()
    client = DyingClient(world.cluster.sim.client(user="system:serviceaccount:grove-system:grove-operator"))

    async with beside(work_until_dead(world, client)), counting(world) as seen:
        await asyncio.sleep(SYNCED_S)
        client.lives = writes
        await world.client.patch(PodCliqueSet, "wl", changed(obj), world.namespace)
        await updated(world, "wl", timeout_s=600)
        await world.ready(len(HOSTS))

    assert client.died.is_set() or writes > LEAST_WRITES
    pods = await world.pods()
    assert {pod.spec.hostname: pod.metadata.labels.get("version") for pod in pods} == dict.fromkeys(HOSTS, "two")
    least = LEAST["surge" if surge else kind]
    assert {part: seen.least[part] >= count for part, count in least.items()} == dict.fromkeys(least, True), seen.least
    taken = {host: count for host, count in seen.deleted.items() if host in HOSTS}
    assert taken == ({} if in_place else dict.fromkeys(HOSTS, 1))
