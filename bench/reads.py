"""The least that reading costs: a process that starts, gets what another got by the same library, and looks at none.

    echo '["/api/v1/pods?limit=500"]' | python -m bench.reads KUBECONFIG

asks for all at once, a streamed list until its end, and says its CPU and wall seconds as JSON. It imports no more of
Grove than what reads a kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp

from grove.kube.config import load_config
from grove.kube.connection import load_client_cert

AT_ONCE = 16
LIST_ENDS = b"k8s.io/initial-events-end"


class Reading(NamedTuple):
    cpu_s: float
    wall_s: float


def least_reading(kubeconfig: Path | str, paths: list[str]) -> Reading:
    """What a process of its own takes to read these paths."""
    command = [sys.executable, "-m", "bench.reads", str(kubeconfig)]
    began = time.perf_counter()
    text = subprocess.run(command, input=json.dumps(paths), stdout=subprocess.PIPE, check=True, text=True).stdout
    return Reading(json.loads(text), time.perf_counter() - began)


async def read_all(kubeconfig: str, paths: list[str]) -> None:
    config = load_config(kubeconfig)
    credential, tls = await config.credentials.current(), config.ssl_context()
    headers = {"Authorization": f"Bearer {credential.token}"} if credential.token else {}
    if tls is not None and credential.cert:
        load_client_cert(tls, credential, kubeconfig)
    connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=tls or True)
    async with aiohttp.ClientSession(config.server, connector=connector, headers=headers) as http:
        await asyncio.gather(*(_read(http, path) for path in paths))


async def _read(http: aiohttp.ClientSession, path: str) -> None:
    last = b""
    async with http.get(path) as answer:
        async for chunk in answer.content.iter_any():
            if LIST_ENDS in last[-len(LIST_ENDS) :] + chunk:
                return  # what follows are changes
            last = chunk


if __name__ == "__main__":
    asyncio.run(read_all(sys.argv[1], json.loads(sys.stdin.read())))
    print(time.process_time())
