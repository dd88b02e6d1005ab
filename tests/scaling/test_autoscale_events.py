"""The scaled object has an event for what an autoscaler did, with the metric, and a metric counts it."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World

from grove.api.core import Event, HorizontalPodAutoscaler
from grove.api.meta import Json
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.cluster.autoscale_events import ACTIONS

pytestmark = pytest.mark.simulated

QUEUE = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "self"},
        "metric": {"name": "grove_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": "4"},
    },
}
SCALE = {"minReplicas": 1, "maxReplicas": 9, "metrics": [QUEUE]}


async def rescaled(world: World, before: int, after: int, at: str, message: str) -> None:
    """The HPA controller's note of a rescale."""
    seen = {
        "type": "Object",
        "object": {"metric": {"name": "grove_requests_waiting"}, "current": {"averageValue": "13"}},
    }
    active = {
        "type": "ScalingActive",
        "status": "True",
        "reason": "ValidMetricFound",
        "message": message,
        "lastTransitionTime": at,
    }
    status: Json = {
        "currentReplicas": before,
        "desiredReplicas": after,
        "lastScaleTime": at,
        "currentMetrics": [seen],
        "conditions": [active],
    }
    await world.client.patch(
        HorizontalPodAutoscaler, "demo-0-g", {"status": status}, world.namespace, subresource="status"
    )


async def told(world: World) -> list[str]:
    events = (await world.client.list(Event, world.namespace)).items
    return [one.message for one in events if one.reason == "ScaledByAutoscaler"]


def counted(way: str) -> float:
    return ACTIONS.labels("PodCliqueScalingGroup", way)._value.get()


async def test_a_rescale_is_reported_with_its_metric_and_counted(world: World) -> None:
    await world.apply(pcs("demo", clique("w"), groups=[group("g", "w", scale=SCALE)]))
    await world.available("demo")
    outs, ins = counted("out"), counted("in")
    said = "the HPA was able to successfully calculate a replica count from Object metric grove_requests_waiting"

    await rescaled(world, 1, 3, "2026-01-01T00:00:10Z", said)

    async def one() -> bool:
        return len(await told(world)) == 1

    await world.eventually(one)
    wanted = "scaled from 1 to 3 by autoscaler demo-0-g: metric grove_requests_waiting at 13, target 4"
    assert await told(world) == [wanted]
    assert (counted("out") - outs, counted("in") - ins) == (1, 0)

    await rescaled(world, 3, 3, "2026-01-01T00:00:10Z", said)
    await world.quiet()
    assert await told(world) == [wanted], "a look of the HPA controller is no news"

    await rescaled(world, 3, 2, "2026-01-01T00:05:00Z", "something that names no metric")

    async def two() -> bool:
        return len(await told(world)) == 2

    await world.eventually(two)
    assert (await told(world))[1].endswith("from 3 to 2 by autoscaler demo-0-g: something that names no metric")
    assert counted("in") - ins == 1


async def test_a_change_by_a_person_is_not_an_autoscalers(world: World) -> None:
    await world.apply(pcs("demo", clique("w"), groups=[group("g", "w", scale=SCALE)]))
    await world.available("demo")
    await world.scale(PodCliqueScalingGroup, "demo-0-g", 3)
    await world.available("demo")
    await world.quiet()
    assert await told(world) == []
