"""Fake nodes: a controller that plays the kubelets of a whole cluster, over any `Client`.

Pods bound to its nodes start, become Ready, and are finalised when deleted. They wait for their parents when they
carry the startup gate. By default each pod costs one status patch, since writes are the main cost against a real API
server. On command pods fail, crash or turn unready, and nodes drain, fall silent, come back or vanish.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from grove.api.core import Lease, Node
from grove.api.meta import Json, Key, rfc3339
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import AlreadyExists, Conflict, Gone, Invalid, KubeError, NotFound, TooManyRequests
from grove.sim import kubelet
from grove.sim.kubelet import RunPod, Waited
from grove.sim.topology import Topology

LEASES = "kube-node-lease"
_RETRY_S = 1.0
_BOUND = "spec.nodeName!="

Delay = float | Callable[[RunPod], float]
Work = Callable[[], Awaitable[object]]
"""Something to do for a pod; an answer of False says that it could not be done now."""


class FakeNodes:
    """The kubelets of the nodes given to `add`. `start_s` is from bound to Ready, `stop_s` from deleted to gone."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        start_s: Delay = 0.0,
        stop_s: Delay = 0.0,
        report_init: bool = False,
        heartbeat_s: float | None = None,
        workers: int = 32,
    ) -> None:
        self._client, self._clock = client, clock
        self.start_s, self.stop_s = start_s, stop_s
        self.hold: Callable[[RunPod], bool] = lambda _pod: False
        """Pods that are to start but never become Ready, as long as this says so."""
        self.keeps_images: Callable[[RunPod], bool] = lambda _pod: False
        """Pods whose kubelet does not act on a changed image."""
        self._report_init, self._heartbeat_s, self._worker_count = report_init, heartbeat_s, workers
        self._nodes: dict[str, bool] = {}
        """Name to whether its kubelet is alive."""
        self._pods: dict[str, RunPod] = {}
        self._planned: dict[str, asyncio.TimerHandle | None] = {}
        self._done: set[str] = set()
        """What was done about pods; news that asks for it once more is old news."""
        self._counted: dict[str, set[Waited]] = {}
        self._reached: dict[Waited, set[str]] = {}
        self._waiting: dict[Waited, dict[str, None]] = {}
        self._work: asyncio.Queue[Work] = asyncio.Queue()
        self._restless: list[RunPod] = []
        self._since = ""

    @property
    def names(self) -> list[str]:
        return list(self._nodes)

    async def add(self, nodes: Topology | Iterable[Json]) -> None:
        """Creates the nodes, Ready from the start; those that exist already are taken over as they are."""
        objects = nodes.objects() if isinstance(nodes, Topology) else iter(nodes)
        lock = asyncio.Semaphore(self._worker_count)

        async def create(node: Json) -> None:
            async with lock:
                try:
                    await self._client.create(Node, self._with_status(node))
                except AlreadyExists:
                    pass
                self._nodes[node["metadata"]["name"]] = True
                if self._heartbeat_s is not None:
                    await self._create_lease(node["metadata"]["name"])

        async with asyncio.TaskGroup() as group:
            for node in objects:
                group.create_task(create(node))

    def adopt(self, names: Iterable[str], restless: Iterable[RunPod] = (), *, since: str = "") -> None:
        """Gives nodes that exist already a kubelet, without asking the server about each.

        With a revision `since`, given before `run` begins, only the `restless` pods are looked at. All others are up at
        that revision. The kubelet reads such a pod only when something happens to it, which saves ten thousand reads.
        """
        self._nodes.update((name, True) for name in names)
        self._restless, self._since = list(restless), since

    async def run(self) -> None:
        """Plays the kubelets until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._worker_count):
                group.create_task(self._do_work())
            if self._heartbeat_s is not None:
                group.create_task(self._beat(self._heartbeat_s))
            await self._follow_pods()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeNodes]:
        task = asyncio.get_running_loop().create_task(self.run(), name="fake-nodes")
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # Commands

    async def fail_pod(self, namespace: str, name: str, *, exit_code: int = 1, reason: str = "") -> None:
        """The pod ends for good: Failed, or Succeeded with exit code 0."""
        await self._report(namespace, name, partial(kubelet.over, exit_code=exit_code, reason=reason))

    async def crash_pod(self, namespace: str, name: str, *, exit_code: int = 1, restart_s: float = 10.0) -> None:
        """Its containers die and run again, Ready, after `restart_s`."""
        pod = await self._report(namespace, name, partial(kubelet.crashed, exit_code=exit_code))
        self._plan(f"{pod.metadata.uid}/again", restart_s, partial(self._start, pod.metadata.uid))

    async def set_ready(self, namespace: str, name: str, ready: bool) -> None:
        """The readiness probe's answer from now on."""
        await self._report(namespace, name, partial(kubelet.running, ready=ready))

    async def drain(self, node: str) -> None:
        """Cordons the node and evicts its pods, patiently where disruption budgets refuse."""
        await self.cordon(node)
        async with asyncio.TaskGroup() as group:
            for pod in await self._pods_on(node):
                group.create_task(self._evict(pod))

    async def cordon(self, node: str, *, unschedulable: bool = True) -> None:
        await self._client.patch(Node, node, {"spec": {"unschedulable": unschedulable or None}})

    async def stop_node(self, node: str) -> None:
        """The kubelet falls silent: the node becomes unknown, its pods neither start nor finish nor count as ready.

        What the node lifecycle controller writes when heartbeats stay out is written here, without its patience.
        """
        self._nodes[node] = False
        await self._report_node(node, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        for pod in [pod for pod in await self._pods_on(node) if pod.is_ready]:
            self._work.put_nowait(partial(self._patch, pod, kubelet.unreachable(pod, self._clock.now())))

    async def start_node(self, node: str) -> None:
        self._nodes[node] = True
        await self._report_node(node, "True", "KubeletReady", "kubelet is posting ready status")
        for pod in await self._pods_on(node):
            self._pods[pod.metadata.uid] = pod
            self._look(pod)
            if pod.status.phase == "Running" and not pod.metadata.is_deleting:
                self._plan(f"{pod.metadata.uid}/again", 0.0, partial(self._start, pod.metadata.uid))

    async def remove_node(self, node: str) -> None:
        """The machine is gone for good; its pods stay for the pod garbage collector to find."""
        self._nodes.pop(node, None)
        await self._client.delete(Node, node)

    # Following pods

    async def _follow_pods(self) -> None:
        """Sees every bound pod's last state, whatever happens to the stream.

        An API server ends the stream of a reader that is too slow for its burst, which a busy test is now and then.
        The next stream goes on where it stopped. After an error it starts over from the list.
        """
        version = self._since
        for pod in self._restless:
            self._see(pod)
        while True:
            try:
                if not version:
                    version = await self._list_pods()
                async for event in self._client.watch(RunPod, fields=_BOUND, resource_version=version):
                    version = event.resource_version
                    if event.object is not None:
                        (self._forget if event.type == "DELETED" else self._see)(event.object)
            except Gone:
                version = ""
            except KubeError:
                version = ""
                await asyncio.sleep(_RETRY_S)

    async def _pods_on(self, node: str) -> Sequence[RunPod]:
        return (await self._client.list(RunPod, fields=f"spec.nodeName={node}")).items

    async def _list_pods(self) -> str:
        page = await self._client.list(RunPod, fields=_BOUND)
        listed = {pod.metadata.uid for pod in page.items}
        for gone in [pod for uid, pod in self._pods.items() if uid not in listed]:
            self._forget(gone)
        for pod in page.items:
            self._see(pod)
        return page.resource_version

    def _see(self, pod: RunPod) -> None:
        uid = pod.metadata.uid
        self._pods[uid] = pod
        before, now = self._counted.get(uid, set()), pod.counts_for
        self._counted[uid] = now
        for waited in before - now:
            self._reached[waited].discard(uid)
        for waited in sorted(now - before):
            self._reached.setdefault(waited, set()).add(uid)
            for waiting in list(self._waiting.get(waited, ())):
                if waiting in self._pods:
                    self._look(self._pods[waiting])
        self._look(pod)

    def _look(self, pod: RunPod) -> None:
        """Plans what the node has to do next about the pod, once."""
        uid = pod.metadata.uid
        if not self._nodes.get(pod.spec.node_name, False):
            return
        if pod.metadata.is_deleting:
            self._plan(f"{uid}/stop", _seconds(self.stop_s, pod), partial(self._finalise, pod))
        elif pod.status.phase == "Pending" and f"{uid}/start" not in self._planned:
            if missing := self._missing_parents(pod):
                self._wait(pod, missing)
            elif f"{uid}/init" not in self._planned:  # else two reports would race, and the older one could win
                self._stop_waiting(pod)
                self._plan(f"{uid}/start", _seconds(self.start_s, pod), partial(self._start, uid))
        elif kubelet.has_other_images(pod) and not self.keeps_images(pod):
            self._plan(f"{uid}/again", 0.0, partial(self._replace_containers, uid))
        elif kubelet.awaits_report(pod):
            self._plan(f"{uid}/again", 0.0, partial(self._heed_gates, uid))

    def _missing_parents(self, pod: RunPod) -> list[Waited]:
        wanted = kubelet.parents(pod)
        return [waited for waited, count in wanted.items() if len(self._reached.get(waited, ())) < count]

    def _wait(self, pod: RunPod, missing: list[Waited]) -> None:
        uid = pod.metadata.uid
        for waited in missing:
            self._waiting.setdefault(waited, {})[uid] = None
        if self._report_init and not pod.status.start_time:
            report = kubelet.initializing(pod, self._clock.now())
            self._plan(f"{uid}/init", 0.0, partial(self._patch, pod, report))

    def _stop_waiting(self, pod: RunPod) -> None:
        for waited in kubelet.parents(pod):
            self._waiting.get(waited, {}).pop(pod.metadata.uid, None)

    def _plan(self, key: str, delay_s: float, work: Work) -> None:
        if key in self._planned or key in self._done:
            return

        def due() -> None:
            self._planned[key] = None
            self._work.put_nowait(partial(self._finish, key, work))

        if delay_s > 0:
            self._planned[key] = asyncio.get_running_loop().call_later(delay_s, due)
        else:
            due()

    async def _finish(self, key: str, work: Work) -> None:
        try:
            if await work() is not False and not key.endswith("/again"):
                self._done.add(key)
        finally:
            self._planned.pop(key, None)
            uid, _, step = key.rpartition("/")
            if step == "init" and uid in self._pods:
                self._look(self._pods[uid])

    def _forget(self, pod: RunPod) -> None:
        uid = pod.metadata.uid
        self._pods.pop(uid, None)
        for waited in self._counted.pop(uid, set()):
            self._reached[waited].discard(uid)
        self._stop_waiting(pod)
        for key in (f"{uid}/{step}" for step in ("start", "stop", "init", "again")):
            self._done.discard(key)
            timer = self._planned.get(key)
            if timer is not None:
                timer.cancel()
                del self._planned[key]

    async def _do_work(self) -> None:
        while True:
            work = await self._work.get()
            try:
                await work()
            except (NotFound, Conflict, Invalid):
                pass  # the pod is gone or another by now; its events bring the rest
            except KubeError:
                asyncio.get_running_loop().call_later(_RETRY_S, self._work.put_nowait, work)

    # Doing

    async def _start(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        if pod is None or pod.is_over or pod.metadata.is_deleting or not self._nodes.get(pod.spec.node_name, False):
            return False
        await self._patch(pod, kubelet.running(pod, self._clock.now(), ready=not self.hold(pod)))
        return True

    async def _replace_containers(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or not kubelet.has_other_images(pod):
            return
        self._pods[uid] = await self._patch(pod, kubelet.replacing(pod, self._clock.now()))
        self._plan(f"{uid}/images/again", _seconds(self.start_s, pod), partial(self._start, uid))

    async def _heed_gates(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None and kubelet.awaits_report(pod):
            await self._patch(pod, kubelet.heeding_gates(pod, self._clock.now()))

    async def _finalise(self, pod: RunPod) -> bool:
        if not self._nodes.get(pod.spec.node_name, False):
            return False
        key, uid = pod.metadata.key, pod.metadata.uid
        await self._client.delete(RunPod, key.name, key.namespace, uid=uid, grace_period_s=0)
        return True

    async def _patch(self, pod: RunPod, patch: Json) -> RunPod:
        return await self._client.patch(RunPod, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")

    async def _report(self, namespace: str, name: str, report: Callable[..., Json]) -> RunPod:
        pod = await self._client.get(RunPod, name, namespace)
        await self._patch(pod, report(pod, self._clock.now()))
        return pod

    async def _evict(self, pod: RunPod) -> None:
        while True:
            try:
                return await self._client.evict(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
            except (NotFound, Conflict):
                return None
            except TooManyRequests as refused:
                await asyncio.sleep(refused.retry_after_s)

    # Nodes themselves

    def _with_status(self, node: Json) -> Json:
        ready = self._node_condition("True", "KubeletReady", "kubelet is posting ready status")
        status = {
            **(node.get("status") or {}),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "amd64"},
        }
        return {**node, "status": status}

    def _node_condition(self, status: str, reason: str, message: str) -> Json:
        now = rfc3339(self._clock.now())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        return {"type": "Ready", "status": status, "reason": reason, "message": message, **times}

    async def _report_node(self, node: str, status: str, reason: str, message: str) -> None:
        patch: Any = {"status": {"conditions": [self._node_condition(status, reason, message)]}}
        await self._client.patch(Node, node, patch, subresource="status")

    async def _create_lease(self, node: str) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": self._micro_time()}
        try:
            await self._client.create(Lease, {"metadata": {"name": node, "namespace": LEASES}, "spec": spec})
        except AlreadyExists:
            pass

    async def _beat(self, every_s: float) -> None:
        """Renews the nodes' leases, spread over the period so that they do not arrive together."""
        while True:
            alive = [name for name, is_alive in self._nodes.items() if is_alive]
            for name in alive:
                self._work.put_nowait(partial(self._renew, Key(LEASES, name)))
                await asyncio.sleep(every_s / len(alive))
            if not alive:
                await asyncio.sleep(every_s)

    async def _renew(self, lease: Key) -> None:
        await self._client.patch(Lease, lease.name, {"spec": {"renewTime": self._micro_time()}}, lease.namespace)

    def _micro_time(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(delay: Delay, pod: RunPod) -> float:
    return delay(pod) if callable(delay) else delay
