"""Restarts in any hour are never more than the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.scheduler.policy.restart_budget import HOUR_S, RestartBudget

steps = st.lists(st.tuples(st.floats(0, 2 * HOUR_S), st.integers(1, 12)), max_size=60)


@given(st.integers(1, 20), st.lists(st.floats(-HOUR_S, 0), max_size=30), steps)
def test_no_hour_has_more_restarts_than_the_budget(an_hour: int, before: list[float], wanted: list[tuple[float, int]]):
    budget, made, now = RestartBudget(an_hour, before), list[float](), 0.0
    for pause, restarts in wanted:
        now += pause
        lately = [at for at in (*before, *made) if at > now - HOUR_S]
        assert budget.left(now) == max(0, an_hour - len(lately))
        if restarts <= budget.left(now):
            budget.spend(now, restarts)
            made += [now] * restarts
    for end in made:
        assert sum(end - HOUR_S < at <= end for at in made) <= an_hour


def test_more_than_is_left_is_refused():
    budget = RestartBudget(3)
    budget.spend(0.0, 2)
    with pytest.raises(ValueError, match="2 restarts, and 1 are left of 3 an hour"):
        budget.spend(HOUR_S - 1, 2)
    budget.spend(HOUR_S, 3)
    assert budget.left(HOUR_S) == 0
