"""What the page draws over time: the past of a subject's figures, joined with that of a Prometheus, and links.

The stream has the values from now on, so a page asks once for each subject and time that it draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grove.console.viewers import Watched
from grove.kube.clock import SYSTEM
from grove.show.figures import FLEET, Figure, figures_of
from grove.show.past import Point, joined
from grove.show.prometheus import Prometheus

LONGEST_S = 7 * 86400
FRESH_S = 15.0
"""Viewers who ask for the same within this time share one answer of Prometheus."""
MOST_KEPT = 256

Before = tuple[dict[str, list[Point]], str]


@dataclass(slots=True)
class Trends:
    """`grafana` is the address of a Grafana with the dashboard of the chart. `logs` is the address of a page of logs:
    `{namespace}`, `{name}` and `{pod}` stand in it for what the page shows."""

    prometheus: Prometheus | None = None
    grafana: str = ""
    logs: str = ""
    _kept: dict[tuple[str, int], tuple[float, asyncio.Task[Before]]] = field(default_factory=dict)

    async def answer(self, watched: Watched, key: str, last_s: int) -> dict[str, Any]:
        """The figures of one subject over the last seconds; of a subject that the viewer does not see, none."""
        before, note = await self._before(watched, key, last_s)
        own = watched.past.of(key)
        figures = [_series(figure, before.get(figure.name, ()), own.get(figure.name, ())) for figure in figures_of(key)]
        grafana = f"{self.grafana}/d/grove?from=now-{last_s}s&to=now" if self.grafana else ""
        links = {"grafana": grafana, "logs": self.logs}
        return {"key": key, "figures": [series for series in figures if series["points"]], "note": note} | links

    async def _before(self, watched: Watched, key: str, last_s: int) -> Before:
        is_visible = watched.is_everything if key == FLEET else key in watched.ledger.table("sets")
        if self.prometheus is None or not is_visible:
            return {}, ""
        loop = asyncio.get_running_loop()
        asked_s, task = self._kept.get((key, last_s), (-FRESH_S, None))
        if task is None or loop.time() - asked_s >= FRESH_S:
            task = loop.create_task(self._ask(self.prometheus, key, last_s))
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key, last_s] = (loop.time(), task)
        return await asyncio.shield(task)

    async def _ask(self, prometheus: Prometheus, key: str, last_s: int) -> Before:
        now_s = SYSTEM.now().timestamp()
        return await prometheus.before(key, figures_of(key), now_s - last_s, now_s)


def _series(figure: Figure, before: Sequence[Point], own: Sequence[Point]) -> dict[str, Any]:
    points = joined(before, own, counts=figure.counts)
    return {"name": figure.name, "title": figure.title, "unit": figure.unit, "counts": figure.counts, "points": points}
