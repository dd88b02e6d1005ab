"""Status of a PodCliqueSet, rolled up from its cliques, scaling groups and gangs replica by replica.

A set of hundreds of replicas is looked at after every change of one part. So a replica is read again only if one of its
parts has changed since the last look (`ReplicaMemory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import msgspec

from grove.api.conditions import (
    DISRUPTION_TARGET,
    FALSE,
    INITIALIZED,
    MIN_AVAILABLE_BREACHED,
    SCHEDULED,
    TRUE,
    UNHEALTHY,
    with_condition,
    without_condition,
)
from grove.api.core import Pod
from grove.api.draining import replica_drain_s
from grove.api.meta import Conditions, Resource, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import (
    PodCliqueSet,
    PodCliqueSetStatus,
    PodCliqueSetUpdateProgress,
    PodGangStatusEntry,
    ScalingGroupConfig,
    partition_of,
)
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.operator.podclique.status import has_hashes, is_available, is_whole_again
from grove.operator.shared.draining import next_draining
from grove.operator.shared.layout import (
    PodsOf,
    find_replica,
    group_names,
    is_group_available,
    living,
    min_pods,
    no_pods,
    set_scale_selector,
    standalone_names,
)
from grove.operator.shared.rollout import is_open
from grove.operator.shared.termination import Moment, as_written
from grove.operator.topology.levels import with_levels_condition

T = TypeVar("T")
Find = Callable[[str], T | None]
"""Finds a part by its name; None if it is not there."""


class SetReplica:
    """One replica of a set: its standalone cliques and groups that are there, and how far they are.

    `generation` is what counts as updated.
    """

    __slots__ = (
        "_cliques_read",
        "_groups_read",
        "_is_new",
        "cliques",
        "cliques_total",
        "cliques_updated",
        "groups",
        "groups_held",
        "groups_total",
        "groups_updated",
        "in_breach",
        "index",
        "is_available",
        "scheduled_pods",
    )

    def __init__(
        self,
        pcs: PodCliqueSet,
        index: int,
        standalone: Sequence[tuple[str, str]],
        find_clique: Find[PodClique],
        find_group: Find[PodCliqueScalingGroup],
        hashes: Mapping[str, str],
        generation: str,
    ) -> None:
        groups = group_names(pcs, index)
        self._cliques_read = [(fqn, find_clique(fqn)) for fqn, _ in standalone]
        self._groups_read = [(fqn, find_group(fqn)) for fqn, _ in groups]
        cliques = [
            (clique, hashes[template]) for fqn, template in standalone if (clique := find_clique(fqn)) is not None
        ]
        self.index = index
        self.cliques = [clique for clique, _ in cliques]
        self.scheduled_pods = sum(clique.status.scheduled_replicas for clique in self.cliques)
        new = [clique for clique, hash_ in cliques if has_hashes(clique, hash_, generation)]
        self._is_new = len(new) == len(cliques)
        self.cliques_total, self.groups_total = len(standalone), len(groups)
        self.cliques_updated = sum(map(is_whole_again, new))
        self.groups: list[PodCliqueScalingGroup] = []
        self.groups_updated = self.groups_held = 0
        for fqn, config in groups:
            if (group := find_group(fqn)) is not None:
                self.groups.append(group)
                self.groups_updated += group.status.current_pod_clique_set_generation_hash == generation
                self.groups_held += _is_held(group, config, generation)
                members = filter(None, map(pcs.spec.template.find_clique, group.spec.clique_names))
                self.scheduled_pods += group.status.scheduled_replicas * sum(map(min_pods, members))
        conditions = [part.status.conditions for part in self.cliques]
        conditions += [part.status.conditions for part in self.groups]
        self.in_breach = any(is_true(of_part, MIN_AVAILABLE_BREACHED) for of_part in conditions)
        self.is_available = (
            len(self.cliques) == self.cliques_total
            and len(self.groups) == self.groups_total
            and all(map(is_available, self.cliques))
            and all(map(is_group_available, self.groups))
        )

    def is_of(self, find_clique: Find[PodClique], find_group: Find[PodCliqueScalingGroup]) -> bool:
        """True if its parts are still these objects, so all that was read of them holds."""
        return all(find_clique(fqn) is clique for fqn, clique in self._cliques_read) and all(
            find_group(fqn) is group for fqn, group in self._groups_read
        )

    def has_observed(self, incarnation: int) -> bool:
        """True if every standalone clique has observed its newest spec, and this restart of the replica.

        Before, its status may be about an earlier change.
        """
        return all(
            clique.status.incarnation >= incarnation and clique.status.observed_generation == clique.metadata.generation
            for clique in self.cliques
        )

    @property
    def is_reached(self) -> bool:
        """True if an update has replaced all that it may: every old part is below a partition.

        Parts may be unavailable.
        """
        is_complete = len(self.cliques) == self.cliques_total
        return is_complete and self._is_new and self.groups_updated + self.groups_held == self.groups_total

    @property
    def is_carried_out(self) -> bool:
        """True if an update has replaced all that it may, and the replica is available again."""
        groups = self.groups_updated + self.groups_held
        return self.cliques_updated == self.cliques_total and groups == self.groups_total and self.is_available

    @property
    def is_updated(self) -> bool:
        """True if every part has the present template, and the replica is available again."""
        return self.is_carried_out and not self.groups_held


def _is_held(group: PodCliqueScalingGroup, config: ScalingGroupConfig, generation: str) -> bool:
    """True if an update of a group has ended, except for replicas below its partition."""
    progress, partition = group.status.update_progress, partition_of(config.rolling_update)
    return (
        progress is not None
        and not is_open(progress)
        and progress.pod_clique_set_generation_hash == generation
        and group.status.current_pod_clique_set_generation_hash != generation
        and bool(partition)
        and progress.partition == partition
    )


class ReplicaMemory:
    """The replicas of one set as they were at the last look. Objects of the cache never change, so a replica holds
    while its parts are the same objects.
    """

    def __init__(self) -> None:
        self._read_for: tuple[object, ...] = ()
        self._known: dict[int, SetReplica] = {}

    def replicas(
        self,
        pcs: PodCliqueSet,
        cliques: Iterable[PodClique],
        groups: Iterable[PodCliqueScalingGroup],
        hashes: Mapping[str, str],
        generation: str,
    ) -> list[SetReplica]:
        """The replicas that the set is to have. Parts that are being deleted do not count."""
        find_clique, find_group = living(cliques).get, living(groups).get
        read_for = (pcs.metadata.uid, pcs.metadata.generation, hashes, generation)
        known = self._known if self._read_for == read_for else {}
        names_of = standalone_names(pcs)
        replicas = []
        for index in pcs.indexes:
            replica = known.get(index)
            if replica is None or not replica.is_of(find_clique, find_group):
                replica = SetReplica(pcs, index, names_of(index), find_clique, find_group, hashes, generation)
            replicas.append(replica)
        self._read_for, self._known = read_for, {replica.index: replica for replica in replicas}
        return replicas


@dataclass(frozen=True, slots=True)
class ObservedSet:
    """The facts that were read about a set and its parts.

    `generation_hash` is that of its templates as they are now, `hashes` are those of each clique by name; `moment` says
    when a condition turned.
    """

    pcs: PodCliqueSet
    cliques: Sequence[PodClique]
    groups: Sequence[PodCliqueScalingGroup]
    gangs: Sequence[PodGang]
    generation_hash: str
    hashes: Mapping[str, str]
    binding: ClusterTopologyBinding | None = None
    topology_enabled: bool = False
    moment: Moment = as_written
    pods_of: PodsOf = no_pods
    members: Callable[[], Sequence[PodClique]] = tuple
    """The cliques in its groups, which may be thousands."""
    asks_scheduler: bool = False
    """Whether the scheduler of the set answers whether new pods would fit."""
    memory: ReplicaMemory = field(default_factory=ReplicaMemory)
    """The replicas at the last look."""

    def replicas(self, generation: str) -> list[SetReplica]:
        """The replicas that the set is to have; `generation` is what counts as updated."""
        return self.memory.replicas(self.pcs, self.cliques, self.groups, self.hashes, generation)

    def every_clique(self) -> Iterable[PodClique]:
        return (*self.cliques, *self.members())


def set_status(
    observed: ObservedSet, now: datetime, replicas: Sequence[SetReplica] | None = None
) -> PodCliqueSetStatus:
    """The status that the set should have; equal to its present one if there is nothing to write.

    The first pass records the generation hash; a later difference is for the update to act on, not for the status.
    `replicas` are those of the generation that the set has, if the caller has read them.
    """
    pcs, before = observed.pcs, observed.pcs.status
    current = before.current_generation_hash or observed.generation_hash
    if replicas is None:
        replicas = observed.replicas(current)
    return msgspec.structs.replace(
        before,
        observed_generation=_observed_generation(pcs),
        conditions=with_levels_condition(
            before.conditions, pcs, observed.binding, enabled=observed.topology_enabled, now=now
        ),
        replicas=pcs.spec.replicas,
        available_replicas=sum(replica.is_available for replica in replicas),
        updated_replicas=sum(replica.is_updated for replica in replicas),
        hpa_pod_selector=set_scale_selector(pcs, observed.pods_of),
        pod_gang_statuses=_gang_entries(observed.gangs),
        current_generation_hash=current,
        update_progress=_with_counts(before.update_progress, replicas),
    )


def with_draining(observed: ObservedSet, after: PodCliqueSetStatus, now: datetime) -> PodCliqueSetStatus:
    """The status with the replicas that drain: their parts exist, and the set no longer has them."""
    pcs, seconds = observed.pcs, replica_drain_s(observed.pcs)
    leaving: dict[int, list[Pod]] = {}
    for part in (*observed.cliques, *observed.groups) if seconds else ():
        index = find_replica(pcs.metadata.name, part.metadata.name)
        if index is not None and index not in pcs.indexes and not part.metadata.is_deleting:
            leaving.setdefault(index, [])
    for clique in observed.every_clique() if leaving else ():
        index = find_replica(pcs.metadata.name, clique.metadata.name)
        if index in leaving:
            leaving[index].extend(observed.pods_of(clique.metadata.name))
    if not leaving:
        return msgspec.structs.replace(after, draining=()) if after.draining else after
    return msgspec.structs.replace(after, draining=next_draining(pcs.status.draining, leaving, seconds, now))


def _observed_generation(pcs: PodCliqueSet) -> int | None:
    """The generation that was carried out. While an update is open that is the one before.

    Clients read "observedGeneration equals generation, and the parts are ready" as done.
    """
    before = pcs.status.observed_generation
    return before if before is not None and is_open(pcs.status.update_progress) else pcs.metadata.generation


def _gang_entries(gangs: Iterable[PodGang]) -> tuple[PodGangStatusEntry, ...]:
    """One entry a gang. Only what is wrong with it is repeated here: a set of a thousand gangs is one object."""
    return tuple(
        PodGangStatusEntry(
            name=gang.metadata.name,
            phase=gang.phase,
            conditions=tuple(
                condition for condition in gang.status.conditions if (condition.type, condition.status) in _TROUBLES
            ),
        )
        for gang in sorted(gangs, key=lambda gang: gang.metadata.name)
        if not gang.metadata.is_deleting
    )


_TROUBLES = {
    (INITIALIZED, FALSE),
    (SCHEDULED, FALSE),
    (UNHEALTHY, TRUE),
    (DISRUPTION_TARGET, TRUE),
}


def _with_counts(
    progress: PodCliqueSetUpdateProgress | None, replicas: Sequence[SetReplica]
) -> PodCliqueSetUpdateProgress | None:
    if progress is None:
        return None
    return msgspec.structs.replace(
        progress,
        updated_pod_cliques_count=sum(replica.cliques_updated for replica in replicas),
        total_pod_cliques_count=sum(replica.cliques_total for replica in replicas),
        updated_pod_clique_scaling_groups_count=sum(replica.groups_updated for replica in replicas),
        total_pod_clique_scaling_groups_count=sum(replica.groups_total for replica in replicas),
    )


FEATURES_UNAVAILABLE = "FeaturesUnavailable"
API_NOT_SERVED = "APINotServed"

FEATURES = {
    "HorizontalPodAutoscaler": "autoscaling",
    "ResourceClaim": "shared resource claims",
    "ComputeDomain": "MNNVL compute domains",
}


def with_features_condition(
    conditions: Conditions, missing: Sequence[Resource], generation: int, now: datetime
) -> Conditions:
    """The conditions with `FeaturesUnavailable` among them while something is missing, and without it otherwise."""
    if not missing:
        return without_condition(conditions, FEATURES_UNAVAILABLE)
    message = "; ".join(
        f"{FEATURES.get(api.kind, api.kind)}: the cluster does not serve {api.plural} of {api.api_version}"
        for api in sorted(set(missing))
    )
    return with_condition(conditions, FEATURES_UNAVAILABLE, TRUE, API_NOT_SERVED, message, now, generation)
