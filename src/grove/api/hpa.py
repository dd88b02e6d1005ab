"""Metrics of a HorizontalPodAutoscaler, as its spec and its status have them: names and numbers out of plain JSON."""

from __future__ import annotations

from grove.api.meta import Json
from grove.api.quantity import exact


def metric_source(metric: Json) -> Json:
    """The part of a MetricSpec or MetricStatus that its type names."""
    kind = str(metric.get("type", ""))
    source: Json = metric.get(kind[:1].lower() + kind[1:]) or {}
    return source


def metric_name(metric: Json) -> str:
    source = metric_source(metric)
    return str(source.get("name") or (source.get("metric") or {}).get("name") or "")


def target_field(metric: Json) -> str:
    """Which number of a metric counts for its target: `averageUtilization`, `averageValue` or `value`."""
    target: Json = metric_source(metric).get("target") or {}
    return next((name for name in ("averageUtilization", "averageValue", "value") if name in target), "value")


def target_of(metric: Json) -> str:
    """The target as a person reads it; empty if there is none."""
    return _shown(metric_source(metric).get("target") or {}, target_field(metric))


def current_of(wanted: Json, status: Json | None) -> str:
    """The current number beside a target; empty if it was not seen."""
    return _shown(metric_source(status or {}).get("current") or {}, target_field(wanted))


def asks_for_more(wanted: Json, status: Json | None) -> bool:
    """True if a metric is above its target by more than the tolerance of the autoscaler, 10 %."""
    field = target_field(wanted)
    target = (metric_source(wanted).get("target") or {}).get(field)
    current = (metric_source(status or {}).get("current") or {}).get(field)
    return target is not None and current is not None and exact(str(current)) * 10 > exact(str(target)) * 11


def _shown(values: Json, field: str) -> str:
    number = values.get(field)
    if number is None:
        return ""
    if field == "averageUtilization":
        return f"{number}%"
    text = str(number)
    return f"{float(exact(text)):.1f}".removesuffix(".0") if text.endswith("m") else text
