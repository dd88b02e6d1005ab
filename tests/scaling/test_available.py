"""How soon a set is available: only its last part decides.

In virtual time a write takes a millisecond and everything else nothing, so what is left over is waiting.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating

from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache

pytestmark = pytest.mark.simulated

WRITE_S = 0.001


async def waiting_s(world: World, manifest: Any) -> float:
    """Seconds from the last word of a clique or a group to that of the set, as a watch sees them."""
    cache, of_parts_s, of_set_s = Cache(world.client), list[float](), list[float]()

    def hear(old: Any, new: Any) -> None:
        now_s = asyncio.get_running_loop().time()
        if not isinstance(new, PodCliqueSet):
            of_parts_s.append(now_s)
        elif new.status.available_replicas == new.spec.replicas:
            of_set_s.append(now_s)

    for kind in (PodCliqueSet, PodClique, PodCliqueScalingGroup):
        cache.add(kind, namespace=world.namespace)
        cache.on_event(kind, hear)
    async with cache:
        await cache.wait_synced()
        await world.apply(manifest)
        await world.available("wl")
    return of_set_s[0] - max(at_s for at_s in of_parts_s if at_s <= of_set_s[0])


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(pcs("wl", clique("w"), replicas=60), id="many replicas: a look at the set is not put off"),
        pytest.param(
            pcs("wl", clique("r"), clique("w"), groups=[group("g", "w", replicas=2)], replicas=30),
            id="replicas of a clique and a group",
        ),
    ],
)
async def test_a_set_is_available_as_soon_as_its_last_part_is(cluster: object, manifest: Any) -> None:
    async with operating(cluster) as world:
        assert await waiting_s(world, manifest) < 3 * WRITE_S
