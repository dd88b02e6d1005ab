"""The templates of before an update, and what is still made from them.

Objects that are created again, by scaling or because a user deleted them, do not spread an update. A PodClique in a
unit that the update has not reached gets the templates of before. So does a pod that is made in a pause, in a
standalone clique of which the update has replaced some pods. The templates are in the ControllerRevision of the
generation that the update started from (`rollout.origin`). Without that revision, what is made gets the templates of
now.

A unit that is missing as a whole gets the templates of before only below a partition and in a pause. Otherwise it is
new, because an update replaces broken units at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from grove.api import labels
from grove.api.hashes import generation_hashes
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, is_paused, partition_of, set_partition
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.children import template_hashes, wanted_clique, with_template
from grove.operator.shared.layout import group_config_of, group_replica_of, replica_of, unit_of
from grove.operator.shared.rollout import ALL, is_chosen, origin, was_taken


def with_templates(pcs: PodCliqueSet, data: Mapping[str, Any], cliques: Iterable[PodClique]) -> PodCliqueSet | None:
    """The set with the templates that a ControllerRevision has; None if they are those of now.

    `cliques` are all of the set. The ones with such a template say which revision their part had.
    """
    kept = {template["name"]: template for template in data.get("cliques") or ()}
    templates = [
        structs.replace(
            clique,
            labels=kept[clique.name].get("labels") or {},
            annotations=kept[clique.name].get("annotations") or {},
            spec=structs.replace(clique.spec, pod_spec=kept[clique.name]["podSpec"]),
        )
        if clique.name in kept
        else clique
        for clique in pcs.spec.template.cliques
    ]
    template = structs.replace(
        pcs.spec.template, cliques=tuple(templates), priority_class_name=data.get("priorityClassName") or ""
    )
    before = structs.replace(pcs, spec=structs.replace(pcs.spec, template=template))
    if generation_hashes(before) & generation_hashes(pcs):
        return None
    return structs.replace(before, status=structs.replace(pcs.status, revisions=_revisions(before, cliques)))


def _changed(pcs: PodCliqueSet) -> tuple[str, ...]:
    progress = pcs.status.update_progress
    if progress is None:
        return ()
    return (*progress.updated_standalone_pod_cliques, *progress.updated_pod_clique_scaling_groups)


def _revisions(before: PodCliqueSet, cliques: Iterable[PodClique]) -> dict[str, str]:
    changed, hashes, now = _changed(before), template_hashes(before), before.status.revisions
    revisions = {**now, **dict.fromkeys(changed, origin(before))}
    for clique in cliques:
        own, unit = clique.metadata.labels, unit_of(before, clique)
        if unit is None or unit.part not in changed:
            continue
        if own.get(labels.POD_TEMPLATE_HASH) == hashes[unit.template.name]:
            revision = own.get(labels.REVISION)
            revisions |= {unit.part: revision} if revision and revision != now.get(unit.part) else {}
    return revisions


def unreached_replicas(pcs: PodCliqueSet, cliques: Iterable[PodClique]) -> frozenset[int]:
    """Replicas of a set whose PodCliques are made from the templates of before; `cliques` are all that there are."""
    new, old = set[int | None](), set[int | None]()
    for clique in cliques:
        if (
            not clique.metadata.is_deleting
            and (unit := unit_of(pcs, clique)) is not None
            and unit.part in _changed(pcs)
        ):
            (new if _is_new(pcs, clique, unit.part) else old).add(unit.replica)
    held = ALL if is_paused(pcs) else set_partition(pcs)
    return frozenset(
        replica
        for replica in pcs.indexes
        if replica not in new and not is_chosen(pcs, replica) and (replica < held or replica in old)
    )


def _is_new(pcs: PodCliqueSet, clique: PodClique, part: str) -> bool:
    return clique.metadata.labels.get(labels.REVISION) == pcs.status.revisions.get(part)


def unreached_group_replicas(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, cliques: Iterable[PodClique]
) -> frozenset[int]:
    """The same of a scaling group; `cliques` are all of the set."""
    replica, every = replica_of(group.metadata) or 0, list(cliques)
    config = group_config_of(pcs, group.metadata.name, replica)
    if config is None or config.name not in _changed(pcs):
        return frozenset()
    progress, target = group.status.update_progress, pcs.status.current_generation_hash
    is_reached = progress is not None and progress.pod_clique_set_generation_hash == target
    held = partition_of(config.rolling_update)
    if (is_paused(pcs) and is_chosen(pcs, replica)) or (not is_reached and replica in unreached_replicas(pcs, every)):
        held = ALL
    members = [clique for clique in every if clique.metadata.labels.get(labels.SCALING_GROUP) == group.metadata.name]
    new = {group_replica_of(member.metadata) for member in members if _is_new(pcs, member, config.name)}
    indexes = (index for index in group.indexes if index < held)
    return frozenset(index for index in indexes if index not in new and not was_taken(group, index, target))


def choose_templates(now: Iterable[Json], before: Iterable[Json], there: Iterable[Object]) -> list[Json]:
    """The wanted PodCliques `now`; one that is not there yet is as it was `before`, if that names it."""
    old, names = {body["metadata"]["name"]: body for body in before}, {clique.metadata.name for clique in there}
    return [body if (name := body["metadata"]["name"]) in names else old.get(name, body) for body in now]


def clique_before(
    pcs: PodCliqueSet, data: Mapping[str, Any], clique: PodClique, cliques: Iterable[PodClique]
) -> PodClique | None:
    """The clique with the template of before, to make a pod from; `cliques` are all of the set."""
    before = with_templates(pcs, data, cliques)
    unit = unit_of(before, clique) if before is not None else None
    if before is None or unit is None:
        return None
    return with_template(clique, wanted_clique(before, unit))
