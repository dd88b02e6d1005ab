"""Required pack domains as pod affinity, for node autoscalers. Pure.

A node autoscaler buys nodes pod by pod and reads no PodGang. Without the affinity it buys the nodes of a gang in any
domain. A set asks for it with the annotation `grove.io/domain-affinity`. grove-scheduler does not read these terms:
the PodGang says the same.
"""

from __future__ import annotations

from grove.api import labels
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.operator.shared.layout import Unit

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def domain_terms(pcs: PodCliqueSet, unit: Unit, binding: ClusterTopologyBinding | None) -> list[Json]:
    """An affinity term for each required domain that holds for a pod of the unit: of set, group and clique."""
    if binding is None or pcs.metadata.annotations.get(labels.DOMAIN_AFFINITY) != "true":
        return []
    template, group = pcs.spec.template, unit.group
    replica = {labels.PART_OF: pcs.metadata.name, labels.REPLICA_INDEX: str(unit.replica)}
    levels = [(template.topology_constraint, replica)]
    if group is not None:
        of_group = {labels.SCALING_GROUP: group.fqn, labels.SCALING_GROUP_REPLICA_INDEX: str(group.replica)}
        levels.append((group.config.topology_constraint, of_group))
    levels.append((unit.template.topology_constraint, {labels.POD_CLIQUE: unit.fqn}))
    return [
        {"topologyKey": key, "labelSelector": {"matchLabels": selected}}
        for constraint, selected in levels
        if constraint is not None and constraint.required and (key := binding.find_key(constraint.required))
    ]


def with_domain_affinity(spec: Json, terms: list[Json]) -> Json:
    """The pod spec with these terms beside its own."""
    affinity = spec.get("affinity") or {}
    near = affinity.get("podAffinity") or {}
    return {**spec, "affinity": {**affinity, "podAffinity": {**near, REQUIRED: [*(near.get(REQUIRED) or ()), *terms]}}}
