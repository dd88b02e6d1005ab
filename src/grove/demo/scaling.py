"""The arithmetic of the HorizontalPodAutoscaler, without its controller.

It keeps these rules of Kubernetes:

- `ceil(value / averageValue)` for Object and External metrics; ratios with a tolerance of a tenth.
- The largest proposal of several metrics counts.
- No scale-in while a metric is missing.
- At most double, or four more, in one step.
- A smaller number counts after it has held for five minutes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from grove.api import quantity
from grove.api.hpa import metric_name, metric_source
from grove.api.meta import Json

SYNC_S = 15.0
TOLERANCE = 0.1
STABLE_S = 300.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """The replicas that one metric asks for; None if the metric has no value."""

    metric: str
    replicas: int | None
    value: float | None = None
    target: float = 0.0


def proposal(metric: Json, replicas: int, value: float | None) -> Proposal:
    name, target = metric_name(metric) or "?", metric_source(metric).get("target") or {}
    if value is None:
        return Proposal(name, None)
    if "averageValue" in target and metric.get("type") != "Pods":
        wanted = float(quantity.exact(target["averageValue"]))
        ratio = value / (wanted * replicas) if replicas else math.inf
        near = abs(1.0 - ratio) <= TOLERANCE
        return Proposal(name, replicas if near else math.ceil(value / wanted), value / max(replicas, 1), wanted)
    wanted = float(quantity.exact(target.get("averageValue") or target.get("value") or "1"))
    ratio = value / wanted
    return Proposal(
        name, replicas if abs(1.0 - ratio) <= TOLERANCE else math.ceil(ratio * max(replicas, 1)), value, wanted
    )


@dataclass(slots=True)
class Recommender:
    """The memory of one autoscaler: what was recommended in the last minutes."""

    past: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(
        self, proposals: Iterable[Proposal], replicas: int, least: int, most: int, now: float
    ) -> tuple[int, Proposal | None]:
        """The replicas from now on, and the proposal that decided; the same number if nothing shall change."""
        proposals = list(proposals)
        known = [candidate for candidate in proposals if candidate.replicas is not None]
        best = max(known, key=lambda candidate: candidate.replicas or 0, default=None)
        if best is None or (replicas == 0 and least > 0):
            return replicas, None
        wanted = best.replicas or 0
        if len(known) < len(proposals) and wanted < replicas:
            return replicas, None
        wanted = max(least, min(most, wanted))
        self.past.append((now, wanted))
        while self.past[0][0] < now - STABLE_S:
            self.past.popleft()
        if wanted < replicas:
            wanted = min(replicas, max(number for _, number in self.past))
        elif wanted > replicas:
            wanted = min(wanted, max(2 * replicas, replicas + 4))
        return wanted, best
