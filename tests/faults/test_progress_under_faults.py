"""No unit waits that could run, in a cluster where everything that placement depends on changes.

A run makes gangs of several teams and priorities, some of them scaled with others, with volumes, shared claims, parts
of cards and reservations. Meanwhile nodes, devices, reservations, quotas and pods of another scheduler come and go. One
scheduler runs through all of it, and nothing corrects what it misses. A scheduler that starts at the end must find
nothing to do. A run is a function of its seed; a failing one names it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.fleet import GPU, KAI_QUEUE, QUOTA, definitions, device, elastic, kai_queue, reservation
from tests.support.gangs import Gang, Group, gang, gang_json, group, member_json, pod_json, pod_name
from tests.support.running import without_logs

from grove.api.core import (
    DeviceClass,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    ResourceClaim,
    ResourceSlice,
    StorageClass,
)
from grove.api.kai import Queue
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import Json, Key
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.errors import KubeError
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.volumes.volume_claims import SELECTED_NODE
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.loop import run
from grove.sim.topology import RACK, Topology

NAMESPACE = "default"
CARDS = 4
STEPS = 30
QUIET_S, FRESH_S = 70, 20
"""Pods of a node that went are there for 40 seconds more, and reservations end by their time."""
LIMITS = {"all": 14, "red": 8, "blue": 8, "tiny": 2}
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
DRIVER = "fabric.example.com"
RIVAL = "rival"
Act = Callable[[], Awaitable[None]]
KEEPS = "quota.scheduling.koordinator.sh/allow-lent-resource"


@dataclass
class World:
    """What happens to the cluster in one seeded run."""

    sim: SimCluster
    rng: random.Random
    client: Any = None
    nodes: list[str] = field(default_factory=list)
    gangs: dict[str, Gang] = field(default_factory=dict)
    cores: dict[str, int] = field(default_factory=dict)
    gone: list[Json] = field(default_factory=list)
    count: int = 0
    acts: list[Act] = field(default_factory=list)
    """What may happen in this run: a few things only.

    Many of them make the scheduler try every unit, which hides a missed event. So do queues, when a unit stops waiting.
    """
    with_queues: bool = False
    wants: set[str] = field(default_factory=set)

    async def set_up(self) -> None:
        client = self.client = self.sim.client(user="world")
        self.nodes = sorted(node.metadata.name for node in (await client.list(Node)).items)
        for name in self.nodes[:2]:
            await client.create(Device, device(name, CARDS))
        every: list[Act] = [
            self.lose_node,
            self.bring_node_back,
            self.cordon,
            self.cordon,
            self.rival_comes,
            self.rival_goes,
            self.reserve,
            self.drop_reservation,
            self.ail,
            self.heal,
            self.limit,
            self.drop_slice,
            self.bind_claims,
            self.label,
        ]
        self.acts = [one for one in every if self.rng.random() < 0.35]
        self.with_queues = self.rng.random() < 0.3
        self.wants = {one for one in ("volume", "device", "neighbour") if self.rng.random() < 0.35}
        if self.with_queues:
            await self.set_up_queues()
        for name, value in (("low", 10), ("high", 1000), (RIVAL, 5000)):
            await client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        await client.create(DeviceClass, {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}})
        for name in self.nodes[2:]:
            await self.put_slice(name)

    async def set_up_queues(self) -> None:
        for name, most in LIMITS.items():
            own, parent = (2, "all") if name != "all" else (14, "")
            keeps = {KEEPS: "false"} if self.rng.random() < 0.2 else {}
            await self.client.create(ElasticQuota, elastic(name, NAMESPACE, own, most, parent=parent, labels=keeps))
        for name in ("", "x", "y"):
            body = kai_queue(f"k{name}", own=self.rng.randint(0, 4), parent="k" if name else "")
            body["spec"]["preemptMinRuntime"] = self.rng.choice(("0s", "5s", "15s"))
            await self.client.create(Queue, body)

    async def act(self) -> None:
        usual: list[Act] = [self.make_gang, self.make_gang, self.drop_gang, self.end_pod]
        with suppress(KubeError):
            await self.rng.choice([*usual, *self.acts])()

    # Gangs

    async def make_gang(self) -> None:
        rng = self.rng
        self.count += 1
        name = f"g{self.count}"
        groups: list[Group] = []
        for part in range(rng.randint(1, 2)):
            pods = rng.randint(1, 3)
            spec: Json = {}
            chance = rng.random()
            gpus = rng.choice((0, 1, 1, 2, 4))
            if chance < 0.15 and "volume" in self.wants:
                spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": await self.claim()}}]
            elif 0.15 < chance < 0.3 and "device" in self.wants:
                shared = await self.shared_claim()
                spec["resourceClaims"] = [{"name": "d", "resourceClaimName": shared}]
                gpus = rng.choice((0, 1))
            elif 0.3 < chance < 0.5 and "neighbour" in self.wants:
                app = {"labelSelector": {"matchLabels": {"app": rng.choice("xy")}}, "topologyKey": RACK}
                kind = rng.choice(("podAffinity", "podAntiAffinity"))
                spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [app]}}
            groups.append(group(f"p{part}", pods, rng.randint(1, pods), gpus=gpus, spec=spec))
        team = rng.choice(("red", "blue", "tiny", "", "")) if self.with_queues else ""
        labels = {QUOTA: team} if team else {}
        if self.with_queues and not team:
            labels |= rng.choice(({}, {KAI_QUEUE: "kx"}, {KAI_QUEUE: "ky"}))
        labels |= {"team": "red"} if rng.random() < 0.4 else {}
        labels |= {"app": rng.choice("xyz")}
        made = gang(
            name,
            *groups,
            required=rng.choice(("", "", RACK)),
            priority_class=rng.choice(("low", "low", "high")),
            labels=labels,
            base=rng.choice(sorted(self.gangs)) if self.gangs and rng.random() < 0.3 else "",
        )
        self.cores[name] = rng.choice((0, 0, 0, 50)) if made.groups[0].gpus else 0
        await self.client.create(PodGang, gang_json(made, NAMESPACE))
        self.gangs[name] = made

    async def drop_gang(self) -> None:
        if self.gangs:
            name = self.rng.choice(sorted(self.gangs))
            made = self.gangs.pop(name)
            await self.client.delete(PodGang, name, NAMESPACE)
            for part in made.groups:
                for number in range(part.pods):
                    with suppress(KubeError):
                        await self.client.delete(Pod, pod_name(made, part, number), NAMESPACE, grace_period_s=0)

    async def end_pod(self) -> None:
        pods = [pod for pod in (await self.client.list(Pod, NAMESPACE)).items if pod.spec.node_name]
        if pods:
            await self.client.delete(Pod, self.rng.choice(pods).metadata.name, NAMESPACE, grace_period_s=0)

    async def own_pods(self) -> None:
        """What the pods' owner does, and the controllers of claims: makes what is missing, clears away what is over."""
        while True:
            await asyncio.sleep(0.7)
            await self.make_pods()

    async def make_pods(self) -> None:
        pods = {pod.metadata.name: pod for pod in (await self.client.list(Pod, NAMESPACE)).items}
        for made in list(self.gangs.values()):
            for part in made.groups:
                for number in range(part.pods):
                    if pod_name(made, part, number) in pods:
                        continue
                    body = member_json(made, part, number, NAMESPACE)
                    if self.cores[made.name] and part is made.groups[0]:
                        share = dict.fromkeys((CORE, RATIO), str(self.cores[made.name]))
                        body["spec"]["containers"][0]["resources"] = {"requests": share, "limits": share}
                    with suppress(KubeError):
                        await self.client.create(Pod, body)
        await self.bind_claims(told=True)
        uids = {pod.metadata.uid for pod in pods.values()}
        for claim in (await self.client.list(ResourceClaim, NAMESPACE)).items:
            users = claim.status.reserved_for
            if users and not any(user.uid in uids for user in users):
                status = {"status": {"reservedFor": [], "allocation": None}}
                with suppress(KubeError):
                    await self.client.patch(ResourceClaim, claim.metadata.name, status, NAMESPACE, subresource="status")

    async def label(self) -> None:
        pods = (await self.client.list(Pod, NAMESPACE)).items
        if pods:
            body = {"metadata": {"labels": {"app": self.rng.choice("xyz")}}}
            await self.client.patch(Pod, self.rng.choice(pods).metadata.name, body, NAMESPACE)

    # Nodes, and those of another scheduler

    async def lose_node(self) -> None:
        names = sorted(node.metadata.name for node in (await self.client.list(Node)).items)
        if len(names) > 2:
            name = self.rng.choice(names)
            self.gone.append(self.sim.json(Node, name) or {})
            await self.sim.nodes.remove_node(name)

    async def bring_node_back(self) -> None:
        if self.gone:
            gone = self.gone.pop(self.rng.randrange(len(self.gone)))
            meta = {"name": gone["metadata"]["name"], "labels": gone["metadata"]["labels"]}
            status = {key: gone["status"][key] for key in ("capacity", "allocatable")}
            await self.sim.nodes.add([{"metadata": meta, "spec": {}, "status": status}])

    async def cordon(self) -> None:
        await self.sim.nodes.cordon(self.rng.choice(self.nodes), unschedulable=self.rng.random() < 0.5)

    async def rival_comes(self) -> None:
        self.count += 1
        node = self.rng.choice(self.nodes)
        used = 0
        for pod in (await self.client.list(Pod, NAMESPACE)).items:
            if pod.spec.node_name == node:
                asked = pod.spec.containers[0].resources.requests
                used += int(asked.get(GPU, 0)) + bool(asked.get(CORE))
        gpus = self.rng.randint(1, 3)
        if used + gpus > CARDS or node in self.nodes[:2]:
            return
        name, priority = f"rival-{self.count}", self.rng.choice(("low", "high", RIVAL))
        await self.client.create(
            Pod, pod_json(name, NAMESPACE, gpus=gpus, schedulerName=RIVAL, priorityClassName=priority)
        )
        self.sim.server.bind(Key(NAMESPACE, name), node)

    async def rival_goes(self) -> None:
        pods = (await self.client.list(Pod, NAMESPACE)).items
        rivals = [pod.metadata.name for pod in pods if pod.spec.scheduler_name == RIVAL]
        if rivals:
            await self.client.delete(Pod, self.rng.choice(rivals), NAMESPACE, grace_period_s=0)

    # Quotas, reservations, devices, volumes

    async def limit(self) -> None:
        name = self.rng.choice(("red", "blue", "tiny"))
        body = {"spec": {"max": {GPU: self.rng.randint(1, 8)}, "min": {GPU: self.rng.randint(0, 4)}}}
        await self.client.patch(ElasticQuota, name, body, NAMESPACE)

    async def reserve(self) -> None:
        self.count += 1
        rng = self.rng
        gpus = rng.randint(1, 2)
        body = reservation(
            f"r{self.count}",
            gpus=gpus,
            ttl=rng.choice(("0s", "7s", "20s", "30s")),
            allocateOnce=rng.random() < 0.5,
            template={"schedulerName": "grove-scheduler"},
        )
        await self.client.create(Reservation, body)

    async def drop_reservation(self) -> None:
        found = sorted(one.metadata.name for one in (await self.client.list(Reservation)).items)
        if found:
            await self.client.delete(Reservation, self.rng.choice(found))

    async def ail(self) -> None:
        await self._health(well=False)

    async def heal(self) -> None:
        await self._health(well=True)

    async def _health(self, *, well: bool) -> None:
        name = self.rng.choice(self.nodes[:2])
        body = device(name, CARDS)["spec"]
        for one in body["devices"]:
            one["health"] = well or self.rng.random() < 0.5
        await self.client.patch(Device, name, {"spec": body})

    async def put_slice(self, node: str) -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"d{n}"} for n in range(2)]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        await self.client.create(ResourceSlice, {"metadata": {"name": node}, "spec": spec})

    async def drop_slice(self) -> None:
        name = self.rng.choice(self.nodes[2:])
        try:
            await self.put_slice(name)
        except KubeError:
            await self.client.delete(ResourceSlice, name)

    async def shared_claim(self) -> str:
        name = f"shared-{self.rng.randint(0, 4)}"
        exactly = {"deviceClassName": DRIVER, "count": 1, "allocationMode": "ExactCount"}
        spec = {"devices": {"requests": [{"name": "one", "exactly": exactly}]}}
        with suppress(KubeError):
            await self.client.create(ResourceClaim, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        return name

    async def claim(self) -> str:
        self.count += 1
        name = f"data-{self.count}"
        spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        kind = self.rng.choice(("", "slow"))
        if kind:
            with suppress(KubeError):
                await self.client.create(
                    StorageClass,
                    {
                        "metadata": {"name": kind},
                        "provisioner": "example.com/slow",
                        "volumeBindingMode": "WaitForFirstConsumer",
                    },
                )
        meta = {"name": name, "namespace": NAMESPACE}
        body = {"metadata": meta, "spec": {**spec, "storageClassName": kind}}
        await self.client.create(PersistentVolumeClaim, body)
        return name

    async def bind_claims(self, *, told: bool = False) -> None:
        """Gives every claim that waits a volume, or (`told`) every claim with a selected node."""
        for claim in (await self.client.list(PersistentVolumeClaim, NAMESPACE)).items:
            if claim.spec.volume_name or (told and SELECTED_NODE not in claim.metadata.annotations):
                continue
            name = claim.metadata.name
            spec: Json = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/d"},
                "storageClassName": claim.spec.storage_class_name or "",
                "claimRef": {"namespace": NAMESPACE, "name": name, "uid": claim.metadata.uid},
            }
            await self.client.create(PersistentVolume, {"metadata": {"name": name}, "spec": spec})
            await self.client.patch(PersistentVolumeClaim, name, {"spec": {"volumeName": name}}, NAMESPACE)


async def storm(seed: int) -> None:
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(
            SimCluster(
                nodes=Topology(racks=2, nodes=2, gpus=CARDS),
                seed=seed,
                start_s=0.2,
                stop_s=0.3,
                definitions=[*own_crds(), *definitions()],
            )
        )
        world = World(sim, rng)
        await world.set_up()
        scheduler = Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence)
        running = [asyncio.ensure_future(scheduler.run()), asyncio.ensure_future(world.own_pods())]
        for _ in range(rng.randint(STEPS // 3, STEPS)):
            await asyncio.sleep(rng.choice((0.05, 0.5, 1.0, 3.0)))
            await world.act()
        await asyncio.sleep(QUIET_S)
        before = await places(world.client)
        running[0].cancel()
        await asyncio.gather(running[0], return_exceptions=True)
        fresh = Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence)
        running.append(asyncio.ensure_future(fresh.run()))
        await asyncio.sleep(FRESH_S)
        after = await places(world.client)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        late = sorted(uid for uid, node in after.items() if node and before.get(uid, node) != node)
        names = {pod.metadata.uid: pod.metadata.name for pod in (await world.client.list(Pod, NAMESPACE)).items}
        waited = [names.get(uid, uid) for uid in late]
        assert waited == [], f"seed {seed}: {waited} waited, and a fresh scheduler placed them"


async def places(client: Any) -> dict[str, str]:
    return {pod.metadata.uid: pod.spec.node_name for pod in (await client.list(Pod, NAMESPACE)).items}


def survives(seeds: Iterable[int]) -> None:
    with without_logs():
        for seed in seeds:
            run(storm(seed), seed=seed)


@pytest.mark.simulated
def test_no_unit_waits_that_could_run_whatever_came_and_went() -> None:
    survives(range(4015, 4035))


@pytest.mark.soak
@pytest.mark.simulated
@pytest.mark.parametrize("part", range(20))
def test_no_unit_waits_that_could_run_in_a_thousand_restless_lives(part: int) -> None:
    survives(range(100 + part * 50, 150 + part * 50))
