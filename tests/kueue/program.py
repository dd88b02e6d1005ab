"""The program of Kueue at work on a control plane of this machine, and what a test asks of it.

`RealKueue` has the same functions as the stand-in of `tests.support.kueue`, so the same stories run with both.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from grove.api.core import Event
from grove.api.meta import Json, Resource
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound
from grove.local.controlplane import ControlPlane
from tests.kueue.build import KUEUE
from tests.support.go_programs import CRDS, free_port, running, tail
from tests.support.kueue import FLAVOR, VERSION, WORKLOAD
from tests.support.running import beside
from tests.support.waiting import eventually

SYSTEM, SERVICE, SECRET = "kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert"
FLAVORS = Resource("kueue.x-k8s.io", VERSION, "ResourceFlavor", "resourceflavors", namespaced=False)
CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""Kinds with a conversion webhook, as in Kueue's own installation."""
TOO_FEW = "fewer runnable pods than expected"
"""Kueue says so while the pods of a group are being created."""


def definitions() -> list[Json]:
    """Kueue's CRDs, with their conversion webhooks."""
    found = []
    for path in sorted((KUEUE.directory / CRDS).glob("kueue.x-k8s.io_*.yaml")):
        kind: Json = yaml.load(path.read_text(), yaml.CSafeLoader)
        if kind["spec"]["names"]["plural"] in CONVERTED:
            kind["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"service": {"path": "/convert"}}, "conversionReviewVersions": ["v1"]},
            }
        found.append(kind)
    return found


def objects(port: int) -> list[Json]:
    """What Kueue's installation has beside its Deployment. The Service leads to the port on this machine."""
    place = {"namespace": SYSTEM, "name": SERVICE, "port": port}
    hooks = list(yaml.load_all((KUEUE.directory / CRDS / "manifests.yaml").read_text(), yaml.CSafeLoader))
    kinds = definitions()
    for configuration in hooks:
        configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["service"] |= place
    for kind in kinds:
        if "conversion" in kind["spec"]:
            kind["spec"]["conversion"]["webhook"]["clientConfig"]["service"] |= place
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": SYSTEM}, "spec": service},
        *kinds,
        *hooks,
    ]


def _kubectl(plane: ControlPlane, *words: str, given: str = "") -> str:
    done = subprocess.run(
        [plane.kubectl, "--kubeconfig", plane.kubeconfig, *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def configuration(folder: Path, port: int, health: int) -> Path:
    """As Kueue is installed, with the integration of plain pods, and ports of this machine."""
    path = folder / "configuration.json"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": SYSTEM,
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
                "webhook": {"port": port, "certDir": str(folder)},
                "leaderElection": {"leaderElect": False},
                "integrations": {"frameworks": ["pod"]},
            }
        )
    )
    return path


@asynccontextmanager
async def kueue_running(plane: ControlPlane, folder: Path) -> AsyncIterator[None]:
    """Installs Kueue and runs it. The certificate that it writes into its Secret is copied to its folder."""
    port, health, log = free_port(), free_port(), folder / "kueue.log"
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(port)})
    await asyncio.to_thread(_kubectl, plane, "apply", "--server-side", "--force-conflicts", "-f", "-", given=given)
    config = configuration(folder, port, health)

    async def mounted() -> bool:
        said = await asyncio.to_thread(_kubectl, plane, "get", "secret", "-n", SYSTEM, SECRET, "-o", "json")
        data = json.loads(said).get("data", {})
        for name, value in data.items():
            (folder / name).write_bytes(base64.b64decode(value))
        return "tls.key" in data

    async def serves() -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return "Starting Controller" in log.read_text() or "Starting workers" in log.read_text()
        return False

    words = (f"--config={config}", f"--kubeconfig={plane.kubeconfig}", "--feature-gates=VisibilityOnDemand=false")
    async with running(str(KUEUE.directory / "kueue"), *words, log=log):
        try:
            await eventually(mounted, what="Kueue's certificate")
            await eventually(serves, what="Kueue's webhook")
        except AssertionError as error:
            raise AssertionError(tail(log)) from error
        yield


class RealKueue:
    """Follows one namespace. `admitted`, `excess` and `refused` are as in the stand-in, from what Kueue reports."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self.excess: list[str] = []
        self.refused: list[str] = []
        self.admitted: list[str] = []
        self._seen: set[tuple[str, str]] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(WORKLOAD, self._see_workload))
            group.create_task(self._follow(Event.RESOURCE, self._see_event))

    async def _follow(self, kind: Resource, see: Any) -> None:
        while True:
            with suppress(KubeError):
                async for one in self._client.watch(kind, self._namespace, initial_events=True):
                    if isinstance(found := getattr(one, "object", None), dict):
                        see(found)
            await asyncio.sleep(0.5)

    def _see_workload(self, found: Json) -> None:
        for said in found.get("status", {}).get("conditions", ()):
            key = found["metadata"]["name"], said["lastTransitionTime"]
            if (said["type"], said["status"]) == ("Admitted", "True") and key not in self._seen:
                self._seen.add(key)
                self.admitted.append(key[0])

    def _see_event(self, found: Json) -> None:
        if found.get("reason") == "ExcessPodDeleted":
            self.excess.append(found["involvedObject"]["name"])
        if found.get("reason") == "ErrWorkloadCompose" and TOO_FEW not in found["message"]:
            self.refused.append(found["message"])

    async def workloads(self) -> dict[str, Json]:
        found = (await self._client.list(WORKLOAD, self._namespace)).items
        return {one["metadata"]["name"]: one for one in found}

    async def evict(self, workload: str) -> None:
        """As an administrator does it: the Workload is deactivated, and activated again when it has lost its quota."""
        await self._client.patch(WORKLOAD, workload, {"spec": {"active": False}}, self._namespace)

        async def is_evicted() -> bool:
            return "admission" not in (await self._client.get(WORKLOAD, workload, self._namespace))["status"]

        await eventually(is_evicted)
        await self._client.patch(WORKLOAD, workload, {"spec": {"active": True}}, self._namespace)

    async def make_flavor(self, **node_labels: str) -> None:
        """The one flavor that all queues of the tests use. The former one stays until no queue uses it."""

        async def is_gone() -> bool:
            with suppress(NotFound):
                await self._client.delete(FLAVORS, FLAVOR)
                return False
            return True

        await eventually(is_gone, what="the deletion of the former flavor")
        spec = {"nodeLabels": node_labels} if node_labels else {}
        await self._client.create(FLAVORS, FLAVORS.manifest({"name": FLAVOR}, spec=spec))


@asynccontextmanager
async def kueue_of(client: Client, namespace: str) -> AsyncIterator[RealKueue]:
    async with AsyncExitStack() as stack:
        found = RealKueue(client, namespace)
        await stack.enter_async_context(beside(found.run()))
        yield found
