"""Registers fake GPU nodes on a real API server and acts as their kubelets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import click

from grove.api.topology import ClusterTopologyBinding
from grove.api.words import many
from grove.kube.client import Client
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists
from grove.kube.http import HttpClient
from grove.plan.devices import device_objects
from grove.sim.nodes import FakeNodes
from grove.sim.pages import PageServer
from grove.sim.topology import LEVELS, Topology

PER_RACK, RACKS_PER_BLOCK, BLOCKS_PER_ZONE = 4, 4, 2


async def serve(
    kubeconfig: Path | None,
    context: str,
    count: int,
    gpus: int,
    start_s: float,
    classes: tuple[str, ...],
    pages_port: int,
) -> None:
    zones = max(1, math.ceil(count / (PER_RACK * RACKS_PER_BLOCK * BLOCKS_PER_ZONE)))
    shape = Topology(zones=zones, blocks=BLOCKS_PER_ZONE, racks=RACKS_PER_BLOCK, nodes=PER_RACK, gpus=gpus)
    async with HttpClient(load_config(kubeconfig, context), user_agent="grove-nodes") as client:
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        try:
            await client.create(
                ClusterTopologyBinding.RESOURCE, {"metadata": {"name": "fake-nodes"}, "spec": {"levels": levels}}
            )
        except AlreadyExists:
            pass
        fake = FakeNodes(client, SYSTEM, start_s=start_s)
        await fake.add(islice(shape.objects(), count))
        await _furnish(client, fake.names, classes)
        click.echo(
            f"{many(count, 'node')} with {many(gpus, 'GPU')} each, in {many(zones, 'zone')}; "
            "running what is bound to them",
            err=True,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(fake.run())
            if pages_port:
                group.create_task(PageServer(client).run(pages_port))


async def _furnish(client: Client, nodes: Sequence[str], classes: Sequence[str]) -> None:
    """Publishes devices as their driver would."""
    for kind, name, spec in device_objects(nodes, classes):
        try:
            await client.create(kind, {"metadata": {"name": name}, "spec": spec})
        except AlreadyExists:
            pass
