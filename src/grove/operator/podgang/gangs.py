"""PodGangs: which ones a set has, their pods, and when these may be scheduled.

A gang lists the pods that exist; it is complete once every clique in it has all its pods. It leaves out cliques with 0
replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from grove.api import conditions, labels, labelsets, names
from grove.api.core import Pod
from grove.api.headroom import wanted_headroom
from grove.api.meta import Json, is_true
from grove.api.patch import to_json
from grove.api.pod import PodHealth, pod_health
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang, Replacement
from grove.api.topology import ClusterTopologyBinding, TopologyConstraint
from grove.backends.base import Backend
from grove.operator.shared.diff import owned_by
from grove.operator.shared.layout import (
    GangLayout,
    GroupReplicas,
    PodsOf,
    Unit,
    find_replica,
    find_scaled_layout,
    group_names,
    kept_replicas,
    min_pods,
    replica_layouts,
    topology_name,
)
from grove.operator.topology.levels import spread_over, translated


@dataclass(frozen=True, slots=True)
class WantedGang:
    """A PodGang as it should be now. `incomplete` names what is still missing; empty means all pods exist."""

    layout: GangLayout
    object: Json
    incomplete: str

    @property
    def name(self) -> str:
        return self.layout.name


@dataclass(frozen=True, slots=True)
class ObservedGang:
    """The facts that were read about a gang: the object of its name, and the objects that it is made from.

    `layout` is None when the set does not want a gang of this name, `binding` where topology is off or it is missing.
    """

    pcs: PodCliqueSet
    backend: Backend
    gang: PodGang | None
    layout: GangLayout | None
    cliques: Mapping[str, PodClique]
    pods_of: PodsOf
    binding: ClusterTopologyBinding | None = None
    topology_enabled: bool = False
    labels_of: Callable[[str], Mapping[str, str] | None] = lambda node: None
    """Labels of a node by its name; None for a node that is not there."""
    replacement: Replacement | None = None
    """What the scheduler is asked about the slice of a coherent update; on base gangs only."""


def wanted_gang(observed: ObservedGang) -> WantedGang | None:
    """One PodGang; the Grove-owned metadata of what is there under its name stays.

    None for a gang that the set does not want, or in which every clique is scaled to zero.
    """
    pcs, layout, existing = observed.pcs, observed.layout, observed.gang
    units = [unit for unit in layout.units if _asked_for(observed, unit) > 0] if layout is not None else []
    if layout is None or not units:
        return None
    missing: list[str] = []
    groups = [_pod_group(observed, layout, unit, missing) for unit in units]
    spec: Json = {"podgroups": groups}
    constraint, configs = _constraints(observed, layout, units)
    if constraint:
        spec["topologyConstraint"] = constraint
    if configs:
        spec["topologyConstraintGroupConfigs"] = configs
    if spreads := list(_spreads(observed, layout, units)):
        spec["spreadConstraints"] = spreads
    if headroom := list(_headroom(observed, layout, units)):
        spec["headroom"] = headroom
    if pcs.spec.template.priority_class_name:
        spec["priorityClassName"] = pcs.spec.template.priority_class_name
    if observed.replacement is not None:
        spec["replacement"] = to_json(observed.replacement)
    constrained = constraint or spreads or any("topologyConstraint" in body for body in (*configs, *groups))
    meta = existing.metadata if existing is not None else None
    annotations = labelsets.gang_annotations(
        meta.annotations if meta else {}, pcs.metadata.annotations, topology_name(pcs) if constrained else ""
    )
    pods = [pod for unit in units for pod in observed.pods_of(unit.fqn)]
    metadata = {
        "name": layout.name,
        "namespace": pcs.metadata.namespace,
        "labels": labelsets.pod_gang(
            meta.labels if meta else {}, pcs.metadata.labels, pcs.metadata.name, observed.backend.name
        ),
        "annotations": {**annotations, **observed.backend.gang_annotations(pcs, existing, pods)},
        "ownerReferences": owned_by(pcs),
    }
    return WantedGang(layout, PodGang.RESOURCE.manifest(metadata, spec=spec), ", ".join(missing))


def find_gang_layout(pcs: PodCliqueSet, name: str, group_replicas: GroupReplicas) -> GangLayout | None:
    """The layout of the gang of this name, without unfolding its siblings: a set may have hundreds.

    None when the set does not want it (any more).
    """
    replica = find_replica(pcs.metadata.name, name)
    if replica is None or replica not in kept_replicas(pcs):
        return None
    if name == names.base_gang(pcs.metadata.name, replica):
        return next(replica_layouts(pcs, replica, group_replicas))
    return find_scaled_layout(pcs, replica, name, group_replicas)


def pods_in_gang(pods: Iterable[Pod], gang: str) -> list[Pod]:
    """Pods of one clique that belong in a gang, by name: those that stay and are labelled with it.

    Failed pods do not: they are about to be replaced, and a scheduler would wait for them in vain.
    """
    belong = (
        pod
        for pod in pods
        if not pod.metadata.is_deleting
        and pod_health(pod) is not PodHealth.FAILED
        and pod.metadata.labels.get(labels.POD_GANG) == gang
    )
    return sorted(belong, key=lambda pod: pod.metadata.name)


def is_scheduled(gang: PodGang, pods_of: PodsOf) -> bool:
    """True if every group of a gang has its minimum of pods on nodes. The pods themselves decide."""
    return all(
        sum(pod.is_scheduled for pod in pods_in_gang(pods_of(group.name), gang.metadata.name)) >= group.min_replicas
        for group in gang.spec.podgroups
    )


def may_be_ungated(pods: Iterable[Pod], clique_fqn: str, gang: PodGang | None, *, base_scheduled: bool) -> list[Pod]:
    """Gated pods of a clique whose gate may come off: named by a gang that is complete, whose base gang is placed.

    Upstream looks at the name only, so a pod can start before its gang is whole; we want both.
    """
    if gang is None or not base_scheduled or not is_true(gang.status.conditions, conditions.INITIALIZED):
        return []
    group = next((podgroup for podgroup in gang.spec.podgroups if podgroup.name == clique_fqn), None)
    listed = {ref.name for ref in group.pod_references} if group is not None else set()
    return [
        pod
        for pod in pods
        if pod.has_gate(labels.POD_GANG_GATE) and not pod.metadata.is_deleting and pod.metadata.name in listed
    ]


def gate_removal(pod: Pod, node_labels: Mapping[str, str] = {}) -> Sequence[Json]:
    """The JSON patch that takes off our gate and no other; it fails if the list changed meanwhile.

    `node_labels` are what its node must have from now on: a node affinity can be added as long as a pod is gated.
    """
    position = next(at for at, gate in enumerate(pod.spec.scheduling_gates) if gate.name == labels.POD_GANG_GATE)
    path = f"/spec/schedulingGates/{position}"
    return [
        {"op": "test", "path": f"{path}/name", "value": labels.POD_GANG_GATE},
        *_bound_to(pod, node_labels),
        {"op": "remove", "path": path},
    ]


def _bound_to(pod: Pod, node_labels: Mapping[str, str]) -> list[Json]:
    """Adds the labels to every alternative of the pod's required node affinity, as the API server lets one."""
    if not node_labels:
        return []
    asked = [{"key": label, "operator": "In", "values": [value]} for label, value in sorted(node_labels.items())]
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    terms = node.required.node_selector_terms if node is not None and node.required is not None else ()
    if not terms:
        required: Json = {"nodeSelectorTerms": [{"matchExpressions": asked}]}
        if node is not None:
            path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
            return [{"op": "add", "path": path, "value": required}]
        own = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        if affinity is not None:
            return [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": own}]
        return [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": own}}]
    patch: list[Json] = []
    for at, term in enumerate(terms):
        path = f"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/{at}"
        expressions = [msgspec.to_builtins(expression) for expression in term.match_expressions]
        patch.append({"op": "add", "path": f"{path}/matchExpressions", "value": [*expressions, *asked]})
    return patch


def _asked_for(observed: ObservedGang, unit: Unit) -> int:
    """Pods a clique is to have: by the live object, or by the template while there is none."""
    live = observed.cliques.get(unit.fqn)
    return (unit.template.spec if live is None or live.metadata.is_deleting else live.spec).replicas


def _pod_group(observed: ObservedGang, layout: GangLayout, unit: Unit, missing: list[str]) -> Json:
    pods, wanted = pods_in_gang(observed.pods_of(unit.fqn), layout.name), _asked_for(observed, unit)
    clique = observed.cliques.get(unit.fqn)
    if clique is None or clique.metadata.is_deleting:
        missing.append(f"PodClique {unit.fqn}")
    elif len(pods) < wanted:
        missing.append(f"{unit.fqn} {len(pods)}/{wanted} pods")
    group: Json = {
        "name": unit.fqn,
        "minReplicas": min(min_pods(unit.template), wanted),
        "podReferences": [{"namespace": pod.metadata.namespace, "name": pod.metadata.name} for pod in pods],
    }
    constraint = _translated(observed, unit.template.topology_constraint)
    if constraint:
        group["topologyConstraint"] = constraint
    return group


def _constraints(observed: ObservedGang, layout: GangLayout, units: list[Unit]) -> tuple[Json | None, list[Json]]:
    """The gang's own constraint and those of its scaling-group replicas.

    A base gang holds the set's constraint and one config a replica of each constrained group. A scaled gang is such a
    replica, so its group's constraint is the gang's; without one the set's applies.
    """
    template = observed.pcs.spec.template
    if not observed.topology_enabled:
        return None, []
    if layout.scaled is not None:
        return _translated(observed, layout.scaled.config.topology_constraint or template.topology_constraint), []
    configs: list[Json] = []
    for fqn, config in group_names(observed.pcs, layout.replica):
        if config.topology_constraint is None:
            continue
        constraint = _translated(observed, config.topology_constraint)
        for index in range(config.min_available):
            members = [
                unit.fqn
                for unit in units
                if unit.group is not None and unit.group.config.name == config.name and unit.group.replica == index
            ]
            if members:
                entry: Json = {"name": names.group_replica(fqn, index), "podGroupNames": members}
                configs.append({**entry, "topologyConstraint": constraint} if constraint else entry)
    return _translated(observed, template.topology_constraint), configs


def _spreads(observed: ObservedGang, layout: GangLayout, units: list[Unit]) -> Iterator[Json]:
    """How the units of a gang are spread: replicas of the set, replicas of its scaling groups, pods of its cliques.

    A scaled gang is a part of a replica of the set, so it carries the set's spread too.
    """
    pcs, binding = observed.pcs, observed.binding
    template = pcs.spec.template
    if not observed.topology_enabled:
        return
    if own := spread_over(template.spread_constraint, binding, {labels.PART_OF: pcs.metadata.name}):
        yield own | {"unitLabel": labels.REPLICA_INDEX}
    for fqn, config in group_names(pcs, layout.replica):
        members = [unit.fqn for unit in units if unit.group is not None and unit.group.config.name == config.name]
        if members and (own := spread_over(config.spread_constraint, binding, {labels.SCALING_GROUP: fqn})):
            yield own | {"podGroupNames": members, "unitLabel": labels.SCALING_GROUP_REPLICA_INDEX}
    for unit in units:
        if own := spread_over(unit.template.spread_constraint, binding, {labels.POD_CLIQUE: unit.fqn}):
            yield own | {"podGroupNames": [unit.fqn]}


def _headroom(observed: ObservedGang, layout: GangLayout, units: list[Unit]) -> Iterator[Json]:
    """Headroom of the set, on the base gang of its first replica, and of scaling groups, on every base gang."""
    pcs = observed.pcs
    if layout.name != names.base_gang(pcs.metadata.name, layout.replica):
        return
    if layout.replica == 0 and (own := wanted_headroom(pcs.metadata.annotations)):
        yield {"name": pcs.metadata.name, **own}
    for fqn, config in group_names(pcs, layout.replica):
        places = [(unit.fqn, unit.group.replica) for unit in units if unit.group is not None and unit.group.fqn == fqn]
        first = min((replica for _, replica in places), default=None)
        if first is not None and (own := wanted_headroom(config.annotations)):
            yield {"name": fqn, **own, "podGroupNames": [name for name, replica in places if replica == first]}


def _translated(observed: ObservedGang, constraint: TopologyConstraint | None) -> Json | None:
    return translated(constraint, observed.binding) if observed.topology_enabled else None
