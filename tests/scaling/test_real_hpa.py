"""Autoscaling for real: kube-controller-manager reads metrics that this test serves, and scales by whole units.

The metrics APIs are registered with the API server like any metrics server's: APIServices that lead to our own HTTPS
server on this machine.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Binder
from tests.support.waiting import nothing_missing

from grove.api import labels as key
from grove.api.core import HorizontalPodAutoscaler, Namespace, Pod, Service
from grove.api.meta import Json, Resource, rfc3339
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
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

API_SERVICE = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
RESOURCE_METRICS, EXTERNAL_METRICS = "metrics.k8s.io", "external.metrics.k8s.io"
NAMESPACE = "scaled"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes with quick autoscalers, which reaches Services by their external name."""
    options: Any = {"hpa_sync_period_s": 1.0, "hpa_downscale_stabilization_s": 0.0, "aggregator_routing": False}
    with ControlPlane(tmp_path_factory.mktemp("hpa"), controller_manager=True, **options) as plane:
        yield plane


class Metrics:
    """The metrics of the cluster: CPU of its pods by clique, and the length of a queue."""

    def __init__(self) -> None:
        self.cpu_milli: dict[str, int] = {}
        self.queue_length = 0
        self.pods: dict[str, str] = {}

    def application(self) -> web.Application:
        app = web.Application()
        for api, names in ((RESOURCE_METRICS, ("pods", "PodMetrics")), (EXTERNAL_METRICS, ("queue", "External"))):
            app.router.add_get(f"/apis/{api}/v1beta1", self._discovery(api, *names))
        app.router.add_get(f"/apis/{RESOURCE_METRICS}/v1beta1/namespaces/{{namespace}}/pods", self._pod_metrics)
        app.router.add_get(f"/apis/{EXTERNAL_METRICS}/v1beta1/namespaces/{{namespace}}/queue", self._external)
        return app

    def _discovery(self, api: str, name: str, kind: str) -> Any:
        async def answer(_: web.Request) -> web.Response:
            resource = {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
            body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{api}/v1beta1"}
            return web.json_response({**body, "resources": [resource]})

        return answer

    async def _pod_metrics(self, request: web.Request) -> web.Response:
        selected = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
        part_of, wanted = selected[key.PART_OF], selected.get(key.POD_CLIQUE, "")
        items = [
            {
                "metadata": {"name": name, "namespace": request.match_info["namespace"]},
                "timestamp": rfc3339(datetime.now(UTC)),
                "window": "1s",
                "containers": [{"name": "main", "usage": {"cpu": f"{self.cpu_milli.get(owner, 0)}m"}}],
            }
            for name, owner in self.pods.items()
            if owner.startswith(f"{part_of}-") and wanted in ("", owner)
        ]
        return web.json_response(
            {"kind": "PodMetricsList", "apiVersion": f"{RESOURCE_METRICS}/v1beta1", "metadata": {}, "items": items}
        )

    async def _external(self, _: web.Request) -> web.Response:
        value = {
            "metricName": "queue",
            "metricLabels": {},
            "timestamp": rfc3339(datetime.now(UTC)),
            "value": str(self.queue_length),
        }
        body = {"kind": "ExternalMetricValueList", "apiVersion": f"{EXTERNAL_METRICS}/v1beta1", "metadata": {}}
        return web.json_response({**body, "items": [value]})


@asynccontextmanager
async def served(metrics: Metrics, client: HttpClient, directory: Path) -> AsyncIterator[None]:
    """The metrics, behind the API server."""
    pair = Authority("metrics").server("localhost")
    certificate, private = pair.write(directory, "metrics")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, private)
    runner = web.AppRunner(metrics.application(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    try:
        meta = {"name": "metrics", "namespace": NAMESPACE}
        spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        await client.create(Service, {"metadata": meta, "spec": spec})
        for api in (RESOURCE_METRICS, EXTERNAL_METRICS):
            await client.create(
                API_SERVICE,
                {
                    "metadata": {"name": f"v1beta1.{api}"},
                    "spec": {
                        "group": api,
                        "version": "v1beta1",
                        "groupPriorityMinimum": 100,
                        "versionPriority": 100,
                        "insecureSkipTLSVerify": True,
                        "service": {"name": "metrics", "namespace": NAMESPACE, "port": port},
                    },
                },
            )
        yield
    finally:
        await runner.cleanup()


@pytest.mark.waits
async def test_a_clique_a_group_and_a_set_scale_out_and_in_by_whole_units(plane: ControlPlane, tmp_path: Path) -> None:
    metrics = Metrics()
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        await install(client, lambda said: None)
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        nodes = FakeNodes(client, SYSTEM)
        operator = Operator(client, rng=random.Random(1))
        binder = Binder(client, NAMESPACE, "", plays_kube=False)
        placing = asyncio.get_running_loop().create_task(binder.run())
        async with served(metrics, client, tmp_path), nodes.running(), operator.running():
            try:
                await nodes.add(Topology(racks=2, nodes=4))
                await _scale_both(client, metrics)
                await _scale_set(client, metrics)
            finally:
                placing.cancel()
                await asyncio.gather(placing, return_exceptions=True)


async def follow_pods(client: HttpClient, metrics: Metrics) -> None:
    page = await client.list(Pod, NAMESPACE)
    metrics.pods = {pod.metadata.name: pod.metadata.labels.get(key.POD_CLIQUE, "") for pod in page.items}


async def _scale_both(client: HttpClient, metrics: Metrics) -> None:
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    queue = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    }
    web_scale = {"minReplicas": 1, "maxReplicas": 4, "metrics": [cpu]}
    group_scale = {"minReplicas": 1, "maxReplicas": 3, "metrics": [queue]}
    manifest = pcs(
        "auto",
        clique("web", 1, scale=web_scale),
        clique("lead"),
        clique("work", 2),
        groups=[group("grp", "lead", "work", replicas=1, scale=group_scale)],
        namespace=NAMESPACE,
    )
    metrics.cpu_milli["auto-0-web"] = 80  # of the 100 asked for: just right
    metrics.queue_length = 10
    await client.create(PodCliqueSet, manifest)

    async def sizes() -> tuple[int, int, int, int]:
        """Ready pods of the clique, whole replicas of the group, PodGangs, and all pods that stay."""
        await follow_pods(client, metrics)
        web_now = await client.get(PodClique, "auto-0-web", NAMESPACE)
        grp_now = await client.get(PodCliqueScalingGroup, "auto-0-grp", NAMESPACE)
        gangs = (await client.list(PodGang, NAMESPACE)).items
        pods = [pod for pod in (await client.list(Pod, NAMESPACE)).items if not pod.metadata.is_deleting]
        return web_now.status.ready_replicas, grp_now.status.available_replicas, len(gangs), len(pods)

    async def missing(*wanted: int) -> str:
        seen = await sizes()
        return "" if seen == wanted else f"{seen} instead of {wanted}"

    await nothing_missing(lambda: missing(1, 1, 1, 1 + 3))

    async def without_scaler() -> str:
        scaler = await client.get(HorizontalPodAutoscaler, "auto-0-web", NAMESPACE)
        return "" if scaler.spec.max_replicas == 4 else f"up to {scaler.spec.max_replicas}"

    await nothing_missing(without_scaler)

    metrics.cpu_milli["auto-0-web"] = 400
    metrics.queue_length = 30
    await nothing_missing(lambda: missing(4, 3, 3, 4 + 3 * 3))

    metrics.cpu_milli["auto-0-web"] = 1
    metrics.queue_length = 1
    await nothing_missing(lambda: missing(1, 1, 1, 1 + 3))


async def _scale_set(client: HttpClient, metrics: Metrics) -> None:
    """A user's own autoscaler on a set: it finds the pods by the selector the set publishes."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    spec: Json = {
        "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "whole"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    metrics.cpu_milli |= {f"whole-{replica}-w": 80 for replica in range(3)}
    await client.create(PodCliqueSet, pcs("whole", clique("w"), namespace=NAMESPACE))
    await client.create(HorizontalPodAutoscaler, {"metadata": {"name": "user", "namespace": NAMESPACE}, "spec": spec})

    async def missing(replicas: int) -> str:
        await follow_pods(client, metrics)
        whole = await client.get(PodCliqueSet, "whole", NAMESPACE)
        seen = (whole.spec.replicas, whole.status.replicas, whole.status.available_replicas)
        return "" if seen == (replicas, replicas, replicas) else f"{seen} instead of {replicas}"

    await nothing_missing(lambda: missing(1))
    metrics.cpu_milli |= {f"whole-{replica}-w": 400 for replica in range(3)}
    await nothing_missing(lambda: missing(3))
    metrics.cpu_milli |= {f"whole-{replica}-w": 1 for replica in range(3)}
    await nothing_missing(lambda: missing(1))
