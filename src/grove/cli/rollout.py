"""`rollout`: how an update of a set goes, and its earlier templates; pause, resume, undo, promote and restart write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import (
    RUNNING,
    WAITING,
    Answer,
    Options,
    Unanswered,
    answer,
    asked_once,
    cluster_command,
    complete_sets,
    object_name,
)
from grove.cli.examples import epilog
from grove.cli.main import help_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from grove.api.core import ControllerRevision
    from grove.api.meta import Json
    from grove.api.podcliqueset import PodCliqueSet
    from grove.cli.following import Picture, Source
    from grove.diagnosis.processes import Processes
    from grove.diagnosis.seen import Seen
    from grove.kube.client import Client


@click.group(epilog=epilog("rollout"), invoke_without_command=True)
@click.pass_context
def rollout(ctx: click.Context) -> None:
    """How an update of a PodCliqueSet goes, what its earlier templates were, and going back to one.

    Templates are kept as ControllerRevisions, the last five of a set; the annotation grove.io/revision-history-limit
    on the set asks for another number.
    """
    help_alone(ctx)


SHORT = {
    "status": "What is old and new, which replica is down, and why.",
    "history": "The templates that are kept, newest last.",
    "undo": "Go back to an earlier template (writes).",
    "promote": "Lower a partition: held units get the new template (writes).",
    "pause": "Let an update take nothing further down (writes).",
    "resume": "Let a paused update go on (writes).",
    "restart": "Replace every pod as an update would (writes).",
}
"""One line each in the list of commands, where longer ones would be cut."""


def _command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    return rollout.command(name, epilog=epilog(f"rollout {name}"), short_help=SHORT[name])


_SET = click.argument("pcs", metavar="PCS", shell_complete=complete_sets)
_DRY = click.option("--dry-run", is_flag=True, help="Ask the API server whether it would; change nothing.")


@_command("status")
@_SET
@click.option("-w", "--watch", is_flag=True, help="Until the update is over.")
@cluster_command()
def status(options: Options, pcs: str, watch: bool) -> int:
    """What is old and new, which replica is down, since when, and what it waits for.

    Also the share of each revision, partitions, budgets, the slices of a coherent update, and surge units.

    Exit codes: 0 every pod is up to date, 3 the update goes on or is paused.
    """
    from datetime import UTC, datetime

    name = object_name(pcs)
    if watch:
        return _watch(options, name)
    return answer(options, lambda client, namespace: status_answer(client, namespace, name, datetime.now(UTC)))


async def status_answer(client: Client, namespace: str, name: str, now: datetime) -> Answer:
    """The update of a set. Of a part of it, such as chat/decode, only the cliques of the part are counted."""
    from grove.cli.subjects import set_called, subject
    from grove.diagnosis.processes import read_processes
    from grove.diagnosis.seen import read

    if "/" in name:
        seen = (await subject(client, namespace, name)).seen
    else:
        seen = await set_called(client, namespace, name, read)
    if not seen.sets:
        raise Unanswered(f"{name} belongs to no PodCliqueSet")
    return _status_of(seen, await read_processes(client, now), now, name)


def _status_of(seen: Seen, processes: Processes, now: datetime, part: str = "") -> Answer:
    from dataclasses import replace

    from grove.api import labels
    from grove.cli.subjects import pods_in
    from grove.diagnosis.rollouts import DONE, role_of, whole_rollout_of
    from grove.diagnosis.verdict import judge
    from grove.show.rollout_table import painted

    whole = judge(seen, seen.sets[0], now, processes)
    found = replace(whole_rollout_of(seen, seen.sets[0], now), set_state=whole.state, set_reason=whole.brief)
    if "/" in part:
        own = pods_in(seen, part)
        pods = (one for one in seen.pods if one.metadata.name in own)
        cliques = {one.metadata.labels.get(labels.POD_CLIQUE, "") for one in pods}
        names = {role.name for one in cliques if (role := role_of(one, seen.sets[0])) is not None}
        found = replace(found, roles=tuple(one for one in found.roles if one.clique in names))
    name, code = seen.sets[0].metadata.name, RUNNING if found.state == DONE else WAITING
    return Answer(found, lambda width: painted(name, found, processes.operator, width), code)


def _watch(options: Options, name: str) -> int:
    from grove.cli.following import watch_set

    ended: list[Answer] = []
    code = watch_set(options, name, lambda found, part: status_picture(found, ended, part))
    if not ended:
        return code
    from grove.cli.access import show

    return show(ended[0], options.output)


def status_picture(name: str, ended: list[Answer], part: str = "") -> Picture:
    """The picture of `rollout status -w`. When the update is over, the last answer is put into `ended`."""

    async def draw(source: Source) -> Answer | None:
        seen = source.seen(name)
        if not seen.sets or ended:
            return None
        found = _status_of(seen, await source.processes(), source.now(), part)
        if found.code == RUNNING:
            ended.append(found)
            return None
        return found

    return draw


@_command("history")
@_SET
@click.option("--revision", type=click.IntRange(1), help="The whole template of this one, as YAML.")
@cluster_command()
def history(options: Options, pcs: str, revision: int | None) -> int:
    """The templates that are kept, newest last, and which of them is in effect."""
    from datetime import UTC, datetime

    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: history_answer(client, namespace, name, datetime.now(UTC), revision)
    )


async def history_answer(
    client: Client, namespace: str, name: str, now: datetime, revision: int | None = None
) -> Answer:
    from grove.api.hashes import generation_hashes

    pcs, kept = await kept_templates(client, namespace, name)
    current = generation_hashes(pcs)
    if revision is not None:
        one = _numbered(kept, name, revision)
        return Answer(one.kept, lambda width: _yaml(one.kept))
    rows = [_line(one, current) for one in kept]

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        from grove.diagnosis.words import age
        from grove.show.columns import table

        if not rows:
            return Text("no template is kept; is the operator new enough, and may it write ControllerRevisions?")
        titles = ("REVISION", "HASH", "AGE", "IN EFFECT", "IMAGES")
        cells = [
            (
                str(row["revision"]),
                row["hash"],
                age(row["created"], now),
                "yes" if row["inEffect"] else "",
                _by_image(row["images"]),
            )
            for row in rows
        ]
        return table(titles, cells, width)

    return Answer(rows, paint)


def _by_image(images: Sequence[str]) -> str:
    """`clique=image` of each, with the cliques of one image together."""
    together: dict[str, list[str]] = {}
    for clique, _, image in (one.partition("=") for one in images):
        together.setdefault(image, []).append(clique)
    return "; ".join(f"{image} ({', '.join(cliques)})" for image, cliques in together.items())


def _line(one: ControllerRevision, current: Collection[str]) -> dict[str, Any]:
    from grove.api import labels
    from grove.show.timeline import images_of

    hash_ = one.metadata.labels.get(labels.GENERATION_HASH, "")
    return {
        "revision": one.revision,
        "hash": hash_,
        "created": one.metadata.creation_timestamp,
        "inEffect": hash_ in current,
        "images": list(dict.fromkeys(f"{part.partition('/')[0]}={image}" for part, image in images_of(one).items())),
    }


def _yaml(data: Json) -> RenderableType:
    import yaml
    from rich.text import Text

    return Text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip(), overflow="ignore", no_wrap=True)


async def kept_templates(client: Client, namespace: str, name: str) -> tuple[Any, list[ControllerRevision]]:
    """The set, and the templates that are kept of it, oldest first."""
    from grove.api import labels
    from grove.api.core import ControllerRevision
    from grove.cli.subjects import set_named

    pcs = await set_named(client, namespace, name)
    mine = f"{labels.COMPONENT}={labels.REVISION_COMPONENT},{labels.PART_OF}={pcs.metadata.name}"
    found = (await client.list(ControllerRevision, namespace, labels=mine)).items
    owned = [one for one in found if any(ref.uid == pcs.metadata.uid for ref in one.metadata.owner_references)]
    return pcs, sorted(owned, key=lambda one: one.revision)


def refuse_translated(pcs: PodCliqueSet) -> None:
    """A set that is kept for an object of another API has that object's template; another would not last."""
    from grove.api.undo import kept_for

    if elsewhere := kept_for(pcs):
        raise Unanswered(elsewhere)


def _numbered(kept: Sequence[ControllerRevision], name: str, number: int) -> ControllerRevision:
    from grove.api.undo import CannotUndo, numbered

    try:
        return numbered(kept, name, number)
    except CannotUndo as err:
        raise Unanswered(str(err)) from None


@_command("undo")
@_SET
@click.option("--to-revision", type=click.IntRange(1), help="Which one; the one before the present if absent.")
@_DRY
@cluster_command()
def undo(options: Options, pcs: str, to_revision: int | None, dry_run: bool) -> int:
    """Go back to an earlier template: pods are updated to it one unit after the other. Scale stays as it is. Writes."""
    name = object_name(pcs)
    return answer(options, lambda client, namespace: undo_answer(client, namespace, name, to_revision, dry_run=dry_run))


async def undo_answer(
    client: Client, namespace: str, name: str, to_revision: int | None = None, *, dry_run: bool = False
) -> Answer:
    from grove.api import labels
    from grove.api.undo import CannotUndo, restored, undo_target
    from grove.diagnosis.rollouts import is_paused

    pcs, kept = await kept_templates(client, namespace, name)
    try:
        target = undo_target(pcs, kept, to_revision)
    except CannotUndo as err:
        raise Unanswered(str(err)) from None
    if target is None:
        said = f"{name} is at revision {to_revision} already"
        return sentence_answer({"name": name, "revision": to_revision, "dryRun": dry_run}, said, dry_run)
    said = f"{name} goes back to revision {target.revision} ({target.metadata.labels.get(labels.GENERATION_HASH)})"
    await write_change(client, namespace, name, lambda raw: restored(raw, target.kept), dry_run=dry_run)
    if is_paused(pcs):
        said += f". Updates of {name} are paused: kubectl grove rollout resume {name} lets it go on"
    return sentence_answer({"name": name, "revision": target.revision, "dryRun": dry_run}, said, dry_run)


async def write_change(
    client: Client, namespace: str, name: str, change: Callable[[Json], Json], *, dry_run: bool
) -> None:
    """Makes a change that holds for the version it was made from; the operator writes the status meanwhile."""
    from grove.api.podcliqueset import PodCliqueSet
    from grove.kube.errors import Conflict

    for last in (False, False, False, False, True):
        raw: Json = await client.get(PodCliqueSet.RESOURCE, name, namespace)
        try:
            await client.patch(PodCliqueSet, name, change(raw), namespace, dry_run=dry_run)
            return
        except Conflict:
            if last:
                raise


@_command("promote")
@click.argument("target", metavar="PCS[/GROUP]", shell_complete=complete_sets)
@click.option("--to", type=click.IntRange(0), default=0, show_default=True, help="The new partition.")
@_DRY
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_command()
def promote(options: Options, target: str, to: int, dry_run: bool, yes: bool) -> int:
    """Lower the partition of a set or of a scaling group: the units that it held back get the new template. Writes."""
    from grove.cli.promote import asked_for, confirm_promotion, promote_answer

    found = asked_once(options, lambda client, namespace: asked_for(client, namespace, object_name(target), to))
    if not (yes or dry_run):
        confirm_promotion(found)
    return answer(options, lambda client, namespace: promote_answer(client, namespace, found, dry_run=dry_run))


@_command("pause")
@_SET
@_DRY
@cluster_command()
def pause(options: Options, pcs: str, dry_run: bool) -> int:
    """Let an update take nothing further down; what is down already comes back new. Writes an annotation."""
    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: pause_answer(client, namespace, name, paused=True, dry_run=dry_run)
    )


@_command("resume")
@_SET
@_DRY
@cluster_command()
def resume(options: Options, pcs: str, dry_run: bool) -> int:
    """Let a paused update go on. Writes an annotation."""
    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: pause_answer(client, namespace, name, paused=False, dry_run=dry_run)
    )


async def pause_answer(client: Client, namespace: str, name: str, *, paused: bool, dry_run: bool = False) -> Answer:
    from grove.api import labels
    from grove.api.podcliqueset import PodCliqueSet
    from grove.diagnosis.rollouts import is_paused

    pcs, _ = await kept_templates(client, namespace, name)
    state, name = "are paused" if paused else "go on", pcs.metadata.name
    if is_paused(pcs) == paused:
        was = "are paused already" if paused else "are not paused"
        return sentence_answer({"name": name, "paused": paused}, f"updates of {name} {was}", False)
    patch = {"metadata": {"annotations": {labels.ROLLOUT_PAUSED: "true" if paused else None}}}
    await client.patch(PodCliqueSet, name, patch, namespace, dry_run=dry_run)
    return sentence_answer({"name": name, "paused": paused}, f"updates of {name} {state} now", dry_run)


@_command("restart")
@_SET
@_DRY
@cluster_command()
def restart(options: Options, pcs: str, dry_run: bool) -> int:
    """Replace every pod of a set as an update would, one unit after the other. Writes an annotation of its cliques."""
    from datetime import UTC, datetime

    name = object_name(pcs)
    return answer(
        options,
        lambda client, namespace: restart_answer(client, namespace, name, datetime.now(UTC), dry_run=dry_run),
    )


async def restart_answer(client: Client, namespace: str, name: str, now: datetime, *, dry_run: bool = False) -> Answer:
    from grove.api import labels
    from grove.api.meta import rfc3339

    pcs, _ = await kept_templates(client, namespace, name)  # the error of a wrong name lists the names that exist
    refuse_translated(pcs)
    mark = {labels.RESTARTED_AT: rfc3339(now)}

    def marked(raw: Json) -> Json:
        template = raw["spec"]["template"]
        cliques = [{**one, "annotations": {**(one.get("annotations") or {}), **mark}} for one in template["cliques"]]
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        return {"metadata": version, "spec": {"template": {"cliques": cliques}}}

    await write_change(client, namespace, name, marked, dry_run=dry_run)
    return sentence_answer({"name": name}, f"the pods of {name} will be replaced, one unit after the other", dry_run)


def sentence_answer(data: Any, text: str, dry_run: bool) -> Answer:
    from rich.text import Text

    return Answer(data, lambda width: Text(f"{text} (dry run)" if dry_run else text))
