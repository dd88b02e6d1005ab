"""`tree` and `status`: what a set is made of and how it is, and all sets at a glance, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import (
    RUNNING,
    WAITING,
    Answer,
    Options,
    answer,
    cluster_command,
    complete_sets,
    object_name,
    resolve,
)

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType

    from grove.kube.client import Client
    from grove.show.seen import Seen
    from grove.show.tree import Twig


@click.command()
@click.argument("pcs", shell_complete=complete_sets)
@click.option("-w", "--watch", is_flag=True, help="Draw it anew whenever something changes.")
@click.option("--no-pods", is_flag=True, help="One line a clique.")
@cluster_command()
def tree(options: Options, pcs: str, watch: bool, no_pods: bool) -> int:
    """A set as a tree: groups, cliques and pods with their counts, gangs, places and what is wrong."""
    name = object_name(pcs)
    if watch:
        return _watch(options, name, no_pods)
    return answer(options, lambda client, namespace: tree_answer(client, namespace, name, pods=not no_pods))


async def tree_answer(client: Client, namespace: str, name: str, *, pods: bool = True) -> Answer:
    from grove.show.seen import read

    return picture_of(await read(client, namespace, only_set=name), pods=pods)


def picture_of(seen: Seen, *, pods: bool = True) -> Answer:
    from grove.show.tree import State, tree_of

    grown = tree_of(seen, seen.sets[0])
    code = RUNNING if grown.state is State.READY else WAITING
    return Answer(tree_data(grown), lambda width: _paint(grown, width, pods), code)


def _paint(grown: Twig, width: int, pods: bool) -> RenderableType:
    """The table, and below it the whole reason where its column is too narrow for it."""
    from rich.console import Group
    from rich.text import Text

    from grove.show.columns import indented
    from grove.show.paint import tree_table

    table = tree_table(grown, width, pods=pods)
    first = table.renderables[1]
    if not isinstance(first, Text) or not first.plain.endswith("…"):
        return table
    return Group(table, *indented(f"why: {grown.why}", width, 0))


def tree_data(twig: Twig) -> dict[str, Any]:
    """A branch as JSON; empty fields are left out."""
    found: dict[str, Any] = {
        "kind": twig.kind, "name": twig.name, "state": twig.state.word, "why": twig.why, "gang": twig.gang,
        "placementScore": twig.score, "node": twig.node, "domains": list(twig.domains),
    }  # fmt: skip
    if twig.kind != "Pod":
        count = twig.count
        found |= {
            "wanted": count.wanted, "ready": count.ready, "scheduled": count.scheduled, "updated": count.updated,
            "gated": count.gated, "children": [tree_data(child) for child in twig.children],
        }  # fmt: skip
    return {key: value for key, value in found.items() if value not in ("", None, [])}


def _watch(options: Options, name: str, no_pods: bool) -> int:
    import asyncio
    import gc
    from contextlib import nullcontext

    from rich.live import Live

    from grove.api.core import Node, Pod
    from grove.api.podclique import PodClique
    from grove.api.podcliqueset import PodCliqueSet
    from grove.api.podgang import PodGang
    from grove.api.scalinggroup import PodCliqueScalingGroup
    from grove.api.topology import ClusterTopologyBinding
    from grove.cli.terminal import terminal
    from grove.kube.cache import Cache
    from grove.kube.http import HttpClient
    from grove.kube.logs import configure_logs
    from grove.show.seen import Seen

    configure_logs("error", "text")
    gc.enable()  # this one may run for hours

    async def follow() -> None:
        from grove.api import labels

        config, namespace = resolve(options)
        console = terminal()
        on_screen = console.is_terminal
        changed = asyncio.Event()
        async with HttpClient(config, user_agent="kubectl-grove", timeout_s=options.timeout_s) as client:
            await client.get(PodCliqueSet, name, namespace)  # a wrong name is told at once
            cache = Cache(client)
            mine = (PodCliqueScalingGroup, PodClique, PodGang, Pod)
            cache.add(PodCliqueSet, namespace=namespace, fields=f"metadata.name={name}")
            for kind in mine:
                cache.add(kind, namespace=namespace, labels=f"{labels.PART_OF}={name}")
            followed: tuple[type[Any], ...] = (PodCliqueSet, *mine, Node, ClusterTopologyBinding)
            for one in followed:
                cache.on_event(one, lambda old, new: changed.set())
            async with cache:
                await cache.wait_synced(options.timeout_s)
                with Live(console=console, auto_refresh=False, screen=True) if on_screen else nullcontext() as live:
                    while True:
                        changed.clear()
                        seen = Seen(
                            cache.list(PodCliqueSet), cache.list(PodCliqueScalingGroup), cache.list(PodClique),
                            cache.list(PodGang), cache.list(Pod), cache.list(Node), cache.list(ClusterTopologyBinding),
                        )  # fmt: skip
                        if not seen.sets:
                            return
                        picture = picture_of(seen, pods=not no_pods).paint(console.width)
                        if live is not None:
                            live.update(picture, refresh=True)
                        else:
                            console.print(picture)
                        await changed.wait()
                        await asyncio.sleep(0.1)  # changes come in bursts; one picture for each

    asyncio.run(follow())
    return RUNNING


@click.command()
@click.argument("pcs", required=False, shell_complete=complete_sets)
@cluster_command(everywhere=True)
def status(options: Options, pcs: str | None) -> int:
    """One line a set, worst first: replicas, pods, and the reason of what is wrong."""
    from datetime import UTC, datetime

    name = object_name(pcs) if pcs else ""
    return answer(options, lambda client, namespace: status_answer(client, namespace, name, datetime.now(UTC)))


async def status_answer(client: Client, namespace: str, name: str, now: datetime) -> Answer:
    from grove.show.seen import read
    from grove.show.tree import State, tree_of

    seen = await read(client, namespace, only_set=name)
    lines = []
    for pcs in seen.sets:
        grown = tree_of(seen, pcs)
        lines.append((grown.state, pcs, grown))
    lines.sort(key=lambda line: (line[0], line[1].metadata.key))
    data = [
        {
            "namespace": pcs.metadata.namespace, "name": pcs.metadata.name, "state": state.word,
            "replicas": pcs.spec.replicas, "available": pcs.status.available_replicas,
            "updated": pcs.status.updated_replicas, "pods": grown.count.wanted, "ready": grown.count.ready,
            "gangRestarts": pcs.status.gang_restarts, "why": grown.why,
        }
        for state, pcs, grown in lines
    ]  # fmt: skip

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        from grove.show.columns import table
        from grove.show.paint import MARKS
        from grove.show.words import age

        if not lines:
            return Text("no PodCliqueSets")
        rows = [
            (
                pcs.metadata.namespace, pcs.metadata.name, Text(state.word, style=MARKS[state][1]),
                f"{pcs.status.available_replicas}/{pcs.spec.replicas}", f"{grown.count.ready}/{grown.count.wanted}",
                age(pcs.metadata.creation_timestamp, now), grown.why,
            )
            for state, pcs, grown in lines
        ]  # fmt: skip
        titles = ("NAMESPACE", "NAME", "STATE", "AVAILABLE", "PODS", "AGE", "WHY")
        return table(titles, rows, width, may_go=("AGE", "AVAILABLE") if not namespace else ("NAMESPACE", "AGE"))

    worst = min((line[0] for line in lines), default=State.READY)
    return Answer(data, paint, RUNNING if worst is State.READY else WAITING)
