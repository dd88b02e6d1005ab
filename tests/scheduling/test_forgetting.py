"""Nothing is kept of what has gone: a scheduler that runs for months must not grow with all it has ever seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.support.gangs import Bench, gang, gang_json, group, member_json, pod_json, priorities, scheduling

from grove.api.core import Pod
from grove.api.labels import MOVE_TO
from grove.api.meta import Object
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.cache import Cache
from grove.kube.events import Recorder
from grove.kube.store import Store
from grove.scheduler.evict.running import RunningIndex
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.model.config import Repacking, SchedulerConfiguration, Seconds
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.policy.hold_ledger import Ledger
from grove.sim.client import SimClient

OTHERS = (Cache, Store, Recorder, SimClient, int, float, bytes)
"""What is not the scheduler's own to forget."""
MEANT = ("view.units.places",)
"""The scheduler remembers the nodes of a gang after its end, for this number of gangs and no more."""


@pytest.fixture
async def classes(cluster: Any) -> AsyncIterator[None]:
    async with priorities(cluster, low=100, high=1000):
        yield


def traces(root: object, names: frozenset[str]) -> Iterator[str]:
    """Where in the objects of the scheduler that can be reached from one there is still something of these names."""
    seen: set[int] = set()
    found: list[tuple[str, object]] = [("", root)]
    while found:
        path, one = found.pop()
        if isinstance(one, str):
            if any(name in one for name in names):
                yield path
        elif isinstance(one, OTHERS) or id(one) in seen or path.removeprefix(".") in MEANT:
            continue
        else:
            seen.add(id(one))
            found += ((f"{path}{step}", part) for step, part in parts(one))


BY_UNIT = (Units, Ledger, Changes, RunningIndex)
"""The records and what indexes them, the holds, what changed since the last turn, and the pods that run."""


def keyed_by(root: Scheduler, names: frozenset[str]) -> Iterator[str]:
    """Where in the objects of the scheduler a dictionary has one of these names as a key."""
    seen = {id(root.view.units.gangs)}
    found: list[tuple[str, object]] = [("", root)]
    while found:
        path, one = found.pop()
        if isinstance(one, (str, *OTHERS, *BY_UNIT)) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict) and not names.isdisjoint(key for key in one if isinstance(key, str)):
            yield path
        found += ((f"{path}{step}", part) for step, part in parts(one))


def parts(one: object) -> Iterator[tuple[str, object]]:
    if isinstance(one, dict):
        yield from (("{}", part) for part in (*one.keys(), *one.values()))
    elif isinstance(one, list | tuple | set | frozenset):
        yield from (("[]", part) for part in one)
    elif isinstance(one, Object):
        yield ".name", f"{one.metadata.name} {one.metadata.uid}"
    elif hasattr(one, "__self__"):
        yield "", one.__self__
    elif type(one).__module__.startswith("grove."):
        slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
        fields = {*getattr(one, "__dict__", ()), *slots}
        yield from ((f".{name}", getattr(one, name)) for name in sorted(fields) if hasattr(one, name))


async def everything(bench: Bench) -> frozenset[str]:
    """Names of what there is in the namespace, and uids."""
    found = [*await bench.pods(), *(await bench.client.list(PodGang, bench.namespace)).items]
    return frozenset(name for one in found for name in (one.metadata.name, one.metadata.uid))


class SlowToAnswer(SimClient):
    """Does at once what it is asked for, and says so when the watch has long shown it."""

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        await super().evict(namespace, pod, uid=uid, dry_run=dry_run)
        await asyncio.sleep(5)

    async def patch(self, kind: Any, *args: Any, **options: Any) -> Any:
        answer = await super().patch(kind, *args, **options)
        await asyncio.sleep(5 if kind is PodGang else 0)
        return answer


@pytest.mark.parametrize("client", [SimClient, SlowToAnswer], ids=["answers at once", "answers late"])
@pytest.mark.simulated
async def test_nothing_is_kept_of_gangs_and_pods_that_have_gone_with_a_short_hold_after_and_timeout(
    cluster: Any, classes: None, client: type[SimClient]
) -> None:
    """A base and its scaled gang, one that evicts another, one that waits in vain, pods without a gang, all of it."""
    cluster.client = client(cluster.sim.server)
    async with scheduling(cluster, hold_after=Seconds(5), gang_timeout=Seconds(20)) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("base", group("w", 2), priority_class="low"))
        await bench.apply(gang("scaled", group("w", 1), base="base", priority_class="low"))
        await bench.create_pod(pod_json("alone", bench.namespace, priorityClassName="low"))
        await bench.expect({"base/w": 2, "scaled/w": 1, "/": 1})
        await bench.apply(gang("large", group("w", 5)))
        await bench.create_pod(pod_json("lonely", bench.namespace, gpus=2))
        names = await everything(bench)
        await bench.apply(gang("urgent", group("w", 4), priority_class="high"))
        await bench.expect({"urgent/w": 4})
        await cluster.settle(60)
        names |= await everything(bench)
        found = set(traces(bench.scheduler, names))
        for end in ("gangs{}", "gangs{}.podgang.name"):  # else nothing would be seen at all
            assert any(path.endswith(end) for path in found)
        await bench.client.delete(Pod, "urgent-w-0", bench.namespace, grace_period_s=0)
        await cluster.settle(1)
        await bench.clear()
        await cluster.settle(60)
        assert await everything(bench) == frozenset()
        assert sorted(set(traces(bench.scheduler, names))) == []


@pytest.mark.simulated
async def test_what_is_remembered_of_a_unit_is_in_its_record_and_in_no_other_dictionary(cluster: Any) -> None:
    """One gang asks for everything that a PodGang can ask for, one waits for long, and a pod without a gang waits."""
    async with scheduling(cluster, repack=Repacking(automatic=True)) as bench:
        await bench.add_nodes(4)
        body = gang_json(gang("busy", group("w", 2)), bench.namespace)
        body["metadata"]["annotations"] = {MOVE_TO: "nonsense"}
        body["spec"]["headroom"] = [{"name": "busy", "units": 1}]
        replaced = {"name": "w", "podNames": ["busy-w-0"], "podSpec": pod_json("busy-w-0", bench.namespace)["spec"]}
        body["spec"]["replacement"] = {"id": "1", "podGroups": [replaced]}
        for number in range(2):
            busy = gang("busy", group("w", 2))
            await bench.create_pod(member_json(busy, busy.groups[0], number, bench.namespace))
        await bench.client.create(PodGang, body)
        await bench.apply(gang("large", group("w", 5)))
        await bench.create_pod(pod_json("lonely", bench.namespace, gpus=2))
        await bench.expect({"busy/w": 2})
        await cluster.settle(600)
        record = bench.scheduler.view.units.of(f"{bench.namespace}/busy")
        assert None not in (record.move, record.headroom, record.replacement), "everything was looked at"
        names = frozenset(bench.scheduler.view.units.gangs)
        assert len(names) == 3
        assert sorted(keyed_by(bench.scheduler, names)) == []


@pytest.mark.simulated
async def test_one_that_stands_by_keeps_nothing_either(cluster: Any, classes: None) -> None:
    """It takes no turns, for months."""
    standby = Scheduler(cluster.sim.client(), SchedulerConfiguration(), cluster.clock, say=sentence)
    async with scheduling(cluster) as bench, standby.following():
        await bench.add_nodes(4)
        await bench.apply(gang("base", group("w", 2), priority_class="low"))
        await bench.apply(gang("scaled", group("w", 1), base="base", priority_class="low"))
        await bench.create_pod(pod_json("alone", bench.namespace, priorityClassName="low"))
        await bench.expect({"base/w": 2, "scaled/w": 1, "/": 1})
        await bench.apply(gang("large", group("w", 5)))
        await bench.create_pod(pod_json("lonely", bench.namespace, gpus=2))
        await bench.apply(gang("urgent", group("w", 4), priority_class="high"))
        await cluster.settle(60)
        names = await everything(bench)
        found = set(traces(standby, names))
        assert any(path.endswith("changes.dirty{}") for path in found), "it knows whom to look at when it leads"
        await bench.clear()
        await cluster.settle(120)
        assert sorted(set(traces(standby, names))) == []
