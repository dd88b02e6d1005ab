"""`rollout`: how an update of a set goes, and its earlier templates; pause, resume, undo, promote and restart write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import yaml
from rich.console import RenderableType
from rich.text import Text

from grove.answers.answer import RUNNING, WAITING, Answer, Unanswered
from grove.answers.following import Picture, Source
from grove.answers.judged import Judged, judged
from grove.answers.subjects import cliques_in, set_called, set_named, subject
from grove.api import labels
from grove.api.core import ControllerRevision
from grove.api.hashes import generation_hashes
from grove.api.meta import Json, rfc3339
from grove.api.podcliqueset import PodCliqueSet, is_paused
from grove.api.undo import CannotUndo, kept_for, numbered, restored, undo_target
from grove.diagnosis.rollouts import DONE, role_of, whole_rollout_of
from grove.diagnosis.seen import Seen, read
from grove.diagnosis.words import age
from grove.kube.client import Client
from grove.kube.errors import Conflict
from grove.show.columns import table
from grove.show.rollout_table import painted
from grove.show.timeline import images_of


async def status_answer(client: Client, namespace: str, name: str, now: datetime) -> Answer:
    """The update of a set. Of a part of it, such as chat/decode, only the cliques of the part are counted."""
    if "/" in name:
        seen = (await subject(client, namespace, name)).seen
    else:
        seen = await set_called(client, namespace, name, read)
    if not seen.sets:
        raise Unanswered(f"{name} belongs to no PodCliqueSet")
    return _status_of(seen, await judged(client, seen, now), now, name)


def _status_of(seen: Seen, known: Judged, now: datetime, part: str = "") -> Answer:
    whole, processes = known.sets[0], known.processes
    rollout = replace(whole_rollout_of(seen, seen.sets[0], now), set_state=whole.state, set_reason=whole.brief)
    if "/" in part:
        cliques = [clique.metadata.name for clique in cliques_in(seen, part)]
        names = {role.name for clique in cliques if (role := role_of(clique, seen.sets[0])) is not None}
        rollout = replace(rollout, roles=tuple(role for role in rollout.roles if role.clique in names))
    name, code = seen.sets[0].metadata.name, RUNNING if rollout.state == DONE else WAITING
    return Answer(rollout, lambda width: painted(name, rollout, processes.operator, width), code)


def status_picture(name: str, ended: list[Answer], part: str = "") -> Picture:
    """The picture of `rollout status -w`. When the update is over, the last answer is put into `ended`."""

    async def draw(source: Source) -> Answer | None:
        seen = source.seen(name)
        if not seen.sets or ended:
            return None
        status = _status_of(seen, await source.judged(seen), source.now(), part)
        if status.code == RUNNING:
            ended.append(status)
            return None
        return status

    return draw


async def history_answer(
    client: Client, namespace: str, name: str, now: datetime, revision: int | None = None
) -> Answer:
    pcs, kept = await kept_templates(client, namespace, name)
    current = generation_hashes(pcs)
    if revision is not None:
        kept_revision = _numbered(kept, name, revision)
        return Answer(kept_revision.kept, lambda width: _yaml(kept_revision.kept))
    rows = [_line(kept_revision, current) for kept_revision in kept]

    def paint(width: int) -> RenderableType:
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
    for clique, _, image in (entry.partition("=") for entry in images):
        together.setdefault(image, []).append(clique)
    return "; ".join(f"{image} ({', '.join(cliques)})" for image, cliques in together.items())


def _line(revision: ControllerRevision, current: Collection[str]) -> dict[str, Any]:
    hash_ = revision.metadata.labels.get(labels.GENERATION_HASH, "")
    return {
        "revision": revision.revision,
        "hash": hash_,
        "created": revision.metadata.creation_timestamp,
        "inEffect": hash_ in current,
        "images": list(
            dict.fromkeys(f"{part.partition('/')[0]}={image}" for part, image in images_of(revision).items())
        ),
    }


def _yaml(data: Json) -> RenderableType:
    return Text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip(), overflow="ignore", no_wrap=True)


async def kept_templates(client: Client, namespace: str, name: str) -> tuple[Any, list[ControllerRevision]]:
    """The set, and the templates that are kept of it, oldest first."""
    pcs = await set_named(client, namespace, name)
    mine = f"{labels.COMPONENT}={labels.REVISION_COMPONENT},{labels.PART_OF}={pcs.metadata.name}"
    items = (await client.list(ControllerRevision, namespace, labels=mine)).items
    owned = [
        revision for revision in items if any(ref.uid == pcs.metadata.uid for ref in revision.metadata.owner_references)
    ]
    return pcs, sorted(owned, key=lambda revision: revision.revision)


def refuse_translated(pcs: PodCliqueSet) -> None:
    """A set that is kept for an object of another API has that object's template; another would not last."""
    if elsewhere := kept_for(pcs):
        raise Unanswered(elsewhere)


def _numbered(kept: Sequence[ControllerRevision], name: str, number: int) -> ControllerRevision:
    try:
        return numbered(kept, name, number)
    except CannotUndo as err:
        raise Unanswered(str(err)) from None


async def undo_answer(
    client: Client, namespace: str, name: str, to_revision: int | None = None, *, dry_run: bool = False
) -> Answer:
    pcs, kept = await kept_templates(client, namespace, name)
    try:
        target = undo_target(pcs, kept, to_revision)
    except CannotUndo as err:
        raise Unanswered(str(err)) from None
    if target is None:
        sentence = f"{name} is at revision {to_revision} already"
        return sentence_answer({"name": name, "revision": to_revision, "dryRun": dry_run}, sentence, dry_run)
    sentence = f"{name} goes back to revision {target.revision} ({target.metadata.labels.get(labels.GENERATION_HASH)})"
    await write_change(client, namespace, name, lambda raw: restored(raw, target.kept), dry_run=dry_run)
    if is_paused(pcs):
        sentence += f". Updates of {name} are paused: kubectl grove rollout resume {name} lets it go on"
    return sentence_answer({"name": name, "revision": target.revision, "dryRun": dry_run}, sentence, dry_run)


async def write_change(
    client: Client, namespace: str, name: str, change: Callable[[Json], Json], *, dry_run: bool
) -> None:
    """Makes a change that holds for the version it was made from; the operator writes the status meanwhile."""
    for last in (False, False, False, False, True):
        raw: Json = await client.get(PodCliqueSet.RESOURCE, name, namespace)
        try:
            await client.patch(PodCliqueSet, name, change(raw), namespace, dry_run=dry_run)
            return
        except Conflict:
            if last:
                raise


async def pause_answer(client: Client, namespace: str, name: str, *, paused: bool, dry_run: bool = False) -> Answer:
    pcs, _ = await kept_templates(client, namespace, name)
    state, name = "are paused" if paused else "go on", pcs.metadata.name
    if is_paused(pcs) == paused:
        was = "are paused already" if paused else "are not paused"
        return sentence_answer({"name": name, "paused": paused}, f"updates of {name} {was}", False)
    patch = {"metadata": {"annotations": {labels.ROLLOUT_PAUSED: "true" if paused else None}}}
    await client.patch(PodCliqueSet, name, patch, namespace, dry_run=dry_run)
    return sentence_answer({"name": name, "paused": paused}, f"updates of {name} {state} now", dry_run)


async def restart_answer(client: Client, namespace: str, name: str, now: datetime, *, dry_run: bool = False) -> Answer:
    pcs, _ = await kept_templates(client, namespace, name)  # the error of a wrong name lists the names that exist
    refuse_translated(pcs)
    mark = {labels.RESTARTED_AT: rfc3339(now)}

    def marked(raw: Json) -> Json:
        template = raw["spec"]["template"]
        cliques = [
            {**clique, "annotations": {**(clique.get("annotations") or {}), **mark}} for clique in template["cliques"]
        ]
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        return {"metadata": version, "spec": {"template": {"cliques": cliques}}}

    await write_change(client, namespace, name, marked, dry_run=dry_run)
    return sentence_answer({"name": name}, f"the pods of {name} will be replaced, one unit after the other", dry_run)


def sentence_answer(data: Any, text: str, dry_run: bool) -> Answer:
    return Answer(data, lambda width: Text(f"{text} (dry run)" if dry_run else text))
