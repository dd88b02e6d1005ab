"""Devices that pods share: the ResourceClaims a set and its parts want, and what of them a pod uses.

A claim is named after its owner and template, so a pod finds it without looking. Claims of replicas that are gone are
simply no longer wanted; `plan_children` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from grove.api import labelsets, names
from grove.api.core import ResourceClaim
from grove.api.labels import MNNVL_CLAIM, MNNVL_GROUP, MNNVL_NONE
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import (
    ALL_REPLICAS,
    PER_REPLICA,
    CliqueTemplate,
    PodCliqueSet,
    ResourceSharing,
    ScalingGroupConfig,
)
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.diff import child_metadata
from grove.operator.shared.layout import Unit, group_indexes, kept_replicas

_CONTAINERS = ("containers", "initContainers")

FindTemplate = Callable[[str, str], Json | None]
"""The inner spec (`spec.spec`) of a ResourceClaimTemplate by namespace and name; None if there is none."""


@dataclass(frozen=True, slots=True)
class WantedClaims:
    """Claims to have, and the templates without which some of them cannot be made (`namespace/name`)."""

    objects: list[Json] = field(default_factory=list)
    missing_templates: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OwnedClaims:
    """The claims of one owner: a set, a group or a clique.

    `labels` gives those of a claim that all replicas share (None) or of one replica's.
    """

    pcs: PodCliqueSet
    owner: Object
    sharing: Sequence[ResourceSharing]
    indexes: Collection[int]
    labels: Callable[[int | None], dict[str, str]]

    def wanted(self, find_template: FindTemplate) -> WantedClaims:
        wanted, fqn, namespace = WantedClaims(), self.owner.metadata.name, self.pcs.metadata.namespace
        for resource_sharing in self.sharing:
            spec = _template_spec(self.pcs, resource_sharing, find_template)
            if spec is None:
                wanted.missing_templates.append(f"{resource_sharing.namespace or namespace}/{resource_sharing.name}")
                continue
            places: list[tuple[str, int | None]] = (
                [(names.shared_claim(fqn, resource_sharing.name), None)]
                if resource_sharing.scope == ALL_REPLICAS
                else [(names.replica_claim(fqn, index, resource_sharing.name), index) for index in sorted(self.indexes)]
            )
            for name, index in places:
                metadata = child_metadata(self.owner, name, self.labels(index))
                wanted.objects.append(ResourceClaim.RESOURCE.manifest(metadata, spec=spec))
        return wanted


def set_claims(pcs: PodCliqueSet) -> OwnedClaims:
    labels = partial(labelsets.set_claim, pcs.metadata.name)
    return OwnedClaims(pcs, pcs, pcs.spec.template.resource_sharing, kept_replicas(pcs), labels)


def group_claims(pcs: PodCliqueSet, group: PodCliqueScalingGroup, config: ScalingGroupConfig) -> OwnedClaims:
    labels = partial(labelsets.group_claim, pcs.metadata.name, group.metadata.name)
    return OwnedClaims(pcs, group, config.resource_sharing, group_indexes(group), labels)


def clique_claims(pcs: PodCliqueSet, clique: PodClique, unit: Unit, pod_indexes: Collection[int]) -> OwnedClaims:
    """`pod_indexes` are those of the pods that stay and of those about to be made.

    Not 0 to replicas-1: scale-in takes the least useful pods, so the survivors may have any indexes.
    """
    labels = partial(labelsets.clique_claim, pcs.metadata.name, clique.metadata.name)
    return OwnedClaims(pcs, clique, unit.template.resource_sharing, pod_indexes, labels)


def all_sharing(pcs: PodCliqueSet) -> list[ResourceSharing]:
    """Everything a set shares, at any level."""
    template = pcs.spec.template
    of_groups = (sharing for group in template.pod_clique_scaling_groups for sharing in group.resource_sharing)
    of_cliques = (resource_sharing for clique in template.cliques for resource_sharing in clique.resource_sharing)
    return [*template.resource_sharing, *of_groups, *of_cliques]


def claims_of_pod(pcs: PodCliqueSet, unit: Unit, pod_index: int) -> tuple[str, ...]:
    """Names of the claims a pod uses: the set's, the group's, the clique's; within each the common ones first."""
    template = pcs.spec.template
    group = unit.group
    of_set = [
        sharing
        for sharing in template.resource_sharing
        if sharing.filter is None
        or unit.template.name in sharing.filter.child_clique_names
        or (group is not None and group.config.name in sharing.filter.child_scaling_group_names)
    ]
    claims = [*_named(of_set, pcs.metadata.name, unit.replica)]
    if group is not None:
        of_group = [
            sharing
            for sharing in group.config.resource_sharing
            if sharing.filter is None or unit.template.name in sharing.filter.child_clique_names
        ]
        claims += _named(of_group, group.fqn, group.replica)
    return (*claims, *_named(unit.template.resource_sharing, unit.fqn, pod_index))


def with_claims(pod_spec: Json, claims: Sequence[str]) -> Json:
    """A copy of a pod spec whose containers and init containers all use these claims."""
    if not claims:
        return pod_spec
    return _with_claims(
        pod_spec, [{"name": name, "resourceClaimName": name} for name in claims], lambda container: True
    )


def _with_claims(pod_spec: Json, claims: Sequence[Json], uses_them: Callable[[Json], bool]) -> Json:
    used = [{"name": claim["name"]} for claim in claims]

    def using(container: Json) -> Json:
        if not uses_them(container):
            return container
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "claims": [*(resources.get("claims") or ()), *used]}}

    return {
        **pod_spec,
        "resourceClaims": [*(pod_spec.get("resourceClaims") or ()), *claims],
        **{part: [using(container) for container in pod_spec[part]] for part in _CONTAINERS if pod_spec.get(part)},
    }


def _named(sharing: Sequence[ResourceSharing], owner: str, index: int) -> Iterator[str]:
    yield from (
        names.shared_claim(owner, resource_sharing.name)
        for resource_sharing in sharing
        if resource_sharing.scope == ALL_REPLICAS
    )
    yield from (
        names.replica_claim(owner, index, resource_sharing.name)
        for resource_sharing in sharing
        if resource_sharing.scope == PER_REPLICA
    )


def _template_spec(pcs: PodCliqueSet, sharing: ResourceSharing, find_template: FindTemplate) -> Json | None:
    if not sharing.namespace:
        for internal in pcs.spec.template.resource_claim_templates:
            if internal.name == sharing.name:
                spec: Json = internal.template_spec.get("spec") or {}
                return spec
    return find_template(sharing.namespace or pcs.metadata.namespace, sharing.name)


# MNNVL: cliques whose GPUs share one NVLink domain across nodes, declared to the NVIDIA driver as ComputeDomains. A
# clique joins a group by annotation, its own or inherited; `none` opts out. Cliques without GPUs take no part.

GPU = "nvidia.com/gpu"


def find_mnnvl_group(pcs: PodCliqueSet, template: CliqueTemplate) -> str | None:
    """The group a clique is in: the first annotation of clique, scaling group, set; None if it is in none."""
    group = pcs.spec.template.find_group_of(template.name)
    for level in (template.annotations, group.annotations if group else {}, pcs.metadata.annotations):
        if named := level.get(MNNVL_GROUP):
            return None if named == MNNVL_NONE else named
    return None


def with_mnnvl_claim(pod_spec: Json, pcs_name: str, replica: int, group: str | None) -> Json:
    """A copy of a pod spec whose GPU containers join the group's domain; unchanged if there is nothing to join."""
    claims = pod_spec.get("resourceClaims") or ()
    if group is None or not has_gpus(pod_spec) or any(claim.get("name") == MNNVL_CLAIM for claim in claims):
        return pod_spec
    domain = names.compute_domain(pcs_name, replica, group)
    return _with_claims(pod_spec, [{"name": MNNVL_CLAIM, "resourceClaimTemplateName": domain}], _asks_gpus)


def has_gpus(pod_spec: Json) -> bool:
    return any(_asks_gpus(container) for part in _CONTAINERS for container in pod_spec.get(part) or ())


def _asks_gpus(container: Json) -> bool:
    resources = container.get("resources") or {}
    amounts = [(resources.get(part) or {}).get(GPU) for part in ("limits", "requests")]
    return any(amount is not None and str(amount).strip() not in ("", "0") for amount in amounts)
