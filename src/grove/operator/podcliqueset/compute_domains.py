"""The ComputeDomains that a set needs, and those it no longer needs.

An MNNVL group is a set of cliques whose GPUs share one NVLink domain across nodes. The NVIDIA driver reads the group
from a ComputeDomain. A set has one for each replica and group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from grove.api import labelsets, names
from grove.api.core import COMPUTE_DOMAIN
from grove.api.labels import COMPUTE_DOMAIN_FINALIZER, REPLICA_INDEX
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.shared.claims import find_mnnvl_group, has_gpus
from grove.operator.shared.diff import child_metadata, refers_to
from grove.operator.shared.layout import kept_replicas


def wanted_compute_domains(pcs: PodCliqueSet) -> list[Json]:
    """One ComputeDomain a replica and group that some clique with GPUs is in."""
    groups = dict.fromkeys(
        group
        for template in pcs.spec.template.cliques
        if has_gpus(template.spec.pod_spec) and (group := find_mnnvl_group(pcs, template))
    )
    return [_compute_domain(pcs, replica, group) for replica in kept_replicas(pcs) for group in groups]


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
        and domain["metadata"].get("labels", {}).get(REPLICA_INDEX) not in in_use
        and refers_to(domain, pcs)
    ]


def _compute_domain(pcs: PodCliqueSet, replica: int, group: str) -> Json:
    name = names.compute_domain(pcs.metadata.name, replica, group)
    own_labels = labelsets.compute_domain(pcs.metadata.name, replica, name, group)
    metadata = child_metadata(pcs, name, own_labels, finalizer=COMPUTE_DOMAIN_FINALIZER)
    return COMPUTE_DOMAIN.manifest(metadata, spec={"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}})
