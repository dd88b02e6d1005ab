"""`topology`: the domains of the cluster, how full they are, which sets use them, and the largest gang that fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.answers.answer import Answer
from grove.cli.access import Options, asked_once, cluster_command, show

if TYPE_CHECKING:
    from grove.kube.client import Client


@click.command()
@click.option("--topology-name", default="", help="The ClusterTopologyBinding. Default: the first by name.")
@click.option(
    "--resource", default="", help="The resource to count. Default: the accelerator that the cluster has most of."
)
@click.option(
    "--nodes/--no-nodes", default=None, help="Show one line for each node. Default: if there are at most 128 nodes."
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a drawing to this file."
)
@cluster_command()
def topology(options: Options, topology_name: str, resource: str, nodes: bool | None, svg: Path | None) -> int:
    """Show zones, blocks, racks and nodes with their GPUs and gangs, and the largest gang that still fits."""

    from grove.answers.topology import topology_answer

    async def ask(client: Client, namespace: str) -> Answer:
        return await topology_answer(client, topology_name, resource, nodes)

    reply = asked_once(options, ask)
    if svg is not None:
        from grove.show.drawing import svg_of

        svg.write_text(svg_of(reply.data))
        click.echo(f"drawn into {svg}", err=True)
    return show(reply, options.output)
