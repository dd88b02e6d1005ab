"""Status of a PodCliqueScalingGroup, rolled up from its member PodCliques replica by replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from grove.api.conditions import (
    FALSE,
    GANG_TERMINATION_IN_PROGRESS,
    INSUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    MIN_AVAILABLE_BREACHED,
    POD_CLIQUE_SCHEDULED,
    SUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    TRUE,
    UNKNOWN,
    UPDATE_IN_PROGRESS,
    with_condition,
    without_condition,
)
from grove.api.meta import Conditions, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.scalinggroup import (
    PodCliqueScalingGroup,
    PodCliqueScalingGroupStatus,
    PodCliqueScalingGroupUpdateProgress,
)
from grove.operator.podclique.status import has_hashes, is_available, is_updated, with_below_minimum
from grove.operator.shared.layout import (
    PodsOf,
    group_floor,
    group_replica_of,
    group_scale_selector,
    member_units,
    no_pods,
)
from grove.operator.shared.outcome import COMPLETE, with_children, with_outcome
from grove.operator.shared.rollout import group_replica_incarnation, is_open


def group_status(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    config: ScalingGroupConfig,
    replica: int,
    members: Iterable[PodClique],
    template_hashes: Mapping[str, str],
    now: datetime,
    *,
    pods_of: PodsOf = no_pods,
) -> PodCliqueScalingGroupStatus:
    """What the status says when everything goes well; equal to the group's own when there is nothing to write.

    `replica` is the set's replica the group belongs to; `template_hashes` are those of the set now, by clique name;
    `pods_of` gives the pods of a PodClique by its name.
    """
    members = list(members)
    replicas = _whole_replicas(pcs, group, config, replica, members)
    shown = with_children(COMPLETE, members)
    generation = pcs.status.current_generation_hash
    hashes = [template_hashes[name] for name in config.clique_names if name in template_hashes]
    scheduled = [cliques for cliques in replicas.values() if all(map(_is_scheduled, cliques))]
    available = [cliques for cliques in scheduled if all(is_available(clique) for clique in cliques)]
    updated = [cliques for cliques in available if all(map(is_updated, cliques, hashes, [generation] * len(cliques)))]
    before = group.status
    after = msgspec.structs.replace(
        before,
        replicas=group.spec.replicas,
        scheduled_replicas=len(scheduled),
        available_replicas=len(available),
        updated_replicas=len(updated),
        selector=group_scale_selector(pcs, group, config, pods_of),
        observed_generation=group.metadata.generation,
        conditions=_conditions(group, config, replicas, now),
        update_progress=_with_counts(group, replicas, config, hashes, generation),
    )
    after = with_outcome(after, before, COMPLETE, shown, now)
    converged = len(replicas) == group.spec.replicas and all(
        has_hashes(clique, hash_, generation)
        for cliques in replicas.values()
        for clique, hash_ in zip(cliques, hashes, strict=True)
    )
    if converged and not is_open(after.update_progress):
        return msgspec.structs.replace(after, current_pod_clique_set_generation_hash=generation)
    return after


def _whole_replicas(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    config: ScalingGroupConfig,
    replica: int,
    members: Iterable[PodClique],
) -> dict[int, list[PodClique]]:
    """Replicas of the group that have all their cliques, none terminating or being restarted; in the group's order."""
    live = {
        clique.metadata.name: clique
        for clique in members
        if not clique.metadata.is_deleting and group_replica_of(clique.metadata) is not None
    }
    replicas: dict[int, list[PodClique]] = {}
    for index in range(group.spec.replicas):
        units = list(member_units(pcs, replica, config, index))
        incarnation = group_replica_incarnation(pcs, replica, group, index)
        found = [live[unit.fqn] for unit in units if unit.fqn in live]
        found = [clique for clique in found if clique.status.incarnation >= incarnation]
        if len(found) == len(config.clique_names):
            replicas[index] = found
    return replicas


def _conditions(
    group: PodCliqueScalingGroup, config: ScalingGroupConfig, replicas: Mapping[int, list[PodClique]], now: datetime
) -> Conditions:
    conditions = group.status.conditions
    need = group_floor(group.spec.replicas, config.min_available)
    healthy = sum(not any(_is_breached(clique) for clique in cliques) for cliques in replicas.values())
    if is_open(group.status.update_progress):
        status, reason, message = UNKNOWN, UPDATE_IN_PROGRESS, "not judged while an update is under way"
    elif healthy < need:
        status, reason = TRUE, INSUFFICIENT_AVAILABLE_GROUP_REPLICAS
        message = f"fewer than {need} replicas are whole"
    else:
        status, reason = FALSE, SUFFICIENT_AVAILABLE_GROUP_REPLICAS
        message = f"at least {need} replicas are whole"
    conditions = with_condition(conditions, MIN_AVAILABLE_BREACHED, status, reason, message, now)
    if status == FALSE:
        conditions = without_condition(conditions, GANG_TERMINATION_IN_PROGRESS)
    return with_below_minimum(conditions, group.spec.replicas, config.min_available, now)


def _is_scheduled(clique: PodClique) -> bool:
    return is_true(clique.status.conditions, POD_CLIQUE_SCHEDULED)


def _is_breached(clique: PodClique) -> bool:
    """A clique that has not said anything yet is not healthy either: its pods are not there."""
    found = find_condition(clique.status.conditions, MIN_AVAILABLE_BREACHED)
    return found is None or found.status == TRUE


def _with_counts(
    group: PodCliqueScalingGroup,
    replicas: Mapping[int, list[PodClique]],
    config: ScalingGroupConfig,
    hashes: list[str],
    generation: str,
) -> PodCliqueScalingGroupUpdateProgress | None:
    progress = group.status.update_progress
    if progress is None:
        return None
    done = sum(
        is_updated(clique, hash_, generation)
        for cliques in replicas.values()
        for clique, hash_ in zip(cliques, hashes, strict=True)
    )
    total = group.spec.replicas * len(config.clique_names)
    return msgspec.structs.replace(progress, updated_pod_cliques_count=done, total_pod_cliques_count=total)
