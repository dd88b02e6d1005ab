"""A budget that is true: what a decision costs is counted where the work is done, on cases made to be expensive.

Work is counted in calls of Python functions, so that no machine is too busy for the test: a step may stand for a fixed
number of them and no more, however a gang is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from tests.support.scheduler.adversarial import Case, expensive, roomy_cpu_node_beside_gpus
from tests.support.scheduler.kit import pod

from grove.scheduler.evict import preempt as preempt_module
from grove.scheduler.evict.preempt import preempt
from grove.scheduler.evict.running import Running
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.solve import place as place_module
from grove.scheduler.solve.place import place

CALLS_A_STEP = 64
"""Calls of functions, steps of generators included, that one step of the budget may stand for."""
CALLS_TO_BEGIN = 400
"""What it takes to state a problem, for each class of pods in it."""


def counted(work: Callable[[], Placement | NoFit]) -> tuple[int, Placement | NoFit]:
    """Calls of Python functions while working, and the answer."""
    calls = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        answer = work()
    finally:
        sys.setprofile(before)
    return calls, answer


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in expensive()])
@pytest.mark.parametrize("steps", [500, 20_000])
def test_a_step_stands_for_a_fixed_amount_of_work(make: Callable[[], Case], steps: int) -> None:
    snapshot, wanted = make()
    place(snapshot, wanted, Budget(1))  # what is kept between decisions is there
    calls, answer = counted(lambda: place(snapshot, wanted, Budget(steps)))
    classes = sum(len({pod.shape for pod in part.pods}) for part in wanted.groups())
    assert answer.steps <= steps
    allowed = CALLS_TO_BEGIN * (1 + classes) + CALLS_A_STEP * answer.steps
    assert calls <= allowed, f"{calls} calls in {answer.steps} steps"


@pytest.mark.parametrize("groups", [6, 8, 10])
def test_only_maximal_ways_to_fill_a_node_are_looked_at(groups: int) -> None:
    """There is one way to fill the roomy node; with nine choices a group all would be 9 to the power of the groups."""
    snapshot, wanted = roomy_cpu_node_beside_gpus(groups)
    answer = place(snapshot, wanted)
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == ("NoPacking", True)
    assert answer.steps < 60 + 20 * groups


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in expensive()])
def test_all_searches_for_victims_share_one_budget(make: Callable[[], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    """A large gang and many small ones of lower priority run; one pod after the other could be spared."""
    snapshot, wanted = make()
    snapshot = snapshot.copy()
    low = []
    for number, one in enumerate(snapshot.nodes.facts):
        if one is not None:
            low += [pod(f"low{number}-{i}", 0, cpu=50).on(one.name) for i in range(3)]
    for one in low:
        snapshot.add_pod(one)
    units = [Running(one.name, one.priority, (one,)) for one in low]
    taken = 0

    def counting(decide: Callable[..., Placement | NoFit]) -> Callable[..., Placement | NoFit]:
        def decided(*args: Any, **options: Any) -> Placement | NoFit:
            nonlocal taken
            answer = decide(*args, **options)
            taken += answer.steps
            return answer

        return decided

    monkeypatch.setattr(preempt_module, "place", counting(preempt_module.place))
    monkeypatch.setattr(preempt_module, "place_on", counting(preempt_module.place_on))
    answer = preempt(snapshot, replace(wanted, priority=1000), units, budget=Budget(2_000))
    assert taken <= 2_000
    assert answer.steps >= taken


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in expensive()])
def test_a_gang_that_returns_to_its_former_nodes_has_one_budget_for_both_searches(
    make: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, wanted = make()
    taken = 0
    search = place_module.place_on

    def counted_search(*args: Any, **options: Any) -> Placement | NoFit:
        nonlocal taken
        answer = search(*args, **options)
        taken += answer.steps
        return answer

    monkeypatch.setattr(place_module, "place_on", counted_search)
    former = frozenset(one.name for one in snapshot.nodes.facts if one is not None)
    answer = place(snapshot, replace(wanted, former=former), Budget(500))
    assert taken <= 500
    assert answer.steps in (taken, 0)
