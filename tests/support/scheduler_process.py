"""The scheduler as a process of its own, and nodes for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from grove.api.core import Node
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports
from grove.sim.topology import Topology
from tests.support.waiting import eventually


class Running:
    """One scheduler process."""

    def __init__(self, child: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.child, self.port, self._log = child, port, log

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def ready(self) -> None:
        async def is_ready() -> bool:
            assert self.child.returncode is None, self.log
            try:
                return (await self.get("/readyz"))[0] == 200
            except aiohttp.ClientError:
                return False

        await eventually(is_ready)


@asynccontextmanager
async def scheduler(plane: ControlPlane, folder: Path, *args: str) -> AsyncIterator[Running]:
    (port,) = free_ports(1)
    log = folder / f"scheduler-{port}.log"
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grove",
            "scheduler",
            "--kubeconfig",
            str(plane.kubeconfig),
            "--port",
            str(port),
            *args,
            stdout=out,
            stderr=out,
        )
    try:
        yield Running(child, port, log)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@asynccontextmanager
async def nodes(client: HttpClient, prefix: str, count: int) -> AsyncIterator[None]:
    """Plain Node objects, ready at once."""
    names = []
    for node in Topology(nodes=count, gpus=1, prefix=f"{prefix}-").objects():
        ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": None}
        node["status"]["conditions"] = [ready]
        await client.create(Node, node)
        names.append(node["metadata"]["name"])
    try:
        for name in names:
            await client.patch(Node, name, {"spec": {"taints": None}})
        yield
    finally:
        for name in names:
            await client.delete(Node, name)
