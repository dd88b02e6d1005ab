"""The selectors that scaling groups and sets publish for autoscalers: one pod for each unit.

The HPA controller takes the pods that a target's selector matches for its replicas. A copy of a group or a replica of a
set is several pods, so the selector matches the first pod of one clique of each: the metrics clique.

Pods made by an operator that did not know the label carry none, and running pods are not touched for it. As long as
such a pod would stand for its unit the selector stays what it was, all pods; the next rollout ends that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from grove.api import labels as key
from grove.api import labelsets, names
from grove.api.core import Pod
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.scalinggroup import PodCliqueScalingGroup

PodsOf = Callable[[str], Iterable[Pod]]
"""The pods of a PodClique, by its name."""


def no_pods(fqn: str) -> tuple[Pod, ...]:
    return ()


def group_scale_selector(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, config: ScalingGroupConfig, pods_of: PodsOf
) -> str:
    """`status.selector` of a scaling group."""
    clique, fqn = pcs.spec.template.metrics_clique_of(config), group.metadata.name
    wanted = labelsets.group_unit_selector(pcs.metadata.name, fqn, clique)
    firsts = (names.member_clique(fqn, index, clique) for index in range(group.spec.replicas))
    if wanted == group.status.selector or _all_labelled(firsts, pods_of):
        return wanted
    return labelsets.group_selector(pcs.metadata.name, fqn)


def set_scale_selector(pcs: PodCliqueSet, pods_of: PodsOf) -> str:
    """`status.hpaPodSelector` of a set."""
    template, pcs_name = pcs.spec.template, pcs.metadata.name
    clique = template.metrics_clique(pcs.metadata.annotations)
    group = template.find_group_of(clique)
    wanted = labelsets.set_unit_selector(pcs_name, clique, in_group=group is not None)

    def first(replica: int) -> str:
        if group is None:
            return names.clique(pcs_name, replica, clique)
        return names.member_clique(names.scaling_group(pcs_name, replica, group.name), 0, clique)

    if wanted == pcs.status.hpa_pod_selector or _all_labelled(map(first, range(pcs.spec.replicas)), pods_of):
        return wanted
    return labelsets.set_selector(pcs_name)


def _all_labelled(cliques: Iterable[str], pods_of: PodsOf) -> bool:
    """Whether no first pod of these PodCliques that stays lacks the label; one that does not exist yet will have it."""
    return all(
        key.CLIQUE_NAME in pod.metadata.labels
        for fqn in cliques
        for pod in pods_of(fqn)
        if pod.metadata.labels.get(key.POD_INDEX) == "0" and not pod.metadata.is_deleting
    )
