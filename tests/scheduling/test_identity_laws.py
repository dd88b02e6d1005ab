"""Gangs that come, go and come again under the same name, in any order, while the scheduler loses pods and its lease.

A model has the uids of all gangs and pods that exist. For a gang that no longer exists, no pod is bound, evicted or
deleted. No life of a gang takes an impossible step. In the end everything that fits is placed, and no record is left
open.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.gangs import Gang, gang, gang_json, group, member_json, pod_name

from grove.api import labels
from grove.api.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    StorageClass,
)
from grove.api.labels import GANG_TIMEOUT
from grove.api.meta import Resource, is_true
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.errors import KubeError, NotFound, NotLeader
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.policy.gang_life import ENGAGED, Phase
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import VirtualLoop
from grove.sim.store import Change
from grove.sim.topology import Topology

NAMESPACE = "default"
NAMES = ("a", "b")
NODES = 4
ON_VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


class Leader(SimClient):
    """A client whose lease can end: reads go on, writes are held back. It records the gang for which it evicted."""

    is_leader = True
    world: World

    def _check(self) -> None:
        if not self.is_leader:
            raise NotLeader("the lease is gone")

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        self._check()
        self.world.saw_bind(pod, uid)
        await super().bind(namespace, pod, node, uid=uid)

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        self._check()
        self.world.saw_eviction(pod)
        await super().evict(namespace, pod, uid=uid, dry_run=dry_run)

    async def patch(self, *args: Any, **kw: Any) -> Any:
        self._check()
        return await super().patch(*args, **kw)

    async def delete(self, kind: Any, name: str, namespace: str = "", **kw: Any) -> Any:
        self._check()
        if kind is Pod:
            self.world.saw_deletion(name)
        return await super().delete(kind, name, namespace, **kw)


@dataclass
class World:
    """What exists, as far as the story goes."""

    gangs: dict[str, Gang] = field(default_factory=dict)
    """By name: the gangs there are now."""
    pods: dict[str, str] = field(default_factory=dict)
    """Uid by name: the pods there are now."""
    bound: dict[str, set[str]] = field(default_factory=dict)
    """Uids of pods on nodes, by the name of their gang."""
    stood: set[str] = field(default_factory=set)
    """Gangs that had their minimum on nodes, and some pod on a node ever since."""
    doomed: set[str] = field(default_factory=set)
    """Gangs whose eviction a scheduler had announced when it died. The next one finishes it without the name of the
    gang.
    """
    broken: list[str] = field(default_factory=list)

    def see(self, resource: Resource, change: Change) -> None:
        """Every write to the cluster, in order."""
        pod = change.version.json
        if resource != Pod.RESOURCE or labels.POD_GANG not in pod["metadata"].get("labels", {}):
            return
        name = pod["metadata"]["labels"][labels.POD_GANG]
        bound = self.bound.setdefault(name, set())
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and change.type != "DELETED":
            bound.add(pod["metadata"]["uid"])
        else:
            bound.discard(pod["metadata"]["uid"])
        if not bound:
            self.stood.discard(name)

    def saw_bind(self, pod: str, uid: str) -> None:
        if pod.partition("-")[0] not in self.gangs and self.pods.get(pod) == uid:
            self.broken.append(f"{pod} is bound although its gang is gone")

    def saw_eviction(self, pod: str) -> None:
        if pod.partition("-")[0] in self.doomed:
            return
        if not any(one.priority_class == "high" for one in self.gangs.values()):
            self.broken.append(f"{pod} is evicted, and there is nobody it could be for")

    def saw_deletion(self, pod: str) -> None:
        name = pod.partition("-")[0]
        if name in self.stood:
            self.broken.append(f"{pod} is deleted, and its gang {name} stood")


def made(name: str, pods: int, high: bool, slow: bool) -> Gang:
    return gang(
        name,
        group("w", pods, spec=ON_VOLUME if slow else {}),
        priority_class="high" if high else "low",
        annotations={GANG_TIMEOUT: "20s"},
    )


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        structlog.configure(processors=[self._hear], logger_factory=structlog.ReturnLoggerFactory())
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.world = World()
        self.guarded = False

    def _hear(self, _: Any, method: str, event: Any) -> Any:
        """A failure that was caught and logged is a failure all the same."""
        if event.get("exc_info"):
            self.world.broken.append(f"{event['event']}: {traceback.format_exc()}")
        raise structlog.DropEvent

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    # Beginning and end

    @initialize(guarded=st.booleans(), standing=st.booleans(), thinks_s=st.sampled_from((0.0, 0.0, 0.7)))
    def begin(self, guarded: bool, standing: bool, thinks_s: float) -> None:
        """Perhaps with a gang that stands, a budget that allows no eviction, and decisions that take long."""
        self.thinks_s = thinks_s
        self.do(self._begin())
        if standing:
            self.do(self._create(made("a", NODES - 1, high=False, slow=False)))
            self.do(self._wait(3.0))
        if guarded:
            self.do(self._guard())

    async def _begin(self) -> None:
        self.sim = SimCluster(nodes=Topology(nodes=NODES, gpus=1), start_s=0.2)
        self.sim.server.store.listeners.append(self.world.see)
        await self.sim.start()
        self.client = self.sim.client()
        for name, value in (("low", 10), ("high", 1000)):
            await self.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await self.client.create(
            StorageClass,
            {
                "metadata": {"name": "slow"},
                "provisioner": "example.com/slow",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        await self._new_claim()
        self._start()
        await asyncio.sleep(1)

    async def _new_claim(self) -> None:
        spec = {
            "storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await self.client.create(
            PersistentVolumeClaim, {"metadata": {"name": "data", "namespace": NAMESPACE}, "spec": spec}
        )

    def _start(self) -> None:
        self.leader = Leader(self.sim.server, user="grove-scheduler", latency_s=0.001)
        self.leader.world = self.world
        aside = self._think if self.thinks_s else None
        self.scheduler = Scheduler(self.leader, SchedulerConfiguration(), self.sim.clock, aside=aside, say=sentence)
        self.running = asyncio.ensure_future(self.scheduler.run())

    async def _think(self, work: Callable[[], Any]) -> Any:
        """A decision on the cluster as it was when it began."""
        await asyncio.sleep(self.thinks_s)
        return work()

    async def _stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    def teardown(self) -> None:
        try:
            if hasattr(self, "sim"):
                self.do(self._finish())
        finally:
            structlog.reset_defaults()
            asyncio.set_event_loop(None)
            self.loop.close()

    async def _finish(self) -> None:
        if self.guarded:
            await self.client.delete(PodDisruptionBudget, "guard", NAMESPACE)
        await self._make_volume()
        await asyncio.sleep(120)
        view = self.scheduler.view
        books = [unit.name for unit in view.units if unit.attempts]
        for one in view.units.gangs.values():
            if one.phase in ENGAGED or one.life.attempts:
                self.world.broken.append(f"{one.name} is {one.phase.value} at the end")
        if view.counted.reserved or books:
            self.world.broken.append(f"reserved at the end: {sorted(view.counted.reserved)}, attempts: {sorted(books)}")
        before = await self._bound()
        await self._stop()
        self._start()
        await asyncio.sleep(60)
        if (after := await self._bound()) != before:
            self.world.broken.append(f"a fresh scheduler bound {sorted(after)} instead of {sorted(before)}")
        await self._stop()
        await self.sim.stop()
        assert self.world.broken == []

    async def _bound(self) -> set[str]:
        pods = (await self.client.list(Pod, NAMESPACE)).items
        return {pod.metadata.name for pod in pods if pod.spec.node_name and not pod.metadata.is_deleting}

    # What happens

    @rule(name=st.sampled_from(NAMES), pods=st.integers(1, 3), high=st.booleans(), slow=st.booleans())
    def create(self, name: str, pods: int, high: bool, slow: bool) -> None:
        if name not in self.world.gangs:
            self.do(self._create(made(name, pods, high, slow)))

    async def _create(self, one: Gang) -> None:
        self.world.gangs[one.name] = one
        await self.client.create(PodGang, gang_json(one, NAMESPACE))
        await self._make_pods()

    async def _make_pods(self) -> None:
        """What the pods' owner does."""
        there = {pod.metadata.name: pod.metadata.uid for pod in (await self.client.list(Pod, NAMESPACE)).items}
        for one in self.world.gangs.values():
            for number in range(one.groups[0].pods):
                if pod_name(one, one.groups[0], number) not in there:
                    pod = await self.client.create(Pod, member_json(one, one.groups[0], number, NAMESPACE))
                    there[pod.metadata.name] = pod.metadata.uid
        self.world.pods = there

    @rule(pods=st.integers(1, 3), high=st.booleans(), slow=st.booleans(), with_pods=st.booleans())
    def come_and_go(self, pods: int, high: bool, slow: bool, with_pods: bool) -> None:
        """One that is deleted while it is being bound, or waits for its victims."""
        if "b" not in self.world.gangs:
            self.do(self._create(made("b", pods, high, slow)))
            self.do(self._wait(1.0))
            self.do(self._delete("b", with_pods))

    @precondition(lambda self: self.world.gangs)
    @rule(data=st.data(), with_pods=st.booleans())
    def delete(self, data: st.DataObject, with_pods: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.gangs)))
        self.do(self._delete(name, with_pods))

    async def _delete(self, name: str, with_pods: bool) -> None:
        await self.client.delete(PodGang, name, NAMESPACE)
        await asyncio.sleep(0.05)  # what is sent before the scheduler can know is no fault of its
        del self.world.gangs[name]
        self.world.stood.discard(name)
        for pod in (await self.client.list(Pod, NAMESPACE)).items if with_pods else ():
            if pod.metadata.labels.get(labels.POD_GANG) == name:
                await self.client.delete(Pod, pod.metadata.name, NAMESPACE, grace_period_s=0)
                self.world.pods.pop(pod.metadata.name, None)

    @precondition(lambda self: self.world.gangs)
    @rule(data=st.data(), again=st.booleans())
    def replace(self, data: st.DataObject, again: bool) -> None:
        """Deleted and applied again at once, with its pods or over the pods there are."""
        one = self.world.gangs[data.draw(st.sampled_from(sorted(self.world.gangs)))]
        self.do(self._delete(one.name, again))
        self.do(self._create(one))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def lose_pod(self, data: st.DataObject) -> None:
        self.do(self._lose(data.draw(st.sampled_from(sorted(self.world.pods)))))

    async def _lose(self, name: str) -> None:
        self.world.pods.pop(name)
        try:
            await self.client.delete(Pod, name, NAMESPACE, grace_period_s=0)
        except NotFound:
            pass

    @rule()
    def make_pods(self) -> None:
        self.do(self._make_pods())

    @rule(after_s=st.sampled_from((0.0, 0.5)))
    def lose_leadership(self, after_s: float) -> None:
        """Its writes are held back, then it goes, and another one leads."""
        self.do(self._change_leader(after_s))

    async def _change_leader(self, after_s: float) -> None:
        self.leader.is_leader = False
        await asyncio.sleep(after_s)
        await self._stop()
        for one in (await self.client.list(PodGang, NAMESPACE)).items:
            if is_true(one.status.conditions, "DisruptionTarget"):
                self.world.doomed.add(one.metadata.name)
        self._start()
        await asyncio.sleep(0.5)

    @rule()
    def guard(self) -> None:
        """A disruption budget over all pods comes, or goes."""
        self.do(self._guard())

    async def _guard(self) -> None:
        if self.guarded:
            await self.client.delete(PodDisruptionBudget, "guard", NAMESPACE)
        else:
            spec = {
                "minAvailable": "100%",
                "selector": {"matchExpressions": [{"key": labels.POD_GANG, "operator": "Exists"}]},
            }
            meta = {"name": "guard", "namespace": NAMESPACE}
            await self.client.create(PodDisruptionBudget, {"metadata": meta, "spec": spec})
        self.guarded = not self.guarded

    @rule()
    def make_volume(self) -> None:
        self.do(self._make_volume())

    async def _make_volume(self) -> None:
        try:
            await self.client.create(
                PersistentVolume, {"metadata": {"name": "made"}, "spec": {"capacity": {"storage": "1Gi"}}}
            )
            await self.client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "made"}}, NAMESPACE)
        except KubeError:
            pass  # it was made before

    @rule(seconds=st.sampled_from((0.01, 0.3, 3.0, 30.0)))
    def wait(self, seconds: float) -> None:
        self.do(self._wait(seconds))

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for one in self.scheduler.view.units.gangs.values():
            if one.phase is Phase.PLACED:
                self.world.stood.add(one.podgang.metadata.name)

    @invariant()
    def nothing_broke(self) -> None:
        assert self.world.broken == []


ANY_LIFE = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))


def test_lives() -> None:
    run_state_machine_as_test(Lives, settings=ANY_LIFE)


@pytest.mark.soak
def test_many_lives() -> None:
    run_state_machine_as_test(Lives, settings=settings(ANY_LIFE, max_examples=400))
