"""The figures that are shown over time: of the fleet, and of each set. Pure.

The names are those of the rows that they come from, so a page adds to their past from the rows that it gets anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grove.metrics import engines

FLEET = "fleet"
"""The key of the fleet's figures; those of a set have `namespace/name`."""
IN_USE = "serving|starting|broken"
"""States of GPUs that pods have. The counter of GPU-seconds rises by their number each second."""
OF_SETS = '{{kind="PodCliqueSet",namespace="{namespace}",name="{name}"}}'


@dataclass(frozen=True, slots=True)
class Figure:
    """`unit` is empty, `%` (the value is a share of one) or `s`. `query` asks a Prometheus for the same figure."""

    name: str
    title: str
    unit: str = ""
    counts: bool = False
    query: str = ""


FLEET_FIGURES = (
    Figure("used", "GPUs in use", query=f'sum(rate(grove_gpu_seconds_total{{state=~"{IN_USE}"}}[5m]))'),
    Figure("total", "GPUs", query='sum(rate(grove_gpu_seconds_total{state!="waiting"}[5m]))'),
    Figure("waiting", "gangs that wait", query="max(grove_gang_pending)"),
    Figure("placements", "placements", counts=True, query='sum(grove_gang_attempts_total{result="placed"})'),
    Figure("restarts", "gang restarts", counts=True, query="max(grove_gang_restarts_total)"),
)
ENGINE_FIGURES = (
    Figure(engines.REQUESTS_WAITING, "requests that wait", query=engines.REQUESTS_WAITING + OF_SETS),
    Figure(engines.REQUESTS_RUNNING, "requests that run", query=engines.REQUESTS_RUNNING + OF_SETS),
    Figure(engines.KV_CACHE_USAGE, "KV cache in use", "%", query=engines.KV_CACHE_USAGE + OF_SETS),
    Figure(engines.GPU_UTILIZATION, "GPU use", "%", query=engines.GPU_UTILIZATION + OF_SETS),
    Figure("grove_ttft_p95_seconds", "time to first token, p95", "s", query="grove_ttft_p95_seconds" + OF_SETS),
    Figure("grove_tpot_p95_seconds", "time per token, p95", "s", query="grove_tpot_p95_seconds" + OF_SETS),
)
OWN_FIGURES = (
    Figure("pods", "pods specified"),
    Figure("ready", "pods ready"),
    Figure("replicas", "replicas specified"),
    Figure("available", "replicas available"),
    Figure(
        "held",
        "GPUs held",
        query=f'sum(rate(grove_gpu_seconds_total{{{{state=~"{IN_USE}",namespace="{{namespace}}",set="{{name}}"}}}}[5m]))',
    ),
    Figure("restarts", "container restarts", counts=True),
    Figure("gangRestarts", "gang restarts", counts=True),
)
SET_FIGURES = (*OWN_FIGURES, *ENGINE_FIGURES)


def figures_of(key: str) -> tuple[Figure, ...]:
    return FLEET_FIGURES if key == FLEET else SET_FIGURES


def own_values(row: Mapping[str, Any]) -> dict[str, float]:
    """The figures that the row of a set has, as `kubectl grove status -o json` names them."""
    return {figure.name: row[figure.name] for figure in OWN_FIGURES}


class GangCounts:
    """Counts gangs that wait, and placements since this object was made."""

    def __init__(self) -> None:
        self._placed: dict[str, bool] | None = None
        self.waiting = 0
        self.placements = 0

    def count(self, placed: Mapping[str, bool]) -> None:
        """Takes the gangs there are, each with whether it is placed."""
        before, self._placed = self._placed, dict(placed)
        self.waiting = sum(not is_placed for is_placed in placed.values())
        if before is not None:
            self.placements += sum(is_placed and not before.get(key, False) for key, is_placed in placed.items())

    def values(self, restarts: int, used: int | None, total: int | None) -> dict[str, float | None]:
        """The figures of the fleet, with those of its layout and of its sets."""
        amounts = {"used": used, "total": total, "waiting": self.waiting, "placements": self.placements}
        return {**amounts, "restarts": restarts}


def shown(value: float | None, unit: str) -> str:
    """A value with its unit, in at most six characters."""
    if value is None:
        return "–"
    if unit == "%":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
