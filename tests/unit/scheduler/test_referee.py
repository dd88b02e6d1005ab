"""Gangs that the search leaves undecided, decided by the constraint solver in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.scheduler.cases import LEVELS as SMALL_LEVELS
from tests.support.scheduler.cases import brim_case, random_case
from tests.support.scheduler.checker import exists, faults
from tests.support.scheduler.kit import LEVELS, snap

from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.reasons import BUDGET_ENDED, NO_PACKING
from grove.scheduler.solve.place import place
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.referee import Opinion, Referee, find_referee, opinion, question_of
from grove.scheduler.solve.search_state import TakesLong, limited_steps


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    found = find_referee()
    assert found is not None, "the solver is among the tests' own dependencies"
    yield found
    found.close()


@pytest.mark.parametrize(("seed", "fits"), [(280, False), (402, True), (479, False)])
def test_what_the_search_leaves_undecided_is_decided(referee: Referee, seed: int, fits: bool) -> None:
    nodes, running, wanted = brim_case(seed)
    alone = place(snap(nodes, running), wanted)
    assert isinstance(alone, NoFit)
    assert (alone.reason, alone.proven) == (BUDGET_ENDED, False)
    answer = place(snap(nodes, running), wanted, replace(Budget(), referee=referee))
    if fits:
        assert isinstance(answer, Placement)
        assert faults(nodes, running, wanted, LEVELS, answer) == []
    else:
        assert isinstance(answer, NoFit)
        assert (answer.reason, answer.proven) == (NO_PACKING, True)


class InPlace:
    """The same model without a process, to be asked often."""

    def ask(self, problem: Problem) -> Opinion:
        return opinion(question_of(problem))


def test_it_agrees_with_brute_force_on_small_clusters() -> None:
    """A search of two steps decides little, so nearly everything is the solver's."""
    asked = 0
    for seed in range(250):
        case = random_case(seed)
        snapshot = cluster(case.nodes, case.running, {"t": SMALL_LEVELS})
        if isinstance(undecided := place(snapshot, case.gang, Budget(2)), Placement) or undecided.proven:
            continue
        answer = place(snapshot, case.gang, Budget(2, InPlace()))
        if isinstance(answer, NoFit) and answer.reason == BUDGET_ENDED:
            continue  # pods that look at each other are placed one by one, and the solver is not asked
        asked += 1
        if isinstance(answer, Placement):
            assert faults(case.nodes, case.running, case.gang, SMALL_LEVELS, answer) == [], f"seed {seed}"
        else:
            assert not exists(case.nodes, case.running, case.gang, SMALL_LEVELS), f"seed {seed}"
    assert asked > 30


def test_a_solver_that_dies_leaves_the_gang_undecided(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grove.scheduler.solve.referee.PATIENCE_S", 0.0)
    nodes, running, wanted = brim_case(280)
    answer = place(snap(nodes, running), wanted, replace(Budget(), referee=Referee()))
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == (BUDGET_ENDED, False)


def test_it_is_not_asked_where_no_gang_can_wait(referee: Referee) -> None:
    nodes, running, wanted = brim_case(280)
    with limited_steps(10**9), pytest.raises(TakesLong):
        place(snap(nodes, running), wanted, replace(Budget(), referee=referee))
