"""`grove.dynamo.ai/v1`: PodGangSet (pods that run all or not at all) and PodClique (where pods of such sets go).

Another way to write a Grove workload; `grove.dialects` makes a PodCliqueSet of it. Specs are read as plain JSON, so
that unknown fields are reported and not lost. The Structs named `…Spec` describe them for the CRD.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from grove.api.meta import Condition, Int64, Json, Object, Resource, Struct, doc

GROUP = "grove.dynamo.ai"

_POD_AFFINITY = "podSpec.affinity.podAffinity"
_DURING = "DuringSchedulingIgnoredDuringExecution"


class TemplateMetadata(Struct):
    labels: Annotated[dict[str, str], doc("Labels for the pods.")] = {}
    annotations: Annotated[dict[str, str], doc("Annotations for the pods.")] = {}


class PodTemplate(Struct):
    metadata: Annotated[TemplateMetadata | None, doc("What the pods carry.", open=True)] = None
    spec: Annotated[Json, doc("What the pods are made from.", required=True, embed="podSpec")] = {}


class Scheduling(Struct):
    """Wishes about nodes, beside those of the pod template: both hold."""

    node_affinity: Annotated[
        Json | None, doc("Nodes the pods may or should run on.", embed="podSpec.affinity.nodeAffinity")
    ] = None
    pod_affinity: Annotated[Json | None, doc("Pods to be near to.", embed="podSpec.affinity.podAffinity")] = None
    pod_anti_affinity: Annotated[
        Json | None, doc("Pods to be away from.", embed="podSpec.affinity.podAntiAffinity")
    ] = None
    node_selector: Annotated[dict[str, str], doc("Labels that nodes must have.")] = {}
    tolerations: Annotated[tuple[Json, ...], doc("Taints the pods live with.", embed="podSpec.tolerations")] = ()
    topology_spread: Annotated[
        tuple[Json, ...], doc("How to spread the pods.", embed="podSpec.topologySpreadConstraints")
    ] = ()
    priority_class_name: Annotated[str, doc("PriorityClass of the gang.")] = ""
    queue: Annotated[str, doc("Queue of the scheduler that the pods name.")] = ""


class PodGangSetSpec(Struct):
    replicas: Annotated[int, doc("How many pods.", default=1)] = 1
    min_available: Annotated[
        int | None, doc("Pods that are scheduled together or not at all; all of them if absent.")
    ] = None
    template: Annotated[PodTemplate, doc("What the pods are made from.", required=True, open=True)] = PodTemplate()
    scheduling: Annotated[Scheduling | None, doc("Where the pods go.", open=True)] = None


class GangSummary(Struct):
    name: Annotated[str, doc("Name of the PodGang.", required=True)] = ""
    phase: Annotated[str, doc("Pending, Starting or Running.")] = ""
    placement_score: Annotated[float | None, doc("How good the placement is: 0 to 1, 1 is best.")] = None


class PodGangSetStatus(Struct):
    observed_generation: Annotated[Int64 | None, doc("Generation that was last translated.")] = None
    pod_clique_set_name: Annotated[str, doc("PodCliqueSet that was made from this object.")] = ""
    phase: Annotated[str, doc("Pending, Starting or Running: the least of all gangs.")] = ""
    replicas: Annotated[int, doc("Pods that exist and are not terminating.")] = 0
    ready_replicas: Annotated[int, doc("Pods that are ready.", required=True, default=0)] = 0
    scheduled_replicas: Annotated[int, doc("Pods that have a node.", required=True, default=0)] = 0
    updated_replicas: Annotated[int, doc("Pods made from the current template.", required=True, default=0)] = 0
    gated_replicas: Annotated[int, doc("Pods that a gate holds back.", required=True, default=0)] = 0
    selector: Annotated[str, doc("Selector of the pods, for autoscalers.")] = ""
    pod_gangs: Annotated[tuple[GangSummary, ...], doc("One entry a PodGang.")] = ()
    reason: Annotated[str, doc("Why it does not run, as one word.")] = ""
    message: Annotated[str, doc("Why it does not run, in words.")] = ""
    conditions: Annotated[tuple[Condition, ...], doc("Those of the PodCliqueSet and its gangs, and Translated.")] = ()


class PodGangSet(Object):
    """Pods that are scheduled together or not at all."""

    RESOURCE: ClassVar[Resource] = Resource(GROUP, "v1", "PodGangSet", "dynamopodgangsets")

    spec: Annotated[Json, doc("The desired pods.", required=True, shape=PodGangSetSpec, open=True)] = {}
    status: Annotated[PodGangSetStatus, doc("The observed pods.")] = PodGangSetStatus()


class PlacementTopology(Struct):
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[Json, ...], doc("Where pods should go, by weight.", embed=f"{_POD_AFFINITY}.preferred{_DURING}")
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[Json, ...], doc("Where pods must go.", embed=f"{_POD_AFFINITY}.required{_DURING}")
    ] = ()
    pod_anti_affinity: Annotated[
        Json | None, doc("Pods to be away from.", embed="podSpec.affinity.podAntiAffinity")
    ] = None


class PlacementSpec(Struct):
    selector: Annotated[
        Json, doc("PodGangSets it is about, by the labels of their pods.", required=True, embed="LabelSelector")
    ] = {}
    topology: Annotated[PlacementTopology | None, doc("Where their pods go.", open=True)] = None


class MatchedPodGangSet(Struct):
    name: Annotated[str, doc("PodGangSet that the selector matches.", required=True)] = ""
    applied_as: Annotated[str, doc("Pack, PodAffinity, or empty while it waits.")] = ""


class PlacementStatus(Struct):
    observed_generation: Annotated[Int64 | None, doc("Generation that was last looked at.")] = None
    matched_pod_gang_sets: Annotated[tuple[MatchedPodGangSet, ...], doc("PodGangSets it is about.")] = ()
    matched_pods: Annotated[int, doc("Pods of Grove that the selector matches.", required=True, default=0)] = 0
    satisfied_pods: Annotated[
        int, doc("Those of them for which every term holds on their node.", required=True, default=0)
    ] = 0
    conditions: Annotated[tuple[Condition, ...], doc("Whether it is in effect everywhere.")] = ()


class PlacementPodClique(Object):
    """A rule about where the pods of PodGangSets go; it owns no pods."""

    RESOURCE: ClassVar[Resource] = Resource(GROUP, "v1", "PodClique", "dynamopodcliques")

    spec: Annotated[Json, doc("The rule.", required=True, shape=PlacementSpec, open=True)] = {}
    status: Annotated[PlacementStatus, doc("What it is about, and whether it holds.")] = PlacementStatus()
