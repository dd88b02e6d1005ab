"""Reads a Pod or a Node of the API as the scheduler's facts, counting requests exactly as kube-scheduler does.

Amounts are summed in thousandths and rounded up at the end, because Kubernetes sums quantities before it rounds. Bad
input does not raise: a pod that cannot be understood becomes a pod that fits nowhere, and says why (`Shape.blocked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from grove.api import labels as keys
from grove.api.core import (
    Affinity,
    Container,
    ContainerStatus,
    Node,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from grove.api.meta import find_condition
from grove.api.pod import PodAffinity, PodAffinityTerm
from grove.api.quantity import CPU, InvalidQuantity, milli, whole
from grove.api.selector import InvalidSelector, Requirement
from grove.scheduler.model.facts import (
    PODS,
    HostPort,
    NodeFacts,
    NodeTerm,
    NodeTerms,
    PodFacts,
    PodTerm,
    Requests,
    Shape,
    Spread,
    node_term,
    node_terms,
    pod_term,
    spread_of,
)

Amounts = dict[str, int]
"""Resource name to thousandths of its unit."""

MOST = 2**53
"""Larger amounts are cut to this: no machine has them, and sums over a cluster stay inside 63 bits."""

BANDWIDTH = "grove.io/network-bandwidth"
"""A resource that pods may ask for and nodes have by a label, where no device plugin publishes it."""

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def read_pod(pod: Pod, *, volumes: tuple[NodeTerms, ...] = (), blocked: str = "", counted: Requests = ()) -> PodFacts:
    """The facts of a pod; what its claims allow and ask for comes from the sources of the live scheduler."""
    meta, spec = pod.metadata, pod.spec
    try:
        shape = _shape(pod, volumes, blocked, counted)
    except (InvalidQuantity, InvalidSelector) as err:
        shape = Shape(blocked=str(err))
    created = meta.creation_timestamp
    return PodFacts(
        uid=meta.uid or f"{meta.namespace}/{meta.name}",
        namespace=meta.namespace,
        name=meta.name,
        shape=shape,
        labels=meta.labels,
        node=spec.node_name,
        priority=spec.priority or 0,
        terminating=meta.is_deleting,
        may_preempt=spec.preemption_policy != "Never",
        gang=f"{meta.namespace}/{meta.labels[keys.POD_GANG]}" if keys.POD_GANG in meta.labels else "",
        group=meta.labels.get(keys.POD_CLIQUE, ""),
        created_s=created.timestamp() if created else 0.0,
    )


def read_node(node: Node, bandwidth_label: str = "") -> NodeFacts:
    """The facts of a node. A cordon and a failed Ready condition count as the taints Kubernetes makes of them.

    Kubernetes' node controller writes those taints a moment after the fact; a gang should not fall into that moment.
    """
    taints = list(node.spec.taints)
    present = {taint.key for taint in taints if taint.effect == "NoSchedule"}
    if node.spec.unschedulable and UNSCHEDULABLE not in present:
        taints.append(Taint(key=UNSCHEDULABLE, effect="NoSchedule"))
    ready = find_condition(node.status.conditions, "Ready")
    if ready is not None and ready.status != "True" and not present & {NOT_READY, UNREACHABLE}:
        taints.append(Taint(key=NOT_READY if ready.status == "False" else UNREACHABLE, effect="NoSchedule"))
    allocatable: dict[str, int] = {}
    for name, quantity in (node.status.allocatable or node.status.capacity).items():
        if is_counted(name) or name == PODS:
            try:
                allocatable[name] = max(0, _rounded(name, milli(quantity)))
            except InvalidQuantity:
                continue  # the node does not have what cannot be read
    if BANDWIDTH not in allocatable and (bandwidth := node.metadata.labels.get(bandwidth_label)):
        try:
            allocatable[BANDWIDTH] = min(max(0, whole(bandwidth)), MOST)
        except InvalidQuantity:
            allocatable[BANDWIDTH] = 0
    return NodeFacts(node.metadata.name, allocatable, node.metadata.labels, tuple(taints))


@lru_cache(maxsize=1024)
def is_counted(resource: str) -> bool:
    """True if kube-scheduler counts a resource: CPU, memory, local storage, names with a domain or a known prefix."""
    if resource in (CPU, "memory", "ephemeral-storage"):
        return True
    return ("/" in resource and not resource.startswith("requests.")) or resource.startswith(
        ("hugepages-", "attachable-volumes-")
    )


def pod_requests(pod: Pod) -> Requests:
    """The amounts that a pod takes from its node: containers or the largest init container, sidecars and overhead."""
    spec = pod.spec
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _taken(pod, container, pod.status.container_statuses))
    if spec.init_containers:
        total = _with_init(pod, total)
    if spec.resources is not None:
        _set_pod_level(total, spec.resources)
    for name, quantity in spec.overhead.items():
        total[name] = total.get(name, 0) + milli(quantity)
    amounts = [(name, _rounded(name, value)) for name, value in total.items() if is_counted(name)]
    return tuple(sorted([(PODS, 1), *[item for item in amounts if item[1] > 0]]))


def _taken(pod: Pod, container: Container, statuses: tuple[ContainerStatus, ...]) -> Amounts:
    """The amounts of a container. During a resize, the largest of its present, allocated and requested amounts."""
    asked = _asked(container.resources)
    status = next((s for s in statuses if s.name == container.name and s.resources is not None), None)
    if status is None or status.resources is None:
        return asked
    pending = find_condition(pod.status.conditions, "PodResizePending")
    taken: Amounts = {} if pending is not None and pending.reason == "Infeasible" else asked
    for amounts in (status.resources.requests, status.allocated_resources):
        _raise_to(taken, {name: milli(quantity) for name, quantity in amounts.items()})
    return taken


def _with_init(pod: Pod, containers: Amounts) -> Amounts:
    """Init containers run one by one, each beside the sidecars started before it; sidecars stay."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        if container.is_sidecar:
            _add(sidecars, _taken(pod, container, pod.status.init_container_statuses))
            moment = sidecars
        else:
            moment = _asked(container.resources)
            _add(moment, sidecars)
        _raise_to(peak, moment)
    total = dict(containers)
    _add(total, sidecars)
    _raise_to(total, peak)
    return total


def _set_pod_level(total: Amounts, resources: ResourceRequirements) -> None:
    """Requests of the pod as a whole replace the sum of its containers' for the resources that may be set there.

    A limit alone counts where no container says anything, as the API server's defaulting has it.
    """
    for name, quantity in resources.requests.items():
        if _is_pod_level(name):
            total[name] = milli(quantity)
    for name, quantity in resources.limits.items():
        if name not in resources.requests and name not in total and _is_pod_level(name):
            total[name] = milli(quantity)


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, "memory") or resource.startswith("hugepages-")


def _asked(resources: ResourceRequirements) -> Amounts:
    """Requests, with limits standing in where there is no request, as the API server's defaulting has it."""
    asked = {name: milli(quantity) for name, quantity in resources.requests.items()}
    for name, quantity in resources.limits.items():
        if name not in asked:
            asked[name] = milli(quantity)
    if asked and min(asked.values()) < 0:
        negative = sorted(name for name, value in asked.items() if value < 0)
        raise InvalidQuantity(f"less than nothing is requested of {', '.join(negative)}")
    return asked


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Amounts, least: Mapping[str, int]) -> None:
    for name, value in least.items():
        if value > total.get(name, 0):
            total[name] = value


def _rounded(resource: str, thousandths: int) -> int:
    value = thousandths if resource == CPU else -(-thousandths // 1000)
    return min(value, MOST)


def _shape(pod: Pod, volumes: tuple[NodeTerms, ...], blocked: str, counted: Requests) -> Shape:
    spec, namespace, labels = pod.spec, pod.metadata.namespace, pod.metadata.labels
    affinity = spec.affinity or _NO_AFFINITY
    required: NodeTerms | None = None
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    if affinity.node_affinity is not None:
        required = node_terms(affinity.node_affinity.required)
        preferred = tuple((term.weight, node_term(term.preference)) for term in affinity.node_affinity.preferred)
    for key in keys.KAI_FRACTIONS:
        if not blocked and key in pod.metadata.annotations:
            blocked = f"annotation {key} is KAI's: grove-scheduler gives parts of GPUs as koordinator.sh/gpu-core"
    if least := pod.metadata.annotations.get(keys.GPU_MEMORY):
        required = _with_gpu_memory(required, least)
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    return _interned(
        tuple(sorted((*pod_requests(pod), *counted))) if counted else pod_requests(pod),
        tuple(sorted(spec.node_selector.items())),
        required,
        preferred,
        spec.tolerations,
        _ports(spec),
        tuple(pod_term(t, namespace, labels) for t in _near(pod, near)) if near else (),
        tuple(pod_term(t, namespace, labels) for t in apart.required) if apart else (),
        tuple(
            spread_of(s, namespace, labels)
            for s in spec.topology_spread_constraints
            if s.when_unsatisfiable == "DoNotSchedule"
        ),
        volumes,
        _pod_wishes(spec, affinity, namespace, labels) if spec.affinity or spec.topology_spread_constraints else (),
        blocked,
    )


_NO_AFFINITY = Affinity()
_DOMAIN_SELECTORS = (
    {keys.PART_OF, keys.REPLICA_INDEX},
    {keys.SCALING_GROUP, keys.SCALING_GROUP_REPLICA_INDEX},
    {keys.POD_CLIQUE},
)
"""The labels by which the operator selects the pods of a set's replica, of a group's replica and of a clique."""


def _near(pod: Pod, affinity: PodAffinity) -> tuple[PodAffinityTerm, ...]:
    """Required pod affinity without the terms that the operator added for node autoscalers: the PodGang has them."""
    if keys.DOMAIN_AFFINITY not in pod.metadata.annotations:
        return affinity.required
    return tuple(
        term
        for term in affinity.required
        if term.label_selector is None or term.label_selector.match_labels.keys() not in _DOMAIN_SELECTORS
    )


def _with_gpu_memory(terms: NodeTerms | None, least: str) -> NodeTerms:
    """Every alternative narrowed to nodes whose cards have that much memory, by the label of GPU feature discovery."""
    mebibytes = -(-whole(least) // 2**20)
    enough = Requirement("nvidia.com/gpu.memory", "Gt", frozenset({str(mebibytes - 1)}))
    return tuple(
        NodeTerm((*term.labels, enough), term.names) for term in (terms if terms is not None else (NodeTerm(),))
    )


@lru_cache(maxsize=16384)
def _interned(
    requests: Requests,
    node_selector: tuple[tuple[str, str], ...],
    node_affinity: NodeTerms | None,
    preferred: tuple[tuple[int, NodeTerm], ...],
    tolerations: tuple[Toleration, ...],
    ports: tuple[HostPort, ...],
    affinity: tuple[PodTerm, ...],
    anti_affinity: tuple[PodTerm, ...],
    spread: tuple[Spread, ...],
    volumes: tuple[NodeTerms, ...],
    preferred_pods: tuple[tuple[int, PodTerm], ...],
    blocked: str,
) -> Shape:
    """One Shape object for all replicas of a template: equality becomes identity, and memory stays small."""
    return Shape(
        requests,
        (),
        node_selector,
        node_affinity,
        preferred,
        tolerations,
        ports,
        affinity,
        anti_affinity,
        spread,
        volumes,
        preferred_pods,
        blocked,
    )


def _pod_wishes(
    spec: PodSpec, affinity: Affinity, namespace: str, labels: Mapping[str, str]
) -> tuple[tuple[int, PodTerm], ...]:
    """Preferred pod affinity and anti-affinity, and spreads that are only wished for."""
    terms: list[tuple[int, PodTerm]] = []
    for sign, wishes in ((1, affinity.pod_affinity), (-1, affinity.pod_anti_affinity)):
        if wishes is not None:
            terms += [(sign * w.weight, pod_term(w.pod_affinity_term, namespace, labels)) for w in wishes.preferred]
    for s in spec.topology_spread_constraints:
        if s.when_unsatisfiable == "ScheduleAnyway":
            terms.append((-1, PodTerm(s.topology_key, spread_of(s, namespace, labels).scope)))
    return tuple(terms)


def _ports(spec: PodSpec) -> tuple[HostPort, ...]:
    ports = []
    sidecars = (c for c in spec.init_containers if c.is_sidecar)
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            host_port = port.host_port or (port.container_port if spec.host_network else 0)
            if host_port > 0:
                ports.append(HostPort(host_port, port.protocol or "TCP", port.host_ip or "0.0.0.0"))  # noqa: S104
    return tuple(ports)
