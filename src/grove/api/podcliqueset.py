"""PodCliqueSet: a whole inference system as one object, the only kind a user writes.

`spec.template` describes one replica of the system: its cliques, which of them scale together, where they may stand and
in what order they start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, ClassVar

from grove.api.deletion_cost import filled
from grove.api.labels import METRICS_CLIQUE, ROLLOUT_PAUSED
from grove.api.meta import Condition, Int64, Json, Object, Resource, Struct, doc
from grove.api.podclique import AutoScalingConfig, PodCliqueSpec
from grove.api.startorder import READY, START_CONDITIONS
from grove.api.status import DrainingReplica, LastError, LastOperation, ReplicaRestart
from grove.api.topology import SpreadConstraint, TopologyConstraint

ANY_ORDER, IN_ORDER, EXPLICIT = "CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"
ROLLING_RECREATE, ON_DELETE, COHERENT = "RollingRecreate", "OnDelete", "Coherent"
IF_POSSIBLE = "IfPossible"
ALL_REPLICAS, PER_REPLICA = "AllReplicas", "PerReplica"

_SCOPE = doc("One claim for all replicas, or one for each.", required=True, enum=[ALL_REPLICAS, PER_REPLICA])
_SHARED_NAME = doc("Template of the claim: one of this set, else a ResourceClaimTemplate.", required=True)
_SHARED_NAMESPACE = doc("Namespace of the ResourceClaimTemplate; the set's own if absent.")


class ResourceSharing(Struct):
    """Shared claims of a clique. Its pods are all alike, so there is nothing to filter."""

    name: Annotated[str, _SHARED_NAME] = ""
    namespace: Annotated[str, _SHARED_NAMESPACE] = ""
    scope: Annotated[str, _SCOPE] = ""


class GroupResourceFilter(Struct):
    child_clique_names: Annotated[tuple[str, ...], doc("Cliques that get the claim.")] = ()


class GroupResourceSharing(ResourceSharing):
    filter: Annotated[GroupResourceFilter | None, doc("Who gets the claim; all members if absent.")] = None


class SetResourceFilter(Struct):
    child_clique_names: Annotated[tuple[str, ...], doc("Cliques that get the claim.")] = ()
    child_scaling_group_names: Annotated[tuple[str, ...], doc("Scaling groups whose cliques get the claim.")] = ()


class SetResourceSharing(ResourceSharing):
    filter: Annotated[SetResourceFilter | None, doc("Who gets the claim; everyone if absent.")] = None


class ResourceClaimTemplateConfig(Struct):
    name: Annotated[str, doc("Name to refer to it by.", required=True)] = ""
    template_spec: Annotated[Json, doc("What claims are made from.", required=True, embed="resourceClaimTemplate")] = {}


class HeadlessServiceConfig(Struct):
    publish_not_ready_addresses: Annotated[
        bool, doc("Whether pods can be found by name before they are ready.", required=True, default=True)
    ] = True
    per_revision: Annotated[
        bool | None, doc("Whether each replica also has one Service for each revision of its pods.")
    ] = None


class RollingUpdate(Struct):
    """How many units of one part an update may have down or in addition at a time."""

    max_unavailable: Annotated[int | None, doc("Units that an update may have down at a time.", minimum=1)] = None
    max_surge: Annotated[int | None, doc("Units that an update may have beyond `replicas`.", minimum=0)] = None
    partition: Annotated[int | None, doc("Units with a lower index keep the old revision.", minimum=0)] = None


class CliqueTemplate(Struct):
    name: Annotated[str, doc("Name of the clique within the set.", required=True)] = ""
    labels: Annotated[dict[str, str], doc("Labels for the PodClique and its pods.")] = {}
    annotations: Annotated[dict[str, str], doc("Annotations for the PodClique and its pods.")] = {}
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where the pods of each PodClique go.")] = None
    spread_constraint: Annotated[
        SpreadConstraint | None, doc("How the pods of each PodClique are distributed over failure domains.")
    ] = None
    resource_sharing: Annotated[tuple[ResourceSharing, ...], doc("Claims the pods of this clique share.")] = ()
    rolling_update: Annotated[RollingUpdate | None, doc("Budget of an update; only for a standalone clique.")] = None
    spec: Annotated[PodCliqueSpec, doc("What the PodClique is made from.", required=True)] = PodCliqueSpec()


class ScalingGroupConfig(Struct):
    name: Annotated[str, doc("Name of the scaling group within the set.", required=True)] = ""
    clique_names: Annotated[tuple[str, ...], doc("Cliques that are scaled together.", required=True)] = ()
    annotations: Annotated[dict[str, str], doc("Annotations for the PodCliqueScalingGroup.")] = {}
    replicas: Annotated[int, doc("Replicas of the group, each with all member cliques, to begin with.", default=1)] = 1
    min_available: Annotated[int, doc("Replicas that belong to the base gang and must stay whole.", default=1)] = 1
    scale_config: Annotated[AutoScalingConfig | None, doc("How to scale the group.")] = None
    resource_sharing: Annotated[tuple[GroupResourceSharing, ...], doc("Claims the members of a group share.")] = ()
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where each replica of the group goes.")] = None
    spread_constraint: Annotated[
        SpreadConstraint | None, doc("How the replicas of the group are distributed over failure domains.")
    ] = None
    rolling_update: Annotated[RollingUpdate | None, doc("Budget of an update of the group's replicas.")] = None


class PodCliqueSetTemplate(Struct):
    cliques: Annotated[
        tuple[CliqueTemplate, ...],
        doc("Cliques of one replica.", required=True, list_type="map", list_map_keys=["name"]),
    ] = ()
    clique_startup_type: Annotated[
        str, doc("Order in which cliques start.", default=ANY_ORDER, enum=[ANY_ORDER, IN_ORDER, EXPLICIT])
    ] = ANY_ORDER
    starts_after_condition: Annotated[
        str,
        doc(
            "What pods must be before the cliques that start after them start; for cliques that do not say it "
            "themselves. Ready if absent.",
            enum=[*START_CONDITIONS],
        ),
    ] = ""
    priority_class_name: Annotated[str, doc("PriorityClass of every gang of the set.")] = ""
    headless_service_config: Annotated[HeadlessServiceConfig | None, doc("How pods find each other.")] = None
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where each replica of the set goes.")] = None
    spread_constraint: Annotated[
        SpreadConstraint | None, doc("How the replicas of the set are distributed over failure domains.")
    ] = None
    termination_delay: Annotated[
        str | None, doc("How long a replica may lack pods before it is restarted whole (4h if absent).")
    ] = None
    resource_claim_templates: Annotated[
        tuple[ResourceClaimTemplateConfig, ...], doc("Claim templates that live in this set.")
    ] = ()
    resource_sharing: Annotated[tuple[SetResourceSharing, ...], doc("Claims that cliques of the set share.")] = ()
    pod_clique_scaling_groups: Annotated[
        tuple[ScalingGroupConfig, ...], doc("Cliques that are scaled as one unit.")
    ] = ()

    def find_clique(self, name: str) -> CliqueTemplate | None:
        return next((clique for clique in self.cliques if clique.name == name), None)

    def find_group(self, name: str) -> ScalingGroupConfig | None:
        return next((group for group in self.pod_clique_scaling_groups if group.name == name), None)

    def find_group_of(self, clique_name: str) -> ScalingGroupConfig | None:
        """The scaling group a clique belongs to; None for a standalone one."""
        return next((g for g in self.pod_clique_scaling_groups if clique_name in g.clique_names), None)

    def start_condition_of(self, clique: CliqueTemplate) -> str:
        """The state that the parents of a clique must have before it starts."""
        return clique.spec.starts_after_condition or self.starts_after_condition or READY

    def metrics_clique_of(self, group: ScalingGroupConfig) -> str:
        """The member whose first pod stands for a replica of the group: the one it names, else its first by template.

        A name that is no member of the group is ignored; admission refuses it.
        """
        named = group.annotations.get(METRICS_CLIQUE, "")
        if named in group.clique_names:
            return named
        return next((clique.name for clique in self.cliques if clique.name in group.clique_names), "")

    def metrics_clique(self, annotations: Mapping[str, str]) -> str:
        """The clique whose first pod stands for a replica of the set.

        It is the clique that the set's annotations name. Without one it is the first standalone clique, and without
        that the first clique of the first group.
        """
        named = annotations.get(METRICS_CLIQUE, "")
        if self.find_clique(named) is not None:
            return named
        if self.standalone_cliques:
            return self.standalone_cliques[0].name
        return self.metrics_clique_of(self.pod_clique_scaling_groups[0]) if self.pod_clique_scaling_groups else ""

    @property
    def standalone_cliques(self) -> tuple[CliqueTemplate, ...]:
        """Cliques outside every scaling group, in template order."""
        if not self.pod_clique_scaling_groups:
            return self.cliques
        grouped = {name for group in self.pod_clique_scaling_groups for name in group.clique_names}
        return tuple(clique for clique in self.cliques if clique.name not in grouped)

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the standalone cliques, then of the scaling groups."""
        groups = (group.name for group in self.pod_clique_scaling_groups)
        return (*(clique.name for clique in self.standalone_cliques), *groups)


class RollingRecreate(Struct):
    max_unavailable: Annotated[
        int | None, doc("Units (set replicas, group replicas, pods) replaced at a time; 1 if absent.", minimum=1)
    ] = None


class UpdateStrategy(Struct):
    type: Annotated[
        str,
        doc(
            "Who replaces pods after a change, and how.",
            default=ROLLING_RECREATE,
            enum=[ROLLING_RECREATE, ON_DELETE, COHERENT],
        ),
    ] = ROLLING_RECREATE
    rolling_recreate: Annotated[RollingRecreate | None, doc("How RollingRecreate proceeds.")] = None
    rolling_update: Annotated[
        RollingUpdate | None, doc("Replicas of the set that an update may have down, and those that keep the old one.")
    ] = None
    in_place: Annotated[
        str | None,
        doc("Whether pods are patched instead of recreated where the change allows it.", enum=["Never", IF_POSSIBLE]),
    ] = None
    progress_deadline: Annotated[
        str | None, doc("How long an update may make no progress before the set says so, such as 30m.")
    ] = None


class PodCliqueSetSpec(Struct):
    replicas: Annotated[int, doc("How many replicas of the whole system.", default=0)] = 0
    update_strategy: Annotated[UpdateStrategy | None, doc("How changes reach running pods.")] = None
    template: Annotated[PodCliqueSetTemplate, doc("One replica of the system.", required=True)] = PodCliqueSetTemplate()


class PodGangStatusEntry(Struct):
    name: Annotated[str, doc("Name of the PodGang.", required=True)] = ""
    phase: Annotated[
        str, doc("Where it stands.", required=True, enum=["Pending", "Starting", "Running", "Failed", "Succeeded"])
    ] = ""
    conditions: Annotated[tuple[Condition, ...], doc("Conditions of the PodGang.")] = ()


class SlicePart(Struct):
    name: Annotated[str, doc("Standalone clique or scaling group.", required=True)] = ""
    units: Annotated[int, doc("Units that the slice takes.", required=True)] = 0
    keep: Annotated[int, doc("Outdated units that stay until the next slice.", required=True)] = 0


class UpdateSlice(Struct):
    """Units of all changed parts that a coherent update replaces together."""

    number: Annotated[int, doc("Slices of this replica so far, with this one.", required=True)] = 0
    started_at: Annotated[datetime | None, doc("When the slice began.")] = None
    parts: Annotated[tuple[SlicePart, ...], doc("What it takes of each changed part.")] = ()
    waits_for_surge: Annotated[
        bool | None, doc("True while the slice takes nothing, because surge units of a part are not ready.")
    ] = None
    waits_for_place: Annotated[
        bool | None, doc("True while the slice takes nothing, until the scheduler has a place for all its new pods.")
    ] = None
    not_placed: Annotated[str, doc("Why the scheduler has no place for the new pods of the slice.")] = ""

    @property
    def waits(self) -> bool:
        """True if the slice has not taken a unit yet."""
        return bool(self.waits_for_surge or self.waits_for_place)


class ReplicaUpdate(Struct):
    replica_index: Annotated[int, doc("Replica that is being updated.", required=True)] = 0
    update_started_at: Annotated[datetime | None, doc("When its update started.")] = None
    update_ended_at: Annotated[datetime | None, doc("When it ended.")] = None
    was_available: Annotated[
        bool | None, doc("False for a replica that was not available; it uses nothing of maxUnavailable.")
    ] = None
    slice: Annotated[UpdateSlice | None, doc("The slice that is under way, in a coherent update.")] = None


class PodCliqueSetUpdateProgress(Struct):
    update_started_at: Annotated[datetime | None, doc("When the update started.")] = None
    update_ended_at: Annotated[datetime | None, doc("When it ended.")] = None
    updated_pod_cliques_count: Annotated[int, doc("Standalone cliques that are up to date.", default=0)] = 0
    total_pod_cliques_count: Annotated[int, doc("Standalone cliques in all.", default=0)] = 0
    updated_pod_clique_scaling_groups_count: Annotated[int, doc("Groups that are up to date.", default=0)] = 0
    total_pod_clique_scaling_groups_count: Annotated[int, doc("Groups in all.", default=0)] = 0
    currently_updating: Annotated[tuple[ReplicaUpdate, ...], doc("Replicas being updated now.")] = ()
    updated_units_count: Annotated[
        int, doc("Pods of standalone cliques and member cliques that are up to date; kept if there is a deadline.")
    ] = 0
    last_progress_time: Annotated[datetime | None, doc("When that number last changed.")] = None
    updated_standalone_pod_cliques: Annotated[tuple[str, ...], doc("Standalone cliques that this update changes.")] = ()
    updated_pod_clique_scaling_groups: Annotated[tuple[str, ...], doc("Scaling groups that this update changes.")] = ()
    from_generation_hash: Annotated[str, doc("Generation of the units that this update has not reached.")] = ""


class AdoptedHash(Struct):
    """The hash that another operator gave to a template, beside ours."""

    clique_name: Annotated[str, doc("The clique whose template it is; empty for all templates together.")] = ""
    own_hash: Annotated[str, doc("Our hash of the template.", required=True)] = ""
    used_hash: Annotated[str, doc("Its hash on cliques, pods and in the status.", required=True)] = ""


class PodCliqueSetStatus(Struct):
    observed_generation: Annotated[Int64 | None, doc("Generation of the last complete reconcile.")] = None
    conditions: Annotated[tuple[Condition, ...], doc("What is wrong, or that nothing is.")] = ()
    last_errors: Annotated[tuple[LastError, ...], doc("What the last reconcile failed on.")] = ()
    last_operation: Annotated[LastOperation | None, doc("What the operator did last.")] = None
    replicas: Annotated[int, doc("Replicas asked for.")] = 0
    updated_replicas: Annotated[int, doc("Available replicas that are up to date.", required=True, default=0)] = 0
    available_replicas: Annotated[int, doc("Replicas that are whole.", required=True, default=0)] = 0
    hpa_pod_selector: Annotated[str, doc("Selector of the pods, for autoscalers.")] = ""
    pod_gang_statuses: Annotated[tuple[PodGangStatusEntry, ...], doc("One entry a PodGang.")] = ()
    current_generation_hash: Annotated[str, doc("Hash of all clique templates.")] = ""
    update_progress: Annotated[PodCliqueSetUpdateProgress | None, doc("The current or last update.")] = None
    adopted_hashes: Annotated[
        tuple[AdoptedHash, ...], doc("Names another operator gave to templates of this set, used while they stay.")
    ] = ()
    revisions: Annotated[
        dict[str, str], doc("The revision of each standalone clique and scaling group; pods have it as a label.")
    ] = {}
    gang_restarts: Annotated[int, doc("Times a replica of the set was terminated as a gang.")] = 0
    replica_restarts: Annotated[tuple[ReplicaRestart, ...], doc("Replicas that were ever restarted whole.")] = ()
    draining: Annotated[tuple[DrainingReplica, ...], doc("Replicas that were scaled in and still drain.")] = ()
    replica_indexes: Annotated[
        tuple[int, ...], doc("Indexes of its replicas if they are not 0 to replicas-1: a scale-in left a gap.")
    ] = ()


class PodCliqueSet(Object):
    """A whole inference system: its roles, how they scale, start and stand together."""

    RESOURCE: ClassVar[Resource] = Resource("grove.io", "v1alpha1", "PodCliqueSet", "podcliquesets")
    BEFORE_FIRST_STATUS: ClassVar[Json] = {
        "availableReplicas": 0,
        "updatedReplicas": 0,
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "WaitingForOperator",
                "message": "the operator has not seen the set yet",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
        ],
    }
    """Tools take an object without conditions for finished. Without this `helm install --wait` returns at once."""

    spec: Annotated[PodCliqueSetSpec, doc("The desired system.", required=True)] = PodCliqueSetSpec()
    status: Annotated[PodCliqueSetStatus, doc("The observed system.", default=BEFORE_FIRST_STATUS)] = (
        PodCliqueSetStatus()
    )

    @property
    def indexes(self) -> Sequence[int]:
        """The replicas that are asked for: 0 to replicas-1, unless a scale-in left a gap."""
        return filled(self.status.replica_indexes, self.spec.replicas)

    @property
    def recorded_indexes(self) -> Sequence[int]:
        """The replicas that the status is about."""
        return self.status.replica_indexes or range(self.status.replicas)

    @property
    def is_scaled_in(self) -> bool:
        """True if the status does not show a scale-in yet."""
        return len(self.recorded_indexes) > self.spec.replicas


def max_unavailable(pcs: PodCliqueSet) -> int:
    """Units of one level that an update may have down at a time."""
    strategy = pcs.spec.update_strategy
    budgets = (strategy.rolling_update, strategy.rolling_recreate) if strategy is not None else ()
    return next(
        (max(1, budget.max_unavailable) for budget in budgets if budget is not None and budget.max_unavailable), 1
    )


def is_coherent(pcs: PodCliqueSet) -> bool:
    """True if an update replaces all parts that changed in one edit together, in slices."""
    strategy = pcs.spec.update_strategy
    return strategy is not None and strategy.type == COHERENT


def is_paused(pcs: PodCliqueSet) -> bool:
    """True if a pause stops an update from taking further units down. Units that are down come back new."""
    return pcs.metadata.annotations.get(ROLLOUT_PAUSED, "").lower() == "true"


def part_max_unavailable(pcs: PodCliqueSet, own: RollingUpdate | None, minimum: int) -> int:
    """Units of one part that an update may have down at a time; `own` is what the template of the part says."""
    own_budget = own.max_unavailable if own is not None else None
    return own_budget or (max(1, minimum) if is_coherent(pcs) else max_unavailable(pcs))


def partition_of(own: RollingUpdate | None) -> int:
    """Units with a lower index keep the old revision."""
    return own.partition or 0 if own is not None else 0


def set_partition(pcs: PodCliqueSet) -> int:
    """Replicas of the set with a lower index keep the old revision."""
    strategy = pcs.spec.update_strategy
    return partition_of(strategy.rolling_update if strategy is not None else None)
