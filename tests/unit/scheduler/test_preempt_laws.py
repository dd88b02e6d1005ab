"""Laws of preemption on random clusters: who goes, that it helps, that no victim goes in vain, and what a no means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.scheduler.cases import LEVELS
from tests.support.scheduler.checker import exists, faults
from tests.support.scheduler.crowds import PRIORITY, crowded

from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.solve.place import place


def without(pods: Sequence[PodFacts], gone: tuple[PodFacts, ...]) -> list[PodFacts]:
    uids = {p.uid for p in gone}
    return [p for p in pods if p.uid not in uids]


@pytest.mark.parametrize("first", range(0, 1_200, 300), ids=lambda first: f"seeds from {first}")
def test_laws(first):
    outcomes = {Victims: 0, NoVictims: 0}
    for seed in range(first, first + 300):
        case, fixed, units, wanted = crowded(seed)
        running = [*fixed, *(p for u in units for p in u.pods)]
        snapshot = cluster(case.nodes, running, {"t": LEVELS})
        if isinstance(place(snapshot, wanted), Placement):
            continue
        answer = preempt(snapshot, wanted, units)
        outcomes[type(answer)] += 1
        owner = {p.uid: u for u in units for p in u.pods}
        if isinstance(answer, NoVictims):
            lower = tuple(p for u in units if u.priority < PRIORITY for p in u.pods)
            emptied = without(running, lower)
            assert answer.proven, f"seed {seed}: {answer}"
            assert not exists(case.nodes, emptied, wanted, LEVELS), f"seed {seed}: {answer}"
            continue
        assert all(owner[p.uid].priority < PRIORITY for p in answer.pods), f"seed {seed}"
        gone = {p.uid for p in answer.pods}
        for unit in units:
            left = sum(p.uid not in gone for p in unit.pods)
            assert left == 0 or left >= unit.minimums["x"], f"seed {seed}: {unit.name} is left with {left}"
            assert (unit.name in answer.gangs) <= (left == 0), f"seed {seed}"
        after = without(running, answer.pods)
        assert faults(case.nodes, after, wanted, LEVELS, answer.placement) == [], f"seed {seed}"
        for name in answer.gangs:
            kept = without(answer.pods, next(u.pods for u in units if u.name == name))
            spared = cluster(case.nodes, without(running, tuple(kept)), {"t": LEVELS})
            assert isinstance(place(spared, wanted), NoFit), f"seed {seed}: {name} goes in vain"
    assert min(outcomes.values()) > 20, outcomes
