"""Real KEDA takes a scaling group to zero and back by Grove's numbers: `make test-keda`.

KEDA has the external metrics API, so Grove leaves it alone. KEDA reads the same numbers from Grove's own page, directly
or through a Prometheus.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from grove.api import labels as key
from grove.api.core import Namespace, Service
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.kube.run import probes
from grove.local.controlplane import ControlPlane
from grove.local.pki import Authority
from grove.metrics.apiservices import API_SERVICE
from grove.metrics.exposition import page_slices
from tests.keda.build import KEDA as PROGRAMS
from tests.support.go_programs import CRDS, free_port, running, tail
from tests.support.manifests import clique, group, pcs
from tests.support.metered import NAMESPACE, QUICK, Metered, metered
from tests.support.pages import gauge
from tests.support.waiting import nothing_missing

pytestmark = pytest.mark.soak

CRD = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
SCALED_OBJECT = Resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
EXTERNAL = "v1beta1.external.metrics.k8s.io"
KEDA = "keda"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not PROGRAMS.is_built:
        pytest.skip(f"KEDA is not in {PROGRAMS.directory}; `make test-keda` builds it")
    with ControlPlane(tmp_path_factory.mktemp("keda"), **QUICK) as plane:
        yield plane


async def register(client: HttpClient, port: int) -> None:
    """KEDA's kinds, its Service and its APIService, as its chart has them."""
    for path in sorted((PROGRAMS.directory / CRDS).glob("*.yaml")):
        await client.create(CRD, yaml.safe_load(path.read_text()))
    await client.create(Namespace, {"metadata": {"name": KEDA}})
    meta = {"name": "keda-metrics-apiserver", "namespace": KEDA}
    spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await client.create(Service, {"metadata": meta, "spec": spec})
    service = {"name": meta["name"], "namespace": KEDA, "port": port}
    await client.create(
        API_SERVICE,
        {
            "metadata": {"name": EXTERNAL},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": service,
            },
        },
    )


@asynccontextmanager
async def keda(plane: ControlPlane, port: int, logs: Path) -> AsyncIterator[None]:
    certificates = logs / "certs"
    certificates.mkdir()
    authority = Authority("keda")
    pair = authority.server("keda", ("localhost", "127.0.0.1"))
    (certificates / "ca.crt").write_bytes(authority.pair.certificate)
    (certificates / "tls.crt").write_bytes(pair.certificate)
    (certificates / "tls.key").write_bytes(pair.key)
    inside = f"127.0.0.1:{free_port()}"
    config = str(plane.kubeconfig)
    environment = {
        "KUBECONFIG": config,
        "WATCH_NAMESPACE": "",
        "POD_NAMESPACE": KEDA,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA,
    }
    operator = running(
        str(PROGRAMS.directory / "keda-operator"),
        "--enable-prometheus-metrics=false",
        "--health-probe-bind-address=0",
        f"--metrics-service-bind-address={inside}",
        f"--cert-dir={certificates}",
        log=logs / "operator.log",
        **environment,
    )
    adapter = running(
        str(PROGRAMS.directory / "keda-adapter"),
        f"--port={free_port()}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--metrics-service-address={inside}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--lister-kubeconfig={config}",
        log=logs / "adapter.log",
        **environment,
    )
    async with operator, adapter:
        yield


@asynccontextmanager
async def prometheus(page_port: int, folder: Path) -> AsyncIterator[str]:
    address = f"127.0.0.1:{free_port()}"
    scrape: Json = {
        "job_name": "grove-metrics",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{page_port}"]}],
        "honor_labels": True,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    arguments = (
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
    )
    async with running("prometheus", *arguments, log=folder / "prometheus.log"):
        yield f"http://{address}"


def scaled_object(name: str, trigger: Json) -> Json:
    target = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": f"{name}-0-grp"}
    spec: Json = {
        "scaleTargetRef": target,
        "minReplicaCount": 0,
        "maxReplicaCount": 4,
        "pollingInterval": 1,
        "cooldownPeriod": 2,
        "triggers": [trigger],
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def series(name: str) -> str:
    return f'grove_requests_waiting{{kind="PodCliqueSet",name="{name}",namespace="{NAMESPACE}"}}'


async def test_keda_takes_a_group_to_zero_and_back(plane: ControlPlane, tmp_path: Path) -> None:
    port = free_port()
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        await register(client, port)
    async with metered(plane) as world, keda(plane, port, tmp_path):
        more = partial(page_slices, world.metrics.readings)
        async with probes(0, host="127.0.0.1", ready=lambda: True, more=more) as page_port:
            trigger: Json = {
                "type": "metrics-api",
                "metadata": {
                    "url": f"http://127.0.0.1:{page_port}/metrics",
                    "format": "prometheus",
                    "targetValue": "4",
                    "valueLocation": series("direct"),
                },
            }
            await to_zero_and_back(world, "direct", trigger, tmp_path)
            assert EXTERNAL in world.metrics.registration.foreign, "it is KEDA's, and stays so"
            if shutil.which("prometheus") is None:
                print("no Prometheus here: the trigger `prometheus` is left out")
                return
            async with prometheus(page_port, tmp_path) as url:
                query = {"serverAddress": url, "query": f"sum({series('through')})", "threshold": "4"}
                await to_zero_and_back(world, "through", {"type": "prometheus", "metadata": query}, tmp_path)


async def to_zero_and_back(world: Metered, name: str, trigger: Json, logs: Path) -> None:
    """The router's queue, a number of the set, is there even while the group has no pods."""
    queued = 0

    def page(pod: str) -> bytes | None:
        return gauge("dynamo_frontend_queued_requests", ("", queued)).encode() if "-router-" in pod else None

    world.engines.default = page
    manifest = pcs(
        name,
        clique("router", annotations={"prometheus.io/port": "8000"}),
        clique("lead"),
        clique("work", 2),
        groups=[group("grp", "lead", "work")],
        namespace=NAMESPACE,
    )
    await world.client.create(PodCliqueSet, manifest)

    async def missing(units: int) -> str:
        grp = await world.client.get(PodCliqueScalingGroup, f"{name}-0-grp", NAMESPACE)
        gangs = await world.client.list(PodGang, NAMESPACE, labels=f"{key.PART_OF}={name}")
        seen = (grp.spec.replicas, len(await world.pods(name)), len(gangs.items))
        wanted = (units, 1 + 3 * units, max(1, units))
        if seen == wanted:
            return ""
        told = [tail(logs / f"{program}.log") for program in ("operator", "adapter")]
        return f"{seen}, not {wanted}; {await world.complaints()}; {told}"

    await nothing_missing(lambda: missing(1))
    await world.client.create(SCALED_OBJECT, scaled_object(name, trigger))
    await nothing_missing(lambda: missing(0), 180)
    queued = 8
    await nothing_missing(lambda: missing(2), 180)
    assert await world.half_placed(name) == []
    queued = 16
    await nothing_missing(lambda: missing(4), 180)
    assert await world.half_placed(name) == []
    queued = 0
    await nothing_missing(lambda: missing(0), 180)
    await world.client.delete(SCALED_OBJECT, name, NAMESPACE)
    await world.client.delete(PodCliqueSet, name, NAMESPACE)
