"""The least that telling many viewers costs: a server that writes to each what another server wrote to one.

    python -m bench.replay_server FILE      prints its port

FILE is JSON: pairs of seconds after the start of a stream, and the text that was written then. Every request is
answered with such a stream; nothing is followed, made up or encoded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

from aiohttp import web

Chunks = list[tuple[float, bytes]]


async def main(chunks: Chunks) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        loop, response = asyncio.get_running_loop(), web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        began = loop.time()
        with suppress(ConnectionResetError):  # a viewer that has seen enough
            for at_s, chunk in chunks:
                await asyncio.sleep(max(0.0, began + at_s - loop.time()))
                await response.write(chunk)
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", stream)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], "-", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    events = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(main([(at_s, text.encode()) for at_s, text in events]))
