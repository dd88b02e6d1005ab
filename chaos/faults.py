"""How to make each fault of the timetable. A fault that lasts is over, and corrected, when its function returns."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import random
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from chaos.line import BAD, GOOD, Line
from chaos.load import NAMESPACE, TOPOLOGY
from chaos.processes import NAMESPACE as SYSTEM
from chaos.processes import Process, Processes
from grove import crds
from grove.admission.certs.authority import renewed
from grove.api.core import CustomResourceDefinition, Node, Pod, Secret, Service, ServiceAccount
from grove.api.meta import Json, Resource
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.crds.install import install
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, KubeError, NotFound
from grove.local.controlplane import ControlPlane
from grove.local.loopback import RequestFailed
from grove.sim.nodes import FakeNodes
from grove.sim.topology import LEVELS, RACK

T = TypeVar("T")
ACCOUNT = "chaos"
CERTIFICATE = "grove-webhook-server-cert"
HOOKS = [
    Resource("admissionregistration.k8s.io", "v1", kind, plural, namespaced=False)
    for kind, plural in (
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    )
]
CHILDREN = (PodClique, PodCliqueScalingGroup, PodGang, Service, ServiceAccount)
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps")
BIG, FILLER = "x" * 900_000, "filler=chaos"
PATIENCE = 120
"""Tries, half a second apart."""
CRD_GONE_S = 90.0


class Faults:
    def __init__(
        self, plane: ControlPlane, client: Client, nodes: FakeNodes, line: Line, processes: Processes, directory: Path
    ) -> None:
        self._plane, self._client, self._nodes = plane, client, nodes
        self._line, self._processes, self._directory = line, processes, directory
        self._tokens = 0

    async def strike(self, name: str, dice: int) -> str:
        """Makes the fault and returns a few words about it."""
        words: str = await getattr(self, f"_{name}")(random.Random(dice))
        return words

    # Our processes

    async def _kill_operator(self, rng: random.Random) -> str:
        return self._kill(rng.choice(self._processes.named("operator")))

    async def _kill_scheduler(self, rng: random.Random) -> str:
        return self._kill(rng.choice(self._processes.named("scheduler")))

    async def _skew_clock(self, rng: random.Random) -> str:
        process = rng.choice(self._processes.all)
        skew_s = rng.choice((-3600.0, -20.0, 20.0, 3600.0))
        return f"{self._kill(process, skew_s)}, back with a clock wrong by {skew_s:g} s"

    def _kill(self, process: Process, skew_s: float = 0.0) -> str:
        process.skew_s = skew_s
        process.signal(signal.SIGKILL)
        return f"kill -9 {process.name}"

    async def new_token(self) -> None:
        """A token that ends with the Secret it is bound to; the one before ends now."""
        self._tokens += 1
        name = f"{ACCOUNT}-token-{self._tokens}"
        held: Json = await self._client.create(Secret.RESOURCE, {"metadata": {"name": name, "namespace": SYSTEM}})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": held["metadata"]["uid"]}
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": ACCOUNT, "namespace": SYSTEM},
            "spec": {"expirationSeconds": 86400, "boundObjectRef": bound},
        }
        answer: Json = await self._client.create(ServiceAccount.RESOURCE, asked, subresource="token")
        fresh = self._directory / "token.new"
        fresh.write_text(answer["status"]["token"])
        fresh.replace(self._directory / "token")

    async def _revoke_tokens(self, rng: random.Random) -> str:
        await self._client.delete(Secret, f"{ACCOUNT}-token-{self._tokens}", SYSTEM)
        for_s = 11.0 + rng.uniform(0, 6)  # the API server believes in a token it has seen for ten seconds
        await asyncio.sleep(for_s)
        await self._persist(self.new_token)
        return f"tokens were void, the next ones came after {for_s:.0f} s"

    # The control plane

    async def _restart_apiserver(self, rng: random.Random) -> str:
        if rng.random() < 0.5:
            await asyncio.to_thread(self._plane.compact_etcd)
        await asyncio.to_thread(self._plane.restart_apiserver)
        return "API server restarted"

    async def _kill_apiserver(self, rng: random.Random) -> str:
        self._child("kube-apiserver")(signal.SIGKILL)
        await asyncio.sleep(rng.uniform(0, 4))
        await asyncio.to_thread(self._plane.restart_apiserver)
        return "kill -9 of the API server"

    async def _pause_etcd(self, rng: random.Random) -> str:
        for_s = rng.uniform(2, 8)
        pause = self._child("etcd")
        pause(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            pause(signal.SIGCONT)
        return f"etcd stood still for {for_s:.0f} s"

    async def _fill_etcd(self, rng: random.Random) -> str:
        made, meta = 0, {"namespace": SYSTEM, "labels": {"filler": "chaos"}}
        try:
            while made < 500:
                body = {"metadata": {**meta, "name": f"big-{made}"}, "data": {"x": BIG}}
                await self._client.create(CONFIG_MAP, body)
                made += 1
        except KubeError:
            pass
        for_s = rng.uniform(2, 6)
        await asyncio.sleep(for_s)
        await self._persist(lambda: self._client.delete_collection(CONFIG_MAP, SYSTEM, labels=FILLER))
        size = await self._persist(self._shrink_etcd)
        return f"etcd was full after {made} big objects, for {for_s:.0f} s; {size / 1024**2:.0f} MB now"

    async def _shrink_etcd(self) -> int:
        """What an administrator does when etcd is full, in this order; the size it has then."""
        etcd = self._plane.blueprint.etcd_client()
        await asyncio.to_thread(self._plane.compact_etcd)
        await asyncio.to_thread(lambda: etcd.call("POST", "/v3/maintenance/defragment", {}, timeout_s=60))
        raised = await asyncio.to_thread(etcd.call_json, "POST", "/v3/maintenance/alarm", {"action": "GET"})
        for alarm in raised.get("alarms", ()):  # each names its member and its kind
            off = {"action": "DEACTIVATE", **alarm}
            await asyncio.to_thread(etcd.call_json, "POST", "/v3/maintenance/alarm", off)
        return int((await asyncio.to_thread(etcd.call_json, "POST", "/v3/maintenance/status", {}))["dbSize"])

    @staticmethod
    async def _persist(act: Callable[[], Awaitable[T]]) -> T:
        """What must be corrected is tried until it works: the next fault may have begun elsewhere."""
        for _ in range(PATIENCE):
            try:
                return await act()
            except (KubeError, ExceptionGroup, RequestFailed) as error:
                last = error
                await asyncio.sleep(0.5)
        raise AssertionError(f"not possible for {PATIENCE / 2} s: {last!r}")

    def _child(self, name: str) -> Callable[[signal.Signals], None]:
        return next(child.signal for child in self._plane.children if child.name == name)

    # The line

    async def _cut_watches(self, rng: random.Random) -> str:
        return f"{self._line.cut()} watches cut"

    async def _bad_line(self, rng: random.Random) -> str:
        for_s = rng.uniform(6, 14)
        self._line.quality = BAD
        try:
            await asyncio.sleep(for_s)
        finally:
            self._line.quality = GOOD
        return f"answers late, lost and doubled for {for_s:.0f} s"

    # Nodes and pods

    async def _delete_nodes(self, rng: random.Random) -> str:
        names = rng.sample(self._nodes.names, 2)
        kept: list[Json] = [await self._client.get(Node.RESOURCE, name) for name in names]
        for name in names:
            await self._nodes.remove_node(name)
        await asyncio.sleep(rng.uniform(3, 12))
        for node in kept:
            meta = {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]}
            sizes = {field: node["status"][field] for field in ("capacity", "allocatable")}
            again = {"metadata": meta, "spec": {}, "status": sizes}
            await self._persist(partial(self._nodes.add, [again]))
        return f"nodes {', '.join(names)} deleted and back"

    async def _lose_rack(self, rng: random.Random) -> str:
        nodes = (await self._client.list(Node)).items
        rack = rng.choice(sorted({node.metadata.labels[RACK] for node in nodes}))
        lost = [node.metadata.name for node in nodes if node.metadata.labels[RACK] == rack]
        for name in lost:
            await self._nodes.stop_node(name)
        for_s = rng.uniform(5, 15)
        await asyncio.sleep(for_s)
        for name in lost:
            await self._persist(partial(self._nodes.start_node, name))
        return f"rack {rack} with {len(lost)} nodes out of reach for {for_s:.0f} s"

    async def _delete_pods(self, rng: random.Random) -> str:
        pods = sorted(pod.metadata.name for pod in (await self._client.list(Pod, NAMESPACE)).items)
        chosen = rng.sample(pods, len(pods) // 3)
        for name in chosen:
            await self._forgiving(self._client.delete(Pod, name, NAMESPACE, grace_period_s=rng.choice((0, 1))))
        return f"{len(chosen)} of {len(pods)} pods deleted"

    # What Grove has in the cluster

    async def _spoil_certificate(self, rng: random.Random) -> str:
        if rng.random() < 0.5:
            await self._client.delete(Secret, CERTIFICATE, SYSTEM)
            return "the certificate's Secret deleted"
        old = renewed(None, ["127.0.0.1"], datetime.now(UTC) - timedelta(days=4000))
        data = {name: base64.b64encode(value).decode() for name, value in old.to_secret().items()}
        await self._client.patch(Secret, CERTIFICATE, {"data": data}, SYSTEM)
        return "an expired certificate put in place of the webhooks'"

    async def _remove_webhooks(self, rng: random.Random) -> str:
        removed = 0
        for kind in HOOKS:
            for hook in (await self._client.list(kind)).items:
                await self._client.delete(kind, hook["metadata"]["name"])
                removed += 1
        return f"{removed} webhook configurations deleted"

    async def _remove_crd(self, rng: random.Random) -> str:
        """Its objects go with it. It comes back when the last of them is gone, as when a chart is installed again."""
        name: str = rng.choice([crd["metadata"]["name"] for crd in crds.load()])
        await self._client.delete(CustomResourceDefinition, name)
        async with asyncio.timeout(CRD_GONE_S):
            for _ in itertools.count():
                if not await self._exists(name):
                    break
                await asyncio.sleep(0.5)
        await asyncio.sleep(rng.uniform(0, 5))
        await self._persist(lambda: install(self._client, lambda message: None))
        await self.bind_topology()
        return f"CRD {name} removed and installed again"

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(CustomResourceDefinition, name)
        except NotFound:
            return False
        return True

    async def bind_topology(self) -> None:
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        body = {"metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}}
        for _ in range(50):
            try:
                await self._client.create(ClusterTopologyBinding.RESOURCE, body)
            except AlreadyExists:
                return
            except KubeError:
                await asyncio.sleep(0.2)  # a kind that has just been installed

    async def _edit_children(self, rng: random.Random) -> str:
        edits: dict[type, Json] = {
            PodClique: {"spec": {"podSpec": {"priorityClassName": None, "nodeSelector": {"edited": "by-hand"}}}},
            PodCliqueScalingGroup: {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}},
            PodGang: {"spec": {"podgroups": []}},
            Service: {"spec": {"selector": {"edited": "by-hand"}}},
        }
        edited = 0
        for kind, patch in edits.items():
            for name in await self._some(kind, rng):
                edited += await self._forgiving(self._client.patch(kind, name, patch, NAMESPACE))
        return f"{edited} children edited by hand"

    async def _delete_children(self, rng: random.Random) -> str:
        deleted = 0
        for kind in CHILDREN:
            for name in await self._some(kind, rng):
                deleted += await self._forgiving(self._client.delete(kind, name, NAMESPACE))
        return f"{deleted} children deleted by hand"

    async def _some(self, kind: type, rng: random.Random) -> list[str]:
        names = sorted(obj.metadata.name for obj in (await self._client.list(kind, NAMESPACE)).items)
        names = [name for name in names if name not in ("kubernetes", "default")]
        return rng.sample(names, min(len(names), 2))

    @staticmethod
    async def _forgiving(call: object) -> bool:
        """Whether it was done; what is gone or refused by now is no matter."""
        try:
            await call  # type: ignore[misc]
        except KubeError:
            return False
        return True


def holder_pid(identity: str) -> int:
    """The process id in the holder of the scheduler's lease, `host_pid_letters`; 0 if none of this machine holds it."""
    host, _, rest = identity.partition("_")
    pid = rest.partition("_")[0]
    return int(pid) if pid.isdigit() and host == os.uname().nodename else 0
