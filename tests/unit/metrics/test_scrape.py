"""Reading pages over HTTP: on time, bounded, and a hostile page costs its own pod one warning and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from aiohttp import web
from tests.support.engines import FakeEngines, Page
from tests.support.pages import vllm

from grove.metrics.scrape import Bounds, Scraper
from grove.metrics.targets import Target

BOUNDS = Bounds(interval_s=0.2, timeout_s=30.0, page_bytes=10_000, concurrent=8)


@pytest.fixture
async def engines() -> AsyncIterator[FakeEngines]:
    async with FakeEngines().serving() as engines:
        yield engines


class Reading:
    """A scraper at work, with its reports."""

    def __init__(self, engines: FakeEngines, bounds: Bounds = BOUNDS) -> None:
        self.pages: dict[str, list[bytes]] = {}
        self.warnings: list[tuple[str, str]] = []
        self.engines = engines
        self.scraper = Scraper(bounds, self.take, self.warn, random.Random(7))

    def take(self, target: Target, page: bytes, at: float) -> None:
        self.pages.setdefault(target.pod, []).append(page)

    def warn(self, target: Target, reason: str) -> None:
        self.warnings.append((target.pod, reason))

    def follow(self, *pods: str) -> None:
        for pod in pods:
            self.scraper.follow(self.engines.reach(Target("n", pod, "10.0.0.1", 1)))

    async def until(self, done: Callable[[], bool]) -> None:
        running = asyncio.get_running_loop().create_task(self.scraper.run())
        try:
            async with asyncio.timeout(30):
                while not done():
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    try:
        while True:
            await answer.write(b"x 1\n" * 1000)
    except ConnectionError:
        return answer


async def slow(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    try:
        while True:
            await answer.write(b"x 1\n")
            await asyncio.sleep(0.05)
    except ConnectionError:
        return answer


def saying(**answer: object) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(**answer)  # type: ignore[arg-type]

    return respond


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        pytest.param(endless, "has more than 10000 bytes", id="endless"),
        pytest.param(b"x 1\n" * 5000, "has more than 10000 bytes", id="huge"),
        pytest.param(slow, "did not answer within 2 s", id="slower than its time"),
        pytest.param(b"\x00\x01\x02" * 99, "is binary", id="binary"),
        pytest.param(saying(status=500), "answered 500", id="an error"),
        pytest.param(
            saying(status=302, headers={"Location": "http://127.0.0.1:1/secret"}),
            "answered 302, which is not followed",
            id="a redirect",
        ),
        pytest.param(
            saying(body=b"x", headers={"Content-Encoding": "gzip"}),
            "is encoded as gzip, but no encoding was asked for",
            id="compressed",
        ),
    ],
)
async def test_a_page_that_cannot_be_used_costs_one_warning_and_no_other_pod(
    engines: FakeEngines, page: Page, reason: str
) -> None:
    engines.pages = {"bad": page, "good": vllm(waiting=1)}
    reading = Reading(engines, replace(BOUNDS, timeout_s=2.0) if page is slow else BOUNDS)
    reading.follow("bad", "good")

    await reading.until(lambda: len(reading.pages.get("good", ())) >= 5 and bool(reading.warnings))

    assert reading.warnings == [("bad", reason)]
    assert "bad" not in reading.pages


async def test_a_pod_without_an_answer_is_tried_less_and_less(engines: FakeEngines) -> None:
    reading = Reading(engines)
    engines.pages = {"good": vllm()}
    reading.follow("good")
    reading.scraper.follow(Target("n", "gone", "127.0.0.1", 1))

    clock = asyncio.get_running_loop().time
    before = clock()
    await reading.until(lambda: len(reading.pages.get("good", ())) >= 12)
    passed_s = clock() - before

    assert [pod for pod, _ in reading.warnings] == ["gone"]
    failures = reading.scraper._states["n", "gone"].failures
    assert 0.95 * BOUNDS.interval_s * (2 ** (failures - 1) - 1) <= passed_s, "one read in 1, 2, 4, 8 intervals"


async def test_a_pod_that_came_back_is_reported_when_it_fails_again(engines: FakeEngines) -> None:
    reading = Reading(engines)
    engines.pages = {"p": saying(status=500)}
    reading.follow("p")
    await reading.until(lambda: len(reading.warnings) == 1)
    engines.pages = {"p": vllm()}
    reading.scraper.hurry("n", "p")
    await reading.until(lambda: bool(reading.pages.get("p")))
    engines.pages = {"p": saying(status=500)}
    await reading.until(lambda: len(reading.warnings) == 2)


async def test_a_forgotten_pod_is_not_read_any_more(engines: FakeEngines) -> None:
    reading = Reading(engines)
    engines.pages = {"p": vllm(), "q": vllm()}
    reading.follow("p", "q")
    await reading.until(lambda: bool(reading.pages.get("p")))
    reading.scraper.forget("n", "p")
    seen = len(reading.pages["p"])
    await reading.until(lambda: len(reading.pages.get("q", ())) >= 5)
    assert len(reading.pages["p"]) <= seen + 1, "at most the read that was under way"


async def test_a_page_that_the_reader_chokes_on_ends_nothing(engines: FakeEngines) -> None:
    reading = Reading(engines)
    engines.pages = {"p": vllm(), "q": vllm()}

    def choke(target: Target, page: bytes, at: float) -> None:
        if target.pod == "p":
            raise ZeroDivisionError
        reading.take(target, page, at)

    reading.scraper = Scraper(BOUNDS, choke, reading.warn, random.Random(7))
    reading.follow("p", "q")
    await reading.until(lambda: len(reading.pages.get("q", ())) >= 4)


async def test_no_more_pages_are_read_at_a_time_than_allowed(engines: FakeEngines) -> None:
    at_once = highest = 0

    async def counting(_: web.Request) -> web.StreamResponse:
        nonlocal at_once, highest
        at_once += 1
        highest = max(highest, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return web.Response(body=vllm())

    engines.pages = {f"p{number}": counting for number in range(40)}
    reading = Reading(engines, Bounds(interval_s=0.2, timeout_s=5.0, concurrent=4))
    reading.follow(*engines.pages)
    await reading.until(lambda: len(reading.pages) == 40)
    assert highest <= 4
