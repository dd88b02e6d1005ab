"""Figures over time: what is kept, what a Prometheus adds, and who may see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from grove.api.meta import Json
from grove.console.ledger import Ledger
from grove.console.trends import Trends
from grove.kube.errors import Forbidden, NotFound
from grove.show.engine_figures import METRICS, read_engines
from grove.show.figures import FLEET, GangCounts, figures_of, shown
from grove.show.past import Past, bucketed, joined, spark
from grove.show.prometheus import Prometheus, Series, points_of, query_of, series_of


def test_a_value_that_stays_makes_no_point() -> None:
    past = Past()
    assert past.record("a/chat", {"ready": 1, "pods": 2}, 10.0)
    assert not past.record("a/chat", {"ready": 1, "pods": 2}, 11.0)
    assert past.record("a/chat", {"ready": 2, "pods": 2}, 12.0)
    assert past.of("a/chat") == {"ready": [(10.0, 1), (12.0, 2)], "pods": [(10.0, 2)]}


def test_gpus_of_the_past_come_from_the_counter_of_gpu_seconds() -> None:
    fleet = {figure.name: query_of(figure, FLEET) for figure in figures_of(FLEET)}
    assert fleet["used"] == 'sum(rate(grove_gpu_seconds_total{state=~"serving|starting|broken"}[5m]))'
    assert fleet["total"] == 'sum(rate(grove_gpu_seconds_total{state!="waiting"}[5m]))'
    own = {figure.name: query_of(figure, "prod/chat") for figure in figures_of("prod/chat")}
    labels = 'state=~"serving|starting|broken",namespace="prod",set="chat"'
    assert own["held"] == f"sum(rate(grove_gpu_seconds_total{{{labels}}}[5m]))"
    assert [name for name, query in own.items() if not query] == [
        "pods",
        "ready",
        "replicas",
        "available",
        "restarts",
        "gangRestarts",
    ]


@given(st.integers(4, 40), st.integers(1, 400))
def test_the_past_is_bounded_and_keeps_its_ends(most: int, changes: int) -> None:
    past = Past(most)
    for number in range(changes):
        past.record("k", {"n": number}, float(number))
    points = past.of("k")["n"]
    assert len(points) <= most
    assert points[0] == (0.0, 0)
    assert points[-1] == (float(changes - 1), changes - 1)
    assert points == sorted(points)


def test_what_a_prometheus_counted_goes_on_from_its_last_count() -> None:
    before = [(1.0, 100.0), (5.0, 107.0), (20.0, 111.0)]
    assert joined(before, [(10.0, 0.0), (12.0, 2.0)], counts=True) == [
        (1.0, 100.0),
        (5.0, 107.0),
        (10.0, 107.0),
        (12.0, 109.0),
    ]
    assert joined(before, [(10.0, 3.0)], counts=False) == [(1.0, 100.0), (5.0, 107.0), (10.0, 3.0)]
    assert joined(before, [], counts=True) == before


@pytest.mark.parametrize(
    ("points", "counts", "want"),
    [
        pytest.param([(0.0, 1.0), (25.0, 4.0)], False, [1.0, 1.0, 4.0, 4.0], id="a value holds until the next"),
        pytest.param([(15.0, 2.0), (25.0, None)], False, [None, 2.0, 2.0, None], id="not known before and after"),
        pytest.param([(0.0, 5.0), (12.0, 7.0), (14.0, 8.0)], True, [0.0, 3.0, 0.0, 0.0], id="a count grows"),
        pytest.param([(0.0, 5.0), (12.0, 1.0)], True, [0.0, 0.0, 0.0, 0.0], id="a count that starts anew"),
        pytest.param([], False, [None] * 4, id="nothing"),
    ],
)
def test_cells_of_time(points: list[tuple[float, float | None]], counts: bool, want: list[float | None]) -> None:
    assert bucketed(points, 0.0, 40.0, 4, counts=counts) == want


def test_a_line_of_blocks() -> None:
    assert spark([0.0, 1.0, 4.0, 8.0, None]) == "▁▂▅█ "
    assert spark([0.0, 0.0]) == "▁▁"
    assert spark([]) == ""


def test_placements_are_counted_from_the_first_look_on() -> None:
    counts = GangCounts()
    counts.count({"a": True, "b": False})
    assert (counts.waiting, counts.placements) == (1, 0)
    counts.count({"a": True, "b": True, "c": True})
    assert (counts.waiting, counts.placements) == (0, 2)
    counts.count({"a": False, "b": True, "c": True})
    counts.count({"a": True, "b": True, "c": True})
    assert counts.placements == 3


@pytest.mark.parametrize(
    ("value", "unit", "want"),
    [
        (0.456, "%", "46 %"),
        (0.25, "s", "250 ms"),
        (2.5, "s", "2.5 s"),
        (3.0, "", "3"),
        (2.5, "", "2.5"),
        (None, "", "–"),
    ],
)
def test_values_with_their_units(value: float | None, unit: str, want: str) -> None:
    assert shown(value, unit) == want


def test_samples_that_are_missing_are_a_gap() -> None:
    values = [(0.0, "1"), (10.0, "1"), (20.0, "2"), (60.0, "2"), (70.0, "NaN")]
    assert points_of([Series(values=values)], 10) == [(0.0, 1.0), (20.0, 2.0), (30, None), (60.0, 2.0)]
    assert points_of([], 10) == []


class Engines:
    """The part of a client that answers for `grove metrics`."""

    def __init__(self, answers: dict[tuple[str, str], Any]) -> None:
        self.answers = answers

    async def get(self, kind: Any, name: str, namespace: str = "") -> Json:
        assert kind is METRICS
        found = self.answers.get((namespace, name), NotFound("nothing there"))
        if isinstance(found, Exception):
            raise found
        return {"items": [{"describedObject": {"name": who}, "value": value} for who, value in found.items()]}


async def test_figures_of_engines_by_set() -> None:
    client = Engines(
        {
            ("a", "grove_requests_waiting"): {"chat": "7", "code": "0"},
            ("a", "grove_kv_cache_usage"): {"chat": "912345u"},
            ("b", "grove_requests_waiting"): Forbidden("not yours"),
        }
    )
    found = await read_engines(client, ["a", "b"])  # type: ignore[arg-type]
    assert found == {
        "a/chat": {"grove_requests_waiting": 7.0, "grove_kv_cache_usage": 0.912},
        "a/code": {"grove_requests_waiting": 0.0},
    }


async def test_without_grove_metrics_there_are_no_figures_of_engines() -> None:
    assert await read_engines(Engines({}), ["a"]) is None  # type: ignore[arg-type]


class Seen:
    """What a viewer follows."""

    def __init__(self, *, is_everything: bool) -> None:
        self.ledger, self.past, self.is_everything = Ledger(), Past(), is_everything
        self.ledger.replace({"sets": {"a/chat": {}}})
        self.past.record("a/chat", {"grove_requests_waiting": 3.0}, 4e9)
        self.past.record(FLEET, {"waiting": 2}, 4e9)


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def prometheus(asked: list[str]) -> AsyncIterator[Prometheus]:
    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        result = [{"metric": {}, "values": [[float(request.query["start"]), "1"]]}]
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})

    app = web.Application()
    app.router.add_get("/api/v1/query_range", answer)
    async with served(app) as address:
        yield Prometheus(f"{address}/")


async def test_a_prometheus_has_what_was_before_and_is_asked_once_for_many_viewers() -> None:
    asked: list[str] = []
    async with prometheus(asked) as found:
        trends, seen = Trends(found), Seen(is_everything=True)
        answers = await asyncio.gather(*(trends.answer(seen, "a/chat", 3600) for _ in range(50)))
    assert all(one == answers[0] for one in answers)
    waiting = next(one for one in answers[0]["figures"] if one["name"] == "grove_requests_waiting")
    assert [value for _, value in waiting["points"]] == [1.0, 3.0]
    assert sorted(asked) == sorted(set(asked))
    assert 'grove_requests_waiting{kind="PodCliqueSet",namespace="a",name="chat"}' in asked


async def test_a_viewer_of_one_namespace_gets_nothing_of_others_from_a_prometheus() -> None:
    asked: list[str] = []
    async with prometheus(asked) as found:
        trends, seen = Trends(found), Seen(is_everything=False)
        assert (await trends.answer(seen, "b/secret", 3600))["figures"] == []
        fleet = await trends.answer(seen, FLEET, 3600)
    assert asked == []
    assert [(one["name"], one["points"]) for one in fleet["figures"]] == [("waiting", [(4e9, 2)])]


async def test_a_prometheus_that_does_not_answer_is_named_and_the_own_past_stays() -> None:
    trends = Trends(Prometheus("http://127.0.0.1:9"), grafana="https://grafana.example")
    answer = await trends.answer(Seen(is_everything=True), FLEET, 60)
    assert answer["note"].startswith("Prometheus at http://127.0.0.1:9 does not answer")
    assert answer["grafana"] == "https://grafana.example/d/grove?from=now-60s&to=now"
    assert [one["name"] for one in answer["figures"]] == ["waiting"]


async def test_an_answer_of_a_prometheus_that_arrives_in_parts_is_read_whole() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"2"]}]}}'
        for part in (body[:40], body[40:]):
            await reply.write(part)
            await asyncio.sleep(0.05)
        return reply

    app = web.Application()
    app.router.add_get("/api/v1/query", answer)
    async with served(app) as address:
        assert await Prometheus(address).latest("up") == [({"a": "b"}, 2.0)]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, b'{"status": "error", "error": "bad query"}', "^bad query$"),
        (404, b"no such page", "^status 404$"),
        (200, b"<html>", "^status 200, "),
        (200, b'{"status": "success", "data": {"resultType": "scalar", "result": []}}', "^the result is no vector$"),
    ],
)
def test_an_answer_without_series_says_why(status: int, body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        series_of(status, body, "vector")
