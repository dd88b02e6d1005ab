"""Objects that cannot be read: the scheduler ignores or reports them, and schedules all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.fleet import device, install, reservation
from tests.support.gangs import Bench, gang, gang_json, group, member_json, pod_json, scheduling

from grove.api.core import Pod
from grove.api.koordinator import Device, Reservation
from grove.api.labels import GANG_TIMEOUT
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.scheduler.loop.holds import long_wait_holds as holding
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.turn.cycle import QueueUpdater
from grove.scheduler.model.config import Seconds
from grove.scheduler.sources.koordinator_devices import KoordinatorDevices

pytestmark = pytest.mark.simulated

DIGITS = "1" * 5000
"""Python reads no number of more than 4300 digits."""
DEEP = '{"a":' * 20_000
OURS = {"schedulerName": "grove-scheduler"}
KOORDINATOR = "scheduling.koordinator.sh"

Make = Callable[[Bench], Awaitable[object]]


def podgang(**annotations: str) -> Make:
    return lambda bench: bench.apply(gang("bad", group("w", 2), annotations=annotations))


def member(**annotations: str) -> Make:
    """A pod that is there before its gang, which is too large to be placed."""

    async def make(bench: Bench) -> None:
        made = gang("bad", group("w", 9))
        body = member_json(made, made.groups[0], 0, bench.namespace)
        body["metadata"]["annotations"] = annotations
        await bench.client.create(Pod, body)
        await bench.cluster.settle(1)
        await bench.client.create(PodGang, gang_json(made, bench.namespace))
        await bench.create_pods(made, only=[f"bad-w-{number}" for number in range(1, 9)])

    return make


def reserved(change: Callable[[Json], object], **spec: Any) -> Make:
    async def make(bench: Bench) -> None:
        body = reservation(f"{bench.cluster.prefix}bad", template=dict(OURS), **spec)
        change(body["spec"]["template"])
        await bench.client.create(Reservation, body)

    return make


def bound(**annotations: str) -> Make:
    """A pod on a node with devices."""

    async def make(bench: Bench) -> None:
        node = sorted(bench.nodes.names)[0]
        await bench.client.create(Device, device(node, 1))
        body = pod_json("bad", bench.namespace, nodeName=node)
        body["metadata"]["annotations"] = annotations
        await bench.client.create(Pod, body)

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(podgang(**{GANG_TIMEOUT: DIGITS}), id="a gang timeout of 5000 digits"),
        pytest.param(member(**{"grove.io/gpu-memory": DIGITS}), id="GPU memory of 5000 digits"),
        pytest.param(
            member(**{f"{KOORDINATOR}/reservation-affinity": DEEP}), id="a reservation asked for in endless JSON"
        ),
        pytest.param(
            reserved(lambda template: template.update(metadata={"labels": ["a"]})),
            id="a template whose labels are a list",
        ),
        pytest.param(reserved(lambda template: template.update(spec="a")), id="a template that is a text"),
        pytest.param(
            reserved(lambda _: None, annotations={"gang.scheduling.koordinator.sh/min-available": "²"}),
            id="a group of ² reservations",
        ),
        pytest.param(reserved(lambda _: None, ttl=f"{DIGITS}s"), id="a reservation for 5000 digits of seconds"),
        pytest.param(
            bound(**{f"{KOORDINATOR}/device-allocated": '{"gpu":[{"minor":1e999,"resources":{}}]}'}),
            id="an infinite device",
        ),
        pytest.param(bound(**{f"{KOORDINATOR}/device-allocated": DEEP}), id="a device in endless JSON"),
    ],
)
async def test_one_object_that_cannot_be_read_stops_no_other_also_with_a_short_hold_after(
    cluster: Any, make: Make
) -> None:
    await install(cluster, "Reservation", "Device")
    async with scheduling(cluster, hold_after=Seconds(10)) as bench:
        await bench.add_nodes(4)
        await make(bench)
        await cluster.settle(30)
        await bench.apply(gang("good", group("w", 1)))
        await bench.condition("good", status="True")


@pytest.mark.parametrize(
    ("house", "step"),
    [
        pytest.param(QueueUpdater, "_consider_gang", id="a look at a gang"),
        pytest.param(holding, "tree_of", id="a gang for which nodes are to be held"),
        pytest.param(PendingReservations, "_offer", id="a reservation that waits"),
        pytest.param(KoordinatorDevices, "refresh", id="what a source counts on nodes"),
    ],
)
async def test_a_step_that_fails_for_one_stops_no_other_also_with_a_short_hold_after(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, house: Any, step: str
) -> None:
    """For an unexpected reason."""
    sound = getattr(house, step)
    failed = 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal failed
        if not any("good" in str(getattr(one, "name", one)) for one in given):
            failed += 1
            raise LookupError("nobody thought of that")
        return sound(*given, **more)

    await install(cluster, "Reservation", "Device")
    async with scheduling(cluster, hold_after=Seconds(10)) as bench:
        (node, *_) = await bench.add_nodes(4)
        await bench.client.create(Device, device(node, 1))
        await cluster.settle(5)
        monkeypatch.setattr(house, step, failing)
        await reserved(lambda _: None)(bench)
        await bench.apply(gang("bad", group("w", 9)))
        await cluster.settle(30)
        await bench.apply(gang("good", group("w", 1)))
        await bench.condition("good", status="True")
    assert failed
