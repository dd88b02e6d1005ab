"""Objects as they would be read from a cluster, for tests of decisions: say what matters, the rest is filled in.

pod("demo-0-router", 1, ready=True, node="n1")
clique_of(pcs, "demo-0-router", replicas=3)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.hashes import set_generation_hash
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.operator.podclique.status import ObservedClique
from grove.operator.podcliqueset.status import ObservedSet
from grove.operator.scalinggroup.status import ObservedGroup
from grove.operator.shared.children import (
    template_hashes,
    wanted_cliques,
    wanted_groups,
    wanted_members,
)
from grove.operator.shared.layout import group_config_of, unit_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def set_of(manifest: Json, **status: Any) -> PodCliqueSet:
    """A PodCliqueSet from its manifest, with uid and generation."""
    meta = {"uid": f"uid-of-{manifest['metadata']['name']}", "generation": 1, **manifest["metadata"]}
    return msgspec.convert({**manifest, "metadata": meta, "status": status}, PodCliqueSet)


def _observed(child: Json, replicas: int | None, status: Json) -> Json:
    meta = {**child["metadata"], "uid": f"uid-of-{child['metadata']['name']}", "generation": 1}
    spec = child["spec"] if replicas is None else {**child["spec"], "replicas": replicas}
    return {**child, "metadata": meta, "spec": spec, "status": status}


def clique_of(pcs: PodCliqueSet, fqn: str, replicas: int | None = None, **status: Any) -> PodClique:
    """The PodClique of this name, standalone or member; `replicas` is what it was scaled to."""
    found = {child["metadata"]["name"]: child for child in all_cliques(pcs)}
    return msgspec.convert(_observed(found[fqn], replicas, status), PodClique)


def all_cliques(pcs: PodCliqueSet) -> list[Json]:
    members = [one for group in wanted_groups(pcs) for one in wanted_members(pcs, _group(group, None, {}))]
    return [*wanted_cliques(pcs), *members]


def group_of(pcs: PodCliqueSet, fqn: str, replicas: int | None = None, **status: Any) -> PodCliqueScalingGroup:
    found = {child["metadata"]["name"]: child for child in wanted_groups(pcs)}
    return _group(found[fqn], replicas, status)


def _group(child: Json, replicas: int | None, status: Json) -> PodCliqueScalingGroup:
    return msgspec.convert(_observed(child, replicas, status), PodCliqueScalingGroup)


def set_seen(
    pcs: PodCliqueSet,
    cliques: Sequence[PodClique] = (),
    groups: Sequence[PodCliqueScalingGroup] = (),
    gangs: Sequence[PodGang] = (),
    **more: Any,
) -> ObservedSet:
    """A set as the operator reads it."""
    hashes = {"generation_hash": set_generation_hash(pcs), "hashes": template_hashes(pcs)}
    return ObservedSet(pcs, cliques, groups, gangs, **{**hashes, **more})


def group_seen(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, members: Sequence[PodClique], *, recorded: bool = True
) -> ObservedGroup:
    """A group of replica 0 as the operator reads it."""
    config = group_config_of(pcs, group.metadata.name, 0)
    assert config is not None
    return ObservedGroup(group, pcs, config, 0, members, template_hashes(pcs), recorded)


def clique_seen(pcs: PodCliqueSet, clique: PodClique, pods: Sequence[Pod] = (), **more: Any) -> ObservedClique:
    """A clique as the operator reads it."""
    unit = unit_of(pcs, clique)
    assert unit is not None
    known = {"backend": None, "template_hash": template_hashes(pcs)[unit.template.name]}
    return ObservedClique(clique, pcs, unit, pods, **{**known, **more})


def pod(
    clique: str,
    index: int = 0,
    *,
    name: str = "",
    uid: str = "",
    phase: str = "",
    ready: bool = False,
    scheduled: bool | None = None,
    node: str = "",
    gated: bool = False,
    gang: str = "",
    template_hash: str = "",
    age_s: float = 3600,
    deleting: bool = False,
    hostname: str | None = None,
    containers: list[Json] | None = None,
    restart_policy: str = "",
) -> Pod:
    """A pod of a clique. Ready means running on a node, a node means scheduled; otherwise it is pending."""
    node = node or ("some-node" if ready else "")
    scheduled = bool(node) if scheduled is None else scheduled
    conditions: list[Json] = []
    if scheduled:
        conditions.append({"type": "PodScheduled", "status": "True"})
    elif gated:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"})
    if ready:
        conditions.append({"type": "Ready", "status": "True"})
    labels = {key.POD_CLIQUE: clique, key.POD_INDEX: str(index), key.POD_GANG: gang}
    if template_hash:
        labels[key.POD_TEMPLATE_HASH] = template_hash
    metadata: Json = {
        "name": name or f"{clique}-{index}-abcde",
        "uid": uid or f"uid-{name or f'{clique}-{index}'}",
        "namespace": "default",
        "labels": labels,
        "creationTimestamp": (NOW - timedelta(seconds=age_s)).isoformat(),
    }
    if deleting:
        metadata["deletionTimestamp"] = NOW.isoformat()
    spec: Json = {"hostname": f"{clique}-{index}" if hostname is None else hostname, "nodeName": node}
    spec["restartPolicy"] = restart_policy
    if gated:
        spec["schedulingGates"] = [{"name": key.POD_GANG_GATE}]
    status: Json = {
        "phase": phase or ("Running" if ready else "Pending"),
        "conditions": conditions,
        "containerStatuses": containers or [],
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def binding(name: str = "topo", *levels: tuple[str, str], **spec: Any) -> ClusterTopologyBinding:
    """A ClusterTopologyBinding; without levels it has block, rack and host."""
    pairs = levels or (("block", "example.com/block"), ("rack", "example.com/rack"), ("host", "kubernetes.io/hostname"))
    body = {
        "metadata": {"name": name, "generation": 1},
        "spec": {"levels": [{"domain": domain, "key": label} for domain, label in pairs], **spec},
    }
    return msgspec.convert(body, ClusterTopologyBinding)


def held_to(pod: Pod, key: str) -> list[str] | None:
    """The values of a node label that a pod's own node affinity leaves it; None without one."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    (term,) = affinity.node_affinity.required.node_selector_terms
    return [value for one in term.match_expressions if one.key == key for value in one.values]
