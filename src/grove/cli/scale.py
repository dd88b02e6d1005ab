"""`scale` and `scaleref`: by the names people know (`chat`, `chat/prefill`), not by those Grove makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import Answer, Options, Unanswered, answer, cluster_command, complete_sets, object_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from grove.api.meta import Object
    from grove.kube.client import Client


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.argument("replicas", type=click.IntRange(0))
@click.option("--replica", type=click.IntRange(0), help="In this replica of the set only; otherwise in all of them.")
@click.option("--dry-run", is_flag=True, help="Ask the API server whether it would; change nothing.")
@cluster_command()
def scale(options: Options, target: str, replicas: int, replica: int | None, dry_run: bool) -> int:
    """Scale a set, one of its scaling groups, or a clique outside every group. Writes, to the scale subresource."""
    return answer(
        options, lambda client, namespace: scale_answer(client, namespace, target, replicas, replica, dry_run)
    )


async def scale_answer(
    client: Client, namespace: str, target: str, replicas: int, replica: int | None = None, dry_run: bool = False
) -> Answer:
    found = await targets(client, namespace, target, replica)
    changes: list[dict[str, Any]] = []
    for one in found:
        name, before = one.metadata.name, one.spec.replicas  # type: ignore[attr-defined]
        if before != replicas:
            patch = {"spec": {"replicas": replicas}}
            # The scale subresource cannot be tried out by a merge patch of ours everywhere; the object itself can.
            sub = "" if dry_run else "scale"
            await client.patch(type(one).RESOURCE, name, patch, namespace, subresource=sub, dry_run=dry_run)
        changes.append({"kind": type(one).RESOURCE.kind, "name": name, "from": before, "to": replicas})

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        tail = " (dry run)" if dry_run else ""
        return Text("\n".join(f"{c['kind']} {c['name']}: {c['from']} → {c['to']}{tail}" for c in changes))

    return Answer(changes, paint)


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.option("--replica", type=click.IntRange(0), help="Of this replica of the set only; otherwise of all of them.")
@cluster_command()
def scaleref(options: Options, target: str, replica: int | None) -> int:
    """The scaleTargetRef that makes an HPA or a KEDA ScaledObject scale a set, a group or a clique."""
    return answer(options, lambda client, namespace: scaleref_answer(client, namespace, target, replica))


async def scaleref_answer(client: Client, namespace: str, target: str, replica: int | None = None) -> Answer:
    from grove.api.podcliqueset import PodCliqueSet
    from grove.cli.autoscalers import measured_clique

    found = await targets(client, namespace, target, replica)
    pcs = await client.get(PodCliqueSet, object_name(target).partition("/")[0], namespace)
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


async def targets(client: Client, namespace: str, target: str, replica: int | None) -> Sequence[Object]:
    """The objects whose replicas are meant, as they are now."""
    from grove.api import names
    from grove.api.podclique import PodClique
    from grove.api.podcliqueset import PodCliqueSet
    from grove.api.scalinggroup import PodCliqueScalingGroup

    set_name, _, part = object_name(target).partition("/")
    pcs = await client.get(PodCliqueSet, set_name, namespace)
    if not part:
        if replica is not None:
            raise Unanswered("--replica chooses among the replicas of a set; a set itself is scaled whole")
        return [pcs]
    template = pcs.spec.template
    group = template.find_group_of(part)
    if group is not None and template.find_group(part) is None:
        raise Unanswered(
            f"clique {part} belongs to scaling group {group.name} and is scaled with it: scale {set_name}/{group.name}"
        )
    indices = range(pcs.spec.replicas) if replica is None else [replica]
    if replica is not None and replica >= pcs.spec.replicas:
        raise Unanswered(f"{set_name} has {pcs.spec.replicas} replicas, there is no replica {replica}")
    if template.find_group(part) is not None:
        return [
            await client.get(PodCliqueScalingGroup, names.scaling_group(set_name, index, part), namespace)
            for index in indices
        ]
    if template.find_clique(part) is not None:
        return [await client.get(PodClique, names.clique(set_name, index, part), namespace) for index in indices]
    known = [one.name for one in template.pod_clique_scaling_groups]
    known += [one.name for one in template.standalone_cliques]
    raise Unanswered(f"{set_name} has no group or clique {part} to scale (it has {', '.join(known)})")
