"""Devices by the minor: distinct cards for every pod, never twice, not over a card's memory, after restarts too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import device, install
from tests.support.gangs import Bench, gang, group, member_json, pod_json, scheduling
from tests.support.late import Late

from grove.api.core import Event, Pod, PriorityClass
from grove.api.koordinator import Device
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.replay.journal import Journal
from grove.scheduler.replay.replay import replay
from grove.sim.topology import Topology

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
K = "koordinator.sh/"
HALF = {f"{K}gpu-core": "50", f"{K}gpu-memory-ratio": "50"}
WHOLE = {"nvidia.com/gpu": "1"}
PAIR = {
    "nvidia.com/gpu": "2",
    "scheduling.koordinator.sh/device-allocate-hint": '{"gpu":{"requiredTopologyScope":"PCIe"}}',
}


@pytest.fixture
async def devices(cluster: Any) -> AsyncIterator[None]:
    await install(cluster, "Device")
    yield
    for one in (await cluster.client.list(Device)).items:
        if one.metadata.name.startswith(cluster.prefix):
            await cluster.client.delete(Device, one.metadata.name)


async def minors(bench: Bench) -> dict[str, list[int]]:
    """Minors by pod, as written on it."""
    return {
        pod.metadata.name: [one["minor"] for one in json.loads(pod.metadata.annotations[ALLOCATED])["gpu"]]
        for pod in await bench.pods()
        if ALLOCATED in pod.metadata.annotations
    }


async def test_every_pod_of_a_gang_gets_cards_of_its_own_and_a_restart_has_them(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=4)
        await cluster.client.create(Device, device(node, 4))
        await bench.seen(Device, node)
        await bench.apply(gang("one", group("w", 3)))
        await bench.expect({"one/w": 3})
        found = await minors(bench)
        assert sorted(one for cards in found.values() for one in cards) == [0, 1, 2]
        await bench.stop()
        await bench.start()
        await bench.apply(gang("two", group("w", 1)))
        await bench.expect({"one/w": 3, "two/w": 1})
        assert (await minors(bench))["two-w-0"] == [3]


@pytest.mark.simulated
async def test_the_card_of_a_pod_is_free_when_a_list_shows_another_one_of_its_name(cluster: Any, devices: None) -> None:
    late = cluster.client = Late(cluster.sim.server)
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await cluster.client.create(Device, device(node, 1))
        await cluster.settle(0.5)
        pod = pod_json("server-0", bench.namespace, gpus=0)
        pod["spec"]["containers"][0]["resources"] = {"requests": HALF, "limits": HALF}
        for number in range(2):
            pod["metadata"]["name"] = f"server-{number}"
            await bench.create_pod(pod)
        await bench.expect({"/": 2})
        late.behind = Pod
        await cluster.client.delete(Pod, "server-1", bench.namespace, grace_period_s=0)
        await bench.create_pod(pod | {"spec": {**pod["spec"], "schedulingGates": [{"name": "example.com/wait"}]}})
        await bench.scheduler.cache.relist()
        pod["metadata"]["name"] = "server-2"
        await bench.create_pod(pod)
        await bench.expect({"/": 2})


@pytest.mark.simulated
async def test_shared_cards_are_not_given_beyond_their_memory(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        await cluster.client.create(Device, device(node, 2))
        await cluster.settle(0.5)
        resources = {f"{K}gpu-core": "20", f"{K}gpu-memory": "50Gi"}
        one = gang("share", group("w", 3, 2, gpus=0))
        await bench.apply(one, pods=False)
        for number in range(3):
            pod = member_json(one, one.groups[0], number, bench.namespace)
            pod["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
            await bench.create_pod(pod)
        await bench.expect({"share/w": 2})
        assert sorted(one for cards in (await minors(bench)).values() for one in cards) == [0, 1]


@pytest.mark.simulated
async def test_a_place_that_is_asked_for_is_a_condition_across_nodes(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2, gpus=4)
        await cluster.client.create(Device, device(first, 4, pcie=1))
        await cluster.client.create(Device, device(second, 4, pcie=2))
        await cluster.settle(0.5)
        hint = {"scheduling.koordinator.sh/device-allocate-hint": '{"gpu":{"requiredTopologyScope":"PCIe"}}'}
        one = gang("near", group("w", 2, gpus=2))
        await bench.apply(one, pods=False)
        for number in range(2):
            pod = member_json(one, one.groups[0], number, bench.namespace)
            pod["metadata"]["annotations"] = hint
            await bench.create_pod(pod)
        await bench.expect({"near/w": 2})
        assert set((await bench.nodes_of("near")).values()) == {second}
        assert sorted((await minors(bench)).values()) == [[0, 1], [2, 3]]


@pytest.mark.simulated
async def test_nodes_without_a_device_object_are_counted_as_before(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        first, _ = await bench.add_nodes(2, gpus=2)
        await cluster.client.create(Device, device(first, 2))
        await cluster.settle(0.5)
        await bench.apply(gang("all", group("w", 4)))
        await bench.expect({"all/w": 4})
        assert len(await minors(bench)) == 2


@pytest.mark.simulated
async def test_gangs_with_cards_put_out_and_are_put_out(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        await cluster.client.create(Device, device(node, 2))
        for name, value in (("low", 10), ("high", 100)):
            await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await bench.apply(gang("under", group("w", 2), priority_class="low"))
        await bench.expect({"under/w": 2})
        await bench.apply(gang("over", group("w", 2), priority_class="high"))
        await bench.expect({"over/w": 2})
        assert sorted(one for cards in (await minors(bench)).values() for one in cards) == [0, 1]


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("cards", "under", "over", "left"),
    [
        pytest.param(1, [HALF, HALF], WHOLE, 0, id="a whole card for which two halves have to go"),
        pytest.param(2, [WHOLE, HALF, HALF], WHOLE, 2, id="a whole card for which one pod goes and not two"),
        pytest.param(2, [WHOLE, WHOLE], HALF, 1, id="half a card, and one of two goes for it"),
        pytest.param(2, [HALF, HALF, HALF, HALF], HALF, 3, id="a half for a half"),
        pytest.param(2, [WHOLE, WHOLE], PAIR, 0, id="two cards at one place"),
    ],
)
async def test_shares_and_places_are_preempted_for(
    cluster: Any, devices: None, tmp_path: Path, cards: int, under: list[dict], over: dict, left: int
) -> None:
    journal = Journal(tmp_path)
    async with scheduling(cluster, journal=journal) as bench:
        (node,) = await bench.add_nodes(1, gpus=cards)
        await cluster.client.create(Device, device(node, cards, pcie=2))
        for name, value in (("low", 10), ("high", 100)):
            await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await cluster.settle(0.5)
        for number, wanted in enumerate(under):
            await apply_wanting(bench, f"under{number}", wanted, "low")
        await bench.expect({f"under{number}/w": 1 for number in range(len(under))})
        await apply_wanting(bench, "over", over, "high")

        async def placed() -> bool:
            return bool(await bench.nodes_of("over"))

        await cluster.eventually(placed)
        assert sum((await bench.bound()).values()) == 1 + left, "nobody goes who need not"
        await cards_are_nobodys_twice(bench)
    journal.close()
    again = list(replay(tmp_path))
    assert any(one.kind == "preempt" and one.recorded["found"] for one in again)
    assert [one for one in again if not one.is_same] == [], "what would come free is in the journal"


@pytest.mark.simulated
async def test_one_that_only_follows_explains_shares_that_are_asked_for_after_it_began(
    cluster: Any, devices: None
) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=1)
        await cluster.client.create(Device, device(node, 1))
        await cluster.client.create(PriorityClass, {"metadata": {"name": "low"}, "value": 10})
        await bench.stop()
        onlooker = Scheduler(bench.client, bench.config, cluster.clock, say=sentence)
        async with onlooker.following():
            await apply_wanting(bench, "late", HALF, "low")
            await cluster.settle(0.5)
            state = onlooker.view.units.gangs[f"{bench.namespace}/late"]
            found = LiveDiagnosis(onlooker.view).diagnose(state).explanation
            assert found is not None
            assert found.fits, found.why


@pytest.mark.simulated
async def test_a_card_kept_for_a_gang_that_is_deleted_goes_to_who_waits_for_half_of_it(
    cluster: Any, devices: None
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=1, gpus=2), stop_s=25.0)
        (node,) = bench.nodes.names
        await cluster.client.create(Device, device(node, 2, pcie=2))
        for name, value in (("low", 10), ("high", 100)):
            await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await cluster.settle(0.5)
        await apply_wanting(bench, "under", WHOLE, "low")
        await bench.expect({"under/w": 1})
        await apply_wanting(bench, "over", PAIR, "high")
        await bench.condition("over", "Nominated", status="True")
        await apply_wanting(bench, "half", HALF, "low")
        await bench.condition("half", status="False")
        await bench.client.delete(PodGang, "over", bench.namespace)
        await cluster.eventually(lambda: bench.nodes_of("half"), timeout_s=20)  # before the evicted pod is gone


async def apply_wanting(bench: Bench, name: str, wanted: dict, priority: str) -> None:
    one = gang(name, group("w", 1, gpus=0), priority_class=priority)
    await bench.apply(one, pods=False)
    pod = member_json(one, one.groups[0], 0, bench.namespace)
    resources = {key: value for key, value in wanted.items() if not key.startswith("scheduling")}
    pod["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    pod["metadata"]["annotations"] = {key: value for key, value in wanted.items() if key.startswith("scheduling")}
    await bench.create_pod(pod)


async def cards_are_nobodys_twice(bench: Bench) -> None:
    core: dict[tuple[str, int], int] = {}
    for pod in await bench.pods():
        if pod.is_bound:
            for one in json.loads(pod.metadata.annotations[ALLOCATED])["gpu"]:
                at = (pod.spec.node_name, one["minor"])
                core[at] = core.get(at, 0) + int(one["resources"][f"{K}gpu-core"])
    assert all(used <= 100 for used in core.values())


@pytest.mark.simulated
async def test_a_device_that_is_wrong_is_reported_on_it_and_its_node_is_left_out(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2)
        body = device(first, 2)
        body["spec"]["devices"][1]["minor"] = 0
        await cluster.client.create(Device, body)
        await cluster.client.create(Device, device(second, 1))
        await bench.apply(gang("one", group("w", 1)))
        await bench.expect({"one/w": 1})
        assert set((await bench.nodes_of("one")).values()) == {second}
        told = [one for one in (await cluster.client.list(Event)).items if one.reason == "InvalidDevice"]
        assert told[0].message.startswith("it lists gpu minor 0 twice")
        await bench.apply(gang("two", group("w", 1)))
        waits = await bench.condition("two", status="False")
        assert "1 insufficient minors.grove.io/valid-Device-object" in waits.message
        await cluster.client.patch(Device, first, {"spec": {"devices": device(first, 2)["spec"]["devices"]}})
        await bench.expect({"one/w": 1, "two/w": 1})


@pytest.mark.simulated
async def test_a_card_that_is_not_healthy_is_not_counted_on(cluster: Any, devices: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2, gpus=4)
        sick = device(first, 4)
        sick["spec"]["devices"][0]["health"] = False
        await cluster.client.create(Device, sick)
        await cluster.client.create(Device, device(second, 4))
        await cluster.settle(0.5)
        await bench.apply(gang("all", group("w", 7)))
        await bench.expect({"all/w": 7})
        nodes, given = await bench.nodes_of("all"), await minors(bench)
        assert sorted(one for pod, cards in given.items() if nodes[pod] == first for one in cards) == [1, 2, 3]
