"""MNNVL: cliques whose GPUs share one NVLink domain across nodes, told to the NVIDIA driver as ComputeDomains.

A clique joins a group by annotation, its own or inherited; `none` opts out. Cliques without GPUs take no part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from grove.api import labels as key
from grove.api import labelsets, names
from grove.api.core import COMPUTE_DOMAIN
from grove.api.meta import Json
from grove.api.podcliqueset import CliqueTemplate, PodCliqueSet
from grove.operator.shared.claims import with_container_claims
from grove.operator.shared.diff import owned_by

GPU = "nvidia.com/gpu"


def find_mnnvl_group(pcs: PodCliqueSet, template: CliqueTemplate) -> str | None:
    """The group a clique is in: the first annotation of clique, scaling group, set; None if it is in none."""
    group = pcs.spec.template.find_group_of(template.name)
    for level in (template.annotations, group.annotations if group else {}, pcs.metadata.annotations):
        if named := level.get(key.MNNVL_GROUP):
            return None if named == key.MNNVL_NONE else named
    return None


def wanted_compute_domains(pcs: PodCliqueSet) -> list[Json]:
    """One ComputeDomain a replica and group that some clique with GPUs is in."""
    groups = dict.fromkeys(
        group
        for template in pcs.spec.template.cliques
        if _has_gpus(template.spec.pod_spec) and (group := find_mnnvl_group(pcs, template))
    )
    return [_compute_domain(pcs, replica, group) for replica in range(pcs.spec.replicas) for group in groups]


def surplus_compute_domains(
    pcs: PodCliqueSet, observed: Iterable[Json], replicas_with_pods: Collection[int]
) -> list[Json]:
    """Domains of ours to remove now: not wanted, and no pod of their replica is left that could use them."""
    wanted = {domain["metadata"]["name"] for domain in wanted_compute_domains(pcs)}
    in_use = {str(replica) for replica in replicas_with_pods}
    return [
        domain
        for domain in observed
        if domain["metadata"]["name"] not in wanted
        and domain["metadata"].get("labels", {}).get(key.REPLICA_INDEX) not in in_use
        and any(ref.get("uid") == pcs.metadata.uid for ref in domain["metadata"].get("ownerReferences") or ())
    ]


def with_mnnvl_claim(pod_spec: Json, pcs_name: str, replica: int, group: str | None) -> Json:
    """A copy of a pod spec whose GPU containers join the group's domain; unchanged if there is nothing to join."""
    claims = pod_spec.get("resourceClaims") or ()
    if group is None or not _has_gpus(pod_spec) or any(claim.get("name") == key.MNNVL_CLAIM for claim in claims):
        return pod_spec
    claim = {
        "name": key.MNNVL_CLAIM,
        "resourceClaimTemplateName": names.compute_domain(pcs_name, replica, group),
    }
    joined = [{"name": key.MNNVL_CLAIM}]
    return {
        **pod_spec,
        "resourceClaims": [*claims, claim],
        **{
            part: [with_container_claims(one, joined) if _asks_gpus(one) else one for one in pod_spec[part]]
            for part in ("containers", "initContainers")
            if pod_spec.get(part)
        },
    }


def _compute_domain(pcs: PodCliqueSet, replica: int, group: str) -> Json:
    name = names.compute_domain(pcs.metadata.name, replica, group)
    return {
        "apiVersion": COMPUTE_DOMAIN.api_version,
        "kind": COMPUTE_DOMAIN.kind,
        "metadata": {
            "name": name,
            "namespace": pcs.metadata.namespace,
            "labels": labelsets.compute_domain(pcs.metadata.name, replica, name, group),
            "finalizers": [key.COMPUTE_DOMAIN_FINALIZER],
            "ownerReferences": owned_by(pcs),
        },
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
    }


def _has_gpus(pod_spec: Json) -> bool:
    return any(_asks_gpus(one) for part in ("containers", "initContainers") for one in pod_spec.get(part) or ())


def _asks_gpus(container: Json) -> bool:
    resources = container.get("resources") or {}
    amounts = [(resources.get(part) or {}).get(GPU) for part in ("limits", "requests")]
    return any(amount is not None and str(amount).strip() not in ("", "0") for amount in amounts)
