"""`status -w` shows autoscalers and draws again when one of them changes."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.manifests import clique, group, pcs

from grove.answers.following import following
from grove.answers.tree import status_picture
from grove.api.core import HorizontalPodAutoscaler
from grove.kube.errors import Forbidden
from grove.plan.world import World, shaped
from grove.sim.loop import run

QUEUE = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "self"},
        "metric": {"name": "grove_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": "4"},
    },
}
SCALED = pcs(
    "d",
    clique("w"),
    groups=[group("g", "w", scale={"minReplicas": 1, "maxReplicas": 9, "metrics": [QUEUE]})],
    metadata={"namespace": "default"},
)


def seen_metric(value: str) -> dict[str, Any]:
    return {"type": "Object", "object": {**QUEUE["object"], "current": {"averageValue": value}}}  # type: ignore[dict-item]


async def watched() -> list[list[dict[str, Any]]]:
    """The autoscalers in the picture before and after one of them asks for more."""
    pictures = []
    async with World(shaped(2, 4), seed=1) as world:
        await world.apply(SCALED)
        assert await world.until(lambda: world.is_settled("d"))
        async with following(world.client, "default") as source:
            draw = status_picture("", "", "", wide=False)
            found = await draw(source)
            assert found is not None
            pictures.append(found.data[0]["autoscalers"])
            source.changed.clear()
            limited = {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas", "message": ""}
            status = {
                "currentReplicas": 1,
                "desiredReplicas": 9,
                "currentMetrics": [seen_metric("50")],
                "conditions": [limited],
            }
            patch: dict[str, Any] = {"status": status}
            await world.client.patch(HorizontalPodAutoscaler, "d-0-g", patch, "default", subresource="status")
            async with asyncio.timeout(30):
                await source.changed.wait()
            found = await draw(source)
            assert found is not None
            pictures.append(found.data[0]["autoscalers"])
    return pictures


def test_an_autoscaler_that_changes_is_drawn_again() -> None:
    before, after = run(watched(), seed=1)
    assert [(one["name"], one["metrics"], one["why"]) for one in before] == [
        ("d-0-g", ["grove_requests_waiting ?/4"], "")
    ]
    assert [(one["desired"], one["metrics"], one["why"]) for one in after] == [
        (9, ["grove_requests_waiting 50/4"], "at its most (9)")
    ]


async def watched_without_rights() -> Any:
    async with World(shaped(2, 4), seed=1) as world:
        await world.apply(SCALED)
        assert await world.until(lambda: world.is_settled("d"))
        listed = world.client.list

        async def refusing(kind: Any, *args: Any, **more: Any) -> Any:
            if kind is HorizontalPodAutoscaler:
                raise Forbidden("no", code=403, reason="Forbidden", details={})
            return await listed(kind, *args, **more)

        world.client.list = refusing  # type: ignore[method-assign]
        async with following(world.client, "default") as source:
            return await status_picture("", "", "", wide=False)(source)


def test_who_may_not_see_autoscalers_still_sees_the_sets() -> None:
    found = run(watched_without_rights(), seed=1)
    assert [row.name for row in found.data] == ["d"]
