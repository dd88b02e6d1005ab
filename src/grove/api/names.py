"""Names of everything Grove makes. They are part of the wire contract: users' DNS names and dashboards depend on them.

Words: `pcs` is the name of a PodCliqueSet, `name` a user's name of a clique or group inside it, `*_fqn` are generated
object names. Indices are 0-based: `index` of a set's replica, `group_index` of a group's, `pod_index` in a clique.
"""

from __future__ import annotations

MAX_COMBINED_LENGTH = 45
"""Characters a set's, group's and clique's name may have together, so that pod names stay within 63."""


def replica(pcs: str, index: int) -> str:
    """A replica of a set. Its base PodGang, its headless Service and its pods' subdomain all have this name."""
    return f"{pcs}-{index}"


base_gang = headless_service = subdomain = replica


def clique(pcs: str, index: int, name: str) -> str:
    """The PodClique of a clique outside every scaling group."""
    return f"{pcs}-{index}-{name}"


def scaling_group(pcs: str, index: int, name: str) -> str:
    return f"{pcs}-{index}-{name}"


def group_replica(group_fqn: str, group_index: int) -> str:
    """One replica of a scaling group: the topology group of its cliques in the base PodGang."""
    return f"{group_fqn}-{group_index}"


def member_clique(group_fqn: str, group_index: int, name: str) -> str:
    return f"{group_fqn}-{group_index}-{name}"


def scaled_gang(group_fqn: str, group_index: int, min_available: int) -> str:
    """The PodGang of a group replica above the minimum; numbering starts at 0 again."""
    if group_index < min_available:
        raise ValueError(f"replica {group_index} of {group_fqn} is below minAvailable {min_available}: base gang")
    return f"{group_fqn}-{group_index - min_available}"


def gang_of_member(pcs: str, index: int, group_fqn: str, group_index: int, min_available: int) -> str:
    """The PodGang a group replica belongs to: the base one up to the minimum, then one each."""
    if group_index < min_available:
        return base_gang(pcs, index)
    return scaled_gang(group_fqn, group_index, min_available)


def pod_prefix(clique_fqn: str) -> str:
    """The first part of the names of a clique's pods. Five random characters follow."""
    return f"{clique_fqn}-"


def pod_hostname(clique_fqn: str, pod_index: int) -> str:
    return f"{clique_fqn}-{pod_index}"


def find_pod_index(hostname: str) -> int | None:
    """The index a hostname ends in; None if it does not end in one."""
    _, dash, number = hostname.rpartition("-")
    return int(number) if dash and number.isascii() and number.isdigit() else None


def revision_service(pcs: str, index: int, revision: str) -> str:
    """The Service of the pods of one revision in a replica."""
    return f"{headless_service(pcs, index)}-{revision}"


def service_dns(pcs: str, index: int, namespace: str) -> str:
    return f"{headless_service(pcs, index)}.{namespace}.svc.cluster.local"


def autoscaler(target_fqn: str) -> str:
    """The HorizontalPodAutoscaler of a PodClique or PodCliqueScalingGroup."""
    return target_fqn


def service_account(pcs: str) -> str:
    return pcs


def role(pcs: str) -> str:
    """The Role and the RoleBinding."""
    return f"grove.io:pcs:{pcs}"


def token_secret(pcs: str) -> str:
    return f"{pcs}-ic-sat"


def legacy_token_secret(pcs: str) -> str:
    """The former name of the token Secret. The operator deletes that Secret when no pod mounts it any more."""
    return f"{pcs}-initc-sa-token-secret"


def shared_claim(owner: str, template: str) -> str:
    """The ResourceClaim all replicas of an owner (set, group or clique, by object name) share."""
    return f"{owner}-all-{template}"


def replica_claim(owner: str, index: int, template: str) -> str:
    """The ResourceClaim of one replica of an owner."""
    return f"{owner}-{index}-{template}"


def compute_domain(pcs: str, index: int, mnnvl_group: str) -> str:
    """The ComputeDomain, and the ResourceClaimTemplate that the driver makes from it."""
    return f"{pcs}-{index}-{mnnvl_group}"
