"""A PodGang in the words of the Workload API: groups, templates, and the objects of each version.

Flat groups cannot express "each clique has its minimum and all cliques start together". So there are three mappings:

- `Merged`: one group of exactly the pods of all minima. It keeps both promises, but has no numbers of single cliques.
- `PerClique`: one group for each clique, with its own minimum and topology. The groups are independent.
- `Tree` (1.37): a group of groups, which expresses everything.

All three have one invariant: a pod's reference depends only on its gang's name, its clique and its index. So the
operator can create a pod before these objects exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from grove.api import labels, names
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import GangTopologyConstraint, PodGang
from grove.api.podgang import PodGroup as GangGroup
from grove.backends import kube_api as api
from grove.backends.constraints import gang_constraints
from grove.backends.kube_api import Capability

MERGED, PER_CLIQUE, TREE = "Merged", "PerClique", "Tree"
CORE = "core"
"""Name of the one group of a merged gang."""
ROOT = "gang"
"""Name of the root template of a tree."""
MAX_TEMPLATES = 8
NAME_LENGTH, LABEL_LENGTH = 253, 63


class Group(NamedTuple):
    """One flat group of a gang: the object it is, the template it is from, how many pods, and the level they share."""

    name: str
    template: str
    min_count: int
    topology_key: str = ""
    parent: str = ""


def shortened(name: str, limit: int) -> str:
    """`name` if it fits, else its beginning and a hash of the whole: the same for everybody who asks."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"


def label_name(name: str) -> str:
    """A DNS label for a clique, whose own name may have dots in it."""
    if "." not in name:
        return shortened(name, LABEL_LENGTH)
    return f"{name.replace('.', '-')[: LABEL_LENGTH - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"


def group_name(gang: str, clique: str) -> str:
    return shortened(f"{gang}-{clique}", NAME_LENGTH)


def pod_reference(version: str, mapping: str, gang: str, clique: str) -> Json:
    """The value of the pod's field that makes it a member."""
    if version == api.V1ALPHA1:
        return {"name": gang, "podGroup": CORE if mapping == MERGED else label_name(clique)}
    return {"podGroupName": gang if mapping == MERGED else group_name(gang, clique)}


def groups_of(gang: PodGang, mapping: str) -> list[Group]:
    name = gang.metadata.name
    if mapping == MERGED:
        needed = sum(group.min_replicas for group in gang.spec.podgroups)
        return [Group(name, CORE, needed, _required(gang.spec.topology_constraint))]
    parents = _parents(gang) if mapping == TREE else {}
    return [
        Group(
            group_name(name, podgroup.name),
            label_name(podgroup.name),
            podgroup.min_replicas,
            _required(podgroup.topology_constraint) if mapping == TREE else _flat_key(gang, podgroup),
            parents.get(podgroup.name, name if mapping == TREE else ""),
        )
        for podgroup in gang.spec.podgroups
    ]


def gang_objects(gang: PodGang, pcs: PodCliqueSet, mapping: str, offered: Capability) -> list[Json]:
    """Everything to make for a gang, in the order in which it must be made."""
    groups = groups_of(gang, mapping)
    if offered.version == api.V1ALPHA1:
        pod_groups = [{"name": group.template, "policy": _policy(group.min_count)} for group in groups]
        return [_workload(gang, pcs, offered, {"podGroups": pod_groups})]
    if mapping == TREE:
        return list(_tree(gang, pcs, groups, offered))
    if len(groups) > MAX_TEMPLATES or (mapping == PER_CLIQUE and len(groups) < whole_size(pcs, gang)):
        # More than a Workload can hold, or cliques at zero whose templates could not be added when they come back. It
        # is only a description; the scheduler reads the groups alone.
        return [_pod_group(gang, group, offered, templated=False) for group in groups]
    templates = [{"name": group.template, **_group_spec(gang, group, offered)} for group in groups]
    return [
        _workload(gang, pcs, offered, {"podGroupTemplates": templates}),
        *(_pod_group(gang, group, offered) for group in groups),
    ]


def min_count(obj: Json) -> int:
    """How many pods the one group of a merged gang asks for: a PodGroup, or the Workload that has it inside."""
    spec = obj.get("spec") or {}
    policies = [spec.get("schedulingPolicy"), *(group.get("policy") for group in spec.get("podGroups") or ())]
    return sum(int(((policy or {}).get("gang") or {}).get("minCount") or 0) for policy in policies)


def unsupported_constraints(gang: PodGang, mapping: str, offered: Capability) -> tuple[list[str], list[str]]:
    """The constraints of a gang that its objects cannot express: required ones, then preferred ones."""
    keys = {group.topology_key for group in groups_of(gang, mapping)} if offered.topology else set()
    lost: list[str] = []
    dropped: list[str] = []
    for constraint in gang_constraints(gang):
        if constraint.preferred:
            dropped.append(f"preferred {constraint.preferred} of {constraint.name}")
        if not constraint.required or (mapping == TREE and offered.topology):
            continue
        fits = constraint.owner == "gang" if mapping == MERGED else len(constraint.members) == 1
        if not fits or constraint.required not in keys:
            lost.append(f"required {constraint.required} of {constraint.name}")
    return lost, dropped


def largest_gang(pcs: PodCliqueSet) -> int:
    """Pod groups in the largest gang a set can have."""
    template = pcs.spec.template
    members = sum(len(group.clique_names) * group.min_available for group in template.pod_clique_scaling_groups)
    scaled = (len(group.clique_names) for group in template.pod_clique_scaling_groups)
    return max(len(template.standalone_cliques) + members, *scaled, 0)


def whole_size(pcs: PodCliqueSet, gang: PodGang) -> int:
    """Pod groups a gang has when none of its cliques is scaled to zero."""
    template = pcs.spec.template
    replica, _, rest = gang.metadata.name.removeprefix(f"{pcs.metadata.name}-").partition("-")
    for group in template.pod_clique_scaling_groups:
        if rest and replica.isdigit():
            fqn = names.scaling_group(pcs.metadata.name, int(replica), group.name)
            if gang.metadata.name.rpartition("-")[0] == fqn:
                return len(group.clique_names)
    members = sum(len(group.clique_names) * group.min_available for group in template.pod_clique_scaling_groups)
    return len(template.standalone_cliques) + members


# One object each


def _tree(gang: PodGang, pcs: PodCliqueSet, groups: list[Group], offered: Capability) -> Iterator[Json]:
    name, key_ = gang.metadata.name, _required(gang.spec.topology_constraint)
    inner: dict[str, tuple[str, Json]] = {}
    for config in gang.spec.topology_constraint_group_configs:
        if count := len(config.pod_group_names):
            spec = _composite_spec(gang, count, _required(config.topology_constraint), offered)
            inner[group_name(name, config.name)] = label_name(config.name), spec

    def templates(parent: str) -> list[Json]:
        return [
            {"name": group.template, **_group_spec(gang, group, offered)} for group in groups if group.parent == parent
        ]

    at_root = templates(name)
    whole = _composite_spec(gang, len(at_root) + len(inner), key_, offered)
    root: Json = {"name": ROOT, **whole}
    if at_root:
        root["podGroupTemplates"] = at_root
    if inner:
        root["compositePodGroupTemplates"] = [
            {"name": label, **spec, "podGroupTemplates": templates(parent)} for parent, (label, spec) in inner.items()
        ]
    yield _workload(gang, pcs, offered, {"compositePodGroupTemplates": [root]})
    yield _composite(gang, name, ROOT, "", whole)
    yield from (_composite(gang, parent, label, name, spec) for parent, (label, spec) in inner.items())
    yield from (_pod_group(gang, group, offered) for group in groups)


def _workload(gang: PodGang, pcs: PodCliqueSet, offered: Capability, body: Json) -> Json:
    controller = {"apiGroup": pcs.RESOURCE.group, "kind": pcs.RESOURCE.kind, "name": pcs.metadata.name}
    metadata = object_meta(gang, gang.metadata.name)
    return api.workload(offered.version).manifest(metadata, spec={"controllerRef": controller, **body})


def _pod_group(gang: PodGang, group: Group, offered: Capability, *, templated: bool = True) -> Json:
    meta = object_meta(gang, group.name)
    spec: Json = {}
    if templated:
        spec = _template_reference(gang.metadata.name, group.template, offered.version)
        workload = api.workload(offered.version)
        owner = {"apiVersion": workload.api_version, "kind": workload.kind, "name": gang.metadata.name}
        meta["ownerReferences"] = [owner]
    if group.parent:
        spec["parentCompositePodGroupName"] = group.parent
    return api.pod_group(offered.version).manifest(meta, spec={**spec, **_group_spec(gang, group, offered)})


def _composite(gang: PodGang, name: str, template: str, parent: str, body: Json) -> Json:
    spec: Json = {"workloadRef": {"workloadName": gang.metadata.name, "templateName": template}, **body}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return api.COMPOSITE.manifest(object_meta(gang, name), spec=spec)


def _template_reference(workload: str, template: str, version: str) -> Json:
    if version == api.V1ALPHA2:
        reference = {"workloadName": workload, "podGroupTemplateName": template}
        return {"podGroupTemplateRef": {"workload": reference}}
    return {"workloadRef": {"workloadName": workload, "templateName": template}}


def _group_spec(gang: PodGang, group: Group, offered: Capability) -> Json:
    """The fields that a PodGroup and its template have in common."""
    return {"schedulingPolicy": _policy(group.min_count), **_rest(gang, group.topology_key, offered)}


def _composite_spec(gang: PodGang, children: int, topology_key: str, offered: Capability) -> Json:
    return {"schedulingPolicy": {"gang": {"minGroupCount": children}}, **_rest(gang, topology_key, offered)}


def _rest(gang: PodGang, topology_key: str, offered: Capability) -> Json:
    spec: Json = {}
    if topology_key and offered.topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology_key}]}
    if offered.preemption:
        spec["disruptionMode"] = api.disruption_mode(offered.version)
        if gang.spec.priority_class_name:
            spec["priorityClassName"] = gang.spec.priority_class_name
    return spec


def _policy(min_count: int) -> Json:
    return {"gang": {"minCount": min_count}} if min_count > 0 else {"basic": {}}


def object_meta(gang: PodGang, name: str) -> Json:
    """Metadata of an object beside a gang, labelled so that its events find the gang."""
    gang_labels = gang.metadata.labels
    own = {labels.MANAGED_BY: labels.OPERATOR, labels.POD_GANG: gang.metadata.name}
    if labels.PART_OF in gang_labels:
        own[labels.PART_OF] = gang_labels[labels.PART_OF]
    return {"name": name, "namespace": gang.metadata.namespace, "labels": own}


# Levels


def _required(constraint: GangTopologyConstraint | None) -> str:
    return constraint.required if constraint is not None else ""


def _parents(gang: PodGang) -> dict[str, str]:
    """The composite a clique is in, for cliques with a level in common; the others are the gang's own children."""
    name = gang.metadata.name
    configs = gang.spec.topology_constraint_group_configs
    return {member: group_name(name, group.name) for group in configs for member in group.pod_group_names}


def _flat_key(gang: PodGang, group: GangGroup) -> str:
    """The narrowest level that a group standing for itself can be given.

    A level of several cliques together cannot be said of one of them: each could be whole in a domain of its own.
    """
    own = _required(group.topology_constraint)
    if own:
        return own
    for config in gang.spec.topology_constraint_group_configs:
        if tuple(config.pod_group_names) == (group.name,):
            return _required(config.topology_constraint)
    return _required(gang.spec.topology_constraint) if len(gang.spec.podgroups) == 1 else ""
