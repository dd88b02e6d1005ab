"""A broken promise stops the run and can be replayed; the judges of a run's end can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.support.running import without_logs

from grove.api.core import Node, Pod, PriorityClass
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.cli.fleet import fleet as fleet_command
from grove.fleet import ending
from grove.fleet.ending import MemorySample, entries, held, judge_emptied, judge_memory, judge_rest
from grove.fleet.figures import Figures
from grove.fleet.file import Team
from grove.fleet.machines import Machines
from grove.fleet.manifests import GPU, batch_set, priority_name
from grove.fleet.replay import NotReplay, read_replay
from grove.plan.world import NAMESPACE, World, binding, shaped
from grove.sim.loop import run as run_virtual

TEAM = Team("research")
PRIORITY = (PriorityClass, {"metadata": {"name": priority_name(0)}, "value": 0})
TOPOLOGY = (ClusterTopologyBinding, binding())
SMALL = """\
lasts: 3h
cluster:
  nodes: [{name: h100, nodes: 2}]
teams: [{name: research}]
work:
  batch: [{name: job, team: research, every: 10m, pods: 1, lasts: 10m}]
"""


# The end of a run


def ended(
    *, pods: int, meanwhile: Callable[[World], Coroutine[Any, Any, None]], empty: bool = False, nodes: int = 2
) -> list[str]:
    """The promises that a world with one gang of `pods` pods breaks when it should come to rest."""
    found: list[tuple[str, str]] = []

    async def play() -> None:
        world, figures = World(shaped(nodes), objects=[PRIORITY, TOPOLOGY]), Figures({})

        def report(promise: str, text: str) -> None:
            found.append((promise, text))

        async with world:
            world.cluster.server.store.listeners.append(
                lambda resource, change: figures.see(resource, change, world.time_s)
            )
            await asyncio.sleep(5)
            before = held(world)
            task = asyncio.ensure_future(meanwhile(world))
            await world.client.create(
                PodCliqueSet.RESOURCE, batch_set("job", TEAM, pods=pods, gpus=8, priority=None, pack="rack")
            )
            await judge_rest(world, report)
            if empty:
                await judge_emptied(world, figures, before, report)
            task.cancel()

    with without_logs():
        run_virtual(play(), seed=1, limit_s=7 * 86400.0)
    return [promise for promise, _ in found]


async def nothing(_world: World) -> None:
    """Everything as it should be."""


async def write_often(world: World) -> None:
    node = world.all(Node)[0].metadata.name
    for number in range(100_000):
        await asyncio.sleep(1800)
        await world.client.patch(Node, node, {"metadata": {"annotations": {"looked": str(number)}}})


async def never_ready(world: World) -> None:
    world.cluster.nodes.hold = lambda _pod: True


async def stray_pod(world: World) -> None:
    marks = {"app.kubernetes.io/part-of": "job"}
    box = {"name": "engine", "image": "engine:v1"}
    body = {"metadata": {"name": "stray", "namespace": NAMESPACE, "labels": marks}, "spec": {"containers": [box]}}
    await world.client.create(Pod.RESOURCE, body)


async def leak(world: World) -> None:
    kept: list[Any] = []
    world.scheduler.kept = kept  # type: ignore[attr-defined]
    world.cluster.server.store.listeners.append(lambda _resource, change: kept.extend([change.version.key] * 100))


class StillWorld:
    """A world in which nothing is written. Raises if it is asked for the time again and again."""

    def __init__(self) -> None:
        self.looks = 0
        self.cluster = SimpleNamespace(server=SimpleNamespace(store=SimpleNamespace(listeners=[])))

    @property
    def time_s(self) -> float:
        self.looks += 1
        assert self.looks < 100, "the wait for a quiet hour does not end"
        return asyncio.get_running_loop().time()


def test_the_wait_for_a_quiet_hour_ends_at_any_moment():
    """At this moment an hour later, less this moment, is a little less than an hour: numbers are rounded."""

    async def wait() -> str:
        await asyncio.sleep(522169.1666273035)
        return await ending._restless(StillWorld())

    assert run_virtual(wait(), seed=1, limit_s=7 * 86400.0) == ""


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(ending, "SETTLE_S", 6 * 3600.0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("pods", "meanwhile", "broken"),
    [
        pytest.param(2, nothing, [], id="a gang that runs"),
        pytest.param(3, nothing, [], id="a gang that waits and says why"),
        pytest.param(2, write_often, ["Stable"], id="a write every half hour"),
        pytest.param(2, never_ready, ["Convergent"], id="a set that is not complete and waits for nothing"),
    ],
)
def test_a_cluster_at_rest(pods, meanwhile, broken):
    assert ended(pods=pods, meanwhile=meanwhile) == broken


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("meanwhile", "broken"),
    [
        pytest.param(nothing, [], id="nothing is left"),
        pytest.param(stray_pod, ["Convergent"], id="a pod is left"),
        pytest.param(leak, ["Memory"], id="memory is left"),
    ],
)
def test_a_cluster_that_is_emptied(meanwhile, broken):
    assert ended(pods=2, meanwhile=meanwhile, empty=True) == broken


@pytest.mark.usefixtures("soon")
def test_the_racks_of_a_large_cluster_are_no_leak():
    """The scheduler reads the labels of nodes when the first gang asks for a rack. They are as many as the nodes."""
    assert ended(pods=2, meanwhile=nothing, empty=True, nodes=1200) == []


def test_entries_are_counted_once_and_not_beyond_the_border():
    border = {"far": [1, 2, 3]}
    shared = [1, 2]
    assert entries([{"a": shared, "b": shared, "c": border}], [border]) == 3 + 2


LIVING = [(10, 4), (30, 9), (25, 12), (40, 15), (12, 7), (8, 3)]


def memory(left: float, *, grows: bool = False) -> list[MemorySample]:
    """A month in which each gang that ended leaves `left` entries. With `grows`, gangs wait in an ever longer queue."""
    found = []
    for day in range(30):
        pods, gangs = LIVING[day % len(LIVING)]
        gangs += day * 8 if grows else 0
        ended = day * 200
        noise = (day * 7919) % 97  # what a moment adds
        found.append(MemorySample(round(1500 + 40 * pods + 25 * gangs + left * ended + noise), pods, gangs, ended))
    return found


@pytest.mark.parametrize(
    ("samples", "broken"),
    [
        pytest.param(memory(0.0), [], id="as much for as many pods and gangs"),
        pytest.param(memory(0.0, grows=True), [], id="more gangs wait"),
        pytest.param(memory(1.0), ["Memory"], id="each gang leaves an entry"),
        pytest.param(memory(1.0)[:9], [], id="too few samples"),
        pytest.param([MemorySample(i * 500, 1, 1, i) for i in range(48)], [], id="too few gangs"),
        pytest.param([], [], id="none"),
    ],
)
def test_memory_during_a_run(samples, broken):
    found: list[str] = []
    judge_memory(samples, lambda promise, _text: found.append(promise))
    assert found == broken


# A run that breaks a promise


async def overfill(self: Machines) -> None:
    """After 70 minutes something places a pod on a node that cannot hold it."""
    await asyncio.sleep(4200)
    node = self._names[0]
    box = {"name": "engine", "image": "engine:v1", "resources": {"limits": {GPU: 16}}}
    body = {"metadata": {"name": "rogue", "namespace": NAMESPACE}, "spec": {"containers": [box], "nodeName": node}}
    await self._world.client.create(Pod.RESOURCE, body)
    await asyncio.sleep(10**9)


def test_a_broken_promise_stops_the_run_and_is_replayed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    with monkeypatch.context() as faulty:
        faulty.setattr(Machines, "run", overfill)
        ran = CliRunner().invoke(fleet_command, ["small.yaml", "--json", "out.json"], standalone_mode=False)
        assert ran.return_value == 5, ran.output
        found = msgspec.json.decode((tmp_path / "out.json").read_bytes())
        assert [one["promise"] for one in found["promises"]] == ["Exact"]
        assert 4200 <= found["promises"][0]["at"] < 4300
        assert found["days"] < 4300 / 86400

        past = read_replay((tmp_path / "fleet-broken-1.json").read_bytes())
        assert past.last_hour[0][0] >= past.broken[0].at_s - 3600
        assert past.last_hour[-1][2:4] == ("Pod", "rogue")
        assert any(kind == "PodCliqueSet" and "availableReplicas: 1" in why for *_, kind, _, why in past.last_hour)

        again = CliRunner().invoke(fleet_command, ["--replay", "fleet-broken-1.json"], standalone_mode=False)
        assert again.return_value == 5
        assert "rogue overfills" in again.output
        assert "it breaks at the same moment" in again.output

    mended = CliRunner().invoke(fleet_command, ["--replay", "fleet-broken-1.json"], standalone_mode=False)
    assert mended.return_value == 0, mended.output
    assert "every promise holds now" in mended.output


def test_another_file_is_no_replay():
    with pytest.raises(NotReplay):
        read_replay(b'{"utilisation": {}}')
