"""The scheduler's own members behind its seams: what a snapshot carries if nothing else is said.

Sources are not here: they follow the cluster, and the live scheduler adds them to its snapshot.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from grove.scheduler.filters.node_filters import Blocked, HostPorts, NodeSelectors, SoftTaints, Taints, Volumes
from grove.scheduler.filters.node_scores import (
    GpuCapability,
    NetworkAffinity,
    NetworkBandwidth,
    PreferredNodes,
    PreferredPods,
    Reserved,
)
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.seams import SCORES, Applicant, Policy, Seams

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.evict.running import Running


class ByPriority(Policy):
    """The higher priority goes first, and may put out the lower."""

    name = "priority"
    moves = False

    def looks_at(self, gang: Gang) -> Hashable:
        return gang.priority

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        return (-who.priority,)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        return victim.priority < gang.priority


STANDARD = Seams(
    filters=(Blocked(), NodeSelectors(), Taints(), Volumes(), HostPorts()),
    scores=(
        SoftTaints(),
        PreferredNodes(),
        PreferredPods(),
        NetworkAffinity(),
        NetworkBandwidth(),
        GpuCapability(),
        Reserved(),
    ),
    policies=(ByPriority(),),
    weights=SCORES,
)
