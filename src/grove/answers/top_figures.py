"""The past of the figures that `top` shows: recorded while it runs, read from engines and from a Prometheus."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec

from grove.answers.following import Source
from grove.api import conditions as words
from grove.api.meta import is_true
from grove.diagnosis.words import camel
from grove.show.engine_figures import EngineReader
from grove.show.figures import FLEET, GangCounts, figures_of, own_values
from grove.show.past import Past, Point, joined
from grove.show.prometheus import Prometheus
from grove.show.top import LAST_S, Model, Trend

MOST_BEFORE = 50
"""Sets that a Prometheus is asked for when `top` starts."""


class FigureWatcher:
    def __init__(self, source: Source, prometheus: str = "") -> None:
        self._source, self._prometheus = source, prometheus
        self._past, self._counts = Past(), GangCounts()
        self._before: dict[str, dict[str, list[Point]]] = {}

    def added(self, model: Model) -> Model:
        """The model with its figures over time, as far as they are known."""
        assert model.now is not None
        at = model.now.timestamp()
        gangs = self._source.seen().gangs
        self._counts.count({str(gang.metadata.key): is_true(gang.status.conditions, words.SCHEDULED) for gang in gangs})
        root = model.layout.root if model.layout is not None else None
        used, total = (root.used, root.total) if root is not None else (None, None)
        restarts = sum(row.gang_restarts for row in model.sets)
        self._past.record(FLEET, self._counts.values(restarts, used, total), at)
        for row in model.sets:
            self._past.record(f"{row.namespace}/{row.name}", own_values(camel(msgspec.to_builtins(row))), at)
        keys = [FLEET, *(f"{row.namespace}/{row.name}" for row in model.sets)]
        return replace(model, trends=[trend for key in keys for trend in self._trends(key)])

    def _trends(self, key: str) -> list[Trend]:
        namespace, _, name = ("", "", "") if key == FLEET else key.partition("/")
        before, own = self._before.get(key, {}), self._past.of(key)
        trends = (
            Trend(
                namespace,
                name,
                figure,
                joined(before.get(figure.name, ()), own.get(figure.name, ()), counts=figure.counts),
            )
            for figure in figures_of(key)
        )
        return [trend for trend in trends if trend.points and not (trend.figure.counts and len(trend.points) < 2)]

    async def read_engines(self) -> None:
        """Reads what was before once, and the engines as long as `top` runs."""
        await self._read_before()
        engines = EngineReader(self._source.client, self._past)
        while True:
            pause_s = await engines.read({pcs.metadata.namespace for pcs in self._source.seen().sets})
            if engines.found:
                self._source.changed.set()
            await asyncio.sleep(pause_s)

    async def _read_before(self) -> None:
        if not self._prometheus:
            return
        now = self._source.now().timestamp()
        prometheus = Prometheus(self._prometheus)
        fleet = [] if self._source.namespace else [FLEET]
        for key in (*fleet, *(str(pcs.metadata.key) for pcs in self._source.seen().sets[:MOST_BEFORE])):
            figures, fault = await prometheus.before(key, figures_of(key), now - LAST_S, now)
            if fault:
                self._source.note = fault
                return
            self._before[key] = figures
            self._source.changed.set()
