"""KAI's Queue, as far as Grove reads it: who is guaranteed what, may have at most, and how leftovers are shared.

Amounts are plain numbers: GPUs whole or in fractions, CPU in thousandths of a core, memory in megabytes; -1 means
without limit.
"""

from __future__ import annotations

from typing import ClassVar

from grove.api.meta import Object, Resource, Struct

UNLIMITED = -1


class QueueResource(Struct):
    quota: float = 0
    limit: float = UNLIMITED
    over_quota_weight: float = 1


class QueueResources(Struct):
    gpu: QueueResource | None = None
    cpu: QueueResource | None = None
    memory: QueueResource | None = None


class QueueSpec(Struct):
    parent_queue: str = ""
    priority: int | None = None
    preempt_min_runtime: str = ""
    resources: QueueResources | None = None


class Queue(Object):
    RESOURCE: ClassVar[Resource] = Resource("scheduling.run.ai", "v2", "Queue", "queues", namespaced=False)

    spec: QueueSpec = QueueSpec()
