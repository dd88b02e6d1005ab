"""The operator's process around the operator: what it says to probes while leadership changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from grove.config import load_configuration
from grove.kube import lease
from grove.kube.cache import Cache
from grove.kube.connection import ClusterConfig
from grove.processes import operator
from grove.processes.operator import serve
from grove.sim.cluster import SimCluster

ELECTING = "leaderElection: {enabled: true}"
ALONE = "leaderElection: {enabled: false}"


class Unsynced:
    """An operator that leads and has not read the cluster yet."""

    is_ready = False

    def __init__(self, leads: asyncio.Event) -> None:
        self._leads = leads
        self.cache = Cache(SimCluster().client())

    async def run(self) -> None:
        self._leads.set()
        await asyncio.Event().wait()

    async def stand_by(self, client: object) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param(ELECTING, True, id="of several, one that takes over goes on serving admission"),
        pytest.param(ALONE, False, id="one that runs alone has nobody who serves meanwhile"),
    ],
)
async def test_readiness_while_a_leader_reads_the_cluster(
    monkeypatch: pytest.MonkeyPatch, config: str, want: bool
) -> None:
    checks: list[Callable[[], bool]] = []
    leads = asyncio.Event()

    @asynccontextmanager
    async def probes(port: int, *, ready: Callable[[], bool], **options: object) -> AsyncIterator[int]:
        checks.append(ready)
        yield port

    async def lead(self: lease.Leadership, work: Callable[[], Awaitable[None]]) -> None:
        assert all(ready() for ready in checks), "a standby is ready"
        await work()

    monkeypatch.setattr(operator, "Operator", lambda *args, **options: Unsynced(leads))
    monkeypatch.setattr(operator, "probes", probes)
    monkeypatch.setattr(lease.Leadership, "lead", lead)
    serving = asyncio.create_task(serve(load_configuration(config), ClusterConfig(server="http://127.0.0.1:1"), None))
    async with asyncio.timeout(60):
        await leads.wait()
    assert [ready() for ready in checks] == [want] * len(checks)
    assert checks
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
