"""`tree` and `status`: what a set is made of and how it is, and all sets at a glance, worst first."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Group, RenderableType

from grove.answers.answer import RUNNING, WAITING, Answer, Unanswered
from grove.answers.autoscalers import read_autoscalers, with_autoscalers
from grove.answers.following import Picture, Source
from grove.answers.judged import Judged, judged
from grove.answers.subjects import ensure_namespace, leaves_in, set_called, subject
from grove.api.selector import parse
from grove.diagnosis.autoscalers import autoscaler_lines
from grove.diagnosis.seen import Seen, read
from grove.diagnosis.states import code_of
from grove.diagnosis.tree import TreeEntry, with_leaves
from grove.diagnosis.verdict import Judgement
from grove.diagnosis.words import camel
from grove.kube.client import Client
from grove.show.columns import indented
from grove.show.explained import headline_of
from grove.show.overview import overview, rows_of
from grove.show.paint import tree_table


async def tree_answer(
    client: Client, namespace: str, name: str, *, pods: bool = True, now: datetime | None = None
) -> Answer:
    if "/" not in name:
        seen = await set_called(client, namespace, name, read)
        return picture_of((await judged(client, seen, now or datetime.now(UTC))).sets[0], pods=pods)
    asked = await subject(client, namespace, name)
    if not asked.seen.sets:
        raise Unanswered(f"{name} belongs to no PodCliqueSet")
    [whole] = (await judged(client, asked.seen, now or datetime.now(UTC))).sets
    part = _part_of(whole, leaves_in(asked.seen, name))
    if part is None:
        raise Unanswered(f"{name} has no pods; kubectl grove tree {whole.name} shows the whole set")
    return picture_of(part, pods=pods)


def _part_of(whole: Judgement, leaves: AbstractSet[str]) -> Judgement | None:
    """The set with only the branches that lead to these pods and cliques; None if it has none of them."""
    assert whole.tree is not None
    part = with_leaves(whole.tree, leaves)
    return replace(whole, tree=part) if part is not None else None


def tree_picture(name: str, subject: str = "", *, pods: bool = True) -> Picture:
    """The tree of a set; of a `subject` such as chat/decode/0 only its branches, while it has pods."""

    async def draw(source: Source) -> Answer | None:
        seen = source.seen(name)
        if not seen.sets:
            return None
        whole = (await source.judged(seen)).sets[0]
        part = _part_of(whole, leaves_in(seen, subject)) if "/" in subject else whole
        return picture_of(part or whole, pods=pods)

    return draw


def picture_of(judgement: Judgement, *, pods: bool = True) -> Answer:
    grown = judgement.tree
    assert grown is not None
    data = {"namespace": judgement.namespace, "verdict": judgement.state, "reason": judgement.brief}
    data |= {"next": judgement.next} if judgement.code and judgement.next else {}
    return Answer(tree_data(grown) | data, lambda width: _paint(judgement, width, pods), judgement.code)


def _paint(judgement: Judgement, width: int, pods: bool) -> RenderableType:
    """The judgement in words with the next step, and the tree below them."""
    assert judgement.tree is not None
    shown = judgement
    first: list[RenderableType] = (
        [headline_of(shown.name, shown.state, shown.level, shown.headline)] if shown.code else []
    )
    if shown.code and shown.next:
        first += indented(f"next: {shown.next}", width)
    below = [*(spread.words for spread in judgement.tree.spreads), *judgement.tree.headroom]
    lines = [line for words in below for line in indented(words, width, 0)]
    return Group(*first, tree_table(judgement.tree, width, pods=pods), *lines)


def tree_data(entry: TreeEntry) -> dict[str, Any]:
    """A branch as JSON; empty fields are left out."""
    data: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "state": entry.state.word,
        "why": entry.why,
        "gang": entry.gang,
        "placementScore": entry.score,
        "node": entry.node,
        "domains": list(entry.domains),
        "spreads": camel(msgspec.to_builtins(entry.spreads)),
        "headroom": list(entry.headroom),
    }
    if entry.kind != "Pod":
        count = entry.count
        data |= {
            "wanted": count.wanted,
            "ready": count.ready,
            "scheduled": count.scheduled,
            "updated": count.updated,
            "gated": count.gated,
            "children": [tree_data(child) for child in entry.children],
        }
    return {key: value for key, value in data.items() if value not in ("", None, [])}


async def status_answer(
    client: Client,
    namespace: str,
    name: str,
    now: datetime,
    *,
    order: str = "",
    selector: str = "",
    wide: bool = False,
) -> Answer:
    if "/" in name:  # a part of a set: the row of its set
        seen = (await subject(client, namespace, name)).seen
    else:
        seen = await (set_called(client, namespace, name, read) if name else read(client, namespace, selector=selector))
    if not seen.sets:
        await ensure_namespace(client, namespace)
    judgements = await judged(client, seen, now)
    answered = status_of(judgements, seen, now, order=order, wide=wide, everywhere=not namespace)
    scalers = autoscaler_lines(await read_autoscalers(client, namespace), seen)
    return with_autoscalers(answered, scalers, everywhere=not namespace)


def status_of(judgements: Judged, seen: Seen, now: datetime, *, order: str, wide: bool, everywhere: bool) -> Answer:
    rows = rows_of(judgements.sets, seen, order)

    def paint(width: int) -> RenderableType:
        return overview(rows, judgements.processes, width, now, everywhere=everywhere, wide=wide)

    code = code_of(pcs.state for pcs in judgements.sets) or (WAITING if judgements.processes.down else RUNNING)
    return Answer(rows, paint, code)


def status_picture(name: str, order: str, selector: str, *, wide: bool) -> Picture:
    async def draw(source: Source) -> Answer | None:
        seen = source.seen(name)
        if name and not seen.sets:
            return None
        if selector:
            seen = replace(seen, sets=[pcs for pcs in seen.sets if parse(selector).matches(pcs.metadata.labels)])
        judgements = await source.judged(seen)
        everywhere = not source.namespace
        answered = status_of(judgements, seen, source.now(), order=order, wide=wide, everywhere=everywhere)
        return with_autoscalers(answered, autoscaler_lines(source.autoscalers(), seen), everywhere=everywhere)

    return draw
