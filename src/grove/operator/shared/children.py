"""The children of a set and of a scaling group, as the plain JSON we would create.

Names, labels and owners are the wire contract. `spec.replicas` is the template's: it counts only when the object is
created, and `grove.operator.shared.diff` leaves the live value alone afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import structs

from grove.api import env, labels, labelsets, names
from grove.api.core import HorizontalPodAutoscaler, Pod, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.hashes import (
    Reading,
    find_earlier_reading,
    generation_hash,
    hash_in_use,
    is_own,
    pod_template_hash,
    wanted_revision,
)
from grove.api.meta import Json, Object
from grove.api.patch import to_json
from grove.api.podclique import AutoScalingConfig, PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.startorder import READY
from grove.operator.shared.claims import find_mnnvl_group, with_mnnvl_claim
from grove.operator.shared.diff import child_metadata
from grove.operator.shared.layout import (
    Unit,
    group_config_of,
    group_indexes,
    group_names,
    kept_replicas,
    member_units,
    replica_of,
    standalone_units,
)
from grove.operator.shared.startup import has_start_order, parents


def wanted_cliques(pcs: PodCliqueSet) -> list[Json]:
    """The standalone PodCliques of all replicas."""
    hashes = template_hashes(pcs)
    units = (unit for replica in kept_replicas(pcs) for unit in standalone_units(pcs, replica))
    return [_clique(pcs, unit, pcs, hashes) for unit in units]


def wanted_members(pcs: PodCliqueSet, group: PodCliqueScalingGroup) -> list[Json]:
    """The member PodCliques of one scaling group; none if the set does not have the group any more."""
    replica = replica_of(group.metadata)
    config = group_config_of(pcs, group.metadata.name, replica) if replica is not None else None
    if replica is None or config is None:
        return []
    hashes = template_hashes(pcs)
    units = (unit for index in group_indexes(group) for unit in member_units(pcs, replica, config, index))
    return [_clique(pcs, unit, group, hashes) for unit in units]


def template_hashes(pcs: PodCliqueSet) -> dict[str, str]:
    """The pod template hash of each clique, by its template name; under its adopted name where it has one."""
    priority, adopted = pcs.spec.template.priority_class_name, pcs.status.adopted_hashes
    own = {clique.name: pod_template_hash(clique, priority) for clique in pcs.spec.template.cliques}
    return {name: hash_in_use(adopted, name, hash_) for name, hash_ in own.items()} if adopted else own


def awaits_takeover(pcs: PodCliqueSet) -> bool:
    """True if another operator wrote a set's status last. Nothing of the set may change before `takeover`."""
    recorded = pcs.status.current_generation_hash
    if not recorded or is_own(recorded):
        return False
    return all(adopted_hash.used_hash != recorded for adopted_hash in pcs.status.adopted_hashes)


def earlier_reading(pcs: PodCliqueSet) -> Reading | None:
    """How an earlier version of this operator read the templates as they are, if that is what the status records."""
    recorded = pcs.status.current_generation_hash
    if any(adopted_hash.used_hash == recorded for adopted_hash in pcs.status.adopted_hashes):
        return None
    return find_earlier_reading(pcs.spec.template, recorded)


def earlier_priority(pcs: PodCliqueSet, gangs: Iterable[PodGang]) -> str | None:
    """The priority class of the recorded templates, if it is their only difference from the current ones; else None.

    The set's status records those templates.
    """
    template, status = pcs.spec.template, pcs.status
    for priority in sorted({gang.spec.priority_class_name for gang in gangs} - {template.priority_class_name}):
        before = generation_hash(structs.replace(template, priority_class_name=priority))
        if hash_in_use(status.adopted_hashes, "", before) == status.current_generation_hash:
            return priority
    return None


Revisions = Mapping[int, frozenset[str]]
"""Revisions by replica of the set."""


def wanted_services(pcs: PodCliqueSet, revisions: Revisions = MappingProxyType({})) -> list[Json]:
    """One headless Service a replica, by which its pods find each other, and one for each of these revisions."""
    name, replicas = pcs.metadata.name, kept_replicas(pcs)
    plain = [_service(pcs, replica, names.headless_service(name, replica), {}) for replica in replicas]
    return plain + [
        _service(pcs, replica, names.revision_service(name, replica, revision), {labels.REVISION: revision})
        for replica in replicas
        for revision in sorted(revisions.get(replica, ()))
    ]


def _service(pcs: PodCliqueSet, replica: int, name: str, also: Mapping[str, str]) -> Json:
    config = pcs.spec.template.headless_service_config
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True if config is None else config.publish_not_ready_addresses,
        "selector": {**labelsets.service_selector(pcs.metadata.name, replica), **also},
    }
    return _child(Service, pcs, name, labels.HEADLESS_SERVICE, replica=replica, spec=spec)


def has_revision_services(pcs: PodCliqueSet) -> bool:
    config = pcs.spec.template.headless_service_config
    return config is not None and config.per_revision is True


def revisions_in_use(pcs: PodCliqueSet, cliques: Iterable[PodClique], pods: Iterable[Pod]) -> Revisions:
    """The revisions that a replica has PodCliques or pods of; before it has any, those of its parts."""
    revisions_of: dict[int, set[str]] = {}
    for child in (*cliques, *pods):
        if (replica := replica_of(child.metadata)) is not None and (own := child.metadata.labels.get(labels.REVISION)):
            revisions_of.setdefault(replica, set()).add(own)
    first = {wanted_revision(pcs, part) for part in pcs.spec.template.part_names}
    return {replica: frozenset(revisions_of.get(replica, first)) for replica in kept_replicas(pcs)}


def wanted_access(pcs: PodCliqueSet) -> list[Json]:
    """The objects that let the start-order container watch pods: account, role, binding and token Secret of the set.

    None for a set without a start order, which needs no long-lived token. Upstream makes them for every set. If a
    clique of the set runs under that account, it gets them too, because sets for the Go operator may rely on them.
    """
    pcs_name, role = pcs.metadata.name, names.role(pcs.metadata.name)
    account = names.service_account(pcs_name)
    runs_as = (clique.spec.pod_spec.get("serviceAccountName") for clique in pcs.spec.template.cliques)
    if not has_start_order(pcs) and account not in runs_as:
        return []
    subject = {"kind": "ServiceAccount", "name": account, "namespace": pcs.metadata.namespace}
    role_ref = {"apiGroup": Role.RESOURCE.group, "kind": Role.RESOURCE.kind, "name": role}
    watch_pods = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch"]}
    return [
        _child(ServiceAccount, pcs, account, labels.SERVICE_ACCOUNT, automountServiceAccountToken=True),
        _child(Role, pcs, role, labels.ROLE, rules=[watch_pods]),
        _child(RoleBinding, pcs, role, labels.ROLE_BINDING, roleRef=role_ref, subjects=[subject]),
        _child(
            Secret,
            pcs,
            names.token_secret(pcs_name),
            labels.TOKEN_SECRET,
            annotations={labels.SERVICE_ACCOUNT_NAME: account},
            type="kubernetes.io/service-account-token",
        ),
    ]


def wanted_autoscalers(pcs: PodCliqueSet) -> list[Json]:
    """One HorizontalPodAutoscaler a replica for each standalone clique and each group with a scale config."""
    return [autoscaler for replica in pcs.indexes for autoscaler in _autoscalers(pcs, replica)]


def _autoscalers(pcs: PodCliqueSet, replica: int) -> Iterator[Json]:
    for unit in standalone_units(pcs, replica):
        if (scaling := unit.template.spec.auto_scaling_config) is not None:
            yield _autoscaler(pcs, PodClique, unit.fqn, scaling, unit.template.spec.replicas)
    for fqn, config in group_names(pcs, replica):
        if config.scale_config is not None:
            yield _autoscaler(pcs, PodCliqueScalingGroup, fqn, config.scale_config, config.replicas)


def wanted_clique(pcs: PodCliqueSet, unit: Unit) -> Json:
    """The PodClique of a unit, with the template of now; not for one that is to be created."""
    return _clique(pcs, unit, pcs, template_hashes(pcs))


def with_template(clique: PodClique, wanted: Json) -> PodClique:
    """The clique as it is once it has the template of this manifest."""
    metadata = structs.replace(
        clique.metadata,
        labels=wanted["metadata"]["labels"],
        annotations=wanted["metadata"].get("annotations") or {},
    )
    return structs.replace(
        clique, metadata=metadata, spec=structs.replace(clique.spec, pod_spec=wanted["spec"]["podSpec"])
    )


def _clique(pcs: PodCliqueSet, unit: Unit, owner: Object, hashes: Mapping[str, str]) -> Json:
    template, pcs_name = unit.template, pcs.metadata.name
    template_hash = hashes[template.name]
    pod_spec = template.spec.pod_spec
    if unit.group is None:
        own = labelsets.standalone_clique(template.labels, pcs_name, unit.replica, unit.fqn, unit.gang, template_hash)
    else:
        own = labelsets.member_clique(
            template.labels,
            pcs_name,
            unit.replica,
            unit.group.fqn,
            unit.group.replica,
            unit.fqn,
            unit.gang,
            unit.base_gang,
            template_hash,
        )
        members = filter(None, map(pcs.spec.template.find_clique, unit.group.config.clique_names))
        pods = sum(member.spec.replicas for member in members)
        pod_spec = env.with_variables(pod_spec, env.group_variables(pods))
    own[labels.REVISION] = wanted_revision(pcs, unit.part)
    pod_spec = with_mnnvl_claim(pod_spec, pcs_name, unit.replica, find_mnnvl_group(pcs, template))
    spec: Json = {
        "roleName": template.spec.role_name,
        "podSpec": pod_spec,
        "replicas": template.spec.replicas,
    }
    if template.spec.min_available is not None:
        spec["minAvailable"] = template.spec.min_available
    if starts_after := parents(pcs, unit):
        spec["startsAfter"] = list(starts_after)
        if (condition := pcs.spec.template.start_condition_of(template)) != READY:
            spec["startsAfterCondition"] = condition
    if template.spec.auto_scaling_config is not None:
        spec["autoScalingConfig"] = to_json(template.spec.auto_scaling_config)
    annotations = labelsets.clique_annotations(template.annotations)
    metadata = child_metadata(owner, unit.fqn, own, annotations, labels.CLIQUE_FINALIZER)
    return PodClique.RESOURCE.manifest(metadata, spec=spec)


def wanted_groups(pcs: PodCliqueSet) -> list[Json]:
    """The scaling groups of all replicas."""
    pcs_name, groups = pcs.metadata.name, list[Json]()
    for replica in kept_replicas(pcs):
        for fqn, config in group_names(pcs, replica):
            own = labelsets.replica_component(pcs_name, labels.GROUP_COMPONENT, fqn, replica)
            annotations = labelsets.group_annotations(config.annotations, pcs.metadata.annotations)
            spec = {
                "replicas": config.replicas,
                "minAvailable": config.min_available,
                "cliqueNames": list(config.clique_names),
            }
            metadata = child_metadata(pcs, fqn, own, annotations, labels.GROUP_FINALIZER)
            groups.append(PodCliqueScalingGroup.RESOURCE.manifest(metadata, spec=spec))
    return groups


_CPU_80 = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}


def _autoscaler(pcs: PodCliqueSet, kind: type[Object], fqn: str, scaling: AutoScalingConfig, replicas: int) -> Json:
    target = {"apiVersion": kind.RESOURCE.api_version, "kind": kind.RESOURCE.kind, "name": fqn}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": scaling.min_replicas if scaling.min_replicas is not None else replicas,
        "maxReplicas": scaling.max_replicas,
        # Kubernetes' own default, said aloud: metrics taken away from a set must disappear from its autoscaler.
        "metrics": [described(metric, pcs, target) for metric in scaling.metrics]
        or [{"type": "Resource", "resource": _CPU_80}],
    }
    return _child(HorizontalPodAutoscaler, pcs, names.autoscaler(fqn), labels.AUTOSCALER, spec=spec)


def _child(
    kind: type[Object],
    pcs: PodCliqueSet,
    name: str,
    component: str,
    *,
    replica: int | None = None,
    annotations: Mapping[str, str] | None = None,
    **content: Any,
) -> Json:
    pcs_name = pcs.metadata.name
    own = (
        labelsets.component(pcs_name, component, name)
        if replica is None
        else labelsets.replica_component(pcs_name, component, name, replica)
    )
    return kind.RESOURCE.manifest(child_metadata(pcs, name, own, annotations), **content)


SELF = "self"
"""What an Object metric of a template is about: the object that is scaled, or with `kind: PodCliqueSet` the set that it
is part of. A template is unfolded into replicas and cannot name them."""


def described(metric: Json, pcs: PodCliqueSet, target: Json) -> Json:
    """The metric with `self` replaced; `target` is the scaleTargetRef of the autoscaler it stands in."""
    source = metric.get("object")
    about: Any = source.get("describedObject") if isinstance(source, dict) else None
    if source is None or not isinstance(about, dict) or about.get("name") != SELF:
        return metric
    resource, named = PodCliqueSet.RESOURCE, dict(target)
    if about.get("kind") == resource.kind:
        named = {"apiVersion": resource.api_version, "kind": resource.kind, "name": pcs.metadata.name}
    return {**metric, "object": {**source, "describedObject": named}}
