"""Preemption with units of several groups under disruption budgets, on clusters small enough to try everything.

Brute force goes through every set of whole units and single surplus pods that may go. If some set frees enough capacity
without breaking a budget, ours breaks none. If no set frees enough, we say so with a proof. Every victim may be
evicted.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from tests.support.scheduler.crowds import NODES, PRIORITY, fits_without, ways_to_lose, world
from tests.support.scheduler.kit import RACK, gang, group

from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import DisruptionBudget
from grove.scheduler.model.answers import Placement
from grove.scheduler.solve.place import place

members = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.sampled_from(NODES)), min_size=1, max_size=4)
units = st.lists(
    st.tuples(members, st.sampled_from((0, 0, 1, 9)), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4
)
budgets = st.lists(st.tuples(st.sets(st.integers(0, 15), max_size=6), st.integers(0, 2)), max_size=2)
wanted = st.tuples(st.integers(1, 3), st.integers(1, 8), st.booleans())


def is_allowed(gone: set[str], over: list[DisruptionBudget]) -> bool:
    return all(len(gone & budget.uids) <= budget.allowed for budget in over)


@example(
    [
        ([("a", 1, "r1-0"), ("a", 1, "r1-1"), ("b", 1, "r1-0")], 0, 0, 1),
        ([("a", 1, "r1-0"), ("a", 1, "r1-1")], 1, 0, 0),
    ],
    [({0}, 0)],
    (3, 7, False),
).via("a unit whose surplus may go, and a better one of higher priority that no budget covers")
@settings(max_examples=250, deadline=None)
@given(units, budgets, wanted)
def test_budgets_are_kept_if_any_choice_keeps_them(made: list, kept: list, asks: tuple[int, int, bool]) -> None:
    snapshot, running, over = world(made, kept)
    count, gpu, together = asks
    asked = gang(group("g", count, gpu), required=RACK if together else "", priority=PRIORITY)
    if isinstance(place(snapshot, asked), Placement):
        return
    answer = preempt(snapshot, asked, running, over)
    lower = [unit for unit in running if unit.priority < PRIORITY]
    gentle = any(
        is_allowed(gone, over) and fits_without(snapshot, gone, asked)
        for choice in product(*(list(ways_to_lose(unit)) for unit in lower))
        if (gone := {one.uid for some in choice for one in some})
    )
    note(f"{answer}")
    if isinstance(answer, NoVictims):
        assert answer.proven
        assert not fits_without(snapshot, {one.uid for unit in lower for one in unit.pods}, asked)
        return
    assert isinstance(answer, Victims)
    gone = {one.uid for one in answer.pods}
    assert gone <= {one.uid for unit in lower for one in unit.pods}
    assert fits_without(snapshot, gone, asked)
    for unit in running:
        left = Counter(one.group for one in unit.pods if one.uid not in gone)
        went_whole = not left
        assert went_whole or all(left[name] >= minimum for name, minimum in unit.minimums.items()), unit.name
    broken = {budget.name for budget in over if len(gone & budget.uids) > budget.allowed}
    assert set(answer.budgets_broken) == broken
    assert not (gentle and broken), f"{sorted(gone)} breaks {broken} although a choice keeps all budgets"
