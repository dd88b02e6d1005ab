"""The question of a coherent update to the scheduler: would the new pods of a slice fit if the old ones were gone?

The operator asks only if the new pods request more than the pods that they replace. Otherwise they have a place,
because the nodes of a slice are held for its new pods. The question is on the base PodGang of the replica
(`spec.replacement`) and covers the whole slice, with the pods of scaled gangs. The answer is in the status of the same
PodGang, and has the id of its question. The reconcilers of the set and of the PodGang use the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from grove.api.core import Pod
from grove.api.draining import counts_as_ready
from grove.api.hashes import is_outdated, short_hash
from grove.api.meta import Json
from grove.api.patch import to_json
from grove.api.pod import PodSpec
from grove.api.podcliqueset import PodCliqueSet, UpdateSlice, partition_of
from grove.api.podgang import ReplacedGroup, Replacement
from grove.api.podrequest import pod_request
from grove.operator.shared.layout import (
    GroupReplicas,
    PodsOf,
    Unit,
    group_names,
    member_units,
    min_pods,
    pod_index,
    standalone_units,
)

ASKED_OF_NODES = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod that decide where it fits, beside the requests and host ports of its containers."""
OF_CONTAINERS = ("name", "ports", "resources", "restartPolicy")
DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""What the API server adds to every pod."""


def asked_replacement(
    pcs: PodCliqueSet, replica: int, slice_: UpdateSlice, hashes: Mapping[str, str], pods_of: PodsOf, of: GroupReplicas
) -> Replacement | None:
    """The question about a slice that has taken nothing yet; None if its new pods ask for no more than the old ones."""
    leaving = [
        (unit, sorted(pods, key=lambda pod: pod.metadata.name))
        for unit, pods in _leaving(pcs, replica, slice_, hashes, pods_of, of)
        if pods
    ]
    if not any(asks_more(unit.template.spec.pod_spec, pod) for unit, pods in leaving for pod in pods):
        return None
    groups = tuple(
        ReplacedGroup(
            name=unit.fqn,
            pod_names=tuple(pod.metadata.name for pod in pods),
            pod_spec=asked_of_nodes(unit.template.spec.pod_spec),
        )
        for unit, pods in leaving
    )
    return Replacement(id=short_hash([to_json(group) for group in groups]), pod_groups=groups)


def _leaving(
    pcs: PodCliqueSet, replica: int, slice_: UpdateSlice, hashes: Mapping[str, str], pods_of: PodsOf, of: GroupReplicas
) -> Iterator[tuple[Unit, list[Pod]]]:
    """The pods that the slice takes, in the order of `shared.stepper`. It takes broken units at once, unasked."""
    kept = {part.name: part.keep for part in slice_.parts}

    def is_old(unit: Unit, pod: Pod) -> bool:
        return is_outdated(pcs, pod.metadata.labels, hashes[unit.template.name], unit.part)

    for unit in standalone_units(pcs, replica):
        if unit.part in kept:
            ready = [pod for pod in _there(pods_of(unit.fqn)) if is_old(unit, pod) and counts_as_ready(pod)]
            ready.sort(key=lambda pod: (_created_s(pod), pod_index(pod) or 0, pod.metadata.name))
            yield unit, ready[: max(0, len(ready) - kept[unit.part])]
    for fqn, config in group_names(pcs, replica):
        if config.name not in kept:
            continue
        whole = []
        for index in sorted(of(fqn, config)):
            unit_pods = [(unit, _there(pods_of(unit.fqn))) for unit in member_units(pcs, replica, config, index)]
            is_up = all(sum(map(counts_as_ready, pods)) >= min_pods(unit.template) for unit, pods in unit_pods)
            has_old = any(is_old(unit, pod) for unit, pods in unit_pods for pod in pods)
            if index >= partition_of(config.rolling_update) and is_up and has_old:
                whole.append(unit_pods)
        for replica_pods in whole[: max(0, len(whole) - kept[config.name])]:
            yield from replica_pods


def _there(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if not pod.metadata.is_deleting]


def _created_s(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def asked_of_nodes(pod_spec: Json) -> Json:
    """The part of a pod's spec that decides where the pod fits."""
    asked: Json = {name: pod_spec[name] for name in ASKED_OF_NODES if pod_spec.get(name)}
    for name in ("containers", "initContainers"):
        if containers := pod_spec.get(name):
            asked[name] = [
                {key: container[key] for key in OF_CONTAINERS if container.get(key)} for container in containers
            ]
    return asked


def asks_more(new: Json, old: Pod) -> bool:
    """True if a pod of this spec may not fit on the node of `old`.

    A pod has more than its template says: defaults of the cluster count for both. So what only the old pod has is left
    out, but for tolerations.
    """
    before = pod_request(to_json(old.spec))
    if any(amount > before.get(name, 0) for name, amount in pod_request(new).items()):
        return True
    wanted = msgspec.convert(asked_of_nodes(new), PodSpec, strict=False)
    tolerated = [toleration for toleration in old.spec.tolerations if toleration.key not in DEFAULT_TOLERATIONS]
    return (
        not wanted.node_selector.items() <= old.spec.node_selector.items()
        or (wanted.affinity is not None and wanted.affinity != old.spec.affinity)
        or any(toleration not in wanted.tolerations for toleration in tolerated)
        or any(
            constraint not in old.spec.topology_spread_constraints for constraint in wanted.topology_spread_constraints
        )
    )
