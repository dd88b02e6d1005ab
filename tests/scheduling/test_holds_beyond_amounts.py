"""Nodes are held for a gang that waits long, also if it waits for more than amounts: ports, neighbours, devices.

Short jobs of the same priority come all the time, and each finds a place at once. Without held nodes the gang waits for
ever. All stories run with the default configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.days import HOUR_S, NAMESPACE, Day
from tests.support.devices import Devices, claiming
from tests.support.fleet import device, install
from tests.support.gangs import Bench, Gang, Group, gang, group, pod_json

from grove.api.core import Node, Pod, ResourceClaim
from grove.api.koordinator import Device
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.sim.loop import run
from grove.sim.topology import HOST, RACK

NODES, RUNS_S, BETWEEN_S = 4, 600.0, 155.0
SAME = {"labelSelector": {"matchLabels": {"app": "engine"}}}
PORT: Json = {"containerPort": 8000, "hostPort": 8000}
GPU: Json = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
WITH_PORT: Json = {"containers": [{"name": "main", "image": "engine", "resources": GPU, "ports": [PORT]}]}
APART: Json = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, **SAME}]}}
EVEN: Json = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **SAME}


class Jobs:
    """Gangs of one pod, one after the other, each of which runs for ten minutes."""

    def __init__(self, day: Day, of: Group, labels: dict[str, str]) -> None:
        self._day, self._of, self._labels, self._count = day, of, labels, 0
        self._tasks: list[asyncio.Task[None]] = []

    async def fill(self) -> None:
        for _ in range(NODES):
            await self._start()
            await asyncio.sleep(BETWEEN_S)
        self._tasks.append(asyncio.ensure_future(self._go_on()))

    async def _go_on(self) -> None:
        while True:
            await self._start()
            await asyncio.sleep(BETWEEN_S)

    async def _start(self) -> None:
        self._count += 1
        name = f"job-{self._count}"
        await self._day.apply(gang(name, self._of, priority_class="low", labels=self._labels))
        self._tasks.append(asyncio.ensure_future(self._end(name)))

    async def _end(self, name: str) -> None:
        await self._day.waited_for(f"{name}-", 1)
        await asyncio.sleep(RUNS_S)
        await self._day.client.delete(PodGang, name, NAMESPACE)
        await self._day.end(f"{name}-w-0")

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


async def waited_s(day: Day, wanted: Gang, jobs: Jobs, most_s: float = 6 * HOUR_S) -> float:
    """How long a gang waits beside a stream of jobs."""
    await jobs.fill()
    await day.apply(wanted)
    waited_s = await day.waited_for(wanted.name, NODES, most_s)
    jobs.stop()
    return waited_s


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(WITH_PORT, id="a host port that the jobs use too"),
        pytest.param({"affinity": APART}, id="hosts without pods of its own kind"),
        pytest.param({"topologySpreadConstraints": [EVEN]}, id="an even number of pods of its kind on each host"),
    ],
)
def test_nodes_are_held_for_a_gang_that_needs(spec: Json) -> None:
    async def story() -> float:
        async with Day(nodes=NODES) as day:
            labels = {"app": "engine"}
            wanted = gang("wanted", group("w", NODES, spec=spec), priority_class="low", labels=labels)
            return await waited_s(day, wanted, Jobs(day, group("w", 1, spec=spec), labels))

    assert run(story()) < RUNS_S + BETWEEN_S


def test_nodes_are_held_for_a_gang_whose_required_neighbour_came_after_it_had_waited_long() -> None:
    async def story() -> tuple[bool, float]:
        async with Day(nodes=NODES) as day:
            term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "store"}}}
            near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
            jobs = Jobs(day, group("w", 1), {})
            await jobs.fill()
            await day.apply(gang("wanted", group("w", NODES, spec=near), priority_class="low"))
            await asyncio.sleep(1800)
            is_held = bool((await day.podgang("wanted")).status.capacity_holds)
            store = pod_json("store", NAMESPACE)
            store["metadata"]["labels"] = {"app": "store"}
            store["spec"] |= {"nodeName": (await day.nodes())[0], "containers": [{"name": "main", "image": "store"}]}
            await day.client.create(Pod, store)
            waited_s = await day.waited_for("wanted", NODES, 6 * HOUR_S)
            jobs.stop()
            return is_held, waited_s

    is_held, waited_s = run(story())
    assert not is_held  # without that neighbour, no node can be of use
    assert waited_s < RUNS_S + 2 * BETWEEN_S


def test_no_node_is_held_for_a_gang_whose_port_a_daemon_has() -> None:
    async def story() -> tuple[int, int]:
        async with Day(nodes=NODES) as day:
            for number, node in enumerate((await day.client.list(Node)).items):
                daemon = pod_json(f"daemon-{number}", NAMESPACE)
                owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
                daemon["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
                container = {"name": "main", "image": "exporter", "ports": [PORT]}
                daemon["spec"] |= {"nodeName": node.metadata.name, "containers": [container]}
                await day.client.create(Pod, daemon)
            wanted = gang("wanted", group("w", NODES, spec=WITH_PORT), priority_class="low")
            jobs = Jobs(day, group("w", 1), {})
            assert await waited_s(day, wanted, jobs, 2 * HOUR_S) == 2 * HOUR_S
            return len((await day.podgang("wanted")).status.capacity_holds), await day.bound("job-")

    assert run(story()) == (0, NODES)


@asynccontextmanager
async def claims_of(day: Day) -> AsyncIterator[Group]:
    """One device on each node, and a job's pod that claims one. Devices are given back a moment after their pod."""
    cluster = SimpleNamespace(is_sim=True)
    bench = SimpleNamespace(client=day.client, namespace=NAMESPACE, cluster=cluster, pods=day.pods)
    devices = Devices(cast(Bench, bench))
    await devices.set_up()
    for node in await day.nodes():
        await devices.put(node, "model")

    async def control() -> None:
        while True:
            await asyncio.sleep(1)
            await devices.make_claims("one")
            names = {f"{pod.metadata.name}-one" for pod in await day.pods()}
            for claim in (await day.client.list(ResourceClaim, NAMESPACE)).items:
                if claim.metadata.name not in names and not claim.status.reserved_for:
                    await day.client.delete(ResourceClaim, claim.metadata.name, NAMESPACE)

    task = asyncio.ensure_future(control())
    async with devices.freeing_claims():
        yield claiming("w", 1, resourceClaimTemplateName="one")
    task.cancel()


def test_nodes_are_held_for_a_gang_that_needs_devices_of_claims() -> None:
    async def story() -> float:
        async with Day(nodes=NODES, gpus=0) as day, claims_of(day) as job:
            entry: dict[str, Any] = {"resourceClaimTemplateName": "one"}
            wanted = gang("wanted", claiming("w", NODES, **entry), priority_class="low")
            return await waited_s(day, wanted, Jobs(day, job, {}))

    assert run(story()) < RUNS_S + BETWEEN_S


def test_nodes_are_held_for_a_gang_that_needs_parts_of_cards() -> None:
    async def story() -> float:
        async with Day(nodes=NODES, gpus=0) as day:
            await install(day, "Device")
            await asyncio.sleep(60)
            for node in await day.nodes():
                await day.client.create(Device, device(node, 1))
            part = {"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory-ratio": "60"}
            resources = {"requests": part, "limits": part}
            spec = {"containers": [{"name": "main", "image": "engine", "resources": resources}]}
            wanted = gang("wanted", group("w", NODES, spec=spec), priority_class="low")
            return await waited_s(day, wanted, Jobs(day, group("w", 1, spec=spec), {}))

    assert run(story()) < RUNS_S + BETWEEN_S
