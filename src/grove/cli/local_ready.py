"""When a local cluster is at work: admission answers, the operator and the scheduler lead, the nodes are there."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import click

from grove.api.core import Namespace, Node, Service
from grove.api.meta import Json
from grove.api.words import many
from grove.crds.install import install
from grove.diagnosis.processes import OPERATOR, RUNS, SCHEDULER, read_processes
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, KubeError
from grove.kube.http import HttpClient
from grove.local.process import Child
from grove.metrics.apiservices import METRICS

NAMESPACE = "grove-system"
"""Where the leases live."""

LEADING = (OPERATOR, SCHEDULER)
READY_S = 180.0
"""A process that is not at work by then is stuck; on a busy machine one of seconds takes a minute or more."""

ANSWER_S = 20.0
"""A server that runs and has not answered by then is stopped or cut off; on a busy machine it may take a while."""


@asynccontextmanager
async def _connected(kubeconfig: Path) -> AsyncIterator[Client]:
    async with HttpClient(load_config(kubeconfig), user_agent="grove-up") as client:
        yield client


async def prepare(kubeconfig: Path, dialects: bool, say: Callable[[str], None]) -> None:
    """Grove's kinds, and the namespace its leases live in."""
    async with _connected(kubeconfig) as client:
        await install(client, say, READY_S, dialects=dialects)
        try:
            await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        except AlreadyExists:
            pass


async def expose_metrics(kubeconfig: Path, port: int) -> None:
    """The Service that leads the aggregator to `grove metrics` on this machine."""
    spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    async with _connected(kubeconfig) as client:
        try:
            await client.create(Service, {"metadata": {"name": METRICS, "namespace": NAMESPACE}, "spec": spec})
        except AlreadyExists:
            await client.patch(Service, METRICS, {"spec": spec}, NAMESPACE)


def await_probe(child: Child, port: int) -> None:
    """Returns when the process says on its probe that it is ready."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (URLError, OSError) as error:
            if not child.alive() or time.monotonic() > deadline:
                raise _not_ready(child, f"is not ready ({error})") from None
        time.sleep(0.05)


async def leading(kubeconfig: Path, children: Sequence[Child]) -> set[str] | None:
    """Which of the programs lead; None if the server does not answer.

    A lease names the process that holds it: that of one that was killed speaks for it until it expires.
    """
    try:
        async with asyncio.timeout(ANSWER_S), _connected(kubeconfig) as client:
            processes = await read_processes(client, datetime.now(UTC))
    except (KubeError, OSError, TimeoutError):
        return None
    signs = {
        process.name: process.sign for process in (processes.operator, processes.scheduler) if process.state == RUNS
    }
    return {child.name for child in children if str(child.pid) in re.split(r"[_ ]", signs.get(child.name, ""))}


async def await_leader(kubeconfig: Path, child: Child) -> None:
    """Returns when the program holds its lease: from then on it acts."""
    deadline = time.monotonic() + READY_S
    while not await leading(kubeconfig, [child]):
        if not child.alive() or time.monotonic() > deadline:
            raise _not_ready(child, "does not lead")
        await asyncio.sleep(0.1)


def _not_ready(child: Child, how: str) -> click.ClickException:
    return click.ClickException(f"{child.name} {how}; {child.log} says:\n{child.log_tail()}")


async def await_nodes(kubeconfig: Path, count: int) -> int:
    """Waits for at least this number of nodes, and returns how many there are."""
    async with _connected(kubeconfig) as client:
        cache, changed = Cache(client), asyncio.Event()
        cache.add(Node)
        cache.on_event(Node, lambda old, new: changed.set())
        try:
            async with cache, asyncio.timeout(READY_S):
                while len(cache.list(Node)) < count:
                    await changed.wait()
                    changed.clear()
                return len(cache.list(Node))
        except TimeoutError:
            raise click.ClickException(f"after {READY_S:.0f} s there are fewer than {many(count, 'node')}") from None
