"""Shared ResourceClaims: which ones a set, a scaling group and a clique want, and which of them a pod uses.

A claim is named after its owner and template, so a pod finds it without looking. Claims of replicas that are gone are
simply no longer wanted; `plan_children` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from grove.api import labelsets, names
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import ALL_REPLICAS, PER_REPLICA, PodCliqueSet, ResourceSharing, ScalingGroupConfig
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.diff import owned_by
from grove.operator.shared.layout import Unit

API_VERSION, KIND = "resource.k8s.io/v1", "ResourceClaim"

FindTemplate = Callable[[str, str], Json | None]
"""The inner spec (`spec.spec`) of a ResourceClaimTemplate by namespace and name; None if there is none."""


@dataclass(frozen=True, slots=True)
class WantedClaims:
    """Claims to have, and the templates without which some of them cannot be made (`namespace/name`)."""

    objects: list[Json] = field(default_factory=list)
    missing_templates: list[str] = field(default_factory=list)


def wanted_set_claims(pcs: PodCliqueSet, find_template: FindTemplate) -> WantedClaims:
    name = pcs.metadata.name
    return _wanted(
        pcs,
        pcs.spec.template.resource_sharing,
        range(pcs.spec.replicas),
        name,
        lambda index: labelsets.set_claim(name, index),
        owned_by(pcs),
        find_template,
    )


def wanted_group_claims(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, config: ScalingGroupConfig, find_template: FindTemplate
) -> WantedClaims:
    fqn = group.metadata.name
    return _wanted(
        pcs,
        config.resource_sharing,
        range(group.spec.replicas),
        fqn,
        lambda index: labelsets.group_claim(pcs.metadata.name, fqn, index),
        owned_by(group),
        find_template,
    )


def wanted_clique_claims(
    pcs: PodCliqueSet, clique: PodClique, unit: Unit, pod_indexes: Collection[int], find_template: FindTemplate
) -> WantedClaims:
    """`pod_indexes` are those of the pods that stay and of those about to be made.

    Not 0 to replicas-1: scale-in takes the least useful pods, so the survivors may have any indexes.
    """
    fqn = clique.metadata.name
    return _wanted(
        pcs,
        unit.template.resource_sharing,
        sorted(pod_indexes),
        fqn,
        lambda index: labelsets.clique_claim(pcs.metadata.name, fqn, index),
        owned_by(clique),
        find_template,
    )


def all_sharing(pcs: PodCliqueSet) -> list[ResourceSharing]:
    """Everything a set shares, at any level."""
    template = pcs.spec.template
    of_groups = (one for group in template.pod_clique_scaling_groups for one in group.resource_sharing)
    of_cliques = (one for clique in template.cliques for one in clique.resource_sharing)
    return [*template.resource_sharing, *of_groups, *of_cliques]


def claims_of_pod(pcs: PodCliqueSet, unit: Unit, pod_index: int) -> tuple[str, ...]:
    """Names of the claims a pod uses: the set's, the group's, the clique's; within each the common ones first."""
    template = pcs.spec.template
    group = unit.group
    of_set = [
        one
        for one in template.resource_sharing
        if one.filter is None
        or unit.template.name in one.filter.child_clique_names
        or (group is not None and group.config.name in one.filter.child_scaling_group_names)
    ]
    found = [*_named(of_set, pcs.metadata.name, unit.replica)]
    if group is not None:
        of_group = [
            one
            for one in group.config.resource_sharing
            if one.filter is None or unit.template.name in one.filter.child_clique_names
        ]
        found += _named(of_group, group.fqn, group.replica)
    return (*found, *_named(unit.template.resource_sharing, unit.fqn, pod_index))


def with_claims(pod_spec: Json, claims: Sequence[str]) -> Json:
    """A copy of a pod spec whose containers and init containers all use these claims."""
    if not claims:
        return pod_spec
    named = [{"name": name} for name in claims]
    return {
        **pod_spec,
        "resourceClaims": [
            *(pod_spec.get("resourceClaims") or ()),
            *({"name": name, "resourceClaimName": name} for name in claims),
        ],
        **{
            part: [with_container_claims(container, named) for container in pod_spec[part]]
            for part in ("containers", "initContainers")
            if pod_spec.get(part)
        },
    }


def with_container_claims(container: Json, claims: Iterable[Json]) -> Json:
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "claims": [*(resources.get("claims") or ()), *claims]}}


def _named(sharing: Sequence[ResourceSharing], owner: str, index: int) -> Iterator[str]:
    yield from (names.shared_claim(owner, one.name) for one in sharing if one.scope == ALL_REPLICAS)
    yield from (names.replica_claim(owner, index, one.name) for one in sharing if one.scope == PER_REPLICA)


def _wanted(
    pcs: PodCliqueSet,
    sharing: Sequence[ResourceSharing],
    indexes: Iterable[int],
    owner: str,
    labels: Callable[[int | None], dict[str, str]],
    owner_references: list[Json],
    find_template: FindTemplate,
) -> WantedClaims:
    wanted = WantedClaims()
    indexes = list(indexes)
    for one in sharing:
        spec = _template_spec(pcs, one, find_template)
        if spec is None:
            wanted.missing_templates.append(f"{one.namespace or pcs.metadata.namespace}/{one.name}")
            continue
        places: list[tuple[str, int | None]] = (
            [(names.shared_claim(owner, one.name), None)]
            if one.scope == ALL_REPLICAS
            else [(names.replica_claim(owner, index, one.name), index) for index in indexes]
        )
        for name, index in places:
            metadata = {
                "name": name,
                "namespace": pcs.metadata.namespace,
                "labels": labels(index),
                "ownerReferences": owner_references,
            }
            wanted.objects.append({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
    return wanted


def _template_spec(pcs: PodCliqueSet, sharing: ResourceSharing, find_template: FindTemplate) -> Json | None:
    if not sharing.namespace:
        for internal in pcs.spec.template.resource_claim_templates:
            if internal.name == sharing.name:
                spec: Json = internal.template_spec.get("spec") or {}
                return spec
    return find_template(sharing.namespace or pcs.metadata.namespace, sharing.name)
