"""The scheduler's own members behind its seams: what a snapshot carries if nothing else is said.

Sources are not here: they follow the cluster, and the live scheduler adds them to its snapshot.
"""

from __future__ import annotations

from grove.scheduler.filters.nodes import Blocked, HostPorts, NodeSelectors, SoftTaints, Taints, Volumes
from grove.scheduler.filters.scores import (
    GpuCapability,
    NetworkAffinity,
    NetworkBandwidth,
    PreferredNodes,
    PreferredPods,
    Reserved,
)
from grove.scheduler.model.seams import SCORES, Seams
from grove.scheduler.policy.queue import ByPriority

STANDARD = Seams(
    filters=(Blocked(), NodeSelectors(), Taints(), Volumes(), HostPorts()),
    scores=(
        SoftTaints(), PreferredNodes(), PreferredPods(), NetworkAffinity(), NetworkBandwidth(), GpuCapability(),
        Reserved(),
    ),
    policies=(ByPriority(),),
    weights=SCORES,
)  # fmt: skip
