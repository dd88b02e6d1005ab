"""Asks a Prometheus how the figures were before anybody looked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import aiohttp
import msgspec
import structlog

from grove.show.figures import FLEET, Figure
from grove.show.past import Point

TIMEOUT_S = 10.0
CELLS = 240
"""Points of one answer, whatever the time that it covers."""
LARGEST_ANSWER = 4 * 1024 * 1024

log = structlog.get_logger(__name__)


class Prometheus:
    """A Prometheus by its address, such as `http://prometheus.monitoring:9090`."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    async def before(
        self, key: str, figures: Iterable[Figure], since: float, until: float
    ) -> tuple[dict[str, list[Point]], str]:
        """The points of each figure that it has, by name; and why it has none, if it does not answer."""
        asked = [figure for figure in figures if figure.query]
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                answers = await asyncio.gather(
                    *(self._range(session, query_of(figure, key), since, until) for figure in asked)
                )
        except (aiohttp.ClientError, TimeoutError, ValueError, msgspec.DecodeError) as error:
            log.warning("Prometheus does not answer", address=self.address, error=str(error) or type(error).__name__)
            return {}, f"Prometheus at {self.address} does not answer: {str(error) or type(error).__name__}"
        return {figure.name: points for figure, points in zip(asked, answers, strict=True) if points}, ""

    async def _range(self, session: aiohttp.ClientSession, query: str, since: float, until: float) -> list[Point]:
        step = max(1, math.ceil((until - since) / CELLS))
        asked = {"query": query, "start": f"{since:.0f}", "end": f"{until:.0f}", "step": str(step)}
        async with session.get(f"{self.address}/api/v1/query_range", params=asked) as answer:
            body = await answer.content.read(LARGEST_ANSWER)
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            return points_of(msgspec.json.decode(body), step)


def query_of(figure: Figure, key: str) -> str:
    """The query of a figure for one subject. Names in Kubernetes have nothing that needs escaping."""
    if key == FLEET:
        return figure.query
    namespace, _, name = key.partition("/")
    return figure.query.format(namespace=namespace, name=name)


def points_of(answer: Any, step: float) -> list[Point]:
    """The points of the first series of an answer; where samples are missing, the figure is not known."""
    found: list[Point] = []
    series = answer["data"]["result"]
    last_at = math.inf
    for at, text in series[0]["values"] if series else ():
        value = float(text)
        if at - last_at > 1.5 * step:
            found.append((last_at + step, None))
        last_at = at
        if math.isfinite(value) and (not found or found[-1][1] != value):
            found.append((float(at), value))
    return found
