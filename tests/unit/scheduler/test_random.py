"""Random small clusters: whatever brute force can place, we place; whatever we place, an independent judge accepts.

A failure prints its seed; `random_case(seed)` gives the case again.
"""

from __future__ import annotations

import pytest
from tests.support.scheduler.cases import LEVELS, random_case
from tests.support.scheduler.checker import exists, faults

from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.model.answers import Budget, Placement
from grove.scheduler.solve.place import place

CASES = 20_000
BATCH = 1_000
QUICK = 6
"""Batches that run every time; the others in `make soak`."""
BATCHES = [
    pytest.param(first, marks=[] if first < QUICK * BATCH else pytest.mark.soak) for first in range(0, CASES, BATCH)
]


def verdict(seed: int) -> str:
    """What is wrong with the answer to one case; empty if nothing is."""
    case = random_case(seed)
    answer = place(cluster(case.nodes, case.running, {"t": LEVELS}), case.gang)
    if isinstance(answer, Placement):
        wrong = faults(case.nodes, case.running, case.gang, LEVELS, answer)
        # An accepted placement proves that one exists; brute force is asked now and then to keep it honest.
        if seed % 16 == 0 and not exists(case.nodes, case.running, case.gang, LEVELS):
            wrong.append("brute force says that it is impossible")
        return "; ".join(wrong)
    if exists(case.nodes, case.running, case.gang, LEVELS):
        return f"brute force finds a placement, we say {answer.reason}: {answer.why}"
    return "" if answer.proven else "the refusal is not proven"


@pytest.mark.parametrize("first", BATCHES, ids=lambda first: f"seeds from {first}")
def test_we_place_what_can_be_placed(first):
    wrong = {seed: found for seed in range(first, first + BATCH) if (found := verdict(seed))}
    assert wrong == {}


def test_both_answers_are_frequent_enough_to_mean_something():
    answers = [exists(c.nodes, c.running, c.gang, LEVELS) for c in map(random_case, range(300))]
    assert 0.3 < sum(answers) / len(answers) < 0.7


def test_the_same_snapshot_gives_the_same_answer_whatever_the_order_of_events():
    for seed in range(200):
        case = random_case(seed)
        forward = cluster(case.nodes, case.running, {"t": LEVELS})
        backward = cluster(reversed(case.nodes), reversed(case.running), {"t": LEVELS})
        one, other = place(forward, case.gang), place(backward, case.gang)
        assert type(one) is type(other)
        if isinstance(one, Placement):
            assert one.nodes == other.nodes, f"seed {seed}"


def test_a_budget_that_ends_says_so_and_nothing_else():
    outcomes = set()
    for seed in range(300):
        case = random_case(seed)
        snapshot = cluster(case.nodes, case.running, {"t": LEVELS})
        answer = place(snapshot, case.gang, Budget(8))
        if isinstance(answer, Placement):
            assert faults(case.nodes, case.running, case.gang, LEVELS, answer) == [], f"seed {seed}"
        elif answer.proven:
            assert not exists(case.nodes, case.running, case.gang, LEVELS), f"seed {seed}"
        else:
            assert answer.reason == "BudgetEnded"
        outcomes.add((type(answer).__name__, getattr(answer, "proven", None)))
    assert ("NoFit", False) in outcomes, "eight steps should be too few for some case"
