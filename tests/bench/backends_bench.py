"""Gangs through kube-scheduler 1.36, with the Workload API and without: time to all bound, and what telling costs.

A hundred gangs of twelve pods (two cliques) on a hundred fake nodes, one operator and one scheduler on this machine.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from grove.api.core import Namespace, ServiceAccount
from grove.crds.install import install
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import Topology
from tests.bench.figures import Figure
from tests.kube_gangs import GANGS, RealCluster, gang_plane
from tests.manifests import clique, pcs
from tests.operating import KUBE, operating

SETS, PODS = 100, 12
OFF = KUBE.replace("name: default-scheduler", "name: default-scheduler, config: {gang: Off}")


async def _measure(plane: ControlPlane, namespace: str, config: str) -> tuple[float, float]:
    """Seconds until every pod is bound, and the operator's writes a pod."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await install(client, say=lambda line: None)
        await client.create(Namespace, {"metadata": {"name": namespace}})
        cluster = RealCluster(client, namespace, stack)
        await cluster.eventually(lambda: client.get(ServiceAccount, "default", namespace))
        world = await stack.enter_async_context(operating(cluster, config=config, nodes=Topology(racks=10, nodes=10)))
        began, before = time.perf_counter(), sum(world.writes().values())
        whole = pcs("b", clique("prefill", 4), clique("decode", 8), replicas=SETS)
        await world.apply(whole)

        async def all_bound() -> bool:
            return sum(pod.is_bound for pod in await world.pods()) == SETS * PODS

        while not await all_bound():  # noqa: ASYNC110
            await asyncio.sleep(1)
        took_s = time.perf_counter() - began
        await world.quiet()
        return took_s, (sum(world.writes().values()) - before) / (SETS * PODS)


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as directory, gang_plane(Path(directory), "1.36.3") as plane:
        plain_s, plain = asyncio.run(_measure(plane, "plain", OFF))
        gangs_s, gangs = asyncio.run(_measure(plane, "gangs", GANGS))
    results["100 gangs of 12 pods bound by kube-scheduler, one by one"] = Figure(plain_s, "s", "")
    results["100 gangs of 12 pods bound by kube-scheduler, as gangs"] = Figure(gangs_s, "s", "")
    results["writes a pod that gangs add"] = Figure(gangs - plain, "", "≤ 0.3")
