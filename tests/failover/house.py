"""A control plane with an audit log, two operators and two schedulers as processes, and steady work for both."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from grove.api.core import Lease, Namespace, ServiceAccount
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports
from grove.local.process import Child, spawn
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology
from tests.failover import audit
from tests.failover.proxy import Link
from tests.support.manifests import clique, pcs
from tests.support.planes import GrovePlane

NS = "team"
EVERY_S = 0.3
"""A new set so often: silence of one side is seen to within this."""
LIVE = 15
DECIDES = {"operator": "pods", "scheduler": "pods/binding"}
"""What each role writes when it has decided."""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Times:
    """Of the election: how long a lease lasts, how long its holder believes in it, how often it is renewed."""

    lease_s: float
    renew_s: float
    retry_s: float

    @property
    def fields(self) -> dict[str, object]:
        return {
            "leaderElection": {
                "enabled": True,
                "leaseDuration": f"{self.lease_s:g}s",
                "renewDeadline": f"{self.renew_s:g}s",
                "retryPeriod": f"{self.retry_s * 1000:.0f}ms",
                "resourceNamespace": NS,
            }
        }


@dataclass
class Replica:
    """One process, its name in the audit log, and its way to the API server."""

    role: str
    user: str
    child: Child
    link: Link

    @property
    def identity(self) -> str:
        """Its name in the election, as it tells it in its log."""
        told = re.search(r"identity\W+([^\s\"]+_[0-9a-f]{16})", self.child.log.read_text())
        assert told is not None, self.child.log_tail(5)
        return told[1]

    def says(self, words: str) -> bool:
        return words in self.child.log.read_text()


@dataclass
class House:
    plane: ControlPlane
    client: HttpClient
    directory: Path
    stack: AsyncExitStack
    times: Times
    log: audit.AuditLog
    every: list[Replica] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def writes(self) -> list[audit.Write]:
        return self.log.writes

    def lease(self, role: str) -> str:
        return f"grove-{role}-leader-election"

    async def start(self, role: str) -> Replica:
        """One more replica, under a name of its own; returns when it leads or stands by."""
        number = next(self._numbers)
        user = f"{role}-{number}"
        link = Link(urlsplit(self.plane.server).port or 443)
        await self.stack.enter_async_context(link.running())
        access = json.loads(self.plane.client_kubeconfig(user, ["system:masters"]).read_text())
        access["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
        kubeconfig = self.directory / f"{user}.kubeconfig"
        kubeconfig.write_text(json.dumps(access))
        config = self.directory / f"{user}.yaml"
        config.write_text(yaml.safe_dump(self._configuration(role)))
        command = [sys.executable, "-m", "grove", role, "--kubeconfig", str(kubeconfig), "--config", str(config)]
        replica = Replica(role, user, spawn(user, command, self.directory / f"{user}.log"), link)
        self.stack.callback(replica.child.stop, 10)
        self.every.append(replica)
        await self.until(
            f"{user} takes part", lambda: replica.says("became leader") or replica.says("standing by"), replica
        )
        return replica

    def _configuration(self, role: str) -> dict[str, object]:
        if role == "scheduler":
            return self.times.fields | {"server": {"port": -1}}
        health, metrics = free_ports(2)
        return self.times.fields | {"server": {"healthProbes": {"port": health}, "metrics": {"port": metrics}}}

    async def pair(self, role: str) -> tuple[Replica, Replica]:
        """Leader and standby; one that ended by itself, on a machine too busy for its lease, is replaced first."""
        while sum(one.role == role and one.child.alive() for one in self.every) < 2:
            await self.start(role)
        leader = await self.leader(role)
        (standby,) = (one for one in self.every if one.role == role and one is not leader and one.child.alive())
        return leader, standby

    async def leader(self, role: str) -> Replica:
        """The process that holds the lease, by what it wrote itself."""

        def found() -> Replica | None:
            held = [one for one in self.writes if one.what == "leases" and one.name == self.lease(role) and one.holder]
            user = held[-1].user if held else ""
            return next((one for one in self.every if one.user == user and one.child.alive()), None)

        await self.until(f"somebody leads as {role}", found)
        leads = found()
        assert leads is not None
        return leads

    async def until(self, what: str, look: Callable[[], object], about: Replica | None = None) -> None:
        end = time.monotonic() + PATIENCE_S
        while not look():
            told = about.child.log_tail(20) if about is not None else ""
            assert time.monotonic() < end, f"not in {PATIENCE_S:.0f} s: {what}\n{told}"
            await asyncio.sleep(0.1)

    async def edit_lease(self, role: str, patch: dict[str, object] | None) -> None:
        if patch is None:
            await self.client.delete(Lease, self.lease(role), NS)
        else:
            await self.client.patch(Lease, self.lease(role), {"spec": patch}, NS)


@asynccontextmanager
async def house(directory: Path, times: Times) -> AsyncIterator[House]:
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(audit.POLICY))
    logged = [f"--audit-policy-file={policy}", f"--audit-log-path={directory}/audit.log"]
    with GrovePlane(directory / "kube", "1.36.3", controller_manager=True, extra_apiserver_args=logged) as plane:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
            await client.create(Namespace, {"metadata": {"name": NS}})
            found = House(plane, client, directory, stack, times, audit.AuditLog(directory / "audit.log"))
            while True:
                try:
                    await client.get(ServiceAccount, "default", NS)
                    break
                except KubeError:
                    await asyncio.sleep(0.1)
            nodes = FakeNodes(client, SYSTEM)
            await nodes.add(Topology(racks=2, nodes=4))
            await stack.enter_async_context(nodes.running())
            for role in DECIDES:
                for _ in range(2):
                    await found.start(role)
            working = asyncio.create_task(_work(client))
            try:
                yield found
            finally:
                working.cancel()


async def _work(client: HttpClient) -> None:
    """A set every moment, and the oldest deleted: there is always something to decide for both roles."""
    for number in itertools.count():
        small = clique("server", 1)
        await client.create(PodCliqueSet, pcs(f"w{number}", small, namespace=NS))
        if number >= LIVE:
            await client.delete(PodCliqueSet, f"w{number - LIVE}", NS)
        await asyncio.sleep(EVERY_S)
