"""The seconds in which a server answers on after a signal: what delays the end of a process, and what does not."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from grove.kube.handover import HandOver
from grove.kube.run import listening

LONG_S = 3600.0


async def test_after_the_signal_the_server_answers_and_each_answer_closes_its_connection() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    hand_over, app, begun = HandOver(LONG_S), web.Application(), asyncio.Event()
    app.router.add_get("/", answer)
    hand_over.watch(app)

    async def work() -> None:
        async with hand_over.after():
            begun.set()
            await asyncio.Event().wait()

    async with listening(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

        async def header() -> str:
            async with session.get(f"http://127.0.0.1:{port}/") as got:
                assert await got.text() == "ok"
                return got.headers.get("Connection", "")

        working = asyncio.create_task(work())
        await begun.wait()
        assert await header() == ""
        working.cancel()
        assert (await header(), await header()) == ("close", "close")
        assert not working.done(), "the process that holds the server is still there"
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working


async def test_a_process_that_fails_ends_at_once() -> None:
    async with asyncio.timeout(LONG_S / 2):
        with pytest.raises(RuntimeError, match="bug"):
            async with HandOver(LONG_S).after():
                raise RuntimeError("bug")


async def test_without_a_service_the_process_ends_at_once() -> None:
    async def work() -> None:
        async with HandOver(0.0).after():
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
