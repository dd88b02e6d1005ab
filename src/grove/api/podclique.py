"""PodClique: pods of one role that are alike, scheduled together and counted together."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from grove.api.meta import Condition, Int64, Json, Object, Resource, Struct, doc
from grove.api.startorder import READY, START_CONDITIONS
from grove.api.status import LastError, LastOperation, SurgeProgress


class AutoScalingConfig(Struct):
    min_replicas: Annotated[int | None, doc("Fewest replicas; the template's replicas if absent.")] = None
    max_replicas: Annotated[int, doc("Most replicas.", required=True)] = 0
    metrics: Annotated[
        tuple[Json, ...],
        doc("What to scale on, passed to the HorizontalPodAutoscaler as it is.", embed="metrics", list_type="atomic"),
    ] = ()


class PodCliqueSpec(Struct):
    role_name: Annotated[str, doc("Role of these pods, for people to read.", required=True)] = ""
    pod_spec: Annotated[Json, doc("What the pods are made from.", required=True, embed="podSpec")] = {}
    replicas: Annotated[int, doc("How many pods.", required=True)] = 0
    min_available: Annotated[
        int | None, doc("Pods that are scheduled together or not at all; fewer than this is a breach.")
    ] = None
    starts_after: Annotated[tuple[str, ...], doc("Cliques that this one starts after.")] = ()
    starts_after_condition: Annotated[
        str,
        doc(
            "State that the pods of those cliques need: Ready, Started (containers run) or Created (on a node). "
            "Without it the value of the template counts, else Ready.",
            enum=[*START_CONDITIONS],
        ),
    ] = ""
    auto_scaling_config: Annotated[AutoScalingConfig | None, doc("How to scale this clique by itself.")] = None

    @property
    def start_condition(self) -> str:
        """The state that pods of `starts_after` must have before a pod of this clique starts."""
        return self.starts_after_condition or READY

    @property
    def minimum(self) -> int:
        """Pods that must run for the clique to be whole; all of them unless said otherwise."""
        return self.replicas if self.min_available is None else self.min_available

    @property
    def current_minimum(self) -> int:
        """Pods that must run now: its minAvailable, or what it was scaled to if that is less.

        None at 0 replicas: scaling to zero releases the clique from its gang.
        """
        return min(self.replicas, max(1, self.minimum))


class PodsSelectedToUpdate(Struct):
    current: Annotated[str, doc("Ready pod that is being replaced.", required=True)] = ""
    completed: Annotated[tuple[str, ...], doc("Ready pods that were replaced.")] = ()
    indexes: Annotated[
        tuple[int, ...], doc("Indexes whose ready pod is being replaced; their new pods are waited for.")
    ] = ()
    updated_indexes: Annotated[tuple[int, ...], doc("Indexes whose ready pod was replaced.")] = ()


class PodCliqueUpdateProgress(Struct):
    update_started_at: Annotated[datetime | None, doc("When the update started.")] = None
    update_ended_at: Annotated[datetime | None, doc("When it ended.")] = None
    pod_clique_set_generation_hash: Annotated[str, doc("Generation of the set it leads to.", required=True)] = ""
    pod_template_hash: Annotated[str, doc("Pod template it leads to.", required=True)] = ""
    ready_pods_selected_to_update: Annotated[
        PodsSelectedToUpdate | None, doc("Ready pods taken so far, one at a time.")
    ] = None
    unplaced: Annotated[tuple[int, ...], doc("Indexes whose pod had no node when the update replaced it.")] = ()
    surge: Annotated[SurgeProgress | None, doc("Pods beyond `replicas` that the update made.")] = None


class PodCliqueStatus(Struct):
    observed_generation: Annotated[Int64 | None, doc("Generation of the last complete reconcile.")] = None
    last_errors: Annotated[tuple[LastError, ...], doc("What the last reconcile failed on.")] = ()
    last_operation: Annotated[LastOperation | None, doc("What the operator did last.")] = None
    replicas: Annotated[int, doc("Pods that exist and are not terminating.")] = 0
    ready_replicas: Annotated[int, doc("Pods that are ready.", required=True, default=0)] = 0
    updated_replicas: Annotated[int, doc("Pods made from the current template.", required=True, default=0)] = 0
    schedule_gated_replicas: Annotated[int, doc("Pods that a gate holds back.", required=True, default=0)] = 0
    scheduled_replicas: Annotated[int, doc("Pods that have a node.", required=True, default=0)] = 0
    hpa_pod_selector: Annotated[str, doc("Selector of the pods, for autoscalers.")] = ""
    conditions: Annotated[tuple[Condition, ...], doc("Whether the clique is scheduled and whole.")] = ()
    current_pod_clique_set_generation_hash: Annotated[str, doc("Generation of the set that is fully realised.")] = ""
    current_pod_template_hash: Annotated[str, doc("Pod template that is fully realised.")] = ""
    update_progress: Annotated[PodCliqueUpdateProgress | None, doc("The current or last update.")] = None
    incarnation: Annotated[int, doc("Restart of its gang that this status is about.")] = 0


class PodClique(Object):
    """Pods of one role; made by Grove from a clique template."""

    RESOURCE: ClassVar[Resource] = Resource("grove.io", "v1alpha1", "PodClique", "podcliques")

    spec: Annotated[PodCliqueSpec, doc("The desired pods.", required=True)] = PodCliqueSpec()
    status: Annotated[PodCliqueStatus, doc("The observed pods.")] = PodCliqueStatus()
