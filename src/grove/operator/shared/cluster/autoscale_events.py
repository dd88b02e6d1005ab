"""Reports what autoscalers did: an Event on the scaled object, with the metric that caused it, and a number.

The status of an HPA has the time of each rescale, with the former and the new number. The operator reads that, so it
never takes a person's change of replicas for an autoscaler's.
"""

from __future__ import annotations

from prometheus_client import Counter

from grove.api.conditions import EventReason
from grove.api.core import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from grove.api.hpa import current_of, metric_name, target_of
from grove.api.meta import Key, Object, find_condition
from grove.api.podclique import PodClique
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.events import Recorder
from grove.operator.shared.cluster.optional_kinds import OptionalKinds

ACTIONS = Counter(
    "grove_autoscale_actions", "Times an autoscaler changed replicas, by kind of target and direction.", ["kind", "way"]
)
KINDS: dict[str, type[PodClique] | type[PodCliqueScalingGroup]] = {
    kind.RESOURCE.kind: kind for kind in (PodClique, PodCliqueScalingGroup)
}


class AutoscaleEvents:
    """Records events from the moment it is created, wherever autoscalers are served."""

    def __init__(self, cache: Cache, optional: OptionalKinds, events: Recorder) -> None:
        self._cache, self._events = cache, events
        optional.on_event(HorizontalPodAutoscaler, self.on_autoscaler)

    def on_autoscaler(self, old: Object | None, new: Object | None) -> None:
        """Handler of the autoscalers' watch; it does not report what happened before the watch began."""
        if not isinstance(old, HorizontalPodAutoscaler) or not isinstance(new, HorizontalPodAutoscaler):
            return
        rescale = rescale_between(old.status, new.status)
        if rescale is None:
            return
        before, after = rescale
        target = new.spec.scale_target_ref
        ACTIONS.labels(target.kind, "out" if after > before else "in").inc()
        kind = KINDS.get(target.kind)
        scaled = self._cache.get(kind, Key(new.metadata.namespace, target.name)) if kind is not None else None
        if scaled is not None:
            message = f"scaled from {before} to {after} by autoscaler {new.metadata.name}: {cause(new)}"
            self._events.normal(scaled, EventReason.SCALED_BY_AUTOSCALER, message)


def rescale_between(old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus) -> tuple[int, int] | None:
    """From how many to how many replicas the autoscaler went between two of its statuses; None if it did not.

    In the status of an HPA, the two numbers differ only right after a rescale. Its time has whole seconds, so two
    rescales may have the same time. If a watch was interrupted, it can show only the next status, in which the numbers
    are equal again.
    """
    before, after = new.current_replicas, new.desired_replicas
    timed = new.last_scale_time != old.last_scale_time
    if timed and before == after and old.conditions:
        before = old.desired_replicas
    return (before, after) if before != after and (timed or after != old.desired_replicas) else None


def cause(scaler: HorizontalPodAutoscaler) -> str:
    """The metric that decided, with its value and target if the HPA controller says them."""
    active = find_condition(scaler.status.conditions or (), "ScalingActive")
    message = active.message if active is not None else ""
    named = [metric for metric in scaler.spec.metrics or () if metric_name(metric) and metric_name(metric) in message]
    if len(named) != 1:
        return message or "no metric is named"
    (metric,) = named
    seen = next(
        (current for current in scaler.status.current_metrics or () if metric_name(current) == metric_name(metric)),
        None,
    )
    value, target = current_of(metric, seen), target_of(metric)
    return f"metric {metric_name(metric)}" + (f" at {value}, target {target}" if value and target else "")
