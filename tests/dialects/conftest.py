"""A cluster that speaks the dialects: their CRDs, an operator that translates, and our own scheduler to place pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.cluster import Cluster
from tests.support.operating import TOPOLOGY, World, operating
from tests.support.running import beside

from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.crds.install import install
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.sim.topology import Topology

DIALECTS = "dialects: {enabled: true}\n"


@pytest.fixture
async def speaking(cluster: Cluster) -> Cluster:
    """The cluster with the CRDs of the dialects; on the real one they are there once and stay."""
    await install(cluster.client, lambda line: None, dialects=True)
    return cluster


async def forget(world: World) -> None:
    """Deletes what the test wrote: its sets would be made again for as long as it is there."""
    kinds = (PodGangSet, KoordPodCliqueSet, PlacementPodClique)
    for kind in kinds:
        await world.client.delete_collection(kind, world.namespace)

    async def gone() -> bool:
        return not [one for kind in kinds for one in await world.list(kind)]

    await world.eventually(gone, 90)


@pytest.fixture
async def world(speaking: Cluster) -> AsyncIterator[World]:
    async with operating(speaking, config=DIALECTS + TOPOLOGY, nodes=Topology(racks=4, nodes=4)) as world:
        world.binder.allow(0)
        async with beside(Scheduler(world.client, clock=speaking.clock, say=sentence).run()):
            yield world
            await forget(world)
