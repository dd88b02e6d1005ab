"""`scale` and `scaleref`: by the names people know (`chat`, `chat/prefill`), not by those Grove makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import Answer, Unanswered, object_name
from grove.answers.autoscalers import measured_clique, read_autoscalers
from grove.answers.dialects import scaled_part
from grove.answers.subjects import object_kind, set_named
from grove.api import labels, names
from grove.api.core import HorizontalPodAutoscaler, Pod
from grove.api.deletion_cost import unit_costs
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.diagnosis.seen import every
from grove.diagnosis.words import counted
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound
from grove.plan.whatif import Plan
from grove.show.columns import indented
from grove.show.scaling import Existing, scaled


def fit_lines(plan: Plan) -> tuple[str, ...]:
    """The lines of a plan on new gangs and pods."""

    new = [gang for gang in plan.gangs if gang.moved]
    refused = [gang for gang in new if gang.answer != "fits"]
    lines = [f"{gang.name}: {gang.why}" for gang in new if gang.answer == "fits" and gang.why]
    if refused:
        gangs, first = many(len(new), "gang"), refused[0]
        lines.insert(0, f"{len(refused)} of {gangs} do not fit now: {first.name}: {first.why}")
    elif new and not lines:
        places = sorted({gang.where for gang in new if gang.where})
        where = f" in {', '.join(places[:4])}" if places else ""
        lines.append(f"the new pods fit now{where}")
    if plan.preempted:
        lines.append(f"would be evicted for it: {', '.join(plan.preempted)}")
    return tuple(lines)


async def scale_answer(
    client: Client,
    namespace: str,
    target: str,
    replicas: int,
    replica: int | None = None,
    dry_run: bool = False,
    fits: Sequence[str] = (),
) -> Answer:
    pcs, objects = await targets(client, namespace, target, replica)
    existing = await _existing(client, pcs, objects, replicas)
    changes = [scaled(obj, replicas, pcs, existing) for obj in objects]  # type: ignore[arg-type]
    owners = owner_lines(await read_autoscalers(client, namespace), objects, replicas)
    for obj, change in zip(objects, changes, strict=True):
        if change.before != replicas:
            patch = {"spec": {"replicas": replicas}}
            kind, name = type(obj).RESOURCE, obj.metadata.name
            # Tried out where it is done: the object itself needs another right, and the authorizer guards it.
            await client.patch(kind, name, patch, namespace, subresource="scale", dry_run=dry_run)

    def paint(width: int) -> RenderableType:
        tail = " (dry run)" if dry_run else ""
        parts: list[RenderableType] = []
        for change in changes:
            parts.append(Text(f"{change.kind} {change.name}: {change.before} → {change.after}{tail}"))
            for line in change.sentences:
                parts += indented(line, width, 2, "yellow" if line in change.warnings else "")
        parts += [text for line in owners for text in indented(line, width, 2, "yellow")]
        parts += [text for line in fits for text in indented(line, width, 2)]
        return Group(*parts)

    return Answer({"changes": changes, "fits": list(fits), "autoscalers": owners}, paint)


def owner_lines(scalers: Sequence[HorizontalPodAutoscaler], objects: Sequence[Object], replicas: int) -> list[str]:
    """Which autoscalers own the numbers that are written, and what they will do about them."""
    targets = {(type(obj).RESOURCE.kind, obj.metadata.name) for obj in objects}
    lines = []
    for scaler in scalers:
        ref = scaler.spec.scale_target_ref
        if (ref.kind, ref.name) not in targets:
            continue
        least, most = 1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas, scaler.spec.max_replicas
        owner = next((each.name for each in scaler.metadata.owner_references if each.kind == "ScaledObject"), "")
        who = f"KEDA ScaledObject {owner}" if owner else f"HorizontalPodAutoscaler {scaler.metadata.name}"
        will = (
            "stops acting on it until it has replicas again"
            if not replicas and not owner
            else (f"sets it again by its metrics, within {least} to {most}")
        )
        lines.append(f"{who} owns the replicas of {ref.name}: it {will}")
    return lines


async def _existing(client: Client, pcs: PodCliqueSet, objects: Sequence[Object], replicas: int) -> Existing | None:
    """The gangs and pods that the set has now; None without the right to read them."""
    namespace, mine = pcs.metadata.namespace, f"{labels.PART_OF}={pcs.metadata.name}"
    try:
        gangs = await every(client, PodGang, namespace, labels=mine)
        cliques = await every(client, PodClique, namespace, labels=mine)
    except Forbidden:
        return None
    pods: dict[int, int] = {}
    for clique in cliques:
        index = clique.metadata.labels.get(labels.REPLICA_INDEX, "")
        if index.isdecimal():
            pods[int(index)] = pods.get(int(index), 0) + clique.spec.replicas
    kinds = PodCliqueSet, PodCliqueScalingGroup
    shrunk = [obj for obj in objects if isinstance(obj, kinds) and obj.spec.replicas > replicas]
    costs = {obj.metadata.name: await _costs(client, obj) for obj in shrunk}
    return Existing(tuple(sorted((gang.metadata.name for gang in gangs), key=counted)), pods, costs)


async def _costs(client: Client, scaled: PodCliqueSet | PodCliqueScalingGroup) -> dict[int, int]:
    """By which a scale-in chooses replicas of the set or the group; none if the pods may not be read."""
    of, index_of = labels.SCALING_GROUP, labels.SCALING_GROUP_REPLICA_INDEX
    if isinstance(scaled, PodCliqueSet):
        of, index_of = labels.PART_OF, labels.REPLICA_INDEX
    try:
        pods = await every(client, Pod, scaled.metadata.namespace, labels=f"{of}={scaled.metadata.name}")
    except Forbidden:
        return {}
    units: dict[int, list[Pod]] = {}
    for pod in pods:
        index = pod.metadata.labels.get(index_of, "")
        if index.isdecimal() and not pod.metadata.is_deleting:
            units.setdefault(int(index), []).append(pod)
    return unit_costs(units)


async def scaleref_answer(client: Client, namespace: str, target: str, replica: int | None = None) -> Answer:
    pcs, objects = await targets(client, namespace, target, replica)
    refs = [
        {"scaleTargetRef": {"apiVersion": kind.api_version, "kind": kind.kind, "name": obj.metadata.name}}
        for obj in objects
        for kind in [type(obj).RESOURCE]
    ]
    measured = measured_clique(objects[0], pcs) if objects else ""

    def paint(width: int) -> RenderableType:
        text = "---\n".join(yaml.safe_dump(ref, sort_keys=False) for ref in refs).rstrip()
        if not measured:
            return Text(text)
        return Text(f"# A metric of pods measures pod 0 of clique {measured} of each unit.\n{text}")

    data = [ref | ({"metricsClique": measured} if measured else {}) for ref in refs]
    return Answer(data if len(data) > 1 else data[0], paint)


async def targets(
    client: Client, namespace: str, target: str, replica: int | None
) -> tuple[PodCliqueSet, Sequence[Object]]:
    """The set, and the objects whose replicas are meant, as they are now."""
    kind, name = object_kind(target)
    if kind is not None:
        return await _object_of_kind(client, namespace, kind, name, replica)
    asked, _, part = object_name(target).partition("/")
    pcs = await set_named(client, namespace, asked)
    set_name = pcs.metadata.name  # for an object of a dialect it may be another, cut short
    part = part or scaled_part(pcs.metadata.labels)
    if not part:
        if replica is not None:
            raise Unanswered("--replica chooses among the replicas of a set; a set itself is scaled whole")
        return pcs, [pcs]
    template = pcs.spec.template
    group = template.find_group_of(part)
    if group is not None and template.find_group(part) is None:
        raise Unanswered(
            f"clique {part} belongs to scaling group {group.name} and is scaled with it: scale {set_name}/{group.name}"
        )
    indices = pcs.indexes if replica is None else [replica]
    if replica is not None and replica not in pcs.indexes:
        raise Unanswered(f"{set_name} has {many(pcs.spec.replicas, 'replica')}, there is no replica {replica}")
    if template.find_group(part) is not None:
        return pcs, [
            await client.get(PodCliqueScalingGroup, names.scaling_group(set_name, index, part), namespace)
            for index in indices
        ]
    if template.find_clique(part) is not None:
        return pcs, [await client.get(PodClique, names.clique(set_name, index, part), namespace) for index in indices]
    known = [config.name for config in template.pod_clique_scaling_groups]
    known += [clique.name for clique in template.standalone_cliques]
    raise Unanswered(f"{set_name} has no group or clique {part} to scale (it has {', '.join(known)})")


async def _object_of_kind(
    client: Client, namespace: str, kind: type[Object], name: str, replica: int | None
) -> tuple[PodCliqueSet, Sequence[Object]]:
    """One scaling group or clique by its own name, and its set."""
    if kind not in (PodCliqueScalingGroup, PodClique):
        raise Unanswered(f"a {kind.RESOURCE.kind} has no replicas to scale; name a set, a scaling group or a clique")
    if replica is not None:
        raise Unanswered(f"--replica chooses among the replicas of a set; {name} is one object")
    try:
        part = await client.get(kind, name, namespace)
    except NotFound as error:
        raise Unanswered(f"there is no {kind.RESOURCE.kind} {name} in namespace {namespace}") from error
    group = part.metadata.labels.get(labels.SCALING_GROUP, "")
    if isinstance(part, PodClique) and group:
        raise Unanswered(f"clique {name} belongs to scaling group {group} and is scaled with it: scale pcsg/{group}")
    return await set_named(client, namespace, part.metadata.labels.get(labels.PART_OF, "")), [part]
