"""Controllers, in virtual time: what a result, an error and a stop mean."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import Conflict, NotLeader, Terminal, TooManyRequests
from grove.sim.loop import run


def times_of(reconcile_outcomes: list[Result | Exception], until_s: float = 1000) -> list[float]:
    """When a reconcile with these outcomes, the last one repeated, is called for one key added at 0."""
    called: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def reconcile(key: str) -> Result:
            called.append(round(loop.time(), 3))
            outcome = reconcile_outcomes[min(len(called), len(reconcile_outcomes)) - 1]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        controller = Controller("times", reconcile)
        controller.add("a")
        running = loop.create_task(controller.run())
        await asyncio.sleep(until_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(main())
    return called


BACKED_OFF = [0, 0.005, 0.015, 0.035, 0.075, 0.155, 0.315, 0.635, 1.275, 2.555, 5.115, 10.235]
"""Twelve failures in a row."""


@pytest.mark.parametrize(
    ("outcomes", "want"),
    [
        pytest.param([DONE], [0], id="done waits for an event"),
        pytest.param([Result(after_s=30), DONE], [0, 30], id="a timer is exact"),
        pytest.param([Result(after_s=0), DONE], [0, 0], id="a timer of zero is now"),
        pytest.param([ValueError("bug"), DONE], [0, 0.005], id="an error is tried again"),
        pytest.param([OSError(), OSError(), OSError(), DONE], [0, 0.005, 0.015, 0.035], id="the back-off doubles"),
        pytest.param(
            [OSError(), Result(after_s=10), OSError(), DONE],
            [0, 0.005, 10.005, 10.01],
            id="success resets the back-off",
        ),
        pytest.param([Result(error=OSError()), DONE], [0, 0.005], id="an error that is returned is one too"),
        pytest.param([Result(30, OSError()), DONE], [0, 0.005], id="an error is tried again before the timer"),
        pytest.param(
            [*[OSError()] * 12, Result(10, OSError()), DONE],
            [*BACKED_OFF, 20.475, 30.475],
            id="an error does not put the timer off",
        ),
        pytest.param([Conflict("lost a race"), DONE], [0, 0.005], id="a conflict looks again"),
        pytest.param([TooManyRequests("busy", retry_after_s=7), DONE], [0, 7], id="a busy server names the time"),
        pytest.param([Terminal("no such thing")], [0], id="terminal is not tried again"),
        pytest.param([NotLeader("lost")], [0], id="who lost the lease leaves it to the next leader"),
    ],
)
def test_when_a_key_is_looked_at(outcomes: list[Result | Exception], want: list[float]) -> None:
    assert times_of(outcomes) == want


def test_workers_share_the_keys_and_never_one_key() -> None:
    async def main() -> tuple[int, list[str]]:
        active: set[str] = set()
        most, seen = 0, list[str]()

        async def reconcile(key: str) -> Result:
            nonlocal most
            assert key not in active
            active.add(key)
            most = max(most, len(active))
            seen.append(key)
            await asyncio.sleep(1)
            active.discard(key)
            return DONE

        controller = Controller("shared", reconcile, workers=3)
        for n in range(7):
            controller.add(f"k{n}")
        running = asyncio.get_running_loop().create_task(controller.run())
        await asyncio.sleep(0.5)
        controller.add("k0")
        await asyncio.sleep(10)
        controller.queue.shut_down()
        await running
        return most, seen

    most, seen = run(main())
    assert most == 3
    assert sorted(seen) == ["k0", "k0", "k1", "k2", "k3", "k4", "k5", "k6"]


def test_outcomes_are_counted() -> None:
    def count(result: str) -> float:
        labels = {"controller": "times", "result": result}
        return REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0

    before = {result: count(result) for result in ("success", "error", "terminal", "requeue_after")}
    times_of([OSError(), Result(after_s=1), DONE])
    times_of([Terminal("never")])
    after = {result: count(result) - was for result, was in before.items()}
    assert after == {"success": 1, "error": 1, "terminal": 1, "requeue_after": 1}
