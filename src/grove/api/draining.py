"""Draining: a unit that is to go serves its last requests for a stated time, and gets no new ones.

`grove.io/drain-seconds` says how long, `grove.io/draining` on a pod says until when.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from grove.api.conditions import IN_PLACE
from grove.api.fields import natural
from grove.api.labels import DRAIN_SECONDS, DRAINING
from grove.api.pod import Pod, PodHealth, pod_health
from grove.api.podcliqueset import CliqueTemplate, PodCliqueSet, ScalingGroupConfig

LONGEST_DRAIN_S = 3600


def drain_s(*annotations: Mapping[str, str]) -> int:
    """Seconds by the first of these annotations that say it; 0 if none does. At most an hour, whatever they say."""
    for annotation in annotations:
        if DRAIN_SECONDS in annotation:
            return min(natural(annotation[DRAIN_SECONDS].strip()) or 0, LONGEST_DRAIN_S)
    return 0


def part_drain_s(pcs: PodCliqueSet, part: CliqueTemplate | ScalingGroupConfig) -> int:
    """Seconds that one unit drains: a pod of a standalone clique, or a replica of a scaling group."""
    return drain_s(part.annotations, pcs.metadata.annotations)


def replica_drain_s(pcs: PodCliqueSet) -> int:
    """Seconds that a replica of the set drains: as long as the part of it that needs the most."""
    template = pcs.spec.template
    parts: tuple[CliqueTemplate | ScalingGroupConfig, ...] = (
        *template.standalone_cliques,
        *template.pod_clique_scaling_groups,
    )
    return max([part_drain_s(pcs, part) for part in parts], default=0)


def draining_until(pod: Pod) -> datetime | None:
    """When the draining of a pod ends; None if it does not drain, or its mark is not a time."""
    try:
        moment = datetime.fromisoformat(pod.metadata.annotations[DRAINING])
    except (KeyError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def has_readiness_gate(pod: Pod) -> bool:
    """True if the pod has Grove's readiness gate. The operator can then remove a running pod from Services."""
    return any(gate.get("conditionType") == IN_PLACE for gate in pod.spec.readiness_gates)


def is_draining(pod: Pod) -> bool:
    return DRAINING in pod.metadata.annotations


def counts_as_ready(pod: Pod) -> bool:
    """True if a pod counts as ready wherever Grove counts: it is whole, and does not drain."""
    return pod_health(pod) is PodHealth.READY and not is_draining(pod)


def is_serving(pod: Pod) -> bool:
    """True if a pod may have requests to finish: it is ready, or only draining makes it unready."""
    if pod.is_finished or pod.metadata.is_deleting:
        return False
    containers = pod.status.container_statuses
    return pod.is_ready or (is_draining(pod) and bool(containers) and all(container.ready for container in containers))
