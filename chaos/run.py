"""One run: the cluster comes up, lives through its timetable, and is judged at every instant and at the end."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.planes import GrovePlane

from chaos import ending
from chaos.faults import ACCOUNT, Faults, holder_pid
from chaos.line import Line, balancer
from chaos.load import FRESH, NAMESPACE, Load
from chaos.processes import NAMESPACE as SYSTEM
from chaos.processes import Processes, Sample
from chaos.timetable import FAULTS, Step, timetable
from chaos.witness import Witness
from grove.api.core import Lease, Namespace, Node, Pod, ServiceAccount
from grove.api.meta import Resource
from grove.api.podgang import PodGang
from grove.kube.clock import SYSTEM as CLOCK
from grove.kube.config import load_config
from grove.kube.errors import Gone, KubeError, NotFound
from grove.kube.http import HttpClient
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

SHAPE = Topology(zones=1, blocks=4, racks=3, nodes=4, gpus=8)
"""Capacity for all sets twice: at the end a fresh apply stands beside them."""
QUOTA_BYTES = 96 * 1024**2
GANG_TIMEOUT_S, SLACK_S = 15.0, 15.0
IDLE_S = 12.0
"""Before the first change: what the processes take when there is nothing to do."""
CLOSED_S = 120.0
"""After the last deletion: connections opened for the work are closed when they have been idle for a while."""
ATTENDED_AFTER_S = 5.0
ROLE_BINDING = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)

Say = Callable[[str], None]


@dataclass
class Result:
    """What a run showed. `broken` is empty when every promise was kept."""

    broken: list[str] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    samples: Sequence[Sample] = ()
    changes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    line: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    sets: int = 0
    converged_s: float = 0.0
    gone_s: float = 0.0


class Run:
    def __init__(self, directory: Path, seed: int, minutes: float, say: Say, faults: tuple[str, ...] = FAULTS) -> None:
        self._directory, self._seed, self._say = directory, seed, say
        self._steps = timetable(seed, minutes, faults)
        self._witness = Witness(GANG_TIMEOUT_S + SLACK_S)
        self._striking = 0
        self.result = Result()

    async def play(self) -> Result:
        quota = f"--quota-backend-bytes={QUOTA_BYTES}"
        plane = GrovePlane(self._directory / "plane", controller_manager=True, extra_etcd_args=(quota,))
        await asyncio.to_thread(plane.start)
        try:
            async with AsyncExitStack() as stack:
                await self._live(plane, stack)
        finally:
            await asyncio.to_thread(plane.stop)
        return self.result

    async def _live(self, plane: GrovePlane, stack: AsyncExitStack) -> None:
        config = load_config(plane.kubeconfig)
        client = await stack.enter_async_context(HttpClient(config, user_agent="chaos"))
        nodes = FakeNodes(client, CLOCK, start_s=0.5, stop_s=0.5)
        line = Line(plane.server, config.ca, random.Random(f"line {self._seed}"))
        server = await stack.enter_async_context(line.listening())
        self._began = time.monotonic()
        processes = Processes(self._directory, self._began)
        port = await stack.enter_async_context(
            balancer(lambda: [process.webhook_port for process in processes.named("operator")])
        )
        for number in (1, 2):
            processes.add_operator(f"operator-{number}", server, f"https://127.0.0.1:{port}")
            processes.add_scheduler(f"scheduler-{number}", server, GANG_TIMEOUT_S)
        faults = Faults(plane, client, nodes, line, processes, self._directory)
        await self._furnish(client, nodes, faults)
        for work in (
            nodes.run(),
            processes.keep_running(),
            processes.sample_for_ever(),
            self._watch(client, Pod),
            self._watch(client, Node),
            self._watch(client, PodGang),
            self._attend(client, processes),
        ):
            await stack.enter_async_context(_beside(work))
        load = Load(client)
        await self._until_served(client)
        await asyncio.sleep(IDLE_S)
        idle_until_s = time.monotonic() - self._began
        await self._follow(load, faults)
        await self._end(client, load, idle_until_s, processes)
        self.result.samples, self.result.line = processes.samples, line.done
        self.result.changes, self.result.refused, self.result.seen = load.done, load.refused, self._witness.seen
        self.result.broken = [*self._witness.broken, *self.result.broken]
        for what in ("placements", "attended seconds"):
            if not self._witness.seen[what]:
                self.result.broken.append(f"nothing was proven: no {what}")

    async def _furnish(self, client: HttpClient, nodes: FakeNodes, faults: Faults) -> None:
        for namespace in (SYSTEM, NAMESPACE, FRESH):
            await client.create(Namespace, {"metadata": {"name": namespace}})
        await client.create(ServiceAccount, {"metadata": {"name": ACCOUNT, "namespace": SYSTEM}})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        await client.create(ROLE_BINDING, {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
        await faults.new_token()
        await faults.bind_topology()
        await nodes.add(SHAPE)

    async def _until_served(self, client: HttpClient) -> None:
        """Both components lead and admission is registered."""
        async with asyncio.timeout(120):
            for name in ("grove-operator-leader-election", "grove-scheduler-leader-election"):
                for _ in itertools.count():
                    if await _holder(client, name):
                        break
                    await asyncio.sleep(0.2)

    async def _follow(self, load: Load, faults: Faults) -> None:
        """Does every step at its time; a fault that lasts does not hold up the changes, only the next fault."""
        began, turn = time.monotonic(), asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            for step in self._steps:
                await asyncio.sleep(max(0.0, began + step.at_s - time.monotonic()))
                if step.action in FAULTS:
                    group.create_task(self._strike(faults, step, turn))
                else:
                    group.create_task(self._change(load, step))

    async def _change(self, load: Load, step: Step) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await load.change(step.action, step.dice)

    async def _strike(self, faults: Faults, step: Step, turn: asyncio.Lock) -> None:
        async with turn:
            at_s = time.monotonic() - self._began
            self._striking += 1
            try:
                words = await self._insisting(faults, step)
            finally:
                self._striking -= 1
            self.result.faults.append((at_s, words))
            self._say(f"{at_s:6.1f} s  {step.action}: {words} ({time.monotonic() - self._began - at_s:.1f} s)")

    async def _insisting(self, faults: Faults, step: Step) -> str:
        """A fault may meet the end of the one before; it is tried until it can be done."""
        for _ in range(20):
            try:
                return await faults.strike(step.action, step.dice)
            except TimeoutError:
                self.result.broken.append(f"{step.action} did not come to an end")
                return "did not come to an end"
            except (KubeError, ExceptionGroup) as error:
                last = str(error)
                await asyncio.sleep(0.5)
        return f"not possible: {last}"

    async def _end(self, client: HttpClient, load: Load, idle_until_s: float, processes: Processes) -> None:
        broken = self.result.broken
        await load.add_last()
        self.result.converged_s, trouble = await ending.until_settled(client)
        self.result.sets = await load.count()
        self._say(f"{self.result.sets} sets settled {self.result.converged_s:.1f} s after the last fault")
        broken += [f"Convergent: {text}" for text in trouble]
        if not trouble and self.result.converged_s > ending.CONVERGES_S:
            broken.append(f"Convergent: it took {self.result.converged_s:.0f} s")
        if not trouble:
            broken += [f"Convergent: unlike a fresh apply: {text}" for text in await ending.unlike_fresh(client)]
        for namespace in (NAMESPACE, FRESH):
            seconds, left = await ending.until_gone(client, namespace)
            self.result.gone_s = max(self.result.gone_s, seconds)
            broken += [f"left behind: {text}" for text in left]
        self._say(f"gone {self.result.gone_s:.1f} s after the deletion of all sets")
        await asyncio.sleep(CLOSED_S)
        broken += [f"leak: {text}" for text in ending.leaks(processes.samples, idle_until_s)]

    # The witness

    async def _watch(self, client: HttpClient, kind: type[Pod] | type[Node] | type[PodGang]) -> None:
        """Every change in order; after a gap in the stream everything is listed, and what is missing is gone."""
        resource, tell = kind.RESOURCE, getattr(self._witness, kind.RESOURCE.kind.lower().replace("podgang", "gang"))
        known: dict[str, dict[str, object]] = {}
        version = ""
        while True:
            try:
                if not version:
                    page = await client.list(resource)
                    there = {obj["metadata"]["uid"]: obj for obj in page.items}
                    for uid in [uid for uid in known if uid not in there]:
                        tell(known.pop(uid), gone=True)
                    for uid, obj in there.items():
                        known[uid] = obj
                        tell(obj, gone=False)
                    version = page.resource_version
                async for event in client.watch(resource, resource_version=version):
                    version = event.resource_version
                    if event.object is not None:
                        gone, uid = event.type == "DELETED", event.object["metadata"]["uid"]
                        known.pop(uid, None) if gone else known.update({uid: event.object})
                        tell(event.object, gone=gone)
            except Gone:
                version = ""
            except KubeError:
                version = ""
                await asyncio.sleep(0.2)

    async def _attend(self, client: HttpClient, processes: Processes) -> None:
        """Counts time in which a scheduler leads, in step, and nothing is being broken."""
        led_by, since = 0, 0.0
        while True:
            await asyncio.sleep(1.0)
            try:
                holder = holder_pid(await _holder(client, "grove-scheduler-leader-election"))
            except KubeError:
                holder = 0
            alive = {
                process.child.pid
                for process in processes.all
                if process.child is not None and process.child.returncode is None
            }
            now = time.monotonic()
            if holder != led_by or holder not in alive or self._striking:
                led_by, since = holder, now
            elif now - since > ATTENDED_AFTER_S:
                self._witness.attended(1.0)


async def _holder(client: HttpClient, lease: str) -> str:
    try:
        return (await client.get(Lease, lease, SYSTEM)).spec.holder_identity or ""
    except NotFound:
        return ""


@asynccontextmanager
async def _beside(work: object) -> AsyncIterator[None]:
    """The work goes on while the block runs; if it fails, the block fails too."""
    owner = asyncio.current_task()
    task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is not None and owner is not None:
            owner.cancel(f"{done.exception()!r}")

    task.add_done_callback(ended)
    try:
        yield
    finally:
        task.remove_done_callback(ended)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
