"""What is written to Reservations that wait: one write at a time for each, however often the cluster turns."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.fleet import GPU, reservation
from tests.support.scheduler.kit import node

from grove.api.core import Pod
from grove.api.koordinator import RESERVATION_ALLOCATED, Reservation
from grove.api.meta import Json, Key, ObjectMeta, find_condition
from grove.diagnosis.reasons import sentence
from grove.kube.clock import SYSTEM
from grove.kube.errors import Unavailable
from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.policy.hold_ledger import Ledger
from grove.scheduler.policy.waiting_queue import Backoff, WaitingQueue
from grove.scheduler.reserve.reservation_status import ReservationRef, reservation_of
from grove.scheduler.solve.place import place
from grove.scheduler.sources.reservation_writer import ReservationWriter
from grove.sim.loop import run


class Server:
    """Has one Reservation, and reports trouble for a number of requests."""

    def __init__(self, one: Reservation, troubles: int) -> None:
        self.one, self.troubles = one, troubles
        self.asked = 0

    async def patch(self, kind: type, name: str, body: Json, **options: Any) -> Reservation:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.asked <= self.troubles:
            raise Unavailable("busy")
        plain = msgspec.to_builtins(self.one)
        return msgspec.convert(plain | {"status": {**plain.get("status", {}), **body["status"]}}, Reservation)

    # The cache, which shows what was written before any watch does

    def list(self, kind: type) -> list[Reservation]:
        return [self.one]

    def get(self, kind: type, key: Key) -> Reservation:
        return self.one

    def wrote(self, answer: Reservation) -> None:
        self.one = answer


class View:
    """As much of a view as is asked for."""

    scheduler_name = "grove-scheduler"

    def __init__(self, server: Server, gpus: int) -> None:
        self.cache, self.snapshot = server, cluster([node("n1", gpus)])
        self.units = Units()
        self.priorities: dict[object, object] = {}
        self.ledger = Ledger()


async def after_turns(server: Server, view: View, turns: int, room_comes: int = 10**6) -> int:
    """Takes turns of a cluster in which something changes in each; how many requests that took."""
    status = ReservationWriter(server, server, None, SYSTEM)  # type: ignore[arg-type]
    writing = asyncio.get_running_loop().create_task(status.run())
    queue = WaitingQueue(view.units, Backoff())
    reserving = PendingReservations(view, queue, status, SYSTEM, say=sentence)  # type: ignore[arg-type]
    for turn in range(turns):
        view.snapshot.add_pod(PodFacts(f"u{turn}", "ns", f"p{turn}", Shape(), node="n1"))
        if turn == room_comes:
            view.snapshot.add_node(node("n2", 4))
        reserving.turn()
        for unit in [one.reservation for one in view.units if one.reservation is not None]:
            answer = place(view.snapshot, unit.tree)
            if isinstance(answer, Placement):
                reserving.commit(unit, answer)
            else:
                reserving.refuse(unit, answer.why)
        await asyncio.sleep(0.1)
    await asyncio.sleep(60)
    writing.cancel()
    return server.asked


def waiting() -> Reservation:
    body = reservation("r", gpus=4, template={"schedulerName": "grove-scheduler"})
    body["metadata"]["uid"] = "u"
    return msgspec.convert(body, Reservation)


@pytest.mark.parametrize(("troubles", "asked"), [(0, 1), (5, 6)], ids=["at once", "after some trouble"])
def test_a_reservation_that_waits_is_reported_once_however_many_turns_there_are(troubles: int, asked: int) -> None:
    server = Server(waiting(), troubles)
    assert run(after_turns(server, View(server, gpus=2), 40)) == asked
    assert server.one.status.phase == "Pending"


def test_the_place_it_finds_meanwhile_is_what_is_written_in_the_end() -> None:
    server = Server(waiting(), troubles=8)
    asked = run(after_turns(server, View(server, gpus=2), 40, room_comes=2))
    assert (server.one.status.phase, server.one.status.allocatable[GPU]) == ("Available", "4")
    scheduled = find_condition(server.one.status.conditions, "Scheduled")
    assert scheduled is not None
    assert scheduled.status == "True"
    assert asked == 9


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("r", id="no JSON"),
        pytest.param('["r"]', id="a list"),
        pytest.param('{"name":' * 20_000, id="JSON without end"),
    ],
)
def test_a_pod_with_an_unreadable_reservation_has_none(text: str) -> None:
    assert reservation_of(Pod(metadata=ObjectMeta(annotations={RESERVATION_ALLOCATED: text}))) == ReservationRef()
