"""Says aloud when another scheduler was not told of a gang, told in part, or did not do as it was told.

The gang's condition has the reason; here it becomes an Event on the set, whose owner can act on it, and a number for
dashboards. Once for each time that a gang gets into trouble.
"""

from __future__ import annotations

from prometheus_client import Counter

from grove.api.conditions import SCHEDULER_OBJECTS_READY
from grove.api.meta import find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends import Backed, Backend
from grove.kube.events import Recorder
from grove.operator.podgang.refusals import is_trouble

TROUBLES = Counter(
    "grove_gang_backend_troubles",
    "Times a gang was not told to its scheduler, or not placed as told, by scheduler and reason.",
    ["scheduler", "reason"],
)


def tell_trouble(events: Recorder, pcs: PodCliqueSet, gang: PodGang, backend: Backend, backed: Backed | None) -> None:
    """`gang` as it was before `backed` was written on it."""
    if backed is None or not is_trouble(backed.reason):
        return
    before = find_condition(gang.status.conditions, SCHEDULER_OBJECTS_READY)
    if before is not None and before.reason == backed.reason:
        return
    TROUBLES.labels(backend.name, backed.reason).inc()
    reason = backend.event_reasons.get(backed.reason, backed.reason)
    events.warn(pcs, reason, f"PodGang {gang.metadata.name}: {backed.message}")
