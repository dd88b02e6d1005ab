"""Restarting a whole unit: which incarnation the pods of a clique belong to.

A replica of a set, or a copy of a scaling group, is restarted by raising one number in its owner's status. Every clique
below reads that number and replaces, at once, the pods that were made for a lower one. One write decides for the whole
gang, so no crash leaves half of it restarted. The PodClique objects stay, and with them the replicas a user or an
autoscaler chose. (Upstream deletes the PodCliques, which puts the template's replicas back.)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.status import ReplicaRestart
from grove.operator.shared.layout import group_replica_of, replica_of

Restarts = tuple[ReplicaRestart, ...]


def find_restart(restarts: Restarts, index: int) -> ReplicaRestart:
    """The entry of a replica; a blank one for a replica that was never restarted."""
    return next((one for one in restarts if one.replica_index == index), ReplicaRestart(replica_index=index))


def replica_incarnation(pcs: PodCliqueSet, replica: int) -> int:
    return find_restart(pcs.status.replica_restarts, replica).incarnation


def copy_incarnation(pcs: PodCliqueSet, replica: int, group: PodCliqueScalingGroup, index: int) -> int:
    """Of one copy of a group: the later of its own restart and that of the replica it stands in."""
    return max(replica_incarnation(pcs, replica), find_restart(group.status.replica_restarts, index).incarnation)


def wanted_incarnation(pcs: PodCliqueSet, clique: PodClique, group: PodCliqueScalingGroup | None) -> int:
    """Of a clique, by its owners; never less than it already had, should an owner have lost its status."""
    replica, index = replica_of(clique.metadata) or 0, group_replica_of(clique.metadata)
    owners = replica_incarnation(pcs, replica)
    if group is not None and index is not None:
        owners = copy_incarnation(pcs, replica, group, index)
    return max(owners, clique.status.incarnation)


def incarnation_in_effect(
    pcs: PodCliqueSet, clique: PodClique, group: PodCliqueScalingGroup | None, template_hash: str
) -> int:
    """The incarnation whose pods a clique shall have now.

    A copy that an update restarts waits until the clique itself has the new template (`template_hash`): its pods would
    else be made anew from the old one.
    """
    index = group_replica_of(clique.metadata)
    if group is not None and index is not None:
        told = find_restart(group.status.replica_restarts, index).generation_hash
        if told and told == pcs.status.current_generation_hash and not has_template(clique, template_hash):
            return clique.status.incarnation
    return wanted_incarnation(pcs, clique, group)


def has_template(clique: PodClique, template_hash: str) -> bool:
    return clique.metadata.labels.get(key.POD_TEMPLATE_HASH) == template_hash


def pod_incarnation(pod: Pod) -> int:
    value = pod.metadata.annotations.get(key.INCARNATION, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def left_behind(pods: Iterable[Pod], incarnation: int) -> frozenset[str]:
    """UIDs of pods made for an earlier incarnation."""
    return frozenset(
        pod.metadata.uid for pod in pods if not pod.metadata.is_deleting and pod_incarnation(pod) < incarnation
    )


def with_restart(restarts: Restarts, entry: ReplicaRestart) -> Restarts:
    """The entries with one of them replaced or added, in the order of their indexes."""
    others = (one for one in restarts if one.replica_index != entry.replica_index)
    return tuple(sorted((*others, entry), key=lambda one: one.replica_index))


def restarted_for_update(restarts: Restarts, index: int, incarnation: int, generation_hash: str) -> Restarts:
    """The entries after an update took a copy of a group."""
    entry = msgspec.structs.replace(
        find_restart(restarts, index), incarnation=incarnation, generation_hash=generation_hash
    )
    return with_restart(restarts, entry)


def restarted_as_gang(restarts: Restarts, index: int, incarnation: int, count: int, now: datetime) -> Restarts:
    """The entries after a replica was terminated for the `count`th time."""
    entry = msgspec.structs.replace(
        find_restart(restarts, index), incarnation=incarnation, gang_restarts=count, last_gang_restart_time=now
    )
    return with_restart(restarts, entry)


def within(restarts: Restarts, replicas: int) -> Restarts:
    """The entries of replicas that still are: one that was scaled away and comes back starts from nothing."""
    if all(one.replica_index < replicas for one in restarts):
        return restarts
    return tuple(one for one in restarts if one.replica_index < replicas)
