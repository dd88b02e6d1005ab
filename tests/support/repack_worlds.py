"""Worlds with a fragmented cluster: gangs of one pod that leave a part of each node free."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from grove.api.core import Pod
from grove.api.labels import DISRUPTION, DRAIN_SECONDS, POD_GANG
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.plan.world import World
from tests.support.manifests import clique, pcs

GPU = "nvidia.com/gpu"


def gpus(number: int) -> list[Json]:
    return [{"name": "main", "image": "x", "resources": {"limits": {GPU: str(number)}}}]


def serving(name: str, pods: int, gpu: int, disruption: str = "allow") -> Json:
    found = pcs(name, clique("w", pods, containers=gpus(gpu)), namespace="default")
    found["metadata"]["annotations"] = {DISRUPTION: disruption} if disruption else {}
    return found


async def fragmented(world: World, nodes: int, disruption: Sequence[str] = (), drain_s: int = 0) -> None:
    """One gang of one pod with 4 of the 8 GPUs on each node; set `a0` is on the first node by name, and so on."""
    for i in range(2 * nodes):
        found = serving(f"s{i}", 1, 4, "allow")
        found["metadata"]["annotations"] |= {DRAIN_SECONDS: str(drain_s)} if drain_s else {}
        await world.apply(found)
    assert await world.until(lambda: sum(pod.is_bound for pod in world.all(Pod)) == 2 * nodes)
    kept: dict[str, str] = {}
    for pod in world.all(Pod):
        gang = pod.metadata.labels[POD_GANG].removesuffix("-0")
        if kept.setdefault(pod.spec.node_name, gang) != gang:
            await world.client.delete(PodCliqueSet, gang, "default")
    assert await world.until(lambda: len(world.all(Pod)) == nodes)
    assert len(kept) == nodes
    for said, name in zip(disruption, [kept[node] for node in sorted(kept)], strict=False):
        patch = {"metadata": {"annotations": {DISRUPTION: said or None}}}
        await world.client.patch(PodCliqueSet, name, patch, "default")
    await asyncio.sleep(5)
