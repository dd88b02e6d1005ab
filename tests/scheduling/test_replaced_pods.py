"""Pods that are replaced: those of a minimum first, and in the rack where the gang was."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from tests.support.gangs import Bench, Gang, gang, gang_json, group, member_json, scheduling

from grove.api.core import Node, Pod
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.plan.world import binding
from grove.scheduler.model.reading import UNSCHEDULABLE
from grove.sim.topology import RACK, Topology

pytestmark = pytest.mark.real_in("soak")

TIMES = 10
How = Literal["update", "kill", "drain", "short drain"]


class Owner:
    """Plays the operator for the first group of a gang: pods get new names, and the PodGang refers to them."""

    def __init__(self, bench: Bench, made: Gang) -> None:
        self.bench, self.made, self._made = bench, made, 0
        part = made.groups[0]
        self.names = [f"{made.name}-{part.name}-{number}" for number in range(part.pods)]

    def _next(self, number: int) -> Json:
        self._made += 1
        pod = member_json(self.made, self.made.groups[0], number, self.bench.namespace)
        pod["metadata"]["name"] = f"{self.made.name}-{self._made}-again-{number}"
        return pod

    async def replace(self, number: int, how: How) -> None:
        """Replaces one pod: before it is gone (update), or after it (kill). A drain closes its node until the new pod
        has been there for a second, a short drain until the old pod is evicted.
        """
        bench, old = self.bench, self.names[number]
        node = (await bench.client.get(Pod, old, bench.namespace)).spec.node_name
        new = self._next(number)
        if how in ("drain", "short drain"):
            await bench.client.patch(Node, node, {"spec": {"unschedulable": True}})
            await bench.cluster.settle(0.5)
        if how == "update":
            await bench.client.delete(Pod, old, bench.namespace)
            await bench.create_pod(new)
        elif how == "short drain":
            await bench.client.evict(bench.namespace, old)
            await self._open(node)
            await bench.create_pod(new)
        else:
            await bench.client.delete(Pod, old, bench.namespace, grace_period_s=0 if how == "kill" else None)
            await self._until_gone(old)
            await bench.cluster.settle(0.5)
            await bench.create_pod(new)
        self.names[number] = new["metadata"]["name"]
        body = gang_json(self.made, bench.namespace)["spec"]
        body["podgroups"][0]["podReferences"] = [{"namespace": bench.namespace, "name": name} for name in self.names]
        await bench.client.patch(PodGang, self.made.name, {"spec": {"podgroups": body["podgroups"]}}, bench.namespace)
        if how == "drain":
            await bench.cluster.settle(1)
            await bench.client.patch(Node, node, {"spec": {"unschedulable": None}})

    async def _open(self, node: str) -> None:
        """Ends the drain. Returns when the scheduler sees that: a controller takes the taint off a moment later."""
        bench = self.bench
        await bench.client.patch(Node, node, {"spec": {"unschedulable": None}})

        async def is_open() -> bool:
            spec = (await bench.client.get(Node, node)).spec
            return not spec.unschedulable and all(taint.key != UNSCHEDULABLE for taint in spec.taints)

        await bench.cluster.eventually(is_open)
        await bench.seen(Node, node)

    async def _until_gone(self, name: str) -> None:
        async def gone() -> bool:
            return all(pod.metadata.name != name for pod in await self.bench.pods())

        await self.bench.cluster.eventually(gone)


@pytest.mark.parametrize("how", ["update", "kill", "drain"])
async def test_a_pod_of_a_minimum_that_is_replaced_gets_a_node_before_a_waiting_surplus_gang(
    cluster: Any, how: How
) -> None:
    """Three nodes: a base gang of two, and three scaled gangs of one pod, of which two wait."""
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=3, gpus=1), stop_s=0.5)
        owner = Owner(bench, gang("base", group("w", 2)))
        await bench.apply(owner.made)
        await bench.expect({"base/w": 2})
        for number in range(3):
            await bench.apply(gang(f"scaled-{number}", group("w", 1), base="base"))
        await cluster.eventually(lambda: bench.nodes_of("scaled-0"))
        for turn in range(TIMES):
            await owner.replace(turn % 2, how)
            await bench.expect({"base/w": 2, "scaled-0/w": 1}, quiet_s=0.5)


@pytest.mark.simulated
@pytest.mark.parametrize("how", ["update", "kill", "drain"])
async def test_a_pod_above_a_minimum_that_is_replaced_gets_its_node_before_surplus_that_waits(
    cluster: Any, how: How
) -> None:
    """Four nodes. The older gang `elder` waits for a pod above its minimum, and for a gang that is scaled with it."""
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=4, gpus=1), stop_s=0.5)
        await bench.apply(gang("elder", group("w", 1)))
        await bench.expect({"elder/w": 1})
        owner = Owner(bench, gang("work", group("w", 3, 1)))
        await bench.apply(owner.made)
        await bench.expect({"elder/w": 1, "work/w": 3})
        await bench.apply(gang("scaled", group("w", 1), base="elder"))
        elder = gang("elder", group("w", 3, 1))
        await bench.create_pods(elder, only=["elder-w-1", "elder-w-2"])
        groups = gang_json(elder, bench.namespace)["spec"]["podgroups"]
        await bench.client.patch(PodGang, "elder", {"spec": {"podgroups": groups}}, bench.namespace)
        for turn in range(TIMES):
            await owner.replace(turn % 3, how)
            await bench.expect({"elder/w": 1, "work/w": 3}, quiet_s=0.5)


@pytest.mark.parametrize(
    ("how", "preferred", "times"),
    [
        pytest.param("update", RACK, 3, id="preferred, updated thrice", marks=pytest.mark.real_in("test")),
        pytest.param("update", RACK, TIMES, id="preferred, updated"),
        pytest.param("kill", RACK, TIMES, id="preferred, killed"),
        pytest.param("short drain", RACK, TIMES, id="preferred, drained"),
        pytest.param("update", "", TIMES, id="nothing asked for, updated"),
        pytest.param("kill", "", TIMES, id="nothing asked for, killed"),
        pytest.param("short drain", "", TIMES, id="nothing asked for, drained"),
    ],
)
async def test_a_gang_that_fills_its_rack_stays_in_it(cluster: Any, how: How, preferred: str, times: int) -> None:
    async with scheduling(cluster) as bench:
        name = f"{bench.namespace}-levels"
        await bench.client.create(ClusterTopologyBinding, binding(name=name))
        await bench.seen(ClusterTopologyBinding, name)
        await bench.add_topology(Topology(racks=2, nodes=2, gpus=1), stop_s=1.0)
        owner = Owner(bench, gang("work", group("w", 2), preferred=preferred))
        await bench.apply(owner.made)
        await bench.expect({"work/w": 2})
        home = await bench.domains(RACK, "work")
        assert len(home) == 1
        for turn in range(times):
            await owner.replace(turn % 2, how)
            await bench.expect({"work/w": 2}, quiet_s=0)
            await cluster.eventually(lambda: _is_at(bench, owner.names))
            assert await bench.domains(RACK, "work") == home
        await bench.client.delete(ClusterTopologyBinding, name)


@pytest.mark.parametrize("preferred", [RACK, ""], ids=["preferred", "nothing asked for"])
async def test_a_pod_of_a_drained_node_goes_to_another_rack_and_does_not_wait(cluster: Any, preferred: str) -> None:
    """The rack has no other node for it, and its own node stays closed."""
    async with scheduling(cluster) as bench:
        name = f"{bench.namespace}-levels"
        await bench.client.create(ClusterTopologyBinding, binding(name=name))
        await bench.seen(ClusterTopologyBinding, name)
        await bench.add_topology(Topology(racks=2, nodes=2, gpus=1), stop_s=1.0)
        owner = Owner(bench, gang("work", group("w", 2), preferred=preferred))
        await bench.apply(owner.made)
        await bench.expect({"work/w": 2})
        node = (await bench.client.get(Pod, owner.names[0], bench.namespace)).spec.node_name
        await bench.client.patch(Node, node, {"spec": {"unschedulable": True}})
        await owner.replace(0, "update")
        await cluster.eventually(lambda: _is_at(bench, owner.names))
        assert len(await bench.domains(RACK, "work")) == 2
        await bench.client.delete(ClusterTopologyBinding, name)


async def _is_at(bench: Bench, names: list[str]) -> bool:
    return set(await bench.nodes_of("work")) == set(names)
