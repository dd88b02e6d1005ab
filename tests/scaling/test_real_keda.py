"""KEDA itself takes a scaling group to zero and back, by a number on a page in the form of `grove metrics`' own.

Needs KEDA's operator, built from its Go module (`go build ./cmd/operator`), and its CRDs: GROVE_KEDA names a folder
with the program `operator` and the module's source in `src`. The HPA that KEDA makes is left without its metrics
server: what is tested is zero to one and back, which the operator does alone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Binder
from tests.support.waiting import nothing_missing

from grove.api.core import Namespace, Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.pki import Authority
from grove.operator.wiring import Operator
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

pytestmark = pytest.mark.soak

NAMESPACE = "kedaed"
SCALED_OBJECT = Resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
CRD = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


@pytest.fixture(scope="module")
def keda() -> Path:
    folder = Path(os.environ.get("GROVE_KEDA") or "nowhere")
    if not (folder / "operator").exists():
        pytest.skip("there is no KEDA here: build its operator and name the folder in GROVE_KEDA")
    return folder


@pytest.fixture(scope="module")
def plane(keda: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("keda"), controller_manager=True) as plane:
        yield plane


class Page:
    """The queue of a set, as `grove metrics` would show it."""

    def __init__(self) -> None:
        self.waiting = 0

    async def answer(self, _: web.Request) -> web.Response:
        name = "grove_requests_waiting"
        labels = f'kind="PodCliqueSet",name="idle",namespace="{NAMESPACE}"'
        return web.Response(text=f"# TYPE {name} gauge\n{name}{{{labels}}} {self.waiting}\n")


async def test_a_group_goes_to_zero_and_comes_back(plane: ControlPlane, keda: Path, tmp_path: Path) -> None:
    page = Page()
    app = web.Application()
    app.router.add_get("/metrics", page.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        await install(client, lambda said: None)
        for file in sorted((keda / "src/config/crd/bases").glob("*.yaml")):
            await client.create(CRD, yaml.safe_load(file.read_text()))
        for name in (NAMESPACE, "keda"):
            await client.create(Namespace, {"metadata": {"name": name}})
        nodes, operator = FakeNodes(client, SYSTEM), Operator(client, rng=random.Random(1))
        placing = asyncio.get_running_loop().create_task(Binder(client, NAMESPACE, "", plays_kube=False).run())
        scaler = await _started(keda, plane, tmp_path)
        try:
            async with nodes.running(), operator.running():
                await nodes.add(Topology(racks=1, nodes=4))
                await _zero_and_back(client, page, runner.addresses[0][1])
        finally:
            scaler.kill()
            placing.cancel()
            await asyncio.gather(scaler.wait(), placing, return_exceptions=True)
            await runner.cleanup()


async def _started(keda: Path, plane: ControlPlane, folder: Path) -> Any:
    authority = Authority("keda")
    authority.server("keda-operator").write(folder, "tls")
    (folder / "ca.crt").write_bytes(authority.pair.certificate)
    with (folder / "keda.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            str(keda / "operator"), f"--cert-dir={folder}", "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0", "--metrics-service-bind-address=127.0.0.1:0",
            "--enable-webhook-patching=false", "--enable-apiservice-patching=false",
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda",
                 "POD_NAME": "keda"},
            stdout=log, stderr=log,
        )  # fmt: skip


async def _zero_and_back(client: HttpClient, page: Page, port: int) -> None:
    manifest = pcs(
        "idle", clique("router"), clique("lead"), clique("work", 2), groups=[group("grp", "lead", "work")],
        namespace=NAMESPACE,
    )  # fmt: skip
    await client.create(PodCliqueSet, manifest)

    async def missing(units: int) -> str:
        grp = await client.get(PodCliqueScalingGroup, "idle-0-grp", NAMESPACE)
        pods = [pod for pod in (await client.list(Pod, NAMESPACE)).items if not pod.metadata.is_deleting]
        seen = (grp.spec.replicas, grp.status.available_replicas, len(pods))
        return "" if seen == (units, units, 1 + 3 * units) else f"{seen} instead of {units} units"

    await nothing_missing(lambda: missing(1))
    selected = f'grove_requests_waiting{{kind="PodCliqueSet",name="idle",namespace="{NAMESPACE}"}}'
    trigger: Json = {
        "type": "metrics-api", "metricType": "AverageValue",
        "metadata": {"url": f"http://127.0.0.1:{port}/metrics", "format": "prometheus", "valueLocation": selected,
                     "targetValue": "4"},
    }  # fmt: skip
    spec: Json = {
        "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "idle-0-grp"},
        "minReplicaCount": 0, "maxReplicaCount": 4, "pollingInterval": 2, "cooldownPeriod": 3, "triggers": [trigger],
    }  # fmt: skip
    await client.create(SCALED_OBJECT, {"metadata": {"name": "idle", "namespace": NAMESPACE}, "spec": spec})
    await nothing_missing(lambda: missing(0))
    page.waiting = 8
    await nothing_missing(lambda: missing(1))
    page.waiting = 0
    await nothing_missing(lambda: missing(0))
