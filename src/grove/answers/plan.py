"""`plan`: what would happen to a set, a change of scale, a drained node, on a copy of the live cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import NO_FIT, RUNNING, WAITING, Answer, Unanswered, object_name
from grove.answers.dialects import scaled_target
from grove.answers.scale import scale_answer
from grove.answers.subjects import object_kind, there_are
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.labels import GROVE_SCHEDULER
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.words import many
from grove.diagnosis.words import alike, listed, unnumbered
from grove.kube.errors import ApiError
from grove.plan.applying import apply_patch
from grove.plan.binding import binding_volumes
from grove.plan.copying import Copy, controllers_of, limited
from grove.plan.given import Given, KnownObjects, apply_given, wrong_references
from grove.plan.standin import other_schedulers_remark, stood_in
from grove.plan.strict import faults_of, unknown_fields, warnings_of
from grove.plan.whatif import MOST_MORE, GangPlan, Plan, planned
from grove.plan.world import World
from grove.scheduler.model.config import SchedulerConfiguration
from grove.show.columns import indented, table, warning_lines
from grove.show.explained import pasted

PATIENCE_S = 600.0
"""Virtual time in which disruption budgets have let go what they ever will."""

MOST_SHOWN = 3
"""Reasons that are printed in full; gangs with the same reason share it."""

MOST_NAMED = 4


async def plan_answer(
    copy: Copy,
    namespace: str,
    manifests: Sequence[Any] = (),
    scales: Sequence[str] = (),
    drains: Sequence[str] = (),
    show_pods: bool = False,
    now: datetime | None = None,
    settings: SchedulerConfiguration | None = None,
    replica: int | None = None,
    beside: Given | None = None,
    referred: KnownObjects | None = None,
) -> Answer:
    """Plays a change on a copy and answers. Runs on any loop; on the virtual one it takes no time.

    `beside` are other objects of the files, `referred` objects of the cluster that the manifests refer to.
    """
    check_fields(manifests)
    drains = [_node_name(text) for text in drains]
    given = [stood_in(manifest) for manifest in manifests]
    manifests = [manifest for manifest, _ in given]
    others = tuple(sorted({name for _, names in given for name in names}))
    change, sets = _change(copy, namespace, manifests, scales, drains, replica)
    kept = replace(copy, objects=tuple(_only(copy, set(sets))))
    known, moment = settings or SchedulerConfiguration(), now or datetime.now(UTC)
    async with World([], copy=kept, namespace=namespace, now=moment, settings=known, steady=True) as world:
        try:
            await apply_given(world, (beside or Given()).objects)
            async with binding_volumes(world):
                plan = await planned(
                    world,
                    change,
                    sets,
                    count_more=bool(manifests),
                    drained=drains,
                    controllers=controllers_of(_pods_on(copy, drains)),
                )
        except ApiError as error:
            raise refused(error) from error
        wrong = wrong_references(world, sets, referred or KnownObjects(), copy.unreadable) if manifests else ()
        warnings = tuple(_warnings(copy, world, sets)) if manifests else ()
    notes = [other_schedulers_remark(others)] if others else []
    if left_out := (beside or Given()).left_out:
        notes.append(f"not part of the plan: {', '.join(left_out)}")
    missing = tuple(f"{cause.reason}: {cause.step}" for cause in wrong)
    plan = replace(plan, unreadable=copy.unreadable, note="; ".join(notes), missing=missing, warnings=warnings)
    states = {gang.answer for gang in plan.gangs}
    homeless = any(displaced.fits is False for displaced in plan.others)
    waits = bool(missing) or "waits" in states or any(gang.why for gang in plan.gangs)
    code = NO_FIT if homeless or "cannot fit" in states else WAITING if waits else RUNNING
    return Answer(plan, lambda width: _paint(plan, width, show_pods), code)


def check_fields(manifests: Sequence[Any]) -> None:
    """Raises what a strict server says of fields it does not know, in all of the manifests."""
    sets = [manifest for manifest in manifests if manifest.get("kind") in (None, "PodCliqueSet")]
    named = [(pcs["metadata"]["name"], unknown_fields(pcs)) for pcs in sets]
    faults = [
        f"{name}: {fault}" if len(manifests) > 1 else fault for name, faults_of_set in named for fault in faults_of_set
    ]
    if faults:
        names = ", ".join(name for name, faults_of_set in named if faults_of_set)
        raise Unanswered(f"PodCliqueSet {names} would be refused", faults)


def refused(error: ApiError) -> Unanswered:
    """The faults that admission or the schema found, one in each line."""
    if not (faults := faults_of(error)):
        return Unanswered(f"it would be refused: {error}")
    return Unanswered(f"PodCliqueSet {error.details.get('name', '')} would be refused", faults)


def _only(copy: Copy, sets: set[Key]) -> Any:
    """The copy, with the objects that make the operator act for the concerned sets alone."""
    return limited(copy.objects, sets)


def _change(
    copy: Copy,
    namespace: str,
    manifests: Sequence[Any],
    scales: Sequence[str],
    drains: Sequence[str],
    replica: int | None = None,
) -> tuple[Callable[[World], Awaitable[None]], list[Key]]:
    there = _stored(copy)
    if manifests:
        keys = [
            Key(manifest["metadata"].get("namespace") or namespace, manifest["metadata"]["name"])
            for manifest in manifests
        ]
        for key in keys:
            if key in there and (others := stood_in(there[key])[1]):
                what = f"{key.name} is placed by {', '.join(others)}, which is not played here"
                raise Unanswered(f"{what}; under another name the plan says where {GROVE_SCHEDULER} would put it")
        return lambda world: _apply(world, manifests, keys, there), keys
    if scales:
        sets = copy.of(PodCliqueSet.RESOURCE)
        wanted = [
            (target if object_kind(target)[0] else scaled_target(object_name(target), sets), count)
            for target, count in map(_parsed, scales)
        ]
        keys = [Key(namespace, _set_of(copy, namespace, target)) for target, _ in wanted]
        for key in keys:
            if key not in there:
                names = [other.name for other in there if other.namespace == key.namespace]
                what = f"there is no PodCliqueSet {key.name} in namespace {key.namespace}"
                raise Unanswered(what + there_are("PodCliqueSet", names, key.name))
        return lambda world: _scale(world, wanted, replica), keys
    nodes = {node["metadata"]["name"] for node in copy.of(Node.RESOURCE)}
    for name in drains:
        if name not in nodes:
            raise Unanswered(f"there is no node {name}{there_are('Node', nodes, name)}")
    metas = [pod["metadata"] for pod in _pods_on(copy, drains)]
    marks = [(meta["namespace"], (meta.get("labels") or {}).get(labels.PART_OF)) for meta in metas]
    keys = sorted({Key(place, name) for place, name in marks if name} & there.keys())
    return lambda world: _drain(world, drains), keys


def _stored(copy: Copy) -> dict[Key, Any]:
    """The sets of the cluster that was copied."""
    metas = [(pcs["metadata"], pcs) for pcs in copy.of(PodCliqueSet.RESOURCE)]
    return {Key(meta.get("namespace", ""), meta["name"]): pcs for meta, pcs in metas}


def _warnings(copy: Copy, world: World, sets: Sequence[Key]) -> Iterator[str]:
    """What admission warns of in these sets of the world, compared with the sets that the copy has."""
    stored = _stored(copy)
    applied = world.cluster.server.store.collection(PodCliqueSet.RESOURCE).objects
    for key in sets:
        yield from warnings_of(applied[key].json, stored.get(key))


def _set_of(copy: Copy, namespace: str, target: str) -> str:
    """The name of the set that a target of --scale belongs to."""
    kind, name = object_kind(target)
    if kind is None:
        return target.partition("/")[0]
    metas = [obj["metadata"] for obj in copy.of(kind.RESOURCE)]
    meta = next((meta for meta in metas if (meta["namespace"], meta["name"]) == (namespace, name)), None)
    if meta is None:
        raise Unanswered(f"there is no {kind.RESOURCE.kind} {name} in namespace {namespace}")
    return str((meta.get("labels") or {}).get(labels.PART_OF, ""))


def _node_name(text: str) -> str:
    """`n1` of `n1`, `node/n1` and `nodes/n1`."""
    kind, _, name = text.rpartition("/")
    return name if kind in ("", "no", "node", "nodes") else text


def _pods_on(copy: Copy, nodes: Sequence[str]) -> list[Any]:
    return [pod for pod in copy.of(Pod.RESOURCE) if pod["spec"].get("nodeName") in nodes] if nodes else []


def _parsed(text: str) -> tuple[str, int]:
    target, equals, count = text.rpartition("=")
    if not equals or not count.isdecimal():
        raise click.UsageError(f"--scale {text}: write it like chat/prefill=5")
    return target, int(count)


async def _apply(world: World, manifests: Sequence[Any], keys: Sequence[Key], there: Mapping[Key, Any]) -> None:
    for manifest, key in zip(manifests, keys, strict=True):
        if key in there:
            await world.client.patch(PodCliqueSet, key.name, apply_patch(manifest, there[key]), key.namespace)
        else:
            await world.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": key.namespace}})


async def _scale(world: World, wanted: Sequence[tuple[str, int]], replica: int | None = None) -> None:
    for target, count in wanted:
        await scale_answer(world.client, world.namespace, target, count, replica)
    await asyncio.sleep(1.0)  # until the operator has made what is new


async def _drain(world: World, nodes: Sequence[str]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            for name in nodes:
                await world.cluster.nodes.drain(name)
    except TimeoutError:
        pass  # a disruption budget forbids it; the answer names the pods that stay
    await asyncio.sleep(5.0)


def _paint(plan: Plan, width: int, show_pods: bool) -> RenderableType:
    styles = {"fits": "green", "waits": "yellow", "cannot fit": "bold red"}
    rows = []
    for gang in plan.gangs:
        nodes = {pod.node for pod in gang.pods}
        score = "" if gang.score is None else f"{gang.score:.2f}"
        pods = f"{len(gang.pods)}/{len(gang.pods) + gang.unplaced}"
        answer = Text(gang.answer, style=styles[gang.answer])
        rows.append((gang.name, answer, pods, str(gang.moved), str(len(nodes)), score, gang.where))
    parts: list[RenderableType] = []
    if not rows:
        parts.append(Text("no gang of Grove is concerned"))
    else:
        titles = ("GANG", "ANSWER", "PODS", "NEW", "NODES", "SCORE", "WHERE")
        parts.append(table(titles, rows, width, may_go=("NODES", "SCORE"), right=("PODS", "NEW", "NODES", "SCORE")))
    refused = [gang for gang in plan.gangs if gang.why]
    troubles = alike(refused, lambda gang: (gang.answer, unnumbered(gang.why)))
    for together in troubles[:MOST_SHOWN]:
        gang, partly = together[0], together[0].answer == "fits"
        names = listed([gang_plan.name for gang_plan in together], MOST_NAMED)
        sentence = f"{names} {_answer_of(gang, len(together))}"
        parts += indented(sentence, width, 0, styles["waits" if partly else gang.answer])
        if gang.helps:
            parts += indented("any one of these would make it fit:", width, 2)
            for text, command in zip(gang.helps, gang.commands, strict=True):
                parts += [*indented(f"- {text}", width, 4), *pasted(command, 6)]
    if rest := sum(map(len, troubles[MOST_SHOWN:])):
        parts += indented(f"of {many(rest, 'more gang')} -o json has the reason", width, 0)
    if show_pods:
        parts += [Text(f"{gang.name}  {pod.pod}  {pod.node}") for gang in plan.gangs for pod in gang.pods]
    parts += [
        line
        for sentence in (*(spread.words for spread in plan.spreads), *plan.headroom)
        for line in indented(sentence, width, 0)
    ]
    if plan.preempted:
        parts += indented(f"would be evicted for it: {', '.join(plan.preempted)}", width, 0, "red")
    parts += _bystanders(plan, width)
    if plan.more is not None:
        least = "at least " if plan.more == MOST_MORE else ""
        parts.append(Text(f"{least}{many(plan.more, 'more base gang')} of it would fit after that"))
    for line in plan.missing:
        parts += indented(f"its pods would not start: {line}", width, 0, "red")
    parts += warning_lines(plan.warnings, width)
    if plan.note:
        parts += indented(plan.note, width, 0, "yellow")
    if plan.unreadable:
        parts += indented(
            f"you may not read {', '.join(plan.unreadable)}, so the answer is less exact", width, 0, "yellow"
        )
    return Group(*parts)


def _answer_of(gang: GangPlan, count: int) -> str:
    """The answer for `count` gangs with its reason: the verb agrees with the number, and stands once."""
    verb = gang.answer if count == 1 else gang.answer.removesuffix("s")
    if gang.why.startswith(f"{gang.answer} "):
        return f"{verb} {gang.why.removeprefix(f'{gang.answer} ')}"
    return f"{verb}{', but' if gang.answer == 'fits' else ':'} {gang.why}"


def _bystanders(plan: Plan, width: int) -> list[Text]:
    """Pods without a gang: how many find another node, and one line for each that does not."""
    if not plan.others:
        return []
    fine = sum(displaced.fits is True for displaced in plan.others)
    parts = indented(f"{fine} of {many(len(plan.others), 'other pod')} on it would fit on another node", width, 0)
    for displaced in plan.others:
        if displaced.fits is not True:
            style = "yellow" if displaced.fits is None else "red"
            parts += indented(f"- {displaced.namespace}/{displaced.pod}: {displaced.note}", width, 2, style)
    return parts
