"""Gangs that wait long: the scheduler holds nodes for them, no gang starves, and deadlines are reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.fleet import QUOTA, definitions, elastic
from tests.support.gangs import Gang, gang, gang_json, group, member_json, pod_json, scheduling

from grove.api.core import (
    CustomResourceDefinition,
    Event,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from grove.api.koordinator import ElasticQuota
from grove.api.meta import Json, find_condition
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.holds import long_wait_holds as holding
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration, Seconds
from grove.scheduler.policy.cluster_changes import Changes
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run
from grove.sim.topology import HOST, ZONE, Topology

NAMESPACE = "default"


HELD_S, DAY_S = 200.0, 24 * 3600.0
"""After the first of them nodes are held, with the default configuration."""


@asynccontextmanager
async def world(nodes: int, gpus: int = 1, **config: Any) -> AsyncIterator[tuple[SimCluster, SimClient, Scheduler]]:
    async with SimCluster(nodes=Topology(nodes=nodes, gpus=gpus)) as sim:
        scheduler = Scheduler(
            sim.client(user="grove-scheduler"), SchedulerConfiguration(**config), sim.clock, say=sentence
        )
        task = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(1)
        try:
            yield sim, sim.client(), scheduler
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def apply(client: SimClient, made: Gang) -> None:
    await client.create(PodGang, gang_json(made, NAMESPACE))
    for part in made.groups:
        for number in range(part.pods):
            await client.create(Pod, member_json(made, part, number, NAMESPACE))


async def bound(client: SimClient, prefix: str) -> int:
    pods = (await client.list(Pod, NAMESPACE)).items
    return sum(bool(pod.spec.node_name) and pod.metadata.name.startswith(prefix) for pod in pods)


async def a_stream_of_small_pods(client: SimClient, lives_s: float, every_s: float) -> None:
    """Single pods that never leave more than one node free at a time."""
    number = 0
    while True:
        number += 1
        name = f"small-{number}"
        await client.create(Pod, pod_json(name, NAMESPACE))
        asyncio.get_running_loop().call_later(
            lives_s, lambda name=name: asyncio.ensure_future(client.delete(Pod, name, NAMESPACE, grace_period_s=0))
        )
        await asyncio.sleep(every_s)


def after_an_hour(hold_after: float) -> Callable[[], Awaitable[int]]:
    async def story() -> int:
        async with world(4, hold_after=Seconds(hold_after)) as (_, client, _scheduler):
            stream = asyncio.ensure_future(a_stream_of_small_pods(client, lives_s=40, every_s=9))
            await asyncio.sleep(120)
            await apply(client, gang("large", group("w", 4)))
            await asyncio.sleep(3600)
            stream.cancel()
            return await bound(client, "large")

    return story


def test_a_large_gang_starves_where_nothing_is_held() -> None:
    assert run(after_an_hour(0)()) == 0


def test_a_large_gang_gets_its_nodes_after_a_while() -> None:
    assert run(after_an_hour(120)()) == 4


def test_a_gang_that_would_not_even_fit_on_an_empty_cluster_has_nothing_held_for_it() -> None:
    async def story() -> tuple[int, int]:
        async with world(4) as (_, client, _scheduler):
            await apply(client, gang("impossible", group("w", 5)))
            await asyncio.sleep(HELD_S)
            await apply(client, gang("fits", group("w", 4)))
            await asyncio.sleep(DAY_S)
            return await bound(client, "impossible"), await bound(client, "fits")

    assert run(story()) == (0, 4)


@pytest.mark.parametrize("cordoned", [False, True], ids=["gone", "cordoned"])
def test_when_a_held_node_is_lost_another_one_is_held_in_its_place(cordoned: bool) -> None:
    async def story() -> tuple[int, int]:
        async with world(3) as (_, client, _scheduler):
            names = sorted(node.metadata.name for node in (await client.list(Node)).items)
            for name in names:
                await client.create(Pod, pod_json(f"on-{name}", NAMESPACE, nodeSelector={HOST: name}))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 2)))
            await asyncio.sleep(HELD_S)
            if cordoned:
                await client.patch(Node, names[0], {"spec": {"unschedulable": True}})
            else:
                await client.delete(Node, names[0])
            await client.create(Pod, pod_json("small", NAMESPACE))
            await asyncio.sleep(5)
            for name in reversed(names[1:]):
                await client.delete(Pod, f"on-{name}", NAMESPACE, grace_period_s=0)
                await asyncio.sleep(HELD_S)
            await asyncio.sleep(DAY_S)
            return await bound(client, "large"), await bound(client, "small")

    assert run(story()) == (2, 0)


def test_a_gang_that_nothing_can_be_held_for_costs_no_turns_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn takes time: what is due at its end must not be due again at the end of the next one, and so on."""
    quick = LongWaitHolds.resume

    async def slow(self: LongWaitHolds) -> None:
        await asyncio.sleep(0.001)
        await quick(self)

    async def story() -> int:
        async with world(4) as (_, client, scheduler):
            await apply(client, gang("impossible", group("w", 5)))
            await asyncio.sleep(HELD_S)
            before = scheduler.cycles
            await asyncio.sleep(1)
            return scheduler.cycles - before

    monkeypatch.setattr(LongWaitHolds, "resume", slow)
    assert run(story()) <= 1


def static_json(name: str, node: Node, gpus: int) -> Json:
    """A pod that belongs to its node as those of a DaemonSet do, which the simulator's collector would not let be."""
    pod = pod_json(name, NAMESPACE, gpus=gpus, nodeName=node.metadata.name, schedulerName="default-scheduler")
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return pod


def test_the_node_that_is_held_is_one_where_capacity_can_come() -> None:
    """What belongs to a node stays in use there, whatever else ends: that node would be held for ever."""

    async def story() -> tuple[str, int]:
        async with world(2, gpus=2) as (_, client, _scheduler):
            tended, free = (await client.list(Node)).items
            first, second = tended.metadata.name, free.metadata.name
            await client.create(Pod, static_json("agent", tended, 1))
            for number in range(2):
                await client.create(Pod, pod_json(f"job-{number}", NAMESPACE, nodeSelector={HOST: second}))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 1, gpus=2)))
            await asyncio.sleep(HELD_S)
            await client.delete(Pod, "job-0", NAMESPACE, grace_period_s=0)
            await client.create(Pod, pod_json("small", NAMESPACE))
            await asyncio.sleep(5)
            await client.delete(Pod, "job-1", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(5)
            await asyncio.sleep(DAY_S)
            small = await client.get(Pod, "small", NAMESPACE)
            return small.spec.node_name.removeprefix(first) or "beside the agent", await bound(client, "large")

    assert run(story()) == ("beside the agent", 1)


def test_nothing_is_held_for_a_gang_that_would_fit_only_without_daemons_until_they_go() -> None:
    async def story() -> tuple[int, int, int]:
        async with world(1, gpus=2) as (_, client, _scheduler):
            (node,) = (await client.list(Node)).items
            await client.create(Pod, static_json("agent", node, 1))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 1, gpus=2)))
            await asyncio.sleep(HELD_S)
            await client.create(Pod, pod_json("small-0", NAMESPACE))
            await asyncio.sleep(5)
            beside = await bound(client, "small")
            await client.delete(Pod, "agent", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(HELD_S)
            await client.create(Pod, pod_json("small-1", NAMESPACE))
            await asyncio.sleep(5)
            later = await bound(client, "small")
            await client.delete(Pod, "small-0", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(5)
            await asyncio.sleep(DAY_S)
            return beside, later, await bound(client, "large")

    assert run(story()) == (1, 1, 1)


def test_nothing_is_held_any_more_for_a_gang_that_stands_again() -> None:
    """It was placed before, lost a pod, waited for capacity and got it elsewhere than on the node held for it."""

    async def story() -> tuple[int, int, bool]:
        async with world(3) as (_, client, _scheduler):
            names = sorted(node.metadata.name for node in (await client.list(Node)).items)
            await client.create(Pod, pod_json("small", NAMESPACE, nodeSelector={HOST: names[2]}))
            await asyncio.sleep(2)
            made = gang("large", group("w", 2))
            await apply(client, made)
            await asyncio.sleep(5)
            lost = await client.get(Pod, "large-w-0", NAMESPACE)
            await client.patch(Node, lost.spec.node_name, {"spec": {"unschedulable": True}})
            await client.delete(Pod, "large-w-0", NAMESPACE, grace_period_s=0)
            await client.create(Pod, member_json(made, made.groups[0], 0, NAMESPACE))
            await asyncio.sleep(HELD_S)
            held = find_condition((await client.get(PodGang, "large", NAMESPACE)).status.conditions, "NodesHeld")
            assert held is not None
            await client.patch(Node, lost.spec.node_name, {"spec": {"unschedulable": False}})
            await asyncio.sleep(5)
            await client.delete(Pod, "small", NAMESPACE, grace_period_s=0)
            await apply(client, gang("late", group("w", 1)))
            await asyncio.sleep(DAY_S)
            held = find_condition((await client.get(PodGang, "large", NAMESPACE)).status.conditions, "NodesHeld")
            return await bound(client, "large"), await bound(client, "late"), held is None

    assert run(story()) == (2, 1, True)


def test_nothing_is_held_for_a_gang_that_waits_for_pods_and_not_for_capacity() -> None:
    async def story() -> int:
        async with world(3) as (_, client, _scheduler):
            names = sorted(node.metadata.name for node in (await client.list(Node)).items)
            for name in names:
                await client.create(Pod, pod_json(f"on-{name}", NAMESPACE, nodeSelector={HOST: name}))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 3)))
            await asyncio.sleep(HELD_S)
            await client.delete(Pod, "large-w-0", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(2)
            await apply(client, gang("late", group("w", 2)))
            for name in names[:2]:
                await client.delete(Pod, f"on-{name}", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(DAY_S)
            return await bound(client, "late")

    assert run(story()) == 2


def test_what_nothing_can_be_held_for_is_asked_once_and_again_when_nodes_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    choice = holding.nodes_to_hold

    def counted(snapshot: Any, tree: Any, *rest: Any) -> Any:
        if tree.name.endswith("/large"):
            asked.append(tree.name)
        return choice(snapshot, tree, *rest)

    monkeypatch.setattr(holding, "nodes_to_hold", counted)

    async def story() -> tuple[int, int]:
        async with world(1) as (sim, client, _):
            await apply(client, gang("large", group("w", 3)))
            for number in range(20):
                await asyncio.sleep(15)
                await client.create(Pod, pod_json(f"small-{number}", NAMESPACE))
            before = len(asked)
            await client.patch(Node, sim.nodes.names[0], {"metadata": {"labels": {"some": "label"}}})
            await asyncio.sleep(3)
            return before, len(asked)

    assert run(story()) == (1, 2)


def test_a_gang_of_a_queue_that_waited_and_runs_costs_no_turns() -> None:
    """Its queue uses less as a place gets free: the gang moves in the order and is placed in the same turn."""

    async def story() -> tuple[int, int]:
        async with world(2) as (_, client, scheduler):
            for definition in definitions("ElasticQuota"):
                await client.create(CustomResourceDefinition, definition)
            for name in ("a", "b"):
                await client.create(ElasticQuota, elastic(name, NAMESPACE, 1, 2))
            await asyncio.sleep(60)  # the scheduler looks now and then whether the kind is served
            await apply(client, gang("first", group("w", 1), labels={QUOTA: "a"}))
            await apply(client, gang("second", group("w", 1), labels={QUOTA: "a"}))
            await asyncio.sleep(60)
            await apply(client, gang("late", group("w", 1), labels={QUOTA: "a"}))
            await asyncio.sleep(60)
            await client.delete(Pod, "first-w-0", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(3600)
            before = scheduler.cycles
            await asyncio.sleep(86400)
            return await bound(client, "late"), scheduler.cycles - before

    placed, turns = run(story())
    assert placed == 1
    assert turns < 10


def test_waiting_costs_no_turns() -> None:
    """A gang that waits for capacity is tried again only when something happens."""

    async def story() -> tuple[int, int]:
        async with world(1) as (sim, client, scheduler):
            await apply(client, gang("large", group("w", 3)))
            await asyncio.sleep(HELD_S)
            before, writes = scheduler.cycles, sim.server.store.revision
            await asyncio.sleep(300)
            return scheduler.cycles - before, sim.server.store.revision - writes

    assert run(story()) == (0, 0)


def test_our_own_bindings_are_no_news_of_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a pod that is bound comes back with one label more, that of its node's zone."""
    marked = Counter[str]()
    mark = Changes.mark

    def counted(self: Changes, unit: str, **more: Any) -> None:
        marked[unit] += 1
        mark(self, unit, **more)

    async def story() -> list[bool]:
        async with world(6) as (_, client, _scheduler):
            await apply(client, gang("six", group("w", 6)))
            await asyncio.sleep(30)
            return [ZONE in pod.metadata.labels for pod in (await client.list(Pod, NAMESPACE)).items]

    monkeypatch.setattr(Changes, "mark", counted)
    assert run(story()) == [True] * 6
    assert marked[f"{NAMESPACE}/six"] < 6, "that it came, that its pods came, that it was placed: not for each pod"


def test_at_its_timeout_a_gang_is_reported_and_goes_on_waiting() -> None:
    async def story() -> tuple[list[str], int]:
        async with world(1) as (sim, client, _):
            await apply(
                client, gang("large", group("w", 2), annotations={"scheduling.koordinator.sh/gang-timeout": "30s"})
            )
            await asyncio.sleep(45)
            events = [e.message for e in (await client.list(Event, NAMESPACE)).items if e.reason == "GangTimeout"]
            await sim.nodes.add(Topology(nodes=1, gpus=1, prefix="new-"))
            await asyncio.sleep(5)
            return events, await bound(client, "large")

    events, count = run(story())
    assert len(events) == 1
    assert events[0].startswith("not scheduled within 30 s: needs 2 nvidia.com/gpu")
    assert count == 2


def test_a_gang_that_waits_for_hours_has_a_warning_at_every_hour_and_not_many_more() -> None:
    """With default settings. Every warning is a write, for each gang that waits."""

    async def story() -> int:
        async with world(1) as (_, client, _scheduler):
            await apply(client, gang("large", group("w", 2)))
            await asyncio.sleep(6 * 3600)
            events = [e for e in (await client.list(Event, NAMESPACE)).items if e.reason == "GangTimeout"]
            return sum(event.count or 1 for event in events)

    assert 6 <= run(story()) <= 8


def test_a_gang_that_waits_for_hours_is_not_reworded_at_every_change_of_a_number() -> None:
    """With default settings. Every new text is a write for the gang, for each of its pods, and for its set."""

    async def story() -> tuple[Counter[str], str]:
        async with world(5) as (sim, client, _):
            written: Counter[str] = Counter()
            sim.server.store.listeners.append(
                lambda kind, change: written.update([f"{kind.kind} {change.version.key.name}"])
            )
            await apply(client, gang("large", group("w", 6)))
            stream = asyncio.ensure_future(a_stream_of_small_pods(client, lives_s=70, every_s=45))
            await asyncio.sleep(2 * 3600)
            stream.cancel()
            await asyncio.sleep(1200)
            scheduled = find_condition((await client.get(PodGang, "large", NAMESPACE)).status.conditions, "Scheduled")
            assert scheduled is not None
            return written, scheduled.message

    written, message = run(story())
    assert 3 < written["PodGang large"] < 90
    assert 3 < written["Pod large-w-0"] < 90
    assert "5 free in the cluster" in message, "the last text is true"


def claim(name: str, volume: str = "", storage_class: str = "local") -> Json:
    spec: Json = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def with_claim(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def test_a_bound_volume_keeps_its_pod_near_it() -> None:
    async def story() -> str:
        async with world(3) as (sim, client, _):
            target = sim.nodes.names[2]
            term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [target]}]}
            await client.create(
                PersistentVolume,
                {
                    "metadata": {"name": "disk"},
                    "spec": {
                        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                        "capacity": {"storage": "1Gi"},
                    },
                },
            )
            await client.create(Pod, pod_json("p", NAMESPACE, **with_claim("data")))
            await asyncio.sleep(2)
            assert await bound(client, "p") == 0
            await client.create(PersistentVolumeClaim, claim("data", "disk"))
            await asyncio.sleep(2)
            return (await client.get(Pod, "p", NAMESPACE)).spec.node_name.removeprefix(target)

    assert run(story()) == ""


def test_a_claim_that_waits_for_its_first_consumer_gets_the_node_and_the_bind_waits_for_it() -> None:
    async def story() -> tuple[str, str, int, str]:
        async with world(2) as (_, client, _scheduler):
            await client.create(
                StorageClass,
                {
                    "metadata": {"name": "local"},
                    "provisioner": "example.com/disks",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
            )
            await client.create(PersistentVolumeClaim, claim("data"))
            await client.create(Pod, pod_json("p", NAMESPACE, **with_claim("data")))
            await asyncio.sleep(2)
            told = (await client.get(PersistentVolumeClaim, "data", NAMESPACE)).metadata.annotations
            early = await bound(client, "p")
            await client.create(
                PersistentVolume, {"metadata": {"name": "made"}, "spec": {"capacity": {"storage": "1Gi"}}}
            )
            await client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "made"}}, NAMESPACE)
            await asyncio.sleep(2)
            node = (await client.get(Pod, "p", NAMESPACE)).spec.node_name
            return told["volume.kubernetes.io/selected-node"], node, early, node

    selected, node, early, _ = run(story())
    assert early == 0
    assert selected == node != ""


def single_pod_gang(number: int) -> Gang:
    return gang(f"small-{number}", group("w", 1, gpus=2))


async def come_and_go(client: SimClient, nodes: int, every_s: float) -> None:
    """Gangs of one pod: the oldest goes and another one comes, for ever."""
    number = 0
    while True:
        await asyncio.sleep(every_s)
        await client.delete(PodGang, f"small-{number}", NAMESPACE)
        await client.delete(Pod, f"small-{number}-w-0", NAMESPACE, grace_period_s=0)
        await apply(client, single_pod_gang(number + nodes))
        number += 1


def test_a_gang_is_not_overtaken_for_ever_by_those_that_come_and_go() -> None:
    """A node is free every two seconds, never four at a time: within a minute of the fourth the older gang runs."""
    nodes, releases = 40, 4

    async def story() -> tuple[int, int]:
        async with world(nodes, gpus=2) as (_sim, client, _):
            for number in range(nodes):
                await apply(client, single_pod_gang(number))
            await asyncio.sleep(5)
            await apply(client, gang("large", group("w", 4, gpus=2)))
            await asyncio.sleep(5)
            stream = asyncio.ensure_future(come_and_go(client, nodes, every_s=2))
            await asyncio.sleep(2 * releases + 1)
            early = await bound(client, "large")
            await asyncio.sleep(59)
            stream.cancel()
            return early, await bound(client, "large")

    assert run(story()) == (0, 4)


def test_capacity_of_another_kind_that_others_take_is_no_loss() -> None:
    """Small gangs come and go on nodes that the waiting one cannot use: nothing is held for it before its time."""

    async def story() -> bool:
        async with world(3, gpus=2) as (sim, client, _):
            for name in sim.nodes.names[1:]:
                await client.patch(Node, name, {"metadata": {"labels": {"pool": "other"}}})
            one, other = {"nodeSelector": {HOST: sim.nodes.names[0]}}, {"nodeSelector": {"pool": "other"}}
            await apply(client, gang("there", group("w", 1, gpus=2, spec=one)))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 1, gpus=2, spec=one)))
            await asyncio.sleep(2)
            for number in range(10):
                await apply(client, gang(f"small-{number}", group("w", 1, gpus=2, spec=other)))
                await asyncio.sleep(2)
                await client.delete(PodGang, f"small-{number}", NAMESPACE)
                await client.delete(Pod, f"small-{number}-w-0", NAMESPACE, grace_period_s=0)
            return has_condition(await client.get(PodGang, "large", NAMESPACE), "NodesHeld")

    assert run(story()) is False


def has_condition(podgang: PodGang, type_: str) -> bool:
    return find_condition(podgang.status.conditions, type_) is not None


def test_what_is_held_is_written_on_both_gangs() -> None:
    async def story() -> tuple[Any, Any, Any, bool]:
        async with world(2) as (_, client, _scheduler):
            await apply(client, gang("there", group("w", 1)))
            await asyncio.sleep(2)
            await apply(client, gang("large", group("w", 2)))
            await asyncio.sleep(HELD_S)
            await apply(client, gang("small", group("w", 1)))
            await asyncio.sleep(5)
            large = await client.get(PodGang, "large", NAMESPACE)
            small = await client.get(PodGang, "small", NAMESPACE)
            pod = await client.get(Pod, "small-w-0", NAMESPACE)
            await client.delete(PodGang, "there", NAMESPACE)
            await client.delete(Pod, "there-w-0", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(5)
            after = has_condition(await client.get(PodGang, "large", NAMESPACE), "NodesHeld")
            found = find_condition(large.status.conditions, "NodesHeld")
            told = find_condition(small.status.conditions, "Scheduled")
            return found, told, find_condition(pod.status.conditions, "PodScheduled"), after

    held, told, pod, after = run(story())
    assert (held.status, held.reason) == ("True", "WaitedLong")
    assert held.message.startswith("2 nodes are held for it: ")
    assert (told.status, told.reason) == ("False", "NodesHeldForOthers")
    assert told.message.startswith("it would fit, but nodes are held for default/large since ")
    assert pod.message == told.message
    assert after is False


async def test_with_a_long_hold_after_the_elder_gang_has_its_nodes_within_a_few_releases_on_any_cluster(
    cluster: Any,
) -> None:
    """Four nodes with gangs of one pod that come and go, one at a time: a gang of two is not overtaken for ever."""
    async with scheduling(cluster, hold_after=Seconds(3600)) as bench:
        await bench.add_nodes(4)
        for number in range(4):
            await bench.apply(gang(f"small-{number}", group("w", 1)))
        await bench.expect({f"small-{number}/w": 1 for number in range(4)})
        await bench.apply(gang("large", group("w", 2)))
        await bench.condition("large", reason="Unschedulable")
        for number in range(12):
            await bench.apply(gang(f"small-{number + 4}", group("w", 1)))
            await bench.client.delete(PodGang, f"small-{number}", bench.namespace)
            await bench.client.delete(Pod, f"small-{number}-w-0", bench.namespace, grace_period_s=0)
            await cluster.settle(2)
            if len(await bench.nodes_of("large")) == 2:
                return
        raise AssertionError("overtaken twelve times")
