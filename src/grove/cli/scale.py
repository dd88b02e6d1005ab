"""`scale` and `scaleref`: by the names people know (`chat`, `chat/prefill`), not by those Grove makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grove.api.words import many
from grove.cli.access import Answer, Options, Unanswered, answer, cluster_command, complete_sets, object_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from grove.api.core import HorizontalPodAutoscaler
    from grove.api.meta import Object
    from grove.api.podcliqueset import PodCliqueSet
    from grove.kube.client import Client
    from grove.plan.whatif import Plan
    from grove.show.scaling import Existing


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.argument("replicas", metavar="REPLICAS")
@click.option("--replica", type=click.IntRange(0), help="In this replica of the set only; otherwise in all of them.")
@click.option("--dry-run", is_flag=True, help="Say what would happen and ask the API server; change nothing.")
@click.option("--check/--no-check", default=True, help="Say whether what comes would fit now; takes a second or two.")
@cluster_command()
def scale(options: Options, target: str, replicas: str, replica: int | None, dry_run: bool, check: bool) -> int:
    """Scale a PodCliqueSet, one of its scaling groups, or a clique outside every group. Writes the scale subresource.

    Says which gangs come and go, what falls below its minimum, and whether what comes would fit now.
    """
    if not replicas.isascii() or not replicas.isdecimal():
        raise Unanswered(f"replicas must be a whole number, 0 or more, not {replicas}")
    fits = _would_fit(options, target, int(replicas), replica) if check else ()
    return answer(
        options,
        lambda client, namespace: scale_answer(client, namespace, target, int(replicas), replica, dry_run, fits),
    )


def _would_fit(options: Options, target: str, replicas: int, replica: int | None) -> tuple[str, ...]:
    """Whether the gangs that come would find a place now: the change, played on a copy of the cluster.

    Where that cannot be said it says so; what was asked for is done all the same.
    """
    import asyncio

    from grove.cli.access import explained, resolve
    from grove.cli.plan import plan_answer
    from grove.cli.settings import settings_of
    from grove.kube.errors import Forbidden, KubeError
    from grove.kube.http import HttpClient
    from grove.kube.logs import configure_logs
    from grove.plan.copying import copy_cluster
    from grove.sim.loop import run

    configure_logs("error", "text")
    config, namespace = resolve(options)
    read: list[Any] = []
    unsaid = "whether what comes would fit cannot be said"

    async def copied() -> str:
        """Why the cluster could not be copied; what is wrong with the target itself is wrong with the command."""
        async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
            _, found = await explained(client, targets(client, namespace, target, replica))
            if all(one.spec.replicas >= replicas for one in found):  # type: ignore[attr-defined]
                return ""
            try:
                read.append((await copy_cluster(client, None), await settings_of(client)))
            except Forbidden:
                return "you may not see the nodes and pods"
            except (KubeError, Unanswered) as error:
                return str(error)
            return ""

    if why := asyncio.run(copied()):
        return (f"{unsaid}: {why}",)
    if not read:
        return ()
    copy, known = read[0]
    change = [f"{target}={replicas}"]
    try:
        return fit_lines(run(plan_answer(copy, namespace, scales=change, settings=known, replica=replica)).data)
    except Unanswered as error:
        return (f"{unsaid}: {error}",)


def fit_lines(plan: Plan) -> tuple[str, ...]:
    """What a plan says of the gangs and pods that come."""

    new = [gang for gang in plan.gangs if gang.moved]
    refused = [gang for gang in new if gang.answer != "fits"]
    lines = [f"{gang.name}: {gang.why}" for gang in new if gang.answer == "fits" and gang.why]
    if refused:
        gangs, first = many(len(new), "gang"), refused[0]
        lines.insert(0, f"{len(refused)} of {gangs} would not be placed now: {first.name}: {first.why}")
    elif new and not lines:
        places = sorted({gang.where for gang in new if gang.where})
        where = f" in {', '.join(places[:4])}" if places else ""
        lines.append(f"what comes would fit now{where}")
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
    from grove.cli.autoscalers import read_autoscalers
    from grove.show.scaling import scaled

    pcs, found = await targets(client, namespace, target, replica)
    existing = await _existing(client, pcs)
    changes = [scaled(one, replicas, pcs, existing) for one in found]  # type: ignore[arg-type]
    owners = owner_lines(await read_autoscalers(client, namespace), found, replicas)
    for one, change in zip(found, changes, strict=True):
        if change.before != replicas:
            patch = {"spec": {"replicas": replicas}}
            kind, name = type(one).RESOURCE, one.metadata.name
            # Tried out where it is done: the object itself needs another right, and the authorizer guards it.
            await client.patch(kind, name, patch, namespace, subresource="scale", dry_run=dry_run)

    def paint(width: int) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from grove.show.columns import indented

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


def owner_lines(scalers: Sequence[HorizontalPodAutoscaler], found: Sequence[Object], replicas: int) -> list[str]:
    """Which autoscalers own the numbers that are written, and what they will do about them."""
    targets = {(type(one).RESOURCE.kind, one.metadata.name) for one in found}
    lines = []
    for one in scalers:
        ref = one.spec.scale_target_ref
        if (ref.kind, ref.name) not in targets:
            continue
        least, most = 1 if one.spec.min_replicas is None else one.spec.min_replicas, one.spec.max_replicas
        owner = next((each.name for each in one.metadata.owner_references if each.kind == "ScaledObject"), "")
        who = f"KEDA ScaledObject {owner}" if owner else f"HorizontalPodAutoscaler {one.metadata.name}"
        will = (
            "stops acting on it until it has replicas again"
            if not replicas and not owner
            else (f"sets it again by its metrics, within {least} to {most}")
        )
        lines.append(f"{who} owns the replicas of {ref.name}: it {will}")
    return lines


async def _existing(client: Client, pcs: PodCliqueSet) -> Existing | None:
    """What the set has now; None for lack of rights to see it."""
    from grove.api import labels
    from grove.api.podclique import PodClique
    from grove.api.podgang import PodGang
    from grove.diagnosis.seen import every
    from grove.diagnosis.words import counted
    from grove.kube.errors import Forbidden
    from grove.show.scaling import Existing

    namespace, mine = pcs.metadata.namespace, f"{labels.PART_OF}={pcs.metadata.name}"
    try:
        gangs = await every(client, PodGang, namespace, labels=mine)
        cliques = await every(client, PodClique, namespace, labels=mine)
    except Forbidden:
        return None
    pods: dict[int, int] = {}
    for one in cliques:
        index = one.metadata.labels.get(labels.REPLICA_INDEX, "")
        if index.isdecimal():
            pods[int(index)] = pods.get(int(index), 0) + one.spec.replicas
    return Existing(tuple(sorted((gang.metadata.name for gang in gangs), key=counted)), pods)


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.option("--replica", type=click.IntRange(0), help="Of this replica of the set only; otherwise of all of them.")
@cluster_command()
def scaleref(options: Options, target: str, replica: int | None) -> int:
    """The scaleTargetRef that makes an HPA or a KEDA ScaledObject scale a set, a group or a clique."""
    return answer(options, lambda client, namespace: scaleref_answer(client, namespace, target, replica))


async def scaleref_answer(client: Client, namespace: str, target: str, replica: int | None = None) -> Answer:
    from grove.cli.autoscalers import measured_clique

    pcs, found = await targets(client, namespace, target, replica)
    refs = [
        {"scaleTargetRef": {"apiVersion": kind.api_version, "kind": kind.kind, "name": one.metadata.name}}
        for one in found
        for kind in [type(one).RESOURCE]
    ]
    measured = measured_clique(found[0], pcs) if found else ""

    def paint(width: int) -> RenderableType:
        import yaml
        from rich.text import Text

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
    from grove.api import names
    from grove.api.podclique import PodClique
    from grove.api.scalinggroup import PodCliqueScalingGroup
    from grove.cli.dialects import scaled_part
    from grove.cli.subjects import set_named

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
    indices = range(pcs.spec.replicas) if replica is None else [replica]
    if replica is not None and replica >= pcs.spec.replicas:
        raise Unanswered(f"{set_name} has {many(pcs.spec.replicas, 'replica')}, there is no replica {replica}")
    if template.find_group(part) is not None:
        return pcs, [
            await client.get(PodCliqueScalingGroup, names.scaling_group(set_name, index, part), namespace)
            for index in indices
        ]
    if template.find_clique(part) is not None:
        return pcs, [await client.get(PodClique, names.clique(set_name, index, part), namespace) for index in indices]
    known = [one.name for one in template.pod_clique_scaling_groups]
    known += [one.name for one in template.standalone_cliques]
    raise Unanswered(f"{set_name} has no group or clique {part} to scale (it has {', '.join(known)})")
