"""Topology that a set requires and the operator cannot apply: why, and what to do. Pure."""

from __future__ import annotations

from grove.api import conditions as words
from grove.api.meta import find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.backends.constraints import constraints_of
from grove.diagnosis.gang_answer import Verdict, because

_STEPS = {
    words.CLUSTER_TOPOLOGY_NOT_FOUND: "create the ClusterTopologyBinding, or correct topologyName of the set",
    words.CLUSTER_TOPOLOGY_LEVELS_UNAVAILABLE: "add the level to the ClusterTopologyBinding, or require another one",
    words.CLUSTER_TOPOLOGY_LEVELS_CONTRADICT: "correct the order of the levels in the ClusterTopologyBinding",
    words.TOPOLOGY_AWARE_SCHEDULING_DISABLED: "set config.topologyAwareScheduling.enabled of the chart",
    words.TOPOLOGY_NAME_MISSING: "set topologyName in the topologyConstraint of the set",
}


def unapplied_topology(pcs: PodCliqueSet) -> Verdict | None:
    """The verdict on a set that requires a domain and does not get it; None if all is applied, or only preferred."""
    condition = find_condition(pcs.status.conditions, words.TOPOLOGY_LEVELS_UNAVAILABLE)
    if condition is None or condition.status == words.FALSE or not requires_domain(pcs):
        return None
    reason = f"a required topology is not applied: {condition.message or condition.reason}"
    return because("", "topology", reason, next=_STEPS.get(condition.reason, "kubectl describe pcs"))


def requires_domain(pcs: PodCliqueSet) -> bool:
    return any(constraint.required for constraint in constraints_of(pcs))
