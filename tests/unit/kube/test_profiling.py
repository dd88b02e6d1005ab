"""Profiles of a running process over HTTP."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from grove.kube.profiling import profiling


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/debug/pprof/{path}") as got:
        return got.status, await got.text()


async def burn_time_in_here() -> None:
    while True:
        sum(range(2000))
        await asyncio.sleep(0.001)


async def test_a_profile_names_where_time_is_spent() -> None:
    async with profiling("127.0.0.1", 0) as port:
        busy = asyncio.get_running_loop().create_task(burn_time_in_here())
        status, text = await get(port, "profile?seconds=0.2")
        busy.cancel()
    assert status == 200
    assert "burn_time_in_here" in text


async def test_tasks_show_where_they_wait() -> None:
    async with profiling("127.0.0.1", 0) as port:
        waiting = asyncio.get_running_loop().create_task(burn_time_in_here())
        status, text = await get(port, "tasks")
        waiting.cancel()
    assert status == 200
    assert "burn_time_in_here" in text


async def test_one_profile_at_a_time() -> None:
    async with profiling("127.0.0.1", 0) as port:
        asked = [asyncio.get_running_loop().create_task(get(port, "profile?seconds=60")) for _ in range(2)]
        answered, taken = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for one in taken:
            one.cancel()
    assert [one.result()[0] for one in answered] == [409]


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "9999"])
async def test_a_time_that_makes_no_sense_is_refused(seconds: str) -> None:
    async with profiling("127.0.0.1", 0) as port:
        status, _ = await get(port, f"profile?seconds={seconds}")
    assert status == 400
