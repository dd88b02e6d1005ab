"""Status of a PodCliqueScalingGroup, rolled up from its member PodCliques replica by replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api import labels
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
from grove.api.core import Pod
from grove.api.draining import part_drain_s
from grove.api.hashes import is_outdated, wanted_revision
from grove.api.meta import Conditions, Json, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig, is_coherent, is_paused
from grove.api.scalinggroup import (
    PodCliqueScalingGroup,
    PodCliqueScalingGroupStatus,
    PodCliqueScalingGroupUpdateProgress,
)
from grove.api.words import many
from grove.operator.podclique.status import has_hashes, is_available, is_updated, with_below_minimum
from grove.operator.shared.draining import next_draining
from grove.operator.shared.layout import (
    PodsOf,
    asked_indexes,
    group_minimum,
    group_replica_of,
    group_scale_selector,
    living,
    member_units,
    no_pods,
)
from grove.operator.shared.rollout import (
    group_replica_incarnation,
    has_template,
    is_open,
    units_in_flight,
)
from grove.operator.shared.surge import DEFAULT_WAIT_S
from grove.operator.shared.termination import Moment, as_written


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """The facts that were read about a group of a set.

    - `replica`: the set's replica the group belongs to.
    - `hashes`: the template hashes of the set by clique name.
    - `recorded`: the set's status names its templates as they are now.
    - `moment`: when a condition turned.
    - `of_set`: all PodCliques of the set.
    - `former`: the templates from before an update, read if a member is missing.
    """

    group: PodCliqueScalingGroup
    pcs: PodCliqueSet
    config: ScalingGroupConfig
    replica: int
    members: Sequence[PodClique]
    hashes: Mapping[str, str]
    recorded: bool = True
    moment: Moment = as_written
    pods_of: PodsOf = no_pods
    surge_wait_s: float = DEFAULT_WAIT_S
    of_set: Callable[[], Sequence[PodClique]] = tuple
    former: Json | None = None

    @property
    def is_short(self) -> bool:
        """Whether a member is missing. Surge replicas do not count: they are always new."""
        there, indexes = {clique.metadata.name for clique in self.members}, self.group.indexes
        units = (member_units(self.pcs, self.replica, self.config, index) for index in indexes)
        return any(unit.fqn not in there for replica in units for unit in replica)


@dataclass(frozen=True, slots=True)
class GroupReplica:
    """One replica of a group: the cliques of it that stay, in the group's order, each with its template's hash of now.

    `is_settled`: it has all its cliques, and none has yet to follow its last restart.
    """

    index: int
    cliques: list[tuple[PodClique, str]]
    is_settled: bool

    @property
    def is_available(self) -> bool:
        return all(is_available(clique) for clique, _ in self.cliques)

    @property
    def is_scheduled(self) -> bool:
        return all(is_true(clique.status.conditions, POD_CLIQUE_SCHEDULED) for clique, _ in self.cliques)


def group_replicas(observed: ObservedGroup) -> list[GroupReplica]:
    """The replicas that the group is to have, with those that an update has beyond `replicas`."""
    pcs, group, live = observed.pcs, observed.group, living(observed.members)
    replicas: list[GroupReplica] = []
    for index in asked_indexes(group):
        units = list(member_units(pcs, observed.replica, observed.config, index))
        members = [(live[unit.fqn], observed.hashes[unit.template.name]) for unit in units if unit.fqn in live]
        incarnation = group_replica_incarnation(pcs, observed.replica, group, index)
        is_settled = len(members) == len(units) and all(
            clique.status.incarnation >= incarnation for clique, _ in members
        )
        replicas.append(GroupReplica(index, members, is_settled))
    return replicas


def group_status(observed: ObservedGroup, now: datetime) -> PodCliqueScalingGroupStatus:
    """What the status says of the group's members; equal to the group's own when there is nothing to write."""
    pcs, group, before = observed.pcs, observed.group, observed.group.status
    generation = pcs.status.current_generation_hash
    every = group_replicas(observed)
    replicas = [group_replica for group_replica in every if group_replica.is_settled]
    indexes = group.indexes
    asked = [replica for replica in replicas if replica.index in indexes]
    scheduled = [replica for replica in replicas if replica.is_scheduled]
    available = [group_replica for group_replica in scheduled if group_replica.is_available]
    updated = [
        group_replica
        for group_replica in available
        if all(is_updated(*pair, generation) for pair in group_replica.cliques)
    ]
    after = msgspec.structs.replace(
        before,
        replicas=len(every),
        scheduled_replicas=len(scheduled),
        available_replicas=len(available),
        updated_replicas=len(updated),
        selector=group_scale_selector(pcs, group, observed.config, observed.pods_of),
        observed_generation=group.metadata.generation,
        conditions=_conditions(observed, replicas, now),
        update_progress=_with_counts(observed, asked),
    )
    converged = len(asked) == group.spec.replicas and all(
        has_hashes(*pair, generation) for group_replica in asked for pair in group_replica.cliques
    )
    if converged and not is_open(after.update_progress):
        return msgspec.structs.replace(after, current_pod_clique_set_generation_hash=generation)
    if any(is_outdated_member(observed, *pair) for group_replica in every for pair in group_replica.cliques):
        # Nor is it fully what it was: a change may be taken back and leave behind what was made from it.
        return msgspec.structs.replace(after, current_pod_clique_set_generation_hash="")
    return after


def with_draining(
    observed: ObservedGroup, after: PodCliqueScalingGroupStatus, now: datetime
) -> PodCliqueScalingGroupStatus:
    """The status with the replicas that drain: their cliques exist, and the group no longer has them."""
    group = observed.group
    asked = asked_indexes(msgspec.structs.replace(group, status=after))
    leaving: dict[int, list[Pod]] = {}
    for clique in observed.members:
        index = group_replica_of(clique.metadata)
        if index is not None and index not in asked and not clique.metadata.is_deleting:
            leaving.setdefault(index, []).extend(observed.pods_of(clique.metadata.name))
    if not leaving:
        return msgspec.structs.replace(after, draining=()) if after.draining else after
    seconds = part_drain_s(observed.pcs, observed.config)
    return msgspec.structs.replace(after, draining=next_draining(group.status.draining, leaving, seconds, now))


def is_outdated_member(observed: ObservedGroup, clique: PodClique, template_hash: str) -> bool:
    """Whether a member, or a pod of it, is from other templates than the set has now.

    With OnDelete a member may have received a change that was undone before any of its pods was replaced. Such a
    member is not outdated: it only gets its template back.
    """
    status, is_new = clique.status, has_template(clique, template_hash)
    if is_coherent(observed.pcs):
        revision = wanted_revision(observed.pcs, observed.config.name)
        is_new = is_new and clique.metadata.labels.get(labels.REVISION, revision) == revision
    if is_new and status.updated_replicas >= status.replicas:
        return False
    if status.current_pod_template_hash != template_hash:
        return True
    pods = (pod for pod in observed.pods_of(clique.metadata.name) if not pod.metadata.is_deleting)
    return any(is_outdated(observed.pcs, pod.metadata.labels, template_hash, observed.config.name) for pod in pods)


def _conditions(observed: ObservedGroup, replicas: Sequence[GroupReplica], now: datetime) -> Conditions:
    group, config = observed.group, observed.config
    need = group_minimum(group.spec.replicas, config.min_available)
    whole = {replica.index for replica in replicas if not any(_is_breached(clique) for clique, _ in replica.cliques)}
    healthy, progress = len(whole), group.status.update_progress
    replacing = len(units_in_flight(progress) - whole)
    if is_open(progress) and not is_paused(observed.pcs):
        status, reason, message = UNKNOWN, UPDATE_IN_PROGRESS, "not judged while an update is under way"
    elif healthy < need <= healthy + replacing:  # as of a clique: a pause may last for ever
        what = many(replacing, "replica of the paused update is", "replicas of the paused update are")
        status, reason, message = UNKNOWN, UPDATE_IN_PROGRESS, f"{what} not whole"
    elif healthy < need:
        status, reason = TRUE, INSUFFICIENT_AVAILABLE_GROUP_REPLICAS
        message = f"fewer than {many(need, 'replica is', 'replicas are')} whole"
    else:
        status, reason = FALSE, SUFFICIENT_AVAILABLE_GROUP_REPLICAS
        message = f"at least {many(need, 'replica is', 'replicas are')} whole"
    conditions = with_condition(group.status.conditions, MIN_AVAILABLE_BREACHED, status, reason, message, now)
    if status == FALSE:
        conditions = without_condition(conditions, GANG_TERMINATION_IN_PROGRESS)
    return with_below_minimum(conditions, group.spec.replicas, config.min_available, now)


def _is_breached(clique: PodClique) -> bool:
    """A clique that has not said anything yet is not healthy either: its pods are not there."""
    condition = find_condition(clique.status.conditions, MIN_AVAILABLE_BREACHED)
    return condition is None or condition.status == TRUE


def _with_counts(
    observed: ObservedGroup, replicas: Sequence[GroupReplica]
) -> PodCliqueScalingGroupUpdateProgress | None:
    progress, generation = observed.group.status.update_progress, observed.pcs.status.current_generation_hash
    if progress is None:
        return None
    done = sum(is_updated(*pair, generation) for replica in replicas for pair in replica.cliques)
    total = observed.group.spec.replicas * len(observed.config.clique_names)
    return msgspec.structs.replace(progress, updated_pod_cliques_count=done, total_pod_cliques_count=total)
