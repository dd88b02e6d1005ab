"""`topology`: the domains of the cluster, how full they are, which sets use them, and the largest gang that fits."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import Answer, Unanswered
from grove.api.words import many
from grove.diagnosis.seen import read_layout
from grove.diagnosis.spreads import spread_counts
from grove.kube.client import Client
from grove.show.columns import indented
from grove.show.layout import Layout, layout_of
from grove.show.paint import domain_lines, level_table

MOST_SPREADS = 20
"""Spread constraints that the text shows, the furthest from even first."""


async def topology_answer(
    client: Client, topology_name: str = "", resource: str = "", nodes: bool | None = None
) -> Answer:
    seen = await read_layout(client)
    if "nodes" in seen.unreadable:
        raise Unanswered("you may not list nodes, and without them there is no topology to show")
    if topology_name and all(binding.metadata.name != topology_name for binding in seen.bindings):
        known = ", ".join(sorted(binding.metadata.name for binding in seen.bindings)) or "none"
        raise Unanswered(f"there is no ClusterTopologyBinding {topology_name} (there is: {known})")
    spreads = sorted(spread_counts(seen), key=lambda count: -count.skew)
    layout = replace(layout_of(seen, topology_name, resource), spreads=tuple(spreads))
    return Answer(layout, lambda width: _paint(layout, width, nodes, unreadable="pods" in seen.unreadable))


def _paint(layout: Layout, width: int, nodes: bool | None, *, unreadable: bool) -> RenderableType:
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
