"""Status of a PodClique, counted from its pods.

Pods that are being deleted do not count, and a failed pod counts as failed. The reference operator counts the former as
live and the latter as still starting, which hides both from gang termination.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from grove.api import kueue, labels, labelsets
from grove.api.conditions import (
    BELOW_MINIMUM,
    FALSE,
    INSUFFICIENT_READY_PODS,
    INSUFFICIENT_SCHEDULED_PODS,
    MIN_AVAILABLE_BREACHED,
    POD_CLIQUE_SCHEDULED,
    REPLICAS_BELOW_MIN_AVAILABLE,
    SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE,
    SUFFICIENT_READY_PODS,
    SUFFICIENT_SCHEDULED_PODS,
    TRUE,
    UNKNOWN,
    UPDATE_IN_PROGRESS,
    WAITING_FOR_KUEUE,
    with_condition,
    without_condition,
)
from grove.api.core import Pod
from grove.api.draining import is_draining, part_drain_s, replica_drain_s
from grove.api.hashes import is_outdated, wanted_revision
from grove.api.meta import Conditions
from grove.api.pod import PodHealth, pod_health, unprepared_since
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet, is_paused
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.status import DrainingReplica
from grove.api.topology import ClusterTopologyBinding
from grove.api.words import many
from grove.backends.base import Backend
from grove.operator.shared.kueue import KueueGroup
from grove.operator.shared.layout import Unit, asked_indexes, pod_index
from grove.operator.shared.outcome import Outcome, with_outcome
from grove.operator.shared.rollout import has_template, is_open, units_in_flight
from grove.operator.shared.surge import DEFAULT_WAIT_S

VANISHED_NODE_GRACE_S = 10.0
"""How long a node may be missing before its pods count as lost.

Within this time a node can register again, or our cache can receive a node that it does not have yet.
"""

PREPARATION_S = 600.0
"""How long a node may prepare the volumes, devices and network of a pod. Afterwards the pod counts as missing.

Detaching a disk from a lost node takes up to six minutes."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The clique is of a replica that was scaled in. `until` is None while its owner has not recorded the time."""

    until: datetime | None = None


def _until(draining: Iterable[DrainingReplica], index: int) -> datetime | None:
    return next((replica.until for replica in draining if replica.replica_index == index), None)


@dataclass(frozen=True, slots=True)
class ObservedClique:
    """The facts that were read about a clique of a set.

    - `base_scheduled`: the base gang of a scaled gang has its minimum on nodes.
    - `recorded`: the set's status names its templates as they are now.
    - `stuck`: uids of pods that wait for more pods of a parent than it has.
    - `loads`: the known load of pods, by name.
    - `core_nodes`: labels of the nodes of pods that the gang needs, a node as often as it has such pods.
    - `gone_since`: since when a node is missing, by name.
    - `binding`: the topology of the set, if it names one.
    - `former`: the clique with the template from before an update that is paused.
    """

    clique: PodClique
    pcs: PodCliqueSet
    unit: Unit
    pods: Sequence[Pod]
    backend: Backend | None
    template_hash: str
    recorded: bool = True
    group: PodCliqueScalingGroup | None = None
    gang: PodGang | None = None
    base_scheduled: bool = True
    parent_replicas: Mapping[str, int] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    loads: Mapping[str, float] = field(default_factory=dict)
    core_nodes: Sequence[Mapping[str, str]] = ()
    gone_since: Mapping[str, datetime] = field(default_factory=dict)
    startup_image: str = ""
    surge_wait_s: float = DEFAULT_WAIT_S
    former: PodClique | None = None
    kueue: KueueGroup | None = None
    binding: ClusterTopologyBinding | None = None

    @property
    def revision(self) -> str:
        """The revision that its part of the set has now."""
        return wanted_revision(self.pcs, self.unit.part)

    @property
    def drain_s(self) -> int:
        """Seconds that a pod of this clique drains if it goes alone or with its unit."""
        place = self.unit.group
        return part_drain_s(self.pcs, place.config if place is not None else self.unit.template)

    @property
    def set_drains(self) -> bool:
        """True if replicas of the set drain when they are scaled in."""
        return replica_drain_s(self.pcs) > 0

    @property
    def leaving(self) -> Leaving | None:
        """Set if the clique goes with its replica, of the set or of the scaling group, and drains before."""
        pcs, unit, place = self.pcs, self.unit, self.unit.group
        if unit.replica not in pcs.indexes and self.set_drains:
            return Leaving(_until(pcs.status.draining, unit.replica))
        if place is None or self.group is None or not self.drain_s or place.replica in asked_indexes(self.group):
            return None
        return Leaving(_until(self.group.status.draining, place.replica))

    def nodes_gone(self, now: datetime) -> frozenset[str]:
        """The nodes that have been missing so long that their pods are given up."""
        return frozenset(
            name for name, since in self.gone_since.items() if (now - since).total_seconds() >= VANISHED_NODE_GRACE_S
        )


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a clique by what they are; every number but `held` is of pods that are not terminating."""

    present: int = 0
    ready: int = 0
    scheduled: int = 0
    gated: int = 0
    up: int = 0
    """Scheduled, and ready or starting. A pod that its node has prepared for too long does not start."""
    held: int = 0
    """Not admitted by Kueue, or evicted by it: those are terminating."""
    replacing: int = 0
    """Indexes that an update replaces at the moment and that have no pod that is up."""


def preparation_left_s(pod: Pod, now: datetime) -> float | None:
    """Seconds that the node may still take to prepare the pod, 0 or less if they are over; None if it is prepared."""
    since = unprepared_since(pod)
    return None if since is None else PREPARATION_S - (now - since).total_seconds()


def count_pods(
    pods: Iterable[Pod], now: datetime, nodes_gone: Collection[str] = (), replacing: Collection[int] = ()
) -> PodCounts:
    """Counts the pods of a clique. `replacing` are the indexes that an update replaces at the moment."""
    present = ready = scheduled = gated = up = held = 0
    waits = set(replacing)
    for pod in pods:
        held += kueue.is_held(pod)
        if pod.metadata.is_deleting:
            continue
        health = pod_health(pod, node_is_gone=pod.spec.node_name in nodes_gone)
        present += 1
        scheduled += pod.is_scheduled
        gated += pod.is_held_by_gate
        ready += health is PodHealth.READY and not is_draining(pod)
        left_s = preparation_left_s(pod, now)
        if pod.is_scheduled and health.is_up and (left_s is None or left_s > 0):
            up += 1
            if waits:
                waits.discard(pod_index(pod))
    return PodCounts(present, ready, scheduled, gated, up, held, len(waits))


def clique_status(observed: ObservedClique, outcome: Outcome, now: datetime) -> PodCliqueStatus:
    """The status that the clique should have; equal to its present one if there is nothing to write."""
    clique, pcs = observed.clique, observed.pcs
    pods = [pod for pod in observed.pods if not pod.metadata.is_deleting]
    before = clique.status
    counts = count_pods(observed.pods, now, observed.nodes_gone(now), units_in_flight(before.update_progress))
    updated = _updated_pods(observed, pods)
    is_member = labels.SCALING_GROUP in clique.metadata.labels
    after = msgspec.structs.replace(
        before,
        observed_generation=clique.metadata.generation,
        replicas=counts.present,
        ready_replicas=counts.ready,
        scheduled_replicas=counts.scheduled,
        schedule_gated_replicas=counts.gated,
        updated_replicas=before.updated_replicas if updated is None else updated,
        hpa_pod_selector="" if is_member else labelsets.clique_selector(pcs.metadata.name, clique.metadata.name),
        conditions=_conditions(clique, counts, now, is_paused=is_paused(pcs)),
    )
    after = with_outcome(after, before, outcome, now)
    return _with_realised_hashes(after, observed)


def is_available(clique: PodClique) -> bool:
    return clique.status.ready_replicas >= clique.spec.current_minimum


def has_hashes(clique: PodClique, template_hash: str, generation: str) -> bool:
    """True if a clique and all its pods are from its present template.

    The pods count too. The status of a clique keeps the last template until the clique has another one. Some of its
    pods may be from a later change that was undone.
    """
    status = clique.status
    return (
        has_template(clique, template_hash)
        and status.current_pod_template_hash == template_hash
        and status.current_pod_clique_set_generation_hash == generation
        and status.updated_replicas >= status.replicas
    )


def is_updated(clique: PodClique, template_hash: str, generation: str) -> bool:
    """The same, and whole again."""
    return has_hashes(clique, template_hash, generation) and is_whole_again(clique)


def is_whole_again(clique: PodClique) -> bool:
    """True if an updated clique has enough ready pods and enough new pods."""
    least = clique.spec.current_minimum
    return clique.status.ready_replicas >= least and clique.status.updated_replicas >= least


def _conditions(clique: PodClique, counts: PodCounts, now: datetime, *, is_paused: bool) -> Conditions:
    need = clique.spec.current_minimum
    enough = counts.scheduled >= need
    conditions = with_condition(
        clique.status.conditions,
        POD_CLIQUE_SCHEDULED,
        TRUE if enough else FALSE,
        SUFFICIENT_SCHEDULED_PODS if enough else INSUFFICIENT_SCHEDULED_PODS,
        f"{'at least' if enough else 'fewer than'} {many(need, 'pod has', 'pods have')} a node",
        now,
    )
    status, reason, message = _breach(clique, counts, need, is_paused=is_paused)
    conditions = with_condition(conditions, MIN_AVAILABLE_BREACHED, status, reason, message, now)
    return with_below_minimum(conditions, clique.spec.replicas, clique.spec.minimum, now)


def with_below_minimum(conditions: Conditions, replicas: int, min_available: int, now: datetime) -> Conditions:
    """The conditions with `BelowMinAvailable` among them while fewer replicas are asked for; 0 asks for none."""
    if replicas == 0 or replicas >= min_available:
        return without_condition(conditions, BELOW_MINIMUM)
    message = f"scaled to {replicas}, below minAvailable {min_available}: the gang runs with {replicas}"
    return with_condition(conditions, BELOW_MINIMUM, TRUE, REPLICAS_BELOW_MIN_AVAILABLE, message, now)


def _breach(clique: PodClique, counts: PodCounts, need: int, *, is_paused: bool) -> tuple[str, str, str]:
    """Whether the clique is below its minimum.

    An update that goes on takes pods down itself, so the clique is not judged. A pause may last for ever. So in a pause
    only the pods that the update is replacing may be missing. (Upstream does not judge a paused update either.)
    """
    if is_open(clique.status.update_progress) and not is_paused:
        return UNKNOWN, UPDATE_IN_PROGRESS, "not judged while an update is under way"
    if counts.up < need <= counts.up + counts.replacing:
        what = many(counts.replacing, "pod of the paused update is", "pods of the paused update are")
        return UNKNOWN, UPDATE_IN_PROGRESS, f"{what} not up"
    if counts.up < need <= counts.up + counts.held:
        return UNKNOWN, WAITING_FOR_KUEUE, f"{many(counts.held, 'pod waits', 'pods wait')} for Kueue"
    if counts.scheduled < need:
        return TRUE, SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE, f"fewer than {many(need, 'pod has', 'pods have')} a node"
    if counts.up < need:
        return TRUE, INSUFFICIENT_READY_PODS, f"fewer than {many(need, 'pod is', 'pods are')} ready or still starting"
    return FALSE, SUFFICIENT_READY_PODS, f"at least {many(need, 'pod is', 'pods are')} ready or still starting"


def _updated_pods(observed: ObservedClique, pods: Iterable[Pod]) -> int | None:
    """Pods from the template that counts now, whether or not the clique has it yet; None if none is known.

    Before the set has recorded a change, that is the template of before.
    """
    clique, target = observed.clique, observed.template_hash
    if not observed.recorded:
        target = clique.metadata.labels.get(labels.POD_TEMPLATE_HASH) or clique.status.current_pod_template_hash
    if not target:
        return None
    if observed.recorded:
        return sum(not is_outdated_pod(observed, pod) for pod in pods)
    return sum(pod.metadata.labels.get(labels.POD_TEMPLATE_HASH) == target for pod in pods)


def is_outdated_pod(observed: ObservedClique, pod: Pod) -> bool:
    return is_outdated(observed.pcs, pod.metadata.labels, observed.template_hash, observed.unit.part)


def _with_realised_hashes(status: PodCliqueStatus, observed: ObservedClique) -> PodCliqueStatus:
    """The hashes move on only when every pod is from the new template and no update is open."""
    progress = status.update_progress
    if status.updated_replicas != status.replicas or is_open(progress):
        return status
    if progress is not None:
        template, generation = progress.pod_template_hash, progress.pod_clique_set_generation_hash
    elif has_template(observed.clique, observed.template_hash):
        template, generation = observed.template_hash, observed.pcs.status.current_generation_hash
    else:
        return status
    return msgspec.structs.replace(
        status,
        current_pod_template_hash=template,
        current_pod_clique_set_generation_hash=generation or status.current_pod_clique_set_generation_hash,
    )
