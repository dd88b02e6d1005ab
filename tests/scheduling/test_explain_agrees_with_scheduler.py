"""`explain` and `queue` agree with the running scheduler about held nodes and about victims that terminate."""

from __future__ import annotations

from typing import Any

from tests.support.gangs import gang, group, priorities, scheduling

from grove.answers.explain import explain_answer, queue_answer
from grove.scheduler.model.config import Seconds
from grove.sim.topology import Topology


async def asked(bench: Any, name: str) -> tuple[str, str]:
    """What `explain` and `queue` answer about a gang, as data."""
    explained = await explain_answer(bench.client, bench.namespace, name)
    queue = await queue_answer(bench.client, bench.namespace, bench.cluster.clock.now())
    line = next((one for one in queue.data if one.name == name), None)
    return str(explained.data), str(line)


async def test_every_command_names_the_owner_of_a_hold_that_keeps_a_gang_out_with_a_short_hold_after(
    cluster: Any,
) -> None:
    async with scheduling(cluster, hold_after=Seconds(3)) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("there", group("w", 1)))
        await bench.expect({"there/w": 1})
        await bench.apply(gang("large", group("w", 2)))
        await bench.condition("large", "NodesHeld", status="True")
        await bench.apply(gang("small", group("w", 1)))
        await bench.condition("small", reason="NodesHeldForOthers")
        for said in await asked(bench, "small"):
            assert f"nodes are held for {bench.namespace}/large since " in said
        explained, _ = await asked(bench, "large")
        assert "2 nodes are held for it" in explained


async def test_every_command_names_the_victims_that_a_gang_waits_for(cluster: Any) -> None:
    async with priorities(cluster, low=100, high=1000), scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=2, gpus=1), stop_s=60.0)
        slow = group("w", 2, spec={"terminationGracePeriodSeconds": 300})
        await bench.apply(gang("low", slow, priority_class="low"))
        await bench.expect({"low/w": 2})
        await bench.apply(gang("high", group("w", 2), priority_class="high"))
        await bench.condition("high", "Nominated", status="True", reason="WaitingForVictims")
        await bench.condition("high", status="False", reason="Preempting")
        for said in await asked(bench, "high"):
            assert f"whole gangs: {bench.namespace}/low" in said
