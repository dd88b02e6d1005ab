"""Pod as Grove reads it: what placement, gates, readiness and replacement need, and nothing of what a container runs.

Every field has a default, so a pod written by anyone decodes. Quantities stay as the wire has them;
`grove.api.quantity` turns them into integers. Trees that only travel through us (volumes, claims) stay plain JSON.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import ClassVar, TypeAlias

from msgspec import field

from grove.api.conditions import FALSE, IN_PLACE, READY_TO_START_CONTAINERS
from grove.api.meta import Condition, Json, Object, Resource, Struct, find_condition, is_true

ResourceList: TypeAlias = dict[str, str | int | float]
"""Quantities by resource name; an API server writes strings, a hand-made object may hold plain numbers."""


class ContainerPort(Struct):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"
    name: str = ""


class ResourceRequirements(Struct):
    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[Json, ...] = ()


class Container(Struct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar, whose request lasts as long as the pod."""

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


class Toleration(Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SelectorRequirement(Struct):
    """One expression of a label or node selector: `key operator values`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(Struct):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Struct):
    """Terms are alternatives; a term without expressions matches nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(Struct):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredNodeTerm, ...] = field(name="preferredDuringSchedulingIgnoredDuringExecution", default=())


class PodAffinityTerm(Struct):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct):
    """Affinity and anti-affinity have the same shape; which one it is, the field says."""

    required: tuple[PodAffinityTerm, ...] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Struct):
    name: str = ""


class PodSpec(Struct):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Json, ...] = ()
    resource_claims: tuple[Json, ...] = ()
    readiness_gates: tuple[Json, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    restart_policy: str = ""
    scheduling_group: Json | None = None
    workload_ref: Json | None = None


class ContainerTermination(Struct):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerRunning(Struct):
    started_at: datetime | None = None


class ContainerWaiting(Struct):
    reason: str = ""
    message: str = ""


class ContainerState(Struct):
    running: ContainerRunning | None = None
    waiting: ContainerWaiting | None = None
    terminated: ContainerTermination | None = None


class ContainerStatus(Struct):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    container_id: str = field(name="containerID", default="")
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    """What the container runs with now; differs from the spec while a resize is under way."""
    allocated_resources: ResourceList = {}


class PodStatus(Struct):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = field(name="podIP", default="")
    host_ip: str = field(name="hostIP", default="")
    start_time: datetime | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[Json, ...] = ()


class Pod(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_bound(self) -> bool:
        return bool(self.spec.node_name)

    @property
    def is_gated(self) -> bool:
        return bool(self.spec.scheduling_gates)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """Neither finished nor on its way out: it holds its index."""
        return not self.is_finished and not self.metadata.is_deleting

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, "Ready")

    @property
    def is_scheduled(self) -> bool:
        return is_true(self.status.conditions, "PodScheduled")

    @property
    def waits_for(self) -> str:
        """The reason of PodScheduled=False; empty if there is no such condition."""
        condition = find_condition(self.status.conditions, "PodScheduled")
        return condition.reason if condition is not None and condition.status == "False" else ""

    @property
    def is_held_by_gate(self) -> bool:
        """The API server writes this reason."""
        return self.waits_for == "SchedulingGated"

    @property
    def is_unschedulable(self) -> bool:
        """A scheduler writes this reason while new nodes could help. Node autoscalers read it."""
        return self.waits_for == "Unschedulable"

    @property
    def has_no_place(self) -> bool:
        """A scheduler has no node for it now, for whatever reason. A pod that it cannot decide about is left out."""
        return self.waits_for not in ("", "SchedulingGated", "SchedulerError")

    def has_gate(self, name: str) -> bool:
        gates = self.spec.scheduling_gates
        return bool(gates) and any(gate.name == name for gate in gates)


class PodHealth(Enum):
    """What is to be expected of a pod. That it is being deleted is another question (`metadata.is_deleting`)."""

    READY = "ready"
    STARTING = "starting"
    """Not ready yet, and no container ended badly: it waits for a node, an image or another pod, or it loads."""
    STUCK = "stuck"
    """Not ready yet, and the kubelet cannot start a container: its image or its configuration is at fault."""
    UNREADY = "unready"
    """A container started and does not pass its readiness probe."""
    CRASHING = "crashing"
    """A container ended, is not ready since, and the kubelet starts it again."""
    ENDED = "ended"
    """It finished without an error, whole or in part, and does not start again. It keeps its place."""
    FAILED = "failed"
    """It cannot become ready any more: it failed, or a container did and does not start again. It is replaced."""
    GONE = "gone"
    """Its node is gone for good, and the pod with it."""

    @property
    def is_up(self) -> bool:
        """Ready, or on its way to it with nothing known against it: what a minimum counts."""
        return self in (PodHealth.READY, PodHealth.STARTING)


def pod_health(pod: Pod, *, node_is_gone: bool = False) -> PodHealth:
    """The one judgement of a pod. `node_is_gone`: the node it is bound to exists no longer."""
    if pod.status.phase == "Failed":
        return PodHealth.FAILED
    if pod.status.phase == "Succeeded":
        return PodHealth.ENDED
    if node_is_gone and pod.is_bound:
        return PodHealth.GONE
    if pod.is_ready:
        return PodHealth.READY
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if not statuses:
        return PodHealth.STARTING
    healths = {container_health(pod, status) for status in statuses}
    return next((health for health in _WORST_FIRST if health in healths), PodHealth.STARTING)


def unprepared_since(pod: Pod) -> datetime | None:
    """Since when the node of a pod has not finished its volumes, devices and network; None if containers may start.

    The kubelet pulls images afterwards, so the time of a pull does not count.
    """
    if not pod.is_bound or pod.is_finished:
        return None
    condition = find_condition(pod.status.conditions, READY_TO_START_CONTAINERS)
    return condition.last_transition_time if condition is not None and condition.status == FALSE else None


_WORST_FIRST = (PodHealth.FAILED, PodHealth.CRASHING, PodHealth.ENDED, PodHealth.UNREADY, PodHealth.STUCK)
_ON_ITS_WAY = ("", "PodInitializing", "ContainerCreating", "CrashLoopBackOff")


def container_health(pod: Pod, status: ContainerStatus) -> PodHealth:
    """What one container says of a pod that is not ready. A container that recovered says nothing against it."""
    policy, state, before = pod.spec.restart_policy or "Always", status.state, status.last_state.terminated
    if (gate := find_condition(pod.status.conditions, IN_PLACE)) is not None and gate.status == FALSE:
        # An update in place has the kubelet stop the container: that it ended says nothing against the pod.
        state, before = ContainerState(running=state.running, waiting=state.waiting), None
    init = next((container for container in pod.spec.init_containers if container.name == status.name), None)
    is_init = init is not None and not init.is_sidecar
    if init is not None and init.is_sidecar:
        policy = "Always"
    ended, waiting = state.terminated, state.waiting
    if status.ready or (is_init and ended is not None and ended.exit_code == 0):
        return PodHealth.READY
    if ended is not None and policy != "Always":
        if ended.exit_code == 0:
            return PodHealth.ENDED
        return PodHealth.FAILED if policy == "Never" else PodHealth.CRASHING
    failed = any(
        container_termination is not None and container_termination.exit_code != 0
        for container_termination in (ended, before)
    )
    if failed or (waiting is not None and waiting.reason == "CrashLoopBackOff"):
        return PodHealth.CRASHING
    if status.started and not is_init:
        return PodHealth.UNREADY
    return PodHealth.STUCK if waiting is not None and waiting.reason not in _ON_ITS_WAY else PodHealth.STARTING
