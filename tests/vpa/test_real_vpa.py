"""The real VerticalPodAutoscaler on a PodClique: `make test-vpa`.

Its recommender, updater and admission controller run on a real control plane. Nodes are fake, and a server of this file
answers for metrics-server. So VPA decides, evicts and asks for resizes; no kubelet carries a resize out.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from grove.api import labels as key
from grove.api.core import CustomResourceDefinition, Namespace, Pod, Service
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.crds.install import install
from grove.diagnosis.reasons import sentence
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.pki import Authority
from grove.metrics.apiservices import API_SERVICE
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology
from tests.support.go_programs import CRDS, free_port, running, tail
from tests.support.manifests import clique, pcs
from tests.support.running import beside
from tests.support.waiting import nothing_missing
from tests.vpa.build import VPA

pytestmark = pytest.mark.soak

NAMESPACE, GROUP = "vpa", "metrics.k8s.io"
VPAS = Resource("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers")
PODS = Resource("", "v1", "Pod", "pods")
LONG_S = 300.0
QUIET_S = 20.0
"""Several periods of the recommender and the updater."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not VPA.is_built:
        pytest.skip(f"VPA is not in {VPA.directory}; `make test-vpa` builds it")
    with ControlPlane(tmp_path_factory.mktemp("vpa"), controller_manager=True, aggregator_routing=False) as plane:
        yield plane


class Watched:
    """The pods of the clique `web-0-front`, and its autoscaler."""

    def __init__(self, client: HttpClient, logs: Path) -> None:
        self.client, self._logs = client, logs

    async def scale(self, mode: str, cpu: str) -> None:
        """An autoscaler in that mode which gives the container at least so much CPU."""
        bounds = {"containerName": "main", "minAllowed": {"cpu": cpu}, "maxAllowed": {"memory": "64Mi"}}
        spec: Json = {
            "targetRef": {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "web-0-front"},
            "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [bounds]},
        }
        try:
            await self.client.patch(VPAS, "front", {"spec": spec}, NAMESPACE)
        except KubeError:
            await self.client.create(VPAS, {"metadata": {"name": "front", "namespace": NAMESPACE}, "spec": spec})

    async def pods(self) -> list[Pod]:
        page = await self.client.list(Pod, NAMESPACE, labels=f"{key.PART_OF}=web")
        return [pod for pod in page.items if not pod.metadata.is_deleting]

    async def ready(self, cpu: str) -> list[Pod]:
        """Both pods, once they are ready and ask for that CPU."""

        async def missing() -> str:
            seen = [(pod.metadata.name, pod.is_ready, cpu_of(pod)) for pod in await self.pods()]
            if len(seen) == 2 and all(ready and asked == cpu for _, ready, asked in seen):
                return ""
            return f"{seen}\n" + "\n".join(tail(log) for log in sorted(self._logs.glob("*.log")))

        await nothing_missing(missing, LONG_S)
        return await self.pods()

    async def report_resources(self) -> None:
        """What a kubelet that can resize pods reports of their containers; the fake ones do not."""
        for pod in await self.pods():
            name = pod.metadata.name
            found = await self.client.get(PODS, name, NAMESPACE)
            (status,) = found["status"]["containerStatuses"]
            given = {"resources": found["spec"]["containers"][0]["resources"]}
            patch = {"status": {"containerStatuses": [{**status, **given}]}}
            await self.client.patch(PODS, name, patch, NAMESPACE, subresource="status")

    async def recommendation(self) -> Json:
        found: list[Json] = []

        async def missing() -> str:
            vpa = await self.client.get(VPAS, "front", NAMESPACE)
            found[:] = vpa.get("status", {}).get("recommendation", {}).get("containerRecommendations", [])
            return "" if found else f"{vpa.get('status')}\n{tail(self._logs / 'recommender.log')}"

        await nothing_missing(missing, LONG_S)
        return found[0]

    async def gang(self) -> str:
        (found,) = (await self.client.list(PodGang, NAMESPACE)).items
        return found.metadata.uid


def cpu_of(pod: Pod) -> str:
    return str(pod.spec.containers[0].resources.requests.get("cpu"))


def uids(pods: list[Pod]) -> set[str]:
    return {pod.metadata.uid for pod in pods}


def places(pods: list[Pod]) -> list[str]:
    return sorted(pod.spec.node_name for pod in pods)


async def test_vpa_recommends_evicts_and_resizes_and_the_gang_keeps_its_nodes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with autoscaled(plane, tmp_path) as watched:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "50m"}}}
        manifest = pcs("web", clique("front", 2, containers=[container]), namespace=NAMESPACE)
        await watched.client.create(PodCliqueSet, manifest)
        first = await watched.ready("50m")
        gang, nodes = await watched.gang(), places(first)

        # Off: numbers, and nothing else.
        await watched.scale("Off", "120m")
        assert (await watched.recommendation())["target"]["cpu"] == "120m"
        await asyncio.sleep(QUIET_S)
        assert uids(await watched.pods()) == uids(first)

        # Recreate: the updater evicts, the operator replaces, VPA's webhook writes the request.
        await watched.scale("Recreate", "120m")
        second = await watched.ready("120m")
        assert not uids(first) & uids(second)
        assert (await watched.gang(), places(second)) == (gang, nodes)
        await asyncio.sleep(QUIET_S)
        assert uids(await watched.pods()) == uids(second), "the operator keeps pods that VPA has changed"

        # InPlaceOrRecreate on nodes that cannot resize a pod: VPA evicts.
        await watched.scale("InPlaceOrRecreate", "150m")
        third = await watched.ready("150m")
        assert not uids(second) & uids(third)
        assert (await watched.gang(), places(third)) == (gang, nodes)

        # And on nodes that can: the same pods get other requests.
        await watched.report_resources()
        await watched.scale("InPlaceOrRecreate", "180m")
        fourth = await watched.ready("180m")
        assert uids(fourth) == uids(third)
        await asyncio.sleep(QUIET_S)
        left = await watched.pods()
        assert (uids(left), {cpu_of(pod) for pod in left}) == (uids(third), {"180m"}), "the operator leaves them alone"


@asynccontextmanager
async def autoscaled(plane: ControlPlane, folder: Path) -> AsyncIterator[Watched]:
    """Grove, VPA and a stand-in for metrics-server on one control plane."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await install(client, lambda said: None)
        for kind in yaml.safe_load_all((VPA.directory / CRDS / "vpa-v1-crd-gen.yaml").read_text()):
            await client.create(CustomResourceDefinition.RESOURCE, kind)
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        port = await stack.enter_async_context(metrics_server(client, folder))
        await register(client, port)
        fakes = FakeNodes(client, SYSTEM)
        await stack.enter_async_context(fakes.running())
        await fakes.add(Topology(racks=2, nodes=2))
        operator = Operator(client, rng=random.Random(1))
        await stack.enter_async_context(operator.running())
        scheduler = Scheduler(client, SchedulerConfiguration(), SYSTEM, say=sentence)
        await stack.enter_async_context(beside(scheduler.run()))

        async def unserved() -> str:
            try:
                await client.list(VPAS)
                await client.list(Resource(GROUP, "v1beta1", "PodMetrics", "pods"), NAMESPACE)
            except KubeError as error:
                return str(error)
            return ""

        await nothing_missing(unserved, LONG_S)
        hook = free_port()
        each = {
            "recommender": ("--recommender-interval=2s",),
            "updater": ("--updater-interval=3s",),
            "admission-controller": webhook(folder, hook),
        }
        for part, more in each.items():
            common = (f"--kubeconfig={plane.kubeconfig}", f"--address=127.0.0.1:{free_port()}")
            program = str(VPA.directory / f"vpa-{part}")
            await stack.enter_async_context(running(program, *common, *more, log=folder / f"{part}.log"))
        yield Watched(client, folder)


def webhook(folder: Path, port: int) -> tuple[str, ...]:
    """Arguments of the admission controller: its certificate, and where the API server reaches it."""
    authority = Authority("vpa")
    ca, _ = authority.pair.write(folder, "ca")
    certificate, private = authority.server("vpa-webhook").write(folder, "hook")
    return (
        f"--client-ca-file={ca}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key={private}",
        "--register-by-url=true",
        "--webhook-address=https://127.0.0.1",
        f"--webhook-port={port}",
        f"--port={port}",
    )


async def register(client: HttpClient, port: int) -> None:
    meta = {"name": "metrics-server", "namespace": "kube-system"}
    spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await client.create(Service, {"metadata": meta, "spec": spec})
    await client.create(
        API_SERVICE,
        {
            "metadata": {"name": f"v1beta1.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**meta, "port": port},
            },
        },
    )


@asynccontextmanager
async def metrics_server(client: HttpClient, folder: Path) -> AsyncIterator[int]:
    """Answers that every pod uses 10m CPU and 20Mi of memory."""
    certificate, private = Authority("metrics").server("metrics", ("localhost", "127.0.0.1")).write(folder, "metrics")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, private)
    pods: Json = {
        "name": "pods",
        "singularName": "",
        "namespaced": True,
        "kind": "PodMetrics",
        "verbs": ["get", "list"],
    }

    async def answer(path: str) -> Json:
        version = {"apiVersion": f"{GROUP}/v1beta1"}
        if not path.partition("?")[0].endswith("/pods"):
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/v1beta1",
                "resources": [pods],
            }
        used = [{"name": "main", "usage": {"cpu": "10m", "memory": "20Mi"}}]
        now = SYSTEM.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        found = (await client.list(Pod, NAMESPACE)).items
        items = [
            {
                "metadata": {"name": pod.metadata.name, "namespace": NAMESPACE, "labels": dict(pod.metadata.labels)},
                "timestamp": now,
                "window": "10s",
                "containers": used,
            }
            for pod in found
        ]
        return {**version, "kind": "PodMetricsList", "metadata": {}, "items": items}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                body = json.dumps(await answer(line.split()[1].decode())).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
