"""Stories of a gang that waits and is then helped: the scene, what happens, and whether the scheduler notices.

A story sets the scene, yields while pods of the gang `late` wait, and then lets something happen that frees capacity
for them. Nothing else happens afterwards: a unit that this does not wake waits for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Json
from grove.sim.topology import ZONE
from tests.support.gangs import Bench, gang, group, pod_json, scheduling

Story = Callable[[Bench], AsyncIterator[None]]
APP = "app"


def scope(app: str, key: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {APP: app}}}


def near(app: str, key: str = ZONE) -> Json:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [scope(app, key)]}}}


def apart(app: str, key: str = ZONE) -> Json:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [scope(app, key)]}}}


def evenly(app: str, key: str = ZONE, **more: Any) -> Json:
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **scope(app, key), **more}
    return {"topologySpreadConstraints": [spread]}


async def zone(bench: Bench, name: str, *gpus: int) -> list[str]:
    """A node for each of these numbers of GPUs."""
    found = []
    for count in gpus:
        (node,) = await bench.add_nodes(1, gpus=count)
        await bench.client.patch(Node, node, {"metadata": {"labels": {ZONE: name}}})
        found.append(node)
    return found


async def runs(bench: Bench, name: str, node: str, app: str = "", gpus: int = 0, **spec: Any) -> None:
    """A pod that another scheduler bound."""
    pod = pod_json(name, bench.namespace, gpus=gpus, **{**spec, "schedulerName": "other"})
    pod["metadata"]["labels"] = {APP: app}
    pod["spec"]["nodeName"] = node
    await bench.client.create(Pod, pod)


async def late(bench: Bench, *, app: str = "late", gpus: int = 1, **spec: Any) -> None:
    """Who waits: a gang of one pod. The only one in its story that is called so."""
    await bench.apply(gang("late", group("w", 1, gpus=gpus, spec=spec), labels={APP: app}))


async def ends(bench: Bench, name: str) -> None:
    await bench.client.delete(Pod, name, bench.namespace, grace_period_s=0)


async def relabel(bench: Bench, name: str, **labels: str | None) -> None:
    await bench.client.patch(Pod, name, {"metadata": {"labels": labels}}, bench.namespace)


async def waiting(bench: Bench) -> list[str]:
    """Pods of `late` without a node."""
    ours = [pod for pod in await bench.pods() if pod.metadata.labels.get(labels.POD_GANG) == "late"]
    return [pod.metadata.name for pod in ours if not pod.spec.node_name and not pod.metadata.is_deleting]


async def is_noticed(cluster: Any, story: Story) -> None:
    async with scheduling(cluster) as bench:
        scene = story(bench)
        await anext(scene)
        await cluster.settle(3)
        assert await waiting(bench), "nothing stands in its way"
        await anext(scene, None)

        async def is_bound() -> Any:
            return not await waiting(bench)

        await cluster.eventually(is_bound, timeout_s=20)


def told(stories: Sequence[Story]) -> Any:
    """A row a story, called by its name."""
    return pytest.mark.parametrize("story", [pytest.param(one, id=one.__name__.replace("_", " ")) for one in stories])
