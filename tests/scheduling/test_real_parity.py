"""The parity table before the real kube-scheduler: it finds exactly the nodes that our rows say it finds.

One control plane of its own, without controllers, so no controller taints or deletes anything meanwhile. A row's pod is
created again and again. Each time it is bound, the test records that node and cordons it, until kube-scheduler finds no
more.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.support.scheduler import parity
from tests.support.scheduler.parity import ROWS, ZONE, Row
from tests.support.waiting import HANGS_S

from grove.api.core import CSINode, PersistentVolume, PersistentVolumeClaim, Pod
from grove.api.meta import Json, Resource
from grove.diagnosis.reasons import sentence
from grove.kube.config import load_config
from grove.kube.errors import NotFound
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.scheduler.filters.fit import feasible_nodes
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import GROVE_INTEGRATION, SchedulerConfiguration

pytestmark = pytest.mark.real

POD = Resource("", "v1", "Pod", "pods")
NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
RUNTIME = Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)
HOLD = "example.com/hold"
OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
PARTS = 3
"""One part in three is a sample of every chapter of the table; `make soak` asks for the others too."""
SETTLES_S = (0.15, 2.0, 10.0)
"""kube-scheduler's watches are behind by less than this; a no that is older than the last change would mean nothing.

On a busy machine they are behind by more: an answer that is not the row's is asked for again with more patience.
"""
POLL_S = 0.025


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    quick = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
    with ControlPlane(tmp_path_factory.mktemp("parity"), "1.36.3", scheduler=True, scheduler_config=quick) as running:
        yield running


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        yield client


def as_sent(pod: Json) -> Json:
    """A row's pod with what the API server insists on: images, distinct names, limits of what has no overcommit."""
    sent: Json = copy.deepcopy(pod)
    sent.pop("status")
    sent["metadata"].pop("uid")
    sent["metadata"].pop("deletionTimestamp", None)
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(sent["spec"].get(kind, ())):
            container.update(name=f"{kind[0]}{i}", image="registry.example/none")
            resources = container["resources"]
            for name, amount in resources["requests"].items():
                if name not in OVERCOMMITTED:
                    resources["limits"][name] = amount
    if sent["spec"].pop("overhead", None):
        sent["spec"]["runtimeClassName"] = "heavy"
    sent["spec"].update(terminationGracePeriodSeconds=0)
    return sent


class Stage:
    """The cluster of one row."""

    def __init__(self, client: HttpClient, row: Row) -> None:
        self._client, self._row = client, row

    async def __aenter__(self) -> Stage:
        client, row = self._client, self._row
        for name in {"other"} | set(row.namespaces):
            labels = row.namespaces.get(name, {})
            try:
                await client.patch(NAMESPACE, name, {"metadata": {"labels": {"team": None, **labels}}})
            except NotFound:
                await client.create(NAMESPACE, {"metadata": {"name": name, "labels": labels}})
        for node in row.nodes:
            await client.create(NODE, node)
            # The API server taints every new node as not ready, and only a controller we do not run would undo it.
            await client.patch(NODE, node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})
        if "overhead" in row.pod["spec"]:
            fixed = {"podFixed": row.pod["spec"]["overhead"]}
            await client.create(RUNTIME, {"metadata": {"name": "heavy"}, "handler": "x", "overhead": fixed})
        for pod in row.running:
            sent = as_sent(pod)
            sent["metadata"]["finalizers"] = [HOLD]
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            await client.create(POD, sent)
            await client.patch(POD, name, {"status": pod["status"]}, namespace, subresource="status")
            if "deletionTimestamp" in pod["metadata"]:
                await client.delete(POD, name, namespace, grace_period_s=30)
        await asyncio.sleep(SETTLES_S[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        client, row = self._client, self._row
        for pod in row.running:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            await client.patch(POD, name, {"metadata": {"finalizers": None}}, namespace)
            await self._gone(name, namespace)
        for node in row.nodes:
            await client.delete(NODE, node["metadata"]["name"])
        if "overhead" in row.pod["spec"]:
            await client.delete(RUNTIME, "heavy")

    async def feasible(self) -> list[str]:
        """Nodes that kube-scheduler binds the pod to."""
        found: list[str] = []
        for settle_s in SETTLES_S:
            found = await self._one_by_one(settle_s)
            if agrees(self._row, found):
                break
            for node in self._row.nodes:
                cordon = {"unschedulable": node["spec"].get("unschedulable")}
                await self._client.patch(NODE, node["metadata"]["name"], {"spec": cordon})
            await asyncio.sleep(settle_s)
        return found

    async def _one_by_one(self, settle_s: float) -> list[str]:
        found: set[str] = set()
        tolerant = any(
            not t.get("key") or "unschedulable" in t["key"] for t in self._row.pod["spec"].get("tolerations", ())
        )
        for attempt in range(40):
            name = f"probe-{attempt}"
            node = await self._outcome(name, settle_s)
            await self._gone(name, "default")
            if node is None:
                return sorted(found)
            if node not in found:
                found.add(node)
                if tolerant:
                    return sorted(found)  # a cordon would not keep it away, so one node is all we can ask
                await self._client.patch(NODE, node, {"spec": {"unschedulable": True}})
            await asyncio.sleep(settle_s)
        raise AssertionError(f"no end: {found}")

    async def _outcome(self, name: str, settle_s: float) -> str | None:
        """The node the pod was bound to; None when kube-scheduler said no and stays with it for half that time."""
        sent = as_sent(self._row.pod)
        sent["metadata"]["name"] = name
        await self._client.create(POD, sent)
        refused = 0
        for _ in range(int(HANGS_S / POLL_S)):
            pod: dict[str, Any] = await self._client.get(POD, name, "default")
            if pod["spec"].get("nodeName"):
                return str(pod["spec"]["nodeName"])
            if any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"].get("conditions", ())):
                refused += 1
                if refused * POLL_S > settle_s / 2:
                    return None
            await asyncio.sleep(POLL_S)
        raise AssertionError(f"kube-scheduler has no opinion on {name}")

    async def _gone(self, name: str, namespace: str) -> None:
        try:
            await self._client.delete(POD, name, namespace, grace_period_s=0)
        except NotFound:
            return
        for _ in range(int(HANGS_S / POLL_S)):
            try:
                await self._client.get(POD, name, namespace)
            except NotFound:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} does not go")


def agrees(row: Row, found: list[str]) -> bool:
    """Whether these are the row's nodes; of a pod that tolerates cordons only one can be asked for."""
    wanted = row.want.split()
    return found == wanted or (len(found) == 1 < len(wanted) and found[0] in wanted and "toler" in row.name)


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.soak) for first in range(1, PARTS))],
    ids=lambda first: f"every third row from {first}",
)
async def test_kube_scheduler_agrees(admin: HttpClient, first: int) -> None:
    differing = {}
    for row in ROWS[first::PARTS]:
        async with Stage(admin, row) as stage:
            found = await stage.feasible()
        if not agrees(row, found):
            differing[row.name] = found
    assert differing == {}


DRIVER = "disks.example.com"


class Disk(NamedTuple):
    """A claim by this name with a volume of its own."""

    name: str
    mode: str = "ReadWriteOnce"
    labels: dict[str, str] = {}
    zone: str = ""


class VolumeRow(NamedTuple):
    name: str
    disks: tuple[Disk, ...]
    want: str
    mounts: tuple[str, ...]
    limits: dict[str, int] = {}
    running: tuple[tuple[str, str], ...] = ()
    """(node, claim) of pods that are there already."""

    def row(self) -> Row:
        running = [
            parity.pod(f"there-{n}", on=at, volumes=_volumes(f"{self.prefix}-{claim}"))
            for n, (at, claim) in enumerate(self.running)
        ]
        nodes = [parity.node("a1", {ZONE: "a"}), parity.node("b1", {ZONE: "b"})]
        probe = parity.pod(volumes=_volumes(*(f"{self.prefix}-{claim}" for claim in self.mounts)))
        return Row(self.name, nodes, probe, self.want, running)

    @property
    def prefix(self) -> str:
        return self.name.replace(" ", "-")


def _volumes(*claims: str) -> list[Json]:
    return [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in enumerate(claims)]


VOLUME_ROWS = (
    VolumeRow("a volume with node affinity", (Disk("d", zone="a"),), "a1", ("d",)),
    VolumeRow("a volume with a zone label", (Disk("d", labels={ZONE: "b"}),), "b1", ("d",)),
    VolumeRow("a claim for one pod in use", (Disk("d", "ReadWriteOncePod"),), "", ("d",), running=(("a1", "d"),)),
    VolumeRow("a node at its limit", (Disk("d"), Disk("e")), "b1", ("e",), {"a1": 1, "b1": 1}, (("a1", "d"),)),
    VolumeRow("two volumes and a limit of one", (Disk("d"), Disk("e")), "b1", ("d", "e"), {"a1": 1, "b1": 2}),
    VolumeRow("a node without a limit", (Disk("d"), Disk("e")), "a1 b1", ("e",), {"b1": 1}, (("a1", "d"),)),
    VolumeRow(
        "a volume of two pods is one",
        (Disk("d", "ReadWriteMany"), Disk("e")),
        "a1",
        ("e",),
        {"a1": 2, "b1": 0},
        (("a1", "d"), ("a1", "d")),
    ),
)


async def _store(client: HttpClient, row: VolumeRow) -> None:
    """Volumes and claims, bound as a controller would leave them, and what the nodes can attach."""
    for disk in row.disks:
        name = f"{row.prefix}-{disk.name}"
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [disk.mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name},
        }
        if disk.zone:
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [disk.zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        await client.create(PersistentVolume, {"metadata": {"name": name, "labels": disk.labels}, "spec": spec})
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        asked = {
            "accessModes": [disk.mode],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        meta = {"name": name, "namespace": "default", "annotations": done}
        await client.create(PersistentVolumeClaim, {"metadata": meta, "spec": asked})
        bound = {"status": {"phase": "Bound"}}
        await client.patch(PersistentVolumeClaim, name, bound, "default", subresource="status")
    for at, count in row.limits.items():
        driver = {"name": DRIVER, "nodeID": at, "topologyKeys": None, "allocatable": {"count": count}}
        await client.create(CSINode, {"metadata": {"name": at}, "spec": {"drivers": [driver]}})


async def _ours(client: HttpClient, row: Row) -> list[str]:
    """Nodes where grove-scheduler would put the row's pod, with the cluster read as it reads it."""
    looking = Scheduler(client, SchedulerConfiguration(feature_gates={GROVE_INTEGRATION: False}), say=sentence)
    async with looking.following():
        return feasible_nodes(
            looking.view.snapshot, looking.view.reader.read(msgspec.convert(row.pod, Pod, strict=False))
        )


async def test_kube_scheduler_agrees_about_volumes(admin: HttpClient) -> None:
    theirs, ours = {}, {}
    for one in VOLUME_ROWS:
        row = one.row()
        await _store(admin, one)
        async with Stage(admin, row) as stage:
            ours[one.name] = " ".join(await _ours(admin, row))
            theirs[one.name] = " ".join(await stage.feasible())
        for at in one.limits:
            await admin.delete(CSINode, at)
    wanted = {one.name: one.want for one in VOLUME_ROWS}
    assert theirs == wanted
    assert ours == wanted
