"""`grove.ai/v1alpha1`: a PodCliqueSet whose scaling groups hold their cliques, with numbers for the start order.

Another way to write a Grove workload; `grove.dialects` makes a PodCliqueSet of `grove.io` of it. The spec is read as
plain JSON, so that unknown fields are reported and not lost. The Structs named `…Spec` describe it for the CRD.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from grove.api.dynamo import PodTemplate
from grove.api.meta import Condition, Int64, Json, Object, Resource, Struct, doc
from grove.api.podclique import AutoScalingConfig
from grove.api.podcliqueset import HeadlessServiceConfig
from grove.api.status import LastError, LastOperation
from grove.api.topology import TopologyConstraint

GROUP = "grove.ai"


class NestedCliqueSpec(Struct):
    name: Annotated[str, doc("Name of the clique within its group.", required=True)] = ""
    replicas: Annotated[int, doc("How many pods.", default=1)] = 1
    min_available: Annotated[
        int | None, doc("Pods that are scheduled together or not at all; all of them if absent.")
    ] = None
    start_order: Annotated[
        int | None, doc("Starts when all cliques of its group with the next lower number are ready.")
    ] = None
    template: Annotated[PodTemplate, doc("What the pods are made from.", required=True, open=True)] = PodTemplate()
    auto_scaling_config: Annotated[AutoScalingConfig | None, doc("How to scale a clique outside every group.")] = None
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where the pods of each PodClique go.")] = None


class NestedGroupSpec(Struct):
    name: Annotated[str, doc("Name of the scaling group within the set.", required=True)] = ""
    replicas: Annotated[int, doc("Replicas of the group.", default=1)] = 1
    min_available: Annotated[int, doc("Complete replicas that must run.", default=1)] = 1
    pod_cliques: Annotated[
        tuple[NestedCliqueSpec, ...], doc("Cliques of the group.", required=True, open_items=True)
    ] = ()
    scale_config: Annotated[AutoScalingConfig | None, doc("How to scale the group.")] = None
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where each replica of the group goes.")] = None


class NestedTemplateSpec(Struct):
    pod_clique_scaling_groups: Annotated[
        tuple[NestedGroupSpec, ...], doc("Cliques that are scaled as one unit.", open_items=True)
    ] = ()
    pod_cliques: Annotated[tuple[NestedCliqueSpec, ...], doc("Cliques outside every group.", open_items=True)] = ()
    termination_delay: Annotated[
        str | None, doc("How long a replica may lack pods before it is restarted whole (4h if absent).")
    ] = None
    priority_class_name: Annotated[str, doc("PriorityClass of every gang of the set.")] = ""
    headless_service_config: Annotated[HeadlessServiceConfig | None, doc("How pods find each other.")] = None
    topology_constraint: Annotated[TopologyConstraint | None, doc("Where each replica of the set goes.")] = None


class KoordPodCliqueSetSpec(Struct):
    replicas: Annotated[int, doc("How many replicas of the whole system.", default=1)] = 1
    template: Annotated[NestedTemplateSpec, doc("One replica of the system.", required=True, open=True)] = (
        NestedTemplateSpec()
    )


class GangReport(Struct):
    name: Annotated[str, doc("Name of the PodGang.", required=True)] = ""
    phase: Annotated[str, doc("Pending, Starting or Running.")] = ""
    scheduled: Annotated[bool, doc("Whether enough of its pods have a node.")] = False
    ready: Annotated[bool, doc("Whether enough of its pods are ready.")] = False
    placement_score: Annotated[float | None, doc("How good the placement is: 0 to 1, 1 is best.")] = None
    reason: Annotated[str, doc("Why it is not scheduled or not ready.")] = ""


class GroupReport(Struct):
    name: Annotated[str, doc("Name of the group.", required=True)] = ""
    index: Annotated[int, doc("Replica of the set it belongs to.", required=True)] = 0
    replicas: Annotated[int, doc("Replicas asked for.")] = 0
    min_available: Annotated[int, doc("Replicas that must run.")] = 0
    scheduled_replicas: Annotated[int, doc("Replicas whose cliques are all scheduled.")] = 0
    available_replicas: Annotated[int, doc("Replicas whose cliques are all whole.", required=True, default=0)] = 0
    updated_replicas: Annotated[int, doc("Available replicas that are up to date.", required=True, default=0)] = 0


class CliqueReport(Struct):
    group: Annotated[str, doc("Group of the clique; empty outside every group.")] = ""
    name: Annotated[str, doc("Name of the clique.", required=True)] = ""
    pod_clique: Annotated[str, doc("The PodClique this is about.", required=True)] = ""
    index: Annotated[int, doc("Replica of the set it belongs to.", required=True)] = 0
    replicas: Annotated[int, doc("Pods asked for.")] = 0
    ready: Annotated[int, doc("Pods that are ready.")] = 0
    scheduled: Annotated[int, doc("Pods that have a node.")] = 0
    gated: Annotated[int, doc("Pods that a gate holds back.")] = 0
    start_order: Annotated[int | None, doc("Its number in the start order.")] = None
    blocked_on: Annotated[tuple[str, ...], doc("Cliques it waits for.")] = ()


class KoordPodCliqueSetStatus(Struct):
    observed_generation: Annotated[Int64 | None, doc("Generation that was last translated.")] = None
    pod_clique_set_name: Annotated[str, doc("PodCliqueSet of grove.io that was made from this object.")] = ""
    replicas: Annotated[int, doc("Replicas asked for.")] = 0
    available_replicas: Annotated[int, doc("Replicas that are whole.", required=True, default=0)] = 0
    updated_replicas: Annotated[int, doc("Available replicas that are up to date.", required=True, default=0)] = 0
    selector: Annotated[str, doc("Selector of the pods, for autoscalers.")] = ""
    current_generation_hash: Annotated[str, doc("Hash of all clique templates.")] = ""
    last_errors: Annotated[tuple[LastError, ...], doc("What the last reconcile failed on.")] = ()
    last_operation: Annotated[LastOperation | None, doc("What the operator did last.")] = None
    pod_gangs: Annotated[tuple[GangReport, ...], doc("One entry a PodGang.")] = ()
    pod_clique_scaling_groups: Annotated[tuple[GroupReport, ...], doc("One entry a group and replica.")] = ()
    pod_cliques: Annotated[tuple[CliqueReport, ...], doc("One entry a PodClique.")] = ()
    conditions: Annotated[tuple[Condition, ...], doc("Those of the PodCliqueSet and its gangs, and Translated.")] = ()


class KoordPodCliqueSet(Object):
    """A whole inference system, its groups with their cliques inside."""

    RESOURCE: ClassVar[Resource] = Resource(GROUP, "v1alpha1", "PodCliqueSet", "koordpodcliquesets")

    spec: Annotated[Json, doc("The desired system.", required=True, shape=KoordPodCliqueSetSpec, open=True)] = {}
    status: Annotated[KoordPodCliqueSetStatus, doc("The observed system.")] = KoordPodCliqueSetStatus()
