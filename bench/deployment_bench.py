"""What Grove costs those who do not use it: a Deployment scaled to a thousand pods and back, with and without Grove.

    python -m bench deployment

One control plane with kube-scheduler, one hundred fake nodes. With Grove, operator and scheduler run as processes, as
installed. Rounds without and with Grove take turns, so that a busy moment of the machine meets both. The table has the
best of each. CPU is that of API server, etcd, controllers and kube-scheduler, and with Grove also Grove's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, cpu_s
from bench.planes import stock_plane
from grove.api.core import Namespace, Pod, ServiceAccount
from grove.api.meta import Resource
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.binaries import to_stderr
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports
from grove.local.process import Child, spawn
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

NS, NAME = "plain", "plain"
PODS, ROUNDS = 1_000, 3
DEPLOYMENT = Resource("apps", "v1", "Deployment", "deployments")
AIM = "less than 10 % more"


@dataclass(frozen=True)
class Cost:
    up_s: float
    down_s: float
    control_plane_s: float
    grove_s: float


def run(results: dict[str, Figure]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        stock_plane(Path(folder) / "kube", scheduler=True) as plane,
    ):
        without, with_grove = asyncio.run(_measured(plane, Path(folder)))
    for what in ("up_s", "down_s"):
        best = min(getattr(sample, what) for sample in without)
        direction = what.removesuffix("_s")
        name = f"a Deployment's {PODS:,} pods, {direction}, with Grove beside"
        results[name] = Figure(min(getattr(sample, what) for sample in with_grove), "s", AIM, best)
    baseline = min(sample.control_plane_s for sample in without)
    results["the same, up and down: CPU of the control plane"] = Figure(
        min(sample.control_plane_s for sample in with_grove), "s", AIM, baseline
    )
    results["the same: CPU of the control plane and of Grove"] = Figure(
        min(sample.control_plane_s + sample.grove_s for sample in with_grove), "s", AIM, baseline
    )


async def _measured(plane: ControlPlane, folder: Path) -> tuple[list[Cost], list[Cost]]:
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        await install(client, to_stderr)
        await client.create(Namespace, {"metadata": {"name": NS}})
        nodes = FakeNodes(client, SYSTEM)
        await nodes.add(Topology(racks=5, nodes=20))
        async with nodes.running():
            await _prepare(client)
            await _scaled(client, PODS)  # caches of everybody grow once
            await _scaled(client, 0)
            costs: dict[bool, list[Cost]] = {False: [], True: []}
            for _ in range(ROUNDS):
                for beside in (False, True):
                    with _grove(plane, folder) if beside else contextlib.nullcontext([]) as ours:
                        await asyncio.sleep(10)
                        costs[beside].append(await _round(client, plane, ours))
    return costs[False], costs[True]


async def _round(client: HttpClient, plane: ControlPlane, ours: list[Child]) -> Cost:
    before, before_ours = _cpu(plane.children), _cpu(ours)
    up_s = await _scaled(client, PODS)
    down_s = await _scaled(client, 0)
    return Cost(up_s, down_s, _cpu(plane.children) - before, _cpu(ours) - before_ours)


@contextmanager
def _grove(plane: ControlPlane, folder: Path) -> Iterator[list[Child]]:
    health, metrics = free_ports(2)
    config = folder / "operator.yaml"
    config.write_text(
        f"server: {{healthProbes: {{port: {health}}}, metrics: {{port: {metrics}}}}}\n"
        "leaderElection: {enabled: false}\n"
    )
    access = ["--kubeconfig", str(plane.kubeconfig)]
    children = [
        spawn(
            "operator", [sys.executable, "-m", "grove", "operator", *access, "--config", str(config)], folder / "o.log"
        ),
        spawn("scheduler", [sys.executable, "-m", "grove", "scheduler", *access, "--port=-1"], folder / "s.log"),
    ]
    try:
        yield children
    finally:
        for child in children:
            child.stop(10)


async def _prepare(client: HttpClient) -> None:
    while True:
        with contextlib.suppress(KubeError):
            await client.get(ServiceAccount, "default", NS)
            break
        await asyncio.sleep(0.1)
    labels = {"app": NAME}
    pod = {"containers": [{"name": "main", "image": "example/plain:1", "resources": {"requests": {"cpu": "10m"}}}]}
    await client.create(
        DEPLOYMENT,
        {
            "metadata": {"name": NAME, "namespace": NS},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )


async def _scaled(client: HttpClient, replicas: int) -> float:
    """Seconds until this number of pods is ready, and no other pod exists."""
    began = time.perf_counter()
    await client.patch(DEPLOYMENT, NAME, {"spec": {"replicas": replicas}}, NS)
    while True:
        await asyncio.sleep(0.2)
        status = (await client.get(DEPLOYMENT, NAME, NS)).get("status", {})
        if status.get("readyReplicas", 0) == status.get("replicas", 0) == replicas and (
            replicas or not (await client.list(Pod.RESOURCE, NS, limit=1)).items
        ):
            return time.perf_counter() - began


def _cpu(children: list[Child]) -> float:
    return sum(cpu_s(child.pid) for child in children)
