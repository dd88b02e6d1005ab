"""`restart`: deletes the pods of a set or of a part of it, so that the operator creates them again and together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import Answer, Unanswered
from grove.answers.following import Picture, Source
from grove.answers.subjects import Subject, subject
from grove.api.core import Pod
from grove.api.draining import replica_drain_s
from grove.api.labels import RESTART_REQUESTED
from grove.api.words import many
from grove.diagnosis.states import RUNNING
from grove.diagnosis.tree import TreeEntry
from grove.diagnosis.words import listed
from grove.kube.client import Client
from grove.kube.errors import Conflict, NotFound
from grove.show.columns import indented

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Restarted:
    """The pods that a restart deletes. `serving` of them are ready now."""

    name: str
    pods: tuple[str, ...]
    serving: int
    dry_run: bool


async def asked_for(client: Client, namespace: str, target: str) -> Subject:
    target_subject = await subject(client, namespace, target)
    if not target_subject.pods:
        raise Unanswered(f"{target_subject.name} has no pods to restart")
    return target_subject


async def restart_answer(client: Client, asked: Subject, *, dry_run: bool = False) -> Answer:
    """Deletes the pods that were read, and no pod that took a name since.

    If the set drains, the operator is asked to do it, after the draining.
    """
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
        verb = "deleted; the operator creates new ones"
        if drains:
            verb = "drain first; then the operator deletes them and creates new ones"
        if dry_run:
            verb = "would be deleted (dry run)"
        head = Text(f"{asked.name}: {many(len(names), 'pod')} {verb}")
        return Group(head, *indented(listed(names, MOST_NAMED), width, 2, "dim"))

    return Answer(done, paint)


def until_ready(asked: Subject) -> Picture:
    """A line whenever the number of ready pods changes, until every gang concerned runs with none of the old pods."""
    old, mine = {pod.metadata.uid for pod in asked.pods}, {gang.metadata.name for gang in asked.gangs}
    name = asked.seen.sets[0].metadata.name if asked.seen.sets else ""
    printed: list[str] = []

    async def draw(source: Source) -> Answer | None:
        seen = source.seen(name)
        if not seen.sets or (printed and printed[-1] == ""):
            return None
        [whole] = (await source.judged(seen)).sets
        tree: TreeEntry | None = whole.tree
        assert tree is not None
        left = sum(pod.metadata.uid in old for pod in seen.pods)
        line = f"{name}: {whole.state} · {tree.count.ready} of {many(tree.count.wanted, 'pod')} ready"
        if left:
            line += f", {many(left, 'old pod')} left"
        fresh = [] if printed and printed[-1] == line else [line]
        is_over = not left and all(gang.state == RUNNING for gang in whole.gangs if gang.gang in mine)
        printed.append("" if is_over else line)
        return Answer({"name": name, "state": whole.state}, lambda width: Text("\n".join([*fresh, ""])), whole.code)

    return draw
