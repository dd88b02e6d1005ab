"""`topology`: the domains of the cluster, how full they are, which sets use them, and the largest gang that fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.cli.access import Answer, Options, Unanswered, asked, cluster_command, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from grove.kube.client import Client
    from grove.show.layout import Layout

MOST_SPREADS = 20
"""Spread constraints that the text shows, the furthest from even first."""


@click.command()
@click.option("--topology-name", default="", help="Which ClusterTopologyBinding; the first by name if absent.")
@click.option("--resource", default="", help="Which resource to count; the accelerator the cluster has most of.")
@click.option("--nodes/--no-nodes", default=None, help="One line a node; by default up to 128 of them.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Draw it into a file.")
@cluster_command()
def topology(options: Options, topology_name: str, resource: str, nodes: bool | None, svg: Path | None) -> int:
    """Zones, blocks, racks and nodes with their GPUs, which gang sits where, and the largest gang that still fits."""
    import asyncio

    async def ask(client: Client, namespace: str) -> Answer:
        return await topology_answer(client, topology_name, resource, nodes)

    found = asyncio.run(asked(options, ask))
    if svg is not None:
        from grove.show.drawing import svg_of

        svg.write_text(svg_of(found.data))
        click.echo(f"drawn into {svg}", err=True)
    return show(found, options.output)


async def topology_answer(
    client: Client, topology_name: str = "", resource: str = "", nodes: bool | None = None
) -> Answer:
    from dataclasses import replace

    from grove.diagnosis.seen import read_layout
    from grove.diagnosis.spreads import spread_counts
    from grove.show.layout import layout_of

    seen = await read_layout(client)
    if "nodes" in seen.unreadable:
        raise Unanswered("you may not list nodes, and without them there is no topology to show")
    if topology_name and all(one.metadata.name != topology_name for one in seen.bindings):
        known = ", ".join(sorted(one.metadata.name for one in seen.bindings)) or "none"
        raise Unanswered(f"there is no ClusterTopologyBinding {topology_name} (there is: {known})")
    spreads = sorted(spread_counts(seen), key=lambda one: -one.skew)
    found = replace(layout_of(seen, topology_name, resource), spreads=tuple(spreads))
    return Answer(found, lambda width: _paint(found, width, nodes, unreadable="pods" in seen.unreadable))


def _paint(layout: Layout, width: int, nodes: bool | None, *, unreadable: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from grove.api.words import many
    from grove.show.columns import indented
    from grove.show.paint import domain_lines, level_table

    with_nodes = layout.root.nodes <= 128 if nodes is None else nodes
    parts: list[RenderableType] = list(domain_lines(layout, width, nodes=with_nodes))
    if layout.levels:
        parts += [Text(""), level_table(layout, width)]
    else:
        parts += [Text(""), Text("no ClusterTopologyBinding: gangs cannot ask for racks or blocks yet (doctor)")]
    for spread in layout.spreads[:MOST_SPREADS]:
        parts += indented(spread.words, width, 0)
    if (rest := len(layout.spreads) - MOST_SPREADS) > 0:
        parts.append(Text(f"{many(rest, 'more spread constraint')}: -o json shows all", style="dim"))
    if unreadable:
        parts.append(Text("you may not list all pods: what others use is not shown", style="yellow"))
    return Group(*parts)
