"""Why pods of a clique are removed, and in which order a scale-in takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grove.api import labels
from grove.api.core import Pod
from grove.api.deletion_cost import find_cost
from grove.api.draining import is_draining
from grove.operator.shared.layout import pod_index

FAILED, NODE_GONE, DUPLICATE, OUTDATED, SURPLUS = "Failed", "NodeGone", "DuplicateIndex", "Outdated", "ScaleIn"

RESTARTED, PARENT_AT_ZERO, START_CONDITION_CHANGED = "GangRestart", "ParentAtZero", "StartConditionChanged"

SURGE_OVER, REQUESTED, QUEUE_CHANGED = "SurgeOver", "RestartRequested", "QueueChanged"


@dataclass(frozen=True, slots=True)
class Removal:
    """A pod to delete and why. `force` where no kubelet is left to confirm the deletion."""

    pod: Pod
    reason: str
    force: bool = False

    @property
    def is_alive(self) -> bool:
        """True if the pod may be running until it is deleted."""
        return self.reason != NODE_GONE and not self.pod.is_finished


_PHASE_RANK = {"Unknown": 1, "Running": 2}


def scale_in_order(
    pods: Iterable[Pod], up_to_date: str, loads: Mapping[str, float] | None = None, *, first_stays: bool = False
) -> list[Pod]:
    """Pods in the order in which scale-in takes them: the least useful first, the newest of equals.

    Without a node, then by phase, not ready, from an old template, lowest deletion cost, least load, youngest. Indexes
    play no part before the last tie, except that `first_stays` keeps index 0 among equal pods. A pod with unknown load
    may be busy, so it comes after those with known load.
    """
    known = loads or {}

    def usefulness(pod: Pod) -> tuple[bool, int, bool, bool, bool, int, float, float, int, str]:
        created, index = pod.metadata.creation_timestamp, pod_index(pod)
        return (
            pod.is_bound,
            _PHASE_RANK.get(pod.status.phase, 0),
            pod.is_ready and not is_draining(pod),
            pod.metadata.labels.get(labels.POD_TEMPLATE_HASH, "") == up_to_date,
            first_stays and index == 0,
            find_cost(pod) or 0,
            known.get(pod.metadata.name, math.inf),
            -created.timestamp() if created is not None else float("-inf"),
            -(index or 0),
            pod.metadata.name,
        )

    return sorted(pods, key=usefulness)
