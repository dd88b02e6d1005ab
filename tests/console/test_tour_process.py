"""`grove demo --web` as a newcomer starts it: a process that prints a link, and a page behind it."""

from __future__ import annotations

import asyncio
import json
import signal

from aiohttp import ClientSession
from tests.support.console_process import printed_link, started
from tests.support.waiting import HANGS_S


async def test_the_tour_is_behind_a_link_that_works_once() -> None:
    async with started("demo", "--web", "--no-open") as process, ClientSession(read_bufsize=2**22) as http:
        url, link = await printed_link(process)
        async with http.get(url) as page:
            assert (page.status, "script-src 'self'" in page.headers["Content-Security-Policy"]) == (200, True)
        async with http.post(f"{url}/api/session", data=json.dumps({"link": link})) as answer:
            session = (await answer.json())["session"]
        _, fresh = await printed_link(process)
        assert fresh != link
        async with http.post(f"{url}/api/session", data=json.dumps({"link": link})) as answer:
            assert answer.status == 401
        headers = {"Authorization": f"Bearer {session}"}
        async with http.get(f"{url}/api/stream", headers=headers) as stream:
            nodes: dict[str, object] = {}
            async with asyncio.timeout(HANGS_S):
                while len(nodes) < 64:
                    line = (await stream.content.readline()).decode()
                    if line.startswith("data: "):
                        nodes |= json.loads(line.removeprefix("data: "))["put"].get("nodes", {})
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(HANGS_S):
            _, said = await process.communicate()
        assert (process.returncode, session in said.decode()) == (0, False)
