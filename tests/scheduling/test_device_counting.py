"""What devices are counted by: kinds that pods ask for now, each pattern of free devices once, never long at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.fleet import device, install
from tests.support.gangs import Bench, pod_json, scheduling

from grove.api.core import Pod
from grove.api.koordinator import Device
from grove.api.meta import Json
from grove.scheduler.devices.gpu_cards import PREFIX, NodeDevices
from grove.scheduler.loop.state import counted_pods
from grove.scheduler.sources.node_sources import MOST_UNUSED

K = "koordinator.sh/"


def share(name: str, namespace: str, core: int) -> Json:
    """A pod that asks for a part of a card."""
    pod = pod_json(name, namespace, gpus=0)
    asked = {f"{K}gpu-core": str(core), f"{K}gpu-memory-ratio": str(core)}
    pod["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    return pod


async def fleet(cluster: Any, bench: Bench, count: int) -> None:
    for node in await bench.add_nodes(count, gpus=8):
        await cluster.client.create(Device, device(node, 8))
    await cluster.settle(0.5)


@pytest.mark.simulated
async def test_kinds_are_forgotten_with_their_pods_and_a_new_one_is_counted_once_for_nodes_that_are_alike(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    counts_slots = NodeDevices.pod_slots

    def counting(self: NodeDevices, *args: Any) -> int:
        nonlocal counted
        counted += 1
        return counts_slots(self, *args)

    monkeypatch.setattr(NodeDevices, "pod_slots", counting)
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        await fleet(cluster, bench, 16)
        for core in range(1, 101):
            await bench.create_pod(share(f"p{core}", bench.namespace, core))
            await bench.expect({"/": 1})
            await cluster.client.delete(Pod, f"p{core}", bench.namespace, grace_period_s=0)
            await bench.expect({})
        snapshot = bench.scheduler.view.snapshot
        kinds = [name for name in snapshot.resources if name.startswith(PREFIX)]
        assert len(kinds) < 2 * MOST_UNUSED + 4
        counted = 0
        await bench.create_pod(share("last", bench.namespace, 42))
        await bench.expect({"/": 1})
        assert counted <= 3 * MOST_UNUSED, "the new kind on one pattern of nodes, the others where the pod went"


class Slices:
    """The most nodes that are counted before others get the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = self._now = 0
        self.meanwhile: list[Callable[[], Awaitable[object]]] = []
        """What others do, one after the other, when they get the event loop."""
        recount = counted_pods.CountedPods._recount

        def counting(counted: counted_pods.CountedPods, name: str) -> None:
            self._now += 1
            self.longest = max(self.longest, self._now)
            recount(counted, name)

        monkeypatch.setattr(counted_pods.CountedPods, "_recount", counting)
        monkeypatch.setattr(counted_pods, "asyncio", SimpleNamespace(sleep=self._others_go_on))

    async def _others_go_on(self, _: float) -> None:
        self._now = 0
        if self.meanwhile:
            await self.meanwhile.pop(0)()
            await asyncio.sleep(0.1)
        await asyncio.sleep(0)


@pytest.mark.simulated
async def test_a_new_kind_is_counted_a_few_nodes_at_a_time(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        await fleet(cluster, bench, 100)
        await bench.create_pod(share("first", bench.namespace, 20))
        await bench.expect({"/": 1})
        slices = Slices(monkeypatch)
        await bench.create_pod(share("next", bench.namespace, 30))
        await bench.expect({"/": 2})
        assert 0 < slices.longest <= 2 * counted_pods.NODES_A_SLICE


@pytest.mark.simulated
async def test_a_count_that_takes_long_is_interrupted_after_three_milliseconds_of_cpu(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node takes 2 ms here."""
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        await fleet(cluster, bench, 20)
        await bench.create_pod(share("first", bench.namespace, 20))
        await bench.expect({"/": 1})
        slices, cpu_s = Slices(monkeypatch), 0.0
        recount = counted_pods.CountedPods._recount

        def slow(counted: counted_pods.CountedPods, name: str) -> None:
            nonlocal cpu_s
            cpu_s += 0.002
            recount(counted, name)

        monkeypatch.setattr(counted_pods.CountedPods, "_recount", slow)
        bench.scheduler.view.counted.cpu_s = lambda: cpu_s
        await bench.create_pod(share("next", bench.namespace, 30))
        await bench.expect({"/": 2})
        assert cpu_s > 20 * 0.002
        assert slices.longest <= 3, "two, and one node that a pod was placed on"


@pytest.mark.simulated
async def test_devices_of_a_node_that_come_during_a_count_are_counted_a_few_nodes_at_a_time_too(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        await fleet(cluster, bench, 50)
        one, other = await bench.add_nodes(2, gpus=8)
        await bench.create_pod(share("first", bench.namespace, 20))
        await bench.expect({"/": 1})
        slices = Slices(monkeypatch)
        slices.meanwhile.append(lambda: cluster.client.create(Device, device(other, 8)))
        await cluster.client.create(Device, device(one, 8))
        await cluster.settle(3.0)
        assert not slices.meanwhile
        assert 0 < slices.longest <= 2 * counted_pods.NODES_A_SLICE
