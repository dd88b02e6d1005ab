"""Scores that know the network and the cards, and GPU memory as a condition."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.asking import text_of
from tests.support.gangs import Bench, gang, group, member_json, scheduling

from grove.answers.explain import scores_answer
from grove.api.core import Node
from grove.api.topology import ClusterTopologyBinding
from grove.scheduler.model.network import InvalidLinks, links_of
from grove.sim.topology import LEVELS, RACK, Topology

pytestmark = pytest.mark.simulated

CLIQUE_NAME = "grove.io/clique-name"


async def memory(bench: Bench, node: str, mebibytes: int) -> None:
    await bench.client.patch(Node, node, {"metadata": {"labels": {"nvidia.com/gpu.memory": str(mebibytes)}}})


async def apply_with(bench: Bench, name: str, pods: int, least: str) -> None:
    made = gang(name, group("w", pods))
    await bench.apply(made, pods=False)
    for number in range(pods):
        pod = member_json(made, made.groups[0], number, bench.namespace)
        pod["metadata"]["annotations"] = {"grove.io/gpu-memory": least}
        await bench.create_pod(pod)


async def test_gpu_memory_is_a_condition_and_the_least_that_suffices_is_taken(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        large, middle, small = await bench.add_nodes(3)  # by name alone the largest would be first
        for node, size in ((small, 40 * 1024), (middle, 80 * 1024), (large, 141 * 1024)):
            await memory(bench, node, size)
        await cluster.settle(1)
        await apply_with(bench, "big", 1, "80Gi")
        await bench.expect({"big/w": 1})
        assert set((await bench.nodes_of("big")).values()) == {middle}
        await bench.apply(gang("any", group("w", 1)))
        await bench.expect({"big/w": 1, "any/w": 1})
        assert set((await bench.nodes_of("any")).values()) == {small}
        await apply_with(bench, "more", 2, "80Gi")
        await bench.condition("more", status="False")


async def test_a_scaled_gang_goes_near_those_it_talks_to(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        await cluster.client.create(ClusterTopologyBinding, {"metadata": {"name": "net"}, "spec": {"levels": levels}})
        await bench.add_topology(Topology(racks=4, nodes=2, gpus=1))
        linked = {"grove.io/network-affinity": "prefill=decode:3"}
        nodes = sorted(bench.nodes.names)
        # Both the first and the last rack are half used; by name alone the first would be taken.
        await bench.apply(gang("other", group("w", 1, spec={"nodeName": nodes[0]})))
        base = gang("base", group("prefill", 1, spec={"nodeName": nodes[-1]}), annotations=linked)
        await apply_named(bench, base)
        await bench.expect({"other/w": 1, "base/prefill": 1})
        (rack,) = await bench.domains(RACK, "base")
        scaled = gang("scaled", group("decode", 1), annotations=linked, base="base")
        await apply_named(bench, scaled)
        await bench.expect({"other/w": 1, "base/prefill": 1, "scaled/decode": 1})
        assert await bench.domains(RACK, "scaled") == {rack}


async def test_bandwidth_by_a_label_is_counted_and_the_most_of_it_is_liked_best(cluster: Any) -> None:
    label = "example.com/gbps"
    async with scheduling(cluster, network_bandwidth_label=label) as bench:
        thin, thick, _ = await bench.add_nodes(3, gpus=8)
        for node, said in ((thin, "100"), (thick, "400")):
            await bench.client.patch(Node, node, {"metadata": {"labels": {label: said}}})
        await cluster.settle(1)
        made = gang("wide", group("w", 6))
        await bench.apply(made, pods=False)
        for number in range(6):
            pod = member_json(made, made.groups[0], number, bench.namespace)
            pod["spec"]["containers"][0]["resources"] = {"limits": {"grove.io/network-bandwidth": "90"}}
            await bench.create_pod(pod)
        told = await bench.condition("wide", status="False", reason="Unschedulable")
        assert "grove.io/network-bandwidth" in told.message, "four fit on the one node, one on the other"
        await bench.client.patch(Node, thin, {"metadata": {"labels": {label: "180"}}})
        await bench.expect({"wide/w": 6})
        assert Counter((await bench.nodes_of("wide")).values()) == {thick: 4, thin: 2}


async def test_the_scores_of_a_place_stand_beside_those_of_the_next_best(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        large, small = await bench.add_nodes(2)
        for node, size in ((small, 40 * 1024), (large, 80 * 1024)):
            await memory(bench, node, size)
        await cluster.settle(1)
        await bench.apply(gang("any", group("w", 1)))
        await bench.expect({"any/w": 1})
        answer = await scores_answer(bench.client, bench.namespace, "any")
        (found,) = answer.data
        assert (found.runs, found.chosen.nodes, found.next_best.nodes) == (True, {small: 1}, {large: 1})
        assert found.chosen.columns == {"gpuCapability": -40}
        assert found.next_best.columns == {"gpuCapability": -80}
        text = text_of(answer, 100, bench)
        assert "is on extra-1 (1)" in text
        assert "next best: extra-0 (1)" in text
        assert "gpuCapability       1     -40        -80" in text


async def apply_named(bench: Bench, made: Any) -> None:
    await bench.apply(made, pods=False)
    for part in made.groups:
        for number in range(part.pods):
            pod = member_json(made, part, number, bench.namespace)
            pod["metadata"]["labels"][CLIQUE_NAME] = part.name
            await bench.create_pod(pod)


async def test_links_that_cannot_be_read_are_reported(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("odd", group("w", 1), annotations={"grove.io/network-affinity": "prefill>decode"}))
        told = await bench.condition("odd", status="False", reason="InvalidPodGang")
        assert "must be like prefill=decode:3" in told.message


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a=b:3", {("a", "b"): 3, ("b", "a"): 3}, id="a pair with its weight, both ways"),
        pytest.param("a=b, c=d:2", {("a", "b"): 1, ("b", "a"): 1, ("c", "d"): 2, ("d", "c"): 2}, id="two pairs"),
        pytest.param("a>b", None, id="not a pair"),
        pytest.param("a=b:x", None, id="not a weight"),
    ],
)
def test_links(text: str, want: dict | None) -> None:
    if want is None:
        with pytest.raises(InvalidLinks):
            links_of(text)
    else:
        assert links_of(text) == want
