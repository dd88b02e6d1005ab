"""All searches of one decision share its steps: for free capacity, for held capacity, for victims, for the reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.days import Day
from tests.support.gangs import gang, group

from grove.scheduler.loop.turn import placing
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.solve import place as solve
from grove.sim.loop import run

STEPS = 40


@pytest.fixture
def steps_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of all searches, by decision."""
    taken: list[int] = []
    search, decide = solve.place_admitted, placing.UnitPlacer.decide

    def counted(*args: Any, **options: Any) -> Placement | NoFit:
        answer = search(*args, **options)
        taken[-1:] = [sum(taken[-1:]) + answer.steps]
        return answer

    async def begun(self: placing.UnitPlacer, *args: Any) -> Any:
        taken.append(0)
        return await decide(self, *args)

    monkeypatch.setattr(solve, "place_admitted", counted)
    monkeypatch.setattr(placing.UnitPlacer, "decide", begun)
    return taken


def test_with_few_steps_for_a_search_no_decision_takes_more_than_twice_as_many(steps_taken: list[int]) -> None:
    """Four nodes of eight GPUs that a gang fills exactly, and cannot. On a fifth node seven small pods run.

    The pod of `leaving` is deleted, and capacity is held for the pod that replaces it. So the gang asks for free
    capacity, for capacity that is held for units behind it, and for victims.
    """

    async def story() -> None:
        async with Day(nodes=5, gpus=8, search_budget=STEPS) as day:
            await day.apply(*(gang(f"low-{i}", group("w", 1, gpus=1), priority_class="low") for i in range(7)))
            await day.apply(gang("leaving", group("w", 1, gpus=1), priority_class="low"))
            await asyncio.sleep(10)
            (pod,) = [pod.metadata.name for pod in await day.pods() if pod.metadata.name.startswith("leaving")]
            await day.end(pod)
            parts = group("a", 4, gpus=5), group("b", 2, gpus=3), group("c", 3, gpus=2)
            await day.apply(gang("large", *parts, priority_class="high"))
            await asyncio.sleep(60)

    run(story())
    assert max(steps_taken) > STEPS
    assert max(steps_taken) <= 2 * STEPS
