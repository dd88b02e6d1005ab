"""`restart`: deletes the pods of a set or of a part of it, so that the operator creates them anew and together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from grove.api.words import many
from grove.cli.access import Answer, Options, Unanswered, asked_once, cluster_command, complete_sets, confirm, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from grove.cli.following import Picture, Source
    from grove.cli.subjects import Subject
    from grove.diagnosis.tree import TreeEntry
    from grove.kube.client import Client

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Restarted:
    """What a restart deletes. `serving` pods are ready now."""

    name: str
    pods: tuple[str, ...]
    serving: int
    dry_run: bool


@click.command()
@click.argument("target", metavar="SET[/GROUP|/CLIQUE[/N]]", shell_complete=complete_sets)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; change nothing.")
@click.option("--follow/--no-follow", default=True, help="Wait until the new pods are ready, and show how they are.")
@cluster_command()
def restart(options: Options, target: str, yes: bool, dry_run: bool, follow: bool) -> int:
    """Restart a set or a part of it whole: its pods are deleted together, and the operator creates them anew.

    SET/GROUP/N is one instance of a scaling group, SET/CLIQUE/N one pod. pg/NAME is one gang, pod/NAME one pod.
    """
    asked = asked_once(options, lambda client, namespace: asked_for(client, namespace, target))
    if not (yes or dry_run):
        _confirm(asked)
    found = asked_once(options, lambda client, namespace: restart_answer(client, asked, dry_run=dry_run))
    code = show(found, options.output)
    if dry_run or not follow or options.output:
        return code
    from grove.cli.following import watch

    return watch(options, until_ready(asked), in_place=False)


async def asked_for(client: Client, namespace: str, target: str) -> Subject:
    from grove.cli.subjects import subject

    found = await subject(client, namespace, target)
    if not found.pods:
        raise Unanswered(f"{found.name} has no pods to restart")
    return found


def _confirm(asked: Subject) -> None:
    serving = sum(pod.is_ready for pod in asked.pods)
    confirm(
        f"restart of {asked.name} deletes {many(len(asked.pods), 'pod')}, {serving} of them ready",
        "delete them, so that the operator creates them anew?",
    )


async def restart_answer(client: Client, asked: Subject, *, dry_run: bool = False) -> Answer:
    """Deletes the pods that were read, and no pod that took a name since.

    If the set drains, the operator is asked to do it, after the draining.
    """
    import asyncio

    from grove.api.core import Pod
    from grove.api.draining import replica_drain_s
    from grove.api.labels import RESTART_REQUESTED
    from grove.kube.errors import Conflict, NotFound

    drains = any(map(replica_drain_s, asked.seen.sets))

    async def delete(pod: Pod) -> None:
        meta = pod.metadata
        try:
            if drains:
                mark = {"uid": meta.uid, "annotations": {RESTART_REQUESTED: "true"}}
                await client.patch(Pod, meta.name, {"metadata": mark}, meta.namespace)
            else:
                await client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            pass  # it is gone already, or another pod has its name

    if not dry_run:
        await asyncio.gather(*(delete(pod) for pod in asked.pods))
    names = tuple(sorted(pod.metadata.name for pod in asked.pods))
    done = Restarted(asked.name, names, sum(pod.is_ready for pod in asked.pods), dry_run)

    def paint(width: int) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from grove.diagnosis.words import listed
        from grove.show.columns import indented

        verb = "deleted; the operator creates them anew"
        if drains:
            verb = "drain first; then the operator deletes them and creates them anew"
        if dry_run:
            verb = "would be deleted (dry run)"
        head = Text(f"{asked.name}: {many(len(names), 'pod')} {verb}")
        return Group(head, *indented(listed(names, MOST_NAMED), width, 2, "dim"))

    return Answer(done, paint)


def until_ready(asked: Subject) -> Picture:
    """A line whenever the number of ready pods changes, until every gang concerned runs with none of the old pods."""
    old, mine = {pod.metadata.uid for pod in asked.pods}, {gang.metadata.name for gang in asked.gangs}
    name = asked.seen.sets[0].metadata.name if asked.seen.sets else ""
    told: list[str] = []

    async def draw(source: Source) -> Answer | None:
        from rich.text import Text

        from grove.diagnosis.states import RUNNING

        seen = source.seen(name)
        if not seen.sets or (told and told[-1] == ""):
            return None
        [whole] = (await source.judged(seen)).sets
        tree: TreeEntry | None = whole.tree
        assert tree is not None
        left = sum(pod.metadata.uid in old for pod in seen.pods)
        line = f"{name}: {whole.state} · {tree.count.ready} of {many(tree.count.wanted, 'pod')} ready"
        if left:
            line += f", {many(left, 'old pod')} left"
        fresh = [] if told and told[-1] == line else [line]
        is_over = not left and all(one.state == RUNNING for one in whole.gangs if one.gang in mine)
        told.append("" if is_over else line)
        return Answer({"name": name, "state": whole.state}, lambda width: Text("\n".join([*fresh, ""])), whole.code)

    return draw
