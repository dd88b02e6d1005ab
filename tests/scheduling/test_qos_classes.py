"""A gang made by hand whose pods are of different QoS classes is refused, with the class as the reason."""

from __future__ import annotations

from typing import Any

from tests.support.gangs import gang, group, member_json, scheduling

QOS = "koordinator.sh/qosClass"


async def test_a_gang_of_mixed_classes_is_refused_and_one_of_equal_classes_runs(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        mixed = gang("mixed", group("w", 2))
        await bench.apply(mixed, pods=False)
        for number, qos in enumerate(("LS", "BE")):
            pod = member_json(mixed, mixed.groups[0], number, bench.namespace)
            pod["metadata"]["labels"][QOS] = qos
            await bench.create_pod(pod)
        told = await bench.condition("mixed", status="False", reason="QoSMismatch")
        assert told.message == f"{QOS} must be the same in a whole gang, not BE, LS"
        await bench.apply(gang("equal", group("w", 2), labels={QOS: "LS"}))
        await bench.expect({"equal/w": 2})
