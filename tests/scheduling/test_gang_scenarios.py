"""Gangs and capacity: minima first and whole, then scaled gangs, then surplus; the twelve upstream gang scenarios.

PodGangs are made by hand as the operator would make them. Every node has capacity for one pod. A workload is a clique
pc-a and a scaling group sg-x of pc-b (one pod) and pc-c (three pods). WL1 needs all of it, WL2 one copy of everything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.gangs import Bench, Gang, Group, gang, group, scheduling

pytestmark = pytest.mark.real_in("soak")


@dataclass
class Workload:
    """Replicas of a set, their scaling groups, and the gangs they make."""

    bench: Bench
    min_available: int
    floor_a: int
    floor_c: int
    copies: dict[int, int] = field(default_factory=dict)

    async def add_replica(self, replica: int, copies: int = 2) -> None:
        inside = [part for j in range(self.min_available) for part in self._copy(j)]
        await self.bench.apply(gang(f"wl-{replica}", group("pc-a", 2, self.floor_a), *inside))
        self.copies[replica] = self.min_available
        await self.scale(replica, copies)

    async def scale(self, replica: int, copies: int) -> None:
        for j in range(self.copies[replica], copies):
            name = f"wl-{replica}-sg-x-{j - self.min_available}"
            await self.bench.apply(Gang(name, tuple(self._copy(j)), base=f"wl-{replica}"))
        self.copies[replica] = copies

    def _copy(self, j: int) -> list[Group]:
        return [group(f"sg-x-{j}-pc-b", 1), group(f"sg-x-{j}-pc-c", 3, self.floor_c)]

    def base_floor(self, replica: int) -> Counter[str]:
        base = f"wl-{replica}"
        count = Counter({f"{base}/pc-a": self.floor_a})
        for j in range(self.min_available):
            count += Counter({f"{base}/sg-x-{j}-pc-b": 1, f"{base}/sg-x-{j}-pc-c": self.floor_c})
        return count

    def scaled_floor(self, replica: int, j: int) -> Counter[str]:
        name = f"wl-{replica}-sg-x-{j - self.min_available}"
        return Counter({f"{name}/sg-x-{j}-pc-b": 1, f"{name}/sg-x-{j}-pc-c": self.floor_c})

    def everything(self) -> Counter[str]:
        count: Counter[str] = Counter()
        for replica, copies in self.copies.items():
            count[f"wl-{replica}/pc-a"] = 2
            for j in range(copies):
                name = f"wl-{replica}" if j < self.min_available else f"wl-{replica}-sg-x-{j - self.min_available}"
                count += Counter({f"{name}/sg-x-{j}-pc-b": 1, f"{name}/sg-x-{j}-pc-c": 3})
        return count


def wl1(bench: Bench) -> Workload:
    return Workload(bench, min_available=2, floor_a=2, floor_c=3)


def wl2(bench: Bench) -> Workload:
    return Workload(bench, min_available=1, floor_a=1, floor_c=1)


@pytest.mark.real_in("test")
async def test_gs1_a_gang_of_ten_waits_for_the_tenth_node(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl1(bench)
        await bench.add_nodes(9)
        await wl.add_replica(0)
        await bench.expect({})
        await bench.condition("wl-0", status="False", reason="Unschedulable")
        await bench.add_nodes(1)
        await bench.expect(wl.everything())
        await bench.condition("wl-0", status="True")


async def test_gs2_a_scaled_copy_waits_whole(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl1(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(before := wl.everything())
        await wl.scale(0, 3)
        await bench.add_nodes(3)
        await bench.expect(before)
        await bench.add_nodes(1)
        await bench.expect(wl.everything())


async def test_gs3_a_second_replica_waits_whole(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl1(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(before := wl.everything())
        await wl.add_replica(1)
        await bench.add_nodes(9)
        await bench.expect(before)
        await bench.add_nodes(1)
        await bench.expect(wl.everything())


async def test_gs4_copies_and_replicas_come_batch_by_batch(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl1(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(wl.everything())
        for change, nodes in ((wl.scale(0, 3), 4), (wl.add_replica(1), 10), (wl.scale(1, 3), 4)):
            before = await bench.bound()
            await change
            await bench.expect(before)
            await bench.add_nodes(nodes)
            await bench.expect(wl.everything())


async def test_gs5_the_minimum_first_then_the_rest(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await bench.add_nodes(2)
        await wl.add_replica(0)
        await bench.expect({})
        await bench.add_nodes(1)
        await bench.expect(wl.base_floor(0))
        await bench.add_nodes(7)
        await bench.expect(wl.everything())


async def test_gs6_a_scaled_minimum_then_its_surplus(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(before := wl.everything())
        await wl.scale(0, 3)
        await bench.expect(before)
        await bench.add_nodes(2)
        await bench.expect(before + wl.scaled_floor(0, 2))
        await bench.add_nodes(2)
        await bench.expect(wl.everything())


async def test_gs7_capacity_in_steps_goes_to_minima_before_surplus(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await wl.add_replica(0)
        await bench.add_nodes(3)
        await bench.expect(wl.base_floor(0))
        await bench.add_nodes(2)
        await bench.expect(wl.base_floor(0) + wl.scaled_floor(0, 1))
        await bench.add_nodes(5)
        await bench.expect(before := wl.everything())
        await wl.scale(0, 3)
        await bench.add_nodes(2)
        await bench.expect(before + wl.scaled_floor(0, 2))
        await bench.add_nodes(2)
        await bench.expect(wl.everything())


async def test_gs8_scaled_before_there_was_any_capacity(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await wl.add_replica(0, copies=3)
        await bench.expect({})
        await bench.add_nodes(3)
        await bench.expect(wl.base_floor(0))
        await bench.add_nodes(4)
        await bench.expect(wl.base_floor(0) + wl.scaled_floor(0, 1) + wl.scaled_floor(0, 2))
        await bench.add_nodes(7)
        await bench.expect(wl.everything())


async def test_gs9_a_second_replica_gets_its_minimum_first(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(before := wl.everything())
        await wl.add_replica(1)
        await bench.add_nodes(3)
        await bench.expect(before + wl.base_floor(1))
        await bench.add_nodes(7)
        await bench.expect(wl.everything())


async def test_gs10_minima_of_both_replicas_before_scaled_ones(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await wl.add_replica(0)
        await wl.add_replica(1)
        await bench.add_nodes(6)
        await bench.expect(floors := wl.base_floor(0) + wl.base_floor(1))
        await bench.add_nodes(4)
        await bench.expect(floors + wl.scaled_floor(0, 1) + wl.scaled_floor(1, 1))
        await bench.add_nodes(10)
        await bench.expect(wl.everything())


@pytest.mark.real_in("test")
async def test_gs11_copies_replicas_and_their_copies_in_steps(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await bench.add_nodes(10)
        await wl.add_replica(0)
        await bench.expect(before := wl.everything())
        await wl.scale(0, 3)
        await bench.add_nodes(2)
        await bench.expect(before + wl.scaled_floor(0, 2))
        await bench.add_nodes(2)
        await bench.expect(before := wl.everything())
        await wl.add_replica(1)
        await bench.add_nodes(3)
        await bench.expect(before + wl.base_floor(1))
        await bench.add_nodes(7)
        await bench.expect(before := wl.everything())
        await wl.scale(1, 3)
        await bench.add_nodes(2)
        await bench.expect(before + wl.scaled_floor(1, 2))
        await bench.add_nodes(2)
        await bench.expect(wl.everything())


async def test_gs12_twenty_eight_pods_pending_at_once(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        wl = wl2(bench)
        await wl.add_replica(0, copies=3)
        await wl.add_replica(1, copies=3)
        await bench.expect({})
        await bench.add_nodes(6)
        await bench.expect(floors := wl.base_floor(0) + wl.base_floor(1))
        await bench.add_nodes(8)
        scaled = [wl.scaled_floor(replica, j) for replica in (0, 1) for j in (1, 2)]
        await bench.expect(sum(scaled, floors))
        await bench.add_nodes(14)
        await bench.expect(wl.everything())


@pytest.mark.parametrize("minimum", [1, 3], ids=["surplus", "all needed"])
async def test_a_lost_pod_is_replaced_without_touching_the_rest(cluster: Any, minimum: int) -> None:
    async with scheduling(cluster) as bench:
        work = gang("work", group("w", 3, minimum))
        await bench.add_nodes(4)
        await bench.apply(work)
        await bench.expect({"work/w": 3})
        before = await bench.nodes_of("work")
        await bench.client.delete(type((await bench.pods())[0]), "work-w-1", bench.namespace, grace_period_s=0)
        await bench.expect({"work/w": 2})
        await bench.create_pods(work, only=["work-w-1"])
        await bench.expect({"work/w": 3})
        after = await bench.nodes_of("work")
        assert {name: after[name] for name in ("work-w-0", "work-w-2")} == {
            name: before[name] for name in ("work-w-0", "work-w-2")
        }
