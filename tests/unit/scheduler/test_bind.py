"""What becomes of one bind, for every answer a server can give; time is virtual."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from grove.api.core import Pod, PodSpec, SchedulingGate
from grove.api.meta import ObjectMeta
from grove.api.podgang import PodGang
from grove.kube.errors import (
    BadRequest,
    Conflict,
    ConnectionLost,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from grove.scheduler.loop.writes.bind import BindAttempt, Binder, BindFate, BindResult
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.policy.waiting_queue import Order, Stage
from grove.sim.loop import run

WANTED = PodFacts("u1", "ns", "p", Shape(), node="n1")
GANG = GangState("ns/g", PodGang())
ORDER = Order((), Stage.MINIMUM, 0.0, "ns/g")


def stored(node: str = "", uid: str = "u1", gates: tuple[str, ...] = ()) -> Pod:
    spec = PodSpec(node_name=node, scheduling_gates=tuple(SchedulingGate(name=gate) for gate in gates))
    return Pod(metadata=ObjectMeta(name="p", namespace="ns", uid=uid), spec=spec)


class Scripted:
    """Answers binds and gets in the given order; the last answer stays."""

    def __init__(self, binds: list[Any], gets: list[Any]) -> None:
        self.binds, self.gets = binds, gets
        self.sent = 0

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        assert (namespace, pod, node, uid) == ("ns", "p", "n1", "u1")
        self.sent += 1
        _raise(self.binds)

    async def get(self, kind: type, name: str, namespace: str = "") -> Pod:
        found = _raise(self.gets)
        assert isinstance(found, Pod)
        return found


def _raise(script: list[Any]) -> Any:
    answer = script.pop(0) if len(script) > 1 else script[0]
    if isinstance(answer, Exception):
        raise answer
    return answer


async def outcome(
    binds: list[Any], gets: list[Any], fits: bool = True, deadline_s: float = 30.0
) -> tuple[BindResult, int, float]:
    client = Scripted(binds, gets)
    binder = Binder(client, turns=asyncio.Semaphore(4), fits=lambda _: fits, prepare=lambda *_: ())  # type: ignore[arg-type]
    attempt = BindAttempt("ns/g", GANG, (WANTED,), deadline_s, ORDER)
    seen: list[BindResult] = []
    [bound] = await binder.bind(attempt, seen.append)
    assert seen == [bound]
    return bound, client.sent, asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("binds", "gets", "fate", "sent"),
    [
        pytest.param([None], [], BindFate.BOUND, 1, id="done"),
        pytest.param([NotFound("")], [], BindFate.GONE, 1, id="the pod is gone"),
        pytest.param([Conflict("")], [stored("n1")], BindFate.BOUND, 1, id="a conflict with our own lost success"),
        pytest.param([Conflict("")], [stored("n2")], BindFate.ELSEWHERE, 1, id="somebody else bound it"),
        pytest.param([Conflict("")], [stored(uid="u2")], BindFate.GONE, 1, id="another pod of its name"),
        pytest.param([Conflict("")], [NotFound("")], BindFate.GONE, 1, id="gone when we looked"),
        pytest.param([Conflict(""), None], [stored()], BindFate.BOUND, 2, id="a conflict about nothing is tried again"),
        pytest.param([Conflict("")], [stored(gates=("g",))], BindFate.REFUSED, 1, id="gated again"),
        pytest.param([ConnectionLost("")], [stored("n1")], BindFate.BOUND, 1, id="answer lost, bind done"),
        pytest.param([ConnectionLost(""), None], [stored()], BindFate.BOUND, 2, id="the request was lost"),
        pytest.param(
            [ConnectionLost(""), Conflict("")],
            [ConnectionLost(""), stored("n1")],
            BindFate.BOUND,
            2,
            id="the truth could not be read at first",
        ),
        pytest.param(
            [ConnectionLost(""), None],
            [Forbidden("no")],
            BindFate.BOUND,
            2,
            id="the pod may not be read: asked again",
        ),
        pytest.param([TooManyRequests("", retry_after_s=1), None], [], BindFate.BOUND, 2, id="a busy server"),
        pytest.param([Unavailable(""), Unavailable(""), None], [stored()], BindFate.BOUND, 3, id="a server in trouble"),
        pytest.param([Forbidden("no")], [], BindFate.REFUSED, 1, id="forbidden"),
        pytest.param([Invalid("no")], [], BindFate.REFUSED, 1, id="invalid"),
        pytest.param([BadRequest("no")], [], BindFate.REFUSED, 1, id="a bad request"),
    ],
)
def test_fates(binds: list[Any], gets: list[Any], fate: BindFate, sent: int) -> None:
    bound, count, _ = run(outcome(list(binds), list(gets)))
    assert (bound.fate, count) == (fate, sent)


def test_trouble_is_waited_out_until_the_deadline_and_no_longer() -> None:
    bound, sent, took = run(outcome([Unavailable("down")], [stored()], deadline_s=10.0))
    assert bound.fate is BindFate.LATE
    assert bound.message == "down"
    assert sent > 5
    assert 7 < took <= 10


@pytest.mark.parametrize(
    ("truth", "fate"),
    [
        pytest.param(stored("n1"), BindFate.BOUND, id="it happened"),
        pytest.param(stored(), BindFate.LATE, id="it did not"),
        pytest.param(Forbidden("no"), BindFate.LATE, id="nobody may know"),
    ],
)
def test_what_may_have_happened_at_the_deadline_is_found_out(truth: Any, fate: BindFate) -> None:
    """Otherwise its capacity would be given away, and the pod would still exist when the cluster is seen again."""
    silence = [ConnectionLost("") for _ in range(20)]
    bound, _, took = run(outcome([ConnectionLost("")], [*silence, truth], deadline_s=10.0))
    assert bound.fate is fate
    assert took > 10


def test_a_node_that_was_filled_meanwhile_is_not_asked_for() -> None:
    bound, sent, _ = run(outcome([None], [], fits=False))
    assert (bound.fate, sent) == (BindFate.STALE, 0)


def test_after_a_refusal_the_rest_of_the_gang_is_not_sent() -> None:
    async def story() -> list[BindFate]:
        client = Scripted([Forbidden("no")], [])
        binder = Binder(client, turns=asyncio.Semaphore(1), fits=lambda _: True, prepare=lambda *_: ())  # type: ignore[arg-type]
        attempt = BindAttempt("ns/g", GANG, (WANTED,) * 3, 30.0, ORDER)

        def seen(bound: BindResult) -> None:
            if bound.fate is BindFate.REFUSED:
                attempt.given_up.set()

        return [bound.fate for bound in await binder.bind(attempt, seen)]

    assert run(story()) == [BindFate.REFUSED, BindFate.LATE, BindFate.LATE]
