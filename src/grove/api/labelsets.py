"""The full label and annotation sets of the objects Grove makes.

Later sources win over earlier ones for the same key; the order of the arguments of `|` below is that order.
"""

from __future__ import annotations

from collections.abc import Mapping

from grove.api import labels

Labels = dict[str, str]


def managed(pcs: str) -> Labels:
    """The pair that every object of a set carries."""
    return {labels.MANAGED_BY: labels.OPERATOR, labels.PART_OF: pcs}


def component(pcs: str, component: str, name: str = "") -> Labels:
    """Labels of a supporting object; the name may hold colons (a Role), a label value may not."""
    named = {labels.NAME: name.replace(":", "-")} if name else {}
    return managed(pcs) | named | {labels.COMPONENT: component}


def replica_component(pcs: str, component_: str, name: str, replica: int) -> Labels:
    """Labels of an object that belongs to one replica of a set, such as its Service or a scaling group."""
    return component(pcs, component_, name) | {labels.REPLICA_INDEX: str(replica)}


def standalone_clique(
    template: Mapping[str, str], pcs: str, replica: int, fqn: str, gang: str, template_hash: str
) -> Labels:
    own = {labels.POD_GANG: gang, labels.POD_TEMPLATE_HASH: template_hash}
    return _users(template) | replica_component(pcs, labels.STANDALONE_CLIQUE, fqn, replica) | own


def member_clique(
    template: Mapping[str, str],
    pcs: str,
    replica: int,
    group_fqn: str,
    group_replica: int,
    fqn: str,
    gang: str,
    base_gang: str,
    template_hash: str,
) -> Labels:
    """`base_gang` is named on the label only if the clique's own gang is another, scaled one."""
    own = {
        labels.SCALING_GROUP: group_fqn,
        labels.SCALING_GROUP_REPLICA_INDEX: str(group_replica),
        labels.POD_GANG: gang,
        labels.POD_TEMPLATE_HASH: template_hash,
    }
    if gang != base_gang:
        own[labels.BASE_POD_GANG] = base_gang
    return _users(template) | replica_component(pcs, labels.MEMBER_CLIQUE, fqn, replica) | own


def pod(
    clique_labels: Mapping[str, str],
    pcs: str,
    replica: int,
    clique_name: str,
    clique_fqn: str,
    gang: str,
    pod_index: int,
) -> Labels:
    """A pod inherits its PodClique's labels, name and component included."""
    own = {
        labels.CLIQUE_NAME: clique_name,
        labels.POD_CLIQUE: clique_fqn,
        labels.REPLICA_INDEX: str(replica),
        labels.POD_GANG: gang,
        labels.POD_INDEX: str(pod_index),
    }
    return managed(pcs) | dict(clique_labels) | own


def pod_gang(existing: Mapping[str, str], set_labels: Mapping[str, str], pcs: str, scheduler: str) -> Labels:
    """Grove's own keys already there stay; a set's foreign labels are mirrored, and so is their removal."""
    own = component(pcs, labels.POD_GANG_COMPONENT) | {labels.SCHEDULER_NAME: scheduler}
    return _grove_keys(existing) | _foreign_keys(set_labels) | own


def set_claim(pcs: str, replica: int | None = None) -> Labels:
    """Labels of a ResourceClaim shared in a set; with an index if each replica has its own."""
    return component(pcs, labels.RESOURCE_CLAIM) | _index(labels.REPLICA_INDEX, replica)


def group_claim(pcs: str, group_fqn: str, group_replica: int | None = None) -> Labels:
    own = {labels.SCALING_GROUP: group_fqn} | _index(labels.SCALING_GROUP_REPLICA_INDEX, group_replica)
    return component(pcs, labels.RESOURCE_CLAIM) | own


def clique_claim(pcs: str, clique_fqn: str, pod_index: int | None = None) -> Labels:
    own = {labels.POD_CLIQUE: clique_fqn} | _index(labels.POD_INDEX, pod_index)
    return component(pcs, labels.RESOURCE_CLAIM) | own


def compute_domain(pcs: str, replica: int, name: str, mnnvl_group: str) -> Labels:
    return replica_component(pcs, labels.COMPUTE_DOMAIN, name, replica) | {labels.MNNVL_GROUP: mnnvl_group}


def service_selector(pcs: str, replica: int) -> Labels:
    """The selector of a headless Service: all pods of one replica."""
    return managed(pcs) | {labels.REPLICA_INDEX: str(replica)}


def set_selector(pcs: str) -> str:
    """Everything that belongs to a set."""
    return _joined(managed(pcs))


def set_unit_selector(pcs: str, clique_name: str, *, in_group: bool) -> str:
    """`status.hpaPodSelector` of a set: of each replica the first pod of one clique.

    Of replica 0 of its group if it is in one. The HPA controller takes the number of pods it finds for the number of
    replicas, hence one pod of each.
    """
    first = {labels.SCALING_GROUP_REPLICA_INDEX: "0"} if in_group else {}
    return _joined(managed(pcs) | _first_pod_of(clique_name) | first)


def clique_selector(pcs: str, clique_fqn: str) -> str:
    """`status.hpaPodSelector` of a standalone clique; a member is scaled through its group and has none."""
    return _joined(managed(pcs) | {labels.POD_CLIQUE: clique_fqn})


def group_selector(pcs: str, group_fqn: str) -> str:
    """All pods of a scaling group."""
    return _joined(managed(pcs) | {labels.SCALING_GROUP: group_fqn})


def group_unit_selector(pcs: str, group_fqn: str, clique_name: str) -> str:
    """`status.selector` of a scaling group: of each replica the first pod of one clique."""
    return _joined(managed(pcs) | {labels.SCALING_GROUP: group_fqn} | _first_pod_of(clique_name))


def clique_annotations(template: Mapping[str, str]) -> dict[str, str]:
    """The annotations of the clique template that its PodClique and pods get."""
    return {k: v for k, v in template.items() if k not in (labels.TOPOLOGY_NAME, labels.INCARNATION)}


def group_annotations(config: Mapping[str, str], set_annotations: Mapping[str, str]) -> dict[str, str]:
    """A scaling group has its own annotations, and the set's MNNVL group and draining time unless it has others."""
    inherited = {k: v for k, v in set_annotations.items() if k in (labels.MNNVL_GROUP, labels.DRAIN_SECONDS)}
    return inherited | dict(config)


def gang_annotations(
    existing: Mapping[str, str], set_annotations: Mapping[str, str], topology_name: str = ""
) -> dict[str, str]:
    """A set's foreign annotations are mirrored to its PodGangs; the topology is named if a constraint uses it."""
    mirrored = (labels.NETWORK_AFFINITY, labels.DISRUPTION)
    kept = {k: v for k, v in _grove_keys(existing).items() if k not in (labels.TOPOLOGY_NAME, *mirrored)}
    named = {labels.TOPOLOGY_NAME: topology_name} if topology_name else {}
    named |= {key: set_annotations[key] for key in mirrored if key in set_annotations}
    return kept | _foreign_keys(set_annotations) | named


_PLACES = frozenset({labels.SCALING_GROUP, labels.SCALING_GROUP_REPLICA_INDEX, labels.BASE_POD_GANG})
"""Labels that some cliques have and others have not. Where they are, a clique is taken for what they say."""


_OF_EVERY_CLIQUE = _PLACES | {
    labels.MANAGED_BY,
    labels.PART_OF,
    labels.NAME,
    labels.COMPONENT,
    labels.REPLICA_INDEX,
    labels.POD_GANG,
    labels.POD_TEMPLATE_HASH,
    labels.REVISION,
}


def template_keys(clique_labels: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a PodClique has from its template, in order."""
    return tuple(sorted(clique_labels.keys() - _OF_EVERY_CLIQUE))


def _users(template: Mapping[str, str]) -> Labels:
    """Labels of a clique template without those that only its place may give."""
    return {k: v for k, v in template.items() if k not in _PLACES}


def _index(label: str, index: int | None) -> Labels:
    return {} if index is None else {label: str(index)}


def _first_pod_of(clique_name: str) -> Labels:
    return {labels.CLIQUE_NAME: clique_name, labels.POD_INDEX: "0"}


def _joined(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted(wanted.items()))


def _grove_keys(mapping: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in mapping.items() if k.startswith(labels.GROVE_PREFIX)}


def _foreign_keys(mapping: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in mapping.items() if not k.startswith(labels.GROVE_PREFIX)}
