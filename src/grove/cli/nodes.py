"""`grove nodes`: fake GPU nodes on a real API server, so that a control plane without machines acts like a cluster."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.api.words import many

if TYPE_CHECKING:
    from grove.kube.client import Client

PER_RACK, RACKS_PER_BLOCK, BLOCKS_PER_ZONE = 4, 4, 2


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Which cluster; default as kubectl."
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option("--count", default=64, show_default=True, type=click.IntRange(1, 10_000), help="How many nodes.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0, 64), help="GPUs of each node.")
@click.option("--start-delay", "start_s", default=0.5, show_default=True, help="Seconds from bound to Ready.")
@click.option(
    "--device-class",
    "classes",
    multiple=True,
    metavar="NAME",
    help="Also give each node eight devices of this class; may be given several times.",
)
@click.option(
    "--pages-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Also answer for the pods' pages of metrics at this port, as /NAMESPACE/POD.",
)
def nodes(
    kubeconfig: Path | None,
    context: str,
    count: int,
    gpus: int,
    start_s: float,
    classes: tuple[str, ...],
    pages_port: int,
) -> None:
    """Create fake nodes in zones, blocks and racks, bind a topology to them, and run what is placed on them."""
    from grove.kube.run import run_process

    sys.exit(run_process(lambda: _run(kubeconfig, context, count, gpus, start_s, classes, pages_port)))


async def _run(
    kubeconfig: Path | None,
    context: str,
    count: int,
    gpus: int,
    start_s: float,
    classes: tuple[str, ...],
    pages_port: int,
) -> None:
    import asyncio
    from itertools import islice

    from grove.api.topology import ClusterTopologyBinding
    from grove.kube.clock import SYSTEM
    from grove.kube.config import load_config
    from grove.kube.errors import AlreadyExists
    from grove.kube.http import HttpClient
    from grove.sim.nodes import FakeNodes
    from grove.sim.pages import PageServer
    from grove.sim.topology import LEVELS, Topology

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
    """Tells of devices as their driver would."""
    from grove.kube.errors import AlreadyExists
    from grove.plan.devices import device_objects

    for kind, name, spec in device_objects(nodes, classes):
        try:
            await client.create(kind, {"metadata": {"name": name}, "spec": spec})
        except AlreadyExists:
            pass
