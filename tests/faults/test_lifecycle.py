"""Seeded runs that mix updates, scaling, lost pods and nodes, strategy switches and an operator that dies at any await.

Whatever happened, when it stops the cluster must come to what a fresh apply of the same specs gives; and no ready pod
of a clique that is down to its minimum may ever have been taken by an update. A failing seed is in the test's id:
`pytest tests/faults/test_lifecycle.py -k seed-17` plays it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.golden import differences
from tests.support.graphs import read_graph
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Binder

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.core import Namespace, Node, Pod
from grove.api.meta import Json, Key, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client
from grove.kube.errors import KubeError
from grove.operator.shared.rollout import pod_incarnation
from grove.operator.wiring import Operator
from grove.sim import loop
from grove.sim.cluster import SimCluster
from grove.sim.crash import Process
from grove.sim.faults import ROUGH, Faults
from grove.sim.topology import Topology

NAMESPACE, FRESH = "faults", "fresh"
ACTIONS = 14
QUICK = 12
"""Seeds in every `make test`."""


def workload(rng: random.Random) -> Json:
    startup = rng.choice(["CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder"])
    gate = {"annotations": {key.STARTUP_READINESS_GATE: rng.choice(["true", "false"])}}
    return pcs(
        "wl",
        clique("pc-a", 3, min_available=2),
        clique("pc-b", 1),
        clique("pc-c", 2, min_available=1),
        groups=[group("sg-x", "pc-b", "pc-c", replicas=2, min_available=1)],
        termination_delay="20s",
        startup=startup,
        replicas=rng.choice([1, 2]),
        namespace=NAMESPACE,
        metadata=gate,
    )


class Conscience:
    """Looks over the operator's shoulder: notes pods and replicas it takes although they could not be spared."""

    def __init__(self, inner: Client, cluster: SimCluster) -> None:
        self._inner, self._cluster = inner, cluster
        self.sins: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def delete(self, kind: Any, name: str, namespace: str = "", **options: Any) -> None:
        if kind is Pod:
            self._judge(Key(namespace, name))
        await self._inner.delete(kind, name, namespace, **options)

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str = "", **options: Any) -> Any:
        if kind is PodCliqueScalingGroup and options.get("subresource") == "status":
            self._judge_group_replicas(Key(namespace, name), patch["status"])
        return await self._inner.patch(kind, name, patch, namespace, **options)

    def _judge_group_replicas(self, at: Key, status: Json) -> None:
        """An update takes replicas by raising their incarnation together with the generation they are to have."""
        found = self._cluster.server.store.collection(PodCliqueScalingGroup.RESOURCE).objects.get(at)
        if found is None or "replicaRestarts" not in status:
            return
        group_ = found.view(PodCliqueScalingGroup)
        before = {one.replica_index: one.generation_hash for one in group_.status.replica_restarts}
        taken = [
            entry["replicaIndex"]
            for entry in status["replicaRestarts"] or ()
            if entry.get("generationHash") and before.get(entry["replicaIndex"]) != entry["generationHash"]
        ]
        whole = self._whole_replicas(group_)
        if sum(index in whole for index in taken) and len(whole) < group_.spec.min_available:
            self.sins.append(f"{at.name}: replicas {taken} were taken with {sorted(whole)} whole")

    def _whole_replicas(self, group_: PodCliqueScalingGroup) -> set[int]:
        ready: dict[str, int] = {}
        for version in self._cluster.server.store.collection(Pod.RESOURCE).objects.values():
            pod = version.view(Pod)
            if pod.is_ready and not pod.metadata.is_deleting and pod.metadata.namespace == group_.metadata.namespace:
                name = pod.metadata.labels[key.POD_CLIQUE]
                ready[name] = ready.get(name, 0) + 1
        return {
            index
            for index in range(group_.spec.replicas)
            if all(ready.get(f"{group_.metadata.name}-{index}-{name}", 0) >= 1 for name in group_.spec.clique_names)
        }

    def _judge(self, at: Key) -> None:
        store = self._cluster.server.store
        pods = {k: v.view(Pod) for k, v in store.collection(Pod.RESOURCE).objects.items()}
        pod = pods.get(at)
        if pod is None or not pod.is_ready or pod.metadata.is_deleting or key.SCALING_GROUP in pod.metadata.labels:
            return
        if Key("", pod.spec.node_name) not in store.collection(Node.RESOURCE).objects:
            return  # no kubelet is left to report that it is not ready any more
        owner = store.collection(PodClique.RESOURCE).objects.get(Key(at.namespace, pod.metadata.labels[key.POD_CLIQUE]))
        whole = store.collection(PodCliqueSet.RESOURCE).objects.get(Key(at.namespace, "wl"))
        if owner is None or whole is None:
            return
        found, pcs_ = owner.view(PodClique), whole.view(PodCliqueSet)
        replica = int(pod.metadata.labels[key.REPLICA_INDEX])
        if replica >= pcs_.spec.replicas:
            return  # scaled away, with everything in it
        restart = next((r.incarnation for r in pcs_.status.replica_restarts if r.replica_index == replica), 0)
        mates = [p for p in pods.values() if _is_of(p, found) and not p.metadata.is_deleting]
        ready = sum(p.is_ready for p in mates)
        scale_in = len(mates) > found.spec.replicas
        if pod_incarnation(pod) >= restart and not scale_in and ready < (found.spec.min_available or 0):
            self.sins.append(f"{pod.metadata.name} was deleted with {ready} ready")


def _is_of(pod: Pod, owner: PodClique) -> bool:
    controller = pod.metadata.controller
    return controller is not None and controller.uid == owner.metadata.uid


class Run:
    """One seeded life of a set."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"lifecycle-{seed}")
        self.seed = seed
        self.rough = self.rng.random() < 0.5
        self.in_place = seed % 3 == 1

    async def play(self) -> None:
        rng = self.rng
        async with SimCluster(
            nodes=Topology(racks=2, nodes=3),
            seed=self.seed,
            start_s=lambda _: rng.uniform(0, 3),
            stop_s=lambda _: rng.choice([0.0, rng.uniform(0, 5)]),
        ) as cluster:
            self.cluster, self.client = cluster, cluster.client()
            for namespace in (NAMESPACE, FRESH):
                await self.client.create(Namespace, {"metadata": {"name": namespace}})
            self.faults = Faults(ROUGH, seed=self.seed)
            if not self.rough:
                self.faults.stop()
            self.consciences: list[Conscience] = []
            self.process = Process(self._operate, self._connect, rng=random.Random(self.seed), mean_life_s=20.0)
            helpers = [self.process.run(), self._binder(NAMESPACE).run(), self._binder(FRESH).run()]
            tasks = [asyncio.get_running_loop().create_task(one) for one in helpers]
            try:
                await self._live()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self) -> Client:
        mine = Conscience(self.faults.client(self.cluster.client(user="grove-operator")), self.cluster)
        self.consciences.append(mine)
        return mine  # type: ignore[return-value]

    async def _operate(self, client: Client) -> None:
        operator = Operator(
            client, clock=self.cluster.clock, rng=random.Random(self.rng.getrandbits(32)), startup_image="initc:1"
        )
        await operator.run()

    def _binder(self, namespace: str) -> Binder:
        return Binder(self.cluster.client(), namespace, "", plays_kube=True)

    async def _live(self) -> None:
        manifest = workload(self.rng)
        if self.in_place:
            manifest["spec"]["updateStrategy"] = {**manifest["spec"].get("updateStrategy", {}), "inPlace": "IfPossible"}
        await self.client.create(PodCliqueSet, manifest)
        actions: list[Callable[[], Any]] = [
            self.change,
            self.change,
            self.change,
            self.scale_set,
            self.scale_clique,
            self.scale_group,
            self.delete_pod,
            self.delete_pod,
            self.fail_pod,
            self.crash_pod,
            self.stop_node,
            self.lose_node,
            self.switch,
            self.kill,
        ]
        await asyncio.sleep(self.rng.uniform(0, 15))
        for _ in range(ACTIONS):
            try:
                await self.rng.choice(actions)()
            except KubeError:
                pass  # what it was to be done to is gone
            await asyncio.sleep(self.rng.choice([0.0, self.rng.uniform(0, 2), self.rng.uniform(0, 25)]))
        await self._calm()
        await self._converged(NAMESPACE)
        if not self.rough:
            assert [sin for one in self.consciences for sin in one.sins] == []
        assert [one for one in self.process.failures if not isinstance(one, KubeError)] == []
        await self._compare()

    async def _calm(self) -> None:
        self.faults.stop()
        self.process.spare()
        self.process.kill()
        for node in self.cluster.nodes.names:
            await self.cluster.nodes.start_node(node)
        await self.change(rolling=True)

    # What happens

    async def change(self, rolling: bool = False) -> None:
        found: Json = await self.client.get(PodCliqueSet.RESOURCE, "wl", NAMESPACE)
        templates = found["spec"]["template"]["cliques"]
        for template in self.rng.sample(templates, self.rng.randint(1, len(templates))):
            template["labels"] = {"version": str(self.rng.randint(1, 5))}
            if self.in_place:
                image = f"registry.k8s.io/pause:3.{self.rng.randint(1, 9)}"
                template["spec"]["podSpec"]["containers"][0]["image"] = image
        spec: Json = {"template": {"cliques": templates}}
        if rolling:
            templates[0]["labels"] = {"version": "last"}
            spec["updateStrategy"] = {"type": "RollingRecreate"}
        await self.client.patch(PodCliqueSet, "wl", {"spec": spec}, NAMESPACE)

    async def scale_set(self) -> None:
        await self._scale(PodCliqueSet, "wl", self.rng.randint(1, 3))

    async def scale_clique(self) -> None:
        await self._scale(PodClique, f"wl-{self.rng.randint(0, 1)}-pc-a", self.rng.randint(2, 5))

    async def scale_group(self) -> None:
        await self._scale(PodCliqueScalingGroup, f"wl-{self.rng.randint(0, 1)}-sg-x", self.rng.randint(1, 3))

    async def _scale(self, kind: Any, name: str, replicas: int) -> None:
        await self.client.patch(kind, name, {"spec": {"replicas": replicas}}, NAMESPACE, subresource="scale")

    async def delete_pod(self) -> None:
        for pod in await self._some_pods():
            await self.client.delete(Pod, pod.metadata.name, NAMESPACE)

    async def fail_pod(self) -> None:
        for pod in await self._some_pods():
            await self.cluster.nodes.fail_pod(NAMESPACE, pod.metadata.name)

    async def crash_pod(self) -> None:
        for pod in await self._some_pods():
            await self.cluster.nodes.crash_pod(NAMESPACE, pod.metadata.name, restart_s=self.rng.choice([5.0, 60.0]))

    async def _some_pods(self) -> list[Pod]:
        page = await self.client.list(Pod, NAMESPACE)
        running = sorted((p for p in page.items if p.status.phase == "Running"), key=lambda p: str(p.metadata.name))
        return self.rng.sample(running, min(len(running), self.rng.choice([1, 1, 2, 5])))

    async def stop_node(self) -> None:
        node = self.rng.choice(self.cluster.nodes.names)
        await self.cluster.nodes.stop_node(node)
        later = self.rng.uniform(1, 60)
        asyncio.get_running_loop().call_later(later, lambda: asyncio.ensure_future(self._back(node)))

    async def _back(self, node: str) -> None:
        if node in self.cluster.nodes.names:
            await self.cluster.nodes.start_node(node)

    async def lose_node(self) -> None:
        if len(self.cluster.nodes.names) > 3:
            await self.cluster.nodes.remove_node(self.rng.choice(self.cluster.nodes.names))

    async def switch(self) -> None:
        strategy: Json = {"type": self.rng.choice(["OnDelete", "RollingRecreate"])}
        if strategy["type"] == "RollingRecreate" and self.rng.random() < 0.5:
            strategy["rollingRecreate"] = {"maxUnavailable": self.rng.randint(1, 3)}
        await self.client.patch(PodCliqueSet, "wl", {"spec": {"updateStrategy": strategy}}, NAMESPACE)

    async def kill(self) -> None:
        self.process.kill()

    # How it ends

    async def _converged(self, namespace: str) -> None:
        for _ in range(360):
            if await self._is_settled(namespace):
                break
            await asyncio.sleep(5)
        await asyncio.sleep(60)
        assert await self._is_settled(namespace), "not settled after half an hour, or not for long"

    async def _is_settled(self, namespace: str) -> bool:
        pcs_: PodCliqueSet = await self.client.get(PodCliqueSet, "wl", namespace)
        status, progress = pcs_.status, pcs_.status.update_progress
        cliques = (await self.client.list(PodClique, namespace)).items
        return (
            status.observed_generation == pcs_.metadata.generation
            and status.available_replicas == status.updated_replicas == pcs_.spec.replicas
            and (progress is None or progress.update_ended_at is not None)
            and not status.last_errors
            and all(c.status.ready_replicas == c.status.updated_replicas == c.spec.replicas for c in cliques)
            and not any(is_true(c.status.conditions, words.MIN_AVAILABLE_BREACHED) for c in cliques)
        )

    async def _compare(self) -> None:
        """The same specs, applied again and scaled alike, must give the same objects."""
        found: Json = await self.client.get(PodCliqueSet.RESOURCE, "wl", NAMESPACE)
        meta = {"name": "wl", "namespace": FRESH, "annotations": found["metadata"]["annotations"]}
        await self.client.create(PodCliqueSet, {"metadata": meta, "spec": found["spec"]})
        await asyncio.sleep(5)
        for kind in (PodCliqueScalingGroup, PodClique):
            for one in (await self.client.list(kind, NAMESPACE)).items:
                patch = {"spec": {"replicas": one.spec.replicas}}
                await self.client.patch(kind, one.metadata.name, patch, FRESH)
            await asyncio.sleep(5)
        await self._converged(FRESH)
        ours, fresh = await read_graph(self.client, NAMESPACE), await read_graph(self.client, FRESH)
        # When a pod was last patched, and which containers stopped for it, only a pod that was patched says.
        found = [one for one in differences(ours, fresh, statuses=False) if key.IN_PLACE not in one]
        assert found == []


def play(seed: int) -> None:
    loop.run(Run(seed).play(), seed=seed, limit_s=24 * 3600.0)


@pytest.mark.parametrize("seed", range(QUICK), ids=lambda seed: f"seed-{seed}")
def test_everything_converges(seed: int) -> None:
    play(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(QUICK, 1000), ids=lambda seed: f"seed-{seed}")
def test_everything_converges_for_long(seed: int) -> None:
    play(seed)
