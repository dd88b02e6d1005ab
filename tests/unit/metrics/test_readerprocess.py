"""The process that reads pages: its numbers arrive, it is started again when it ends, and it ends with us."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.engines import FakeEngines
from tests.support.pages import gauge, vllm

from grove.metrics.messages import FromReader, GpusRead, PageFault, PageRead
from grove.metrics.readerprocess import SILENCE_S, ReaderProcess
from grove.metrics.scrape import Bounds
from grove.metrics.targets import Target

BOUNDS = Bounds(interval_s=0.2, timeout_s=5.0)


class Heard:
    """A reader beside engines, and what it said."""

    def __init__(self, engines: FakeEngines, silence_s: float) -> None:
        self.engines, self.messages = engines, list[FromReader]()
        self.reader = ReaderProcess(BOUNDS, self.messages.append, silence_s=silence_s)

    def target(self, pod: str) -> Target:
        return self.engines.reach(Target("n", pod, "10.0.0.1", 1))

    def pages(self, pod: str) -> list[PageRead]:
        return [one for one in self.messages if isinstance(one, PageRead) and one.pod == pod]

    async def until(self, done: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not done():  # noqa: ASYNC110 - whatever the test waits for
                await asyncio.sleep(0.02)

    @property
    def pid(self) -> int:
        return self.reader.process.pid if self.reader.process is not None else 0


@asynccontextmanager
async def heard(silence_s: float = SILENCE_S) -> AsyncIterator[Heard]:
    async with FakeEngines().serving() as engines:
        heard = Heard(engines, silence_s)
        running = asyncio.get_running_loop().create_task(heard.reader.run())
        try:
            yield heard
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_what_is_followed_before_and_after_its_start_is_read_and_what_is_forgotten_is_not() -> None:
    async with heard() as world:
        world.engines.default = lambda pod: vllm(waiting=len(pod)) + gauge("mine", ("", 7)).encode()
        world.engines.pages["gpus"] = gauge("DCGM_FI_DEV_GPU_UTIL", ('namespace="n",pod="a"', 50.0)).encode()
        world.engines.pages["bad"] = b"\0"
        world.reader.follow("engine", world.target("a"))
        await world.until(lambda: world.pages("a"))
        for what, pod in (("engine", "bb"), ("engine", "bad"), ("gpu", "gpus")):
            world.reader.follow(what, world.target(pod))  # type: ignore[arg-type]
        await world.until(lambda: world.pages("bb"))
        assert world.pages("bb")[0].numbers.gauges["grove_requests_waiting"].value == 2
        await world.until(lambda: [one for one in world.messages if isinstance(one, PageFault) and one.pod == "bad"])
        gpus = [one for one in world.messages if isinstance(one, GpusRead)]
        await world.until(lambda: [one for one in world.messages if isinstance(one, GpusRead)])
        assert all(one.shares == (("n", "a", 0.5),) for one in gpus)
        assert "mine" not in world.pages("a")[0].numbers.gauges
        world.reader.look_for(("mine",))
        await world.until(lambda: "mine" in world.pages("a")[-1].numbers.gauges)
        world.reader.forget("engine", "n", "a")
        before = len(world.pages("bb"))
        await world.until(lambda: len(world.pages("bb")) > before + 2)
        seen = len(world.pages("a"))
        await world.until(lambda: len(world.pages("bb")) > before + 5)
        assert len(world.pages("a")) == seen


async def test_a_reader_that_dies_is_started_again_and_has_everything() -> None:
    async with heard() as world:
        world.engines.default = lambda pod: gauge("mine", ("", 7)).encode()
        world.reader.follow("engine", world.target("a"))
        world.reader.look_for(("mine",))
        await world.until(lambda: world.pages("a"))
        first = world.pid
        os.kill(first, signal.SIGKILL)
        await world.until(lambda: world.pid not in (0, first))
        world.messages.clear()
        await world.until(lambda: world.pages("a"))
        assert world.pages("a")[0].numbers.gauges["mine"].value == 7


async def test_a_reader_that_hangs_is_started_again() -> None:
    async with heard(silence_s=3.0) as world:
        world.engines.default = lambda pod: vllm()
        world.reader.follow("engine", world.target("a"))
        await world.until(lambda: world.pages("a"))
        first = world.pid
        os.kill(first, signal.SIGSTOP)
        await world.until(lambda: world.pid not in (0, first))


async def test_a_signal_to_the_group_does_not_end_it_and_the_end_of_its_other_half_does() -> None:
    async with heard() as world:
        world.engines.default = lambda pod: vllm()
        world.reader.follow("engine", world.target("a"))
        await world.until(lambda: world.pages("a"))
        first = world.pid
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(first, number)
        world.messages.clear()
        await world.until(lambda: world.pages("a"))
        assert world.pid == first
    assert world.pid == 0
    try:
        os.kill(first, 0)
    except ProcessLookupError:
        return
    raise AssertionError("it outlived us")
