"""Queries a Prometheus: the past of figures, and the latest samples of one query."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

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


class Series(msgspec.Struct):
    """One series: `value` in a vector, `values` in a matrix; each is a time and a number as text."""

    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "NaN")
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[Series] = []


class _Answer(msgspec.Struct):
    status: str
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class PrometheusError(Exception):
    """A query has no answer. The message names the address and the cause."""


class Prometheus:
    """A Prometheus by its address, such as `http://prometheus.monitoring:9090`."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def before(
        self, key: str, figures: Iterable[Figure], since: float, until: float
    ) -> tuple[dict[str, list[Point]], str]:
        """The points of each figure, by name; and the cause, if Prometheus does not answer."""
        asked = [figure for figure in figures if figure.query]
        try:
            async with aiohttp.ClientSession(timeout=self._timeout) as session:
                answers = await asyncio.gather(
                    *(self._range(session, query_of(figure, key), since, until) for figure in asked)
                )
        except PrometheusError as error:
            log.warning("Prometheus does not answer", error=str(error))
            return {}, str(error)
        return {figure.name: points for figure, points in zip(asked, answers, strict=True) if points}, ""

    async def latest(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series now. Raises PrometheusError."""
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            series = await self._series(session, "query", "vector", {"query": query})
        return [(line.metric, float(line.value[1])) for line in series]

    async def _range(self, session: aiohttp.ClientSession, query: str, since: float, until: float) -> list[Point]:
        step = max(1, math.ceil((until - since) / CELLS))
        asked = {"query": query, "start": f"{since:.0f}", "end": f"{until:.0f}", "step": str(step)}
        return points_of(await self._series(session, "query_range", "matrix", asked), step)

    async def _series(
        self, session: aiohttp.ClientSession, path: str, kind: str, asked: Mapping[str, str]
    ) -> list[Series]:
        try:
            async with session.get(f"{self.address}/api/v1/{path}", params=asked) as answer:
                return series_of(answer.status, await _body(answer.content), kind)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            cause = str(error) or type(error).__name__
            raise PrometheusError(f"Prometheus at {self.address} does not answer: {cause}") from error


async def _body(content: aiohttp.StreamReader) -> bytes:
    """The whole body. `StreamReader.read(n)` returns only the part that has arrived."""
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if len(body) > LARGEST_ANSWER:
            raise ValueError(f"the answer has more than {LARGEST_ANSWER} bytes")
    return bytes(body)


def series_of(status: int, body: bytes, kind: str) -> list[Series]:
    """The series in an answer whose result is a `vector` or a `matrix`. Raises ValueError with the cause."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError as error:
        raise ValueError(f"status {status}, {error}" if status == 200 else f"status {status}") from error
    if answer.status != "success":
        raise ValueError(answer.error or f"status {status}")
    if answer.data.result_type != kind:
        raise ValueError(f"the result is no {kind}")
    return answer.data.result


def query_of(figure: Figure, key: str) -> str:
    """The query of a figure for one subject. Names in Kubernetes have nothing that needs escaping."""
    if key == FLEET:
        return figure.query
    namespace, _, name = key.partition("/")
    return figure.query.format(namespace=namespace, name=name)


def points_of(series: Sequence[Series], step: float) -> list[Point]:
    """The points of the first series; where samples are missing, the figure is not known."""
    points: list[Point] = []
    last_at = math.inf
    for at, text in series[0].values if series else ():
        value = float(text)
        if at - last_at > 1.5 * step:
            points.append((last_at + step, None))
        last_at = at
        if math.isfinite(value) and (not points or points[-1][1] != value):
            points.append((float(at), value))
    return points
