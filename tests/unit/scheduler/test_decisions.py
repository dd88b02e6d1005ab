"""Where decisions are made: in place, or aside when they take long; the answer, and the record of it, is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scheduler.cases import unending_case
from tests.support.scheduler.kit import gang, group, node, snap

from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit
from grove.scheduler.model.gang import Gang
from grove.scheduler.replay.journal import Journal, RecordedSnapshot
from grove.scheduler.replay.replay import replay
from grove.scheduler.solve.place import place
from grove.scheduler.solve.search_state import TakesLong, limited_steps

HARD = 378


def hard() -> tuple[Snapshot, Gang]:
    nodes, wanted = unending_case(HARD)
    return cluster(nodes), wanted


def test_a_long_decision_says_so_and_the_next_one_is_not_hurried() -> None:
    snapshot, wanted = hard()
    with pytest.raises(TakesLong), limited_steps(100):
        place(snapshot, wanted)
    assert isinstance(place(snapshot, wanted), NoFit)


def test_what_is_quick_is_decided_in_place() -> None:
    async def story() -> int:
        decider = Decider(snap([node("n0", 8)]), "run")
        await decider.place(gang(group("w", 2)), DecisionSteps(Budget()))
        return decider.asides

    assert asyncio.run(story()) == 0


def test_the_event_loop_goes_on_while_a_long_decision_is_made() -> None:
    async def story() -> tuple[int, int, bool]:
        snapshot, wanted = hard()
        decider, ticks = Decider(snapshot, "run"), 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        _, answer = await decider.place(wanted, DecisionSteps(Budget()))
        ticking.cancel()
        return decider.asides, ticks, answer == place(snapshot, wanted)

    asides, ticks, is_same = asyncio.run(story())
    assert (asides, is_same) == (1, True)
    assert ticks > 10


def test_a_decision_aside_is_made_on_the_cluster_as_it_was_and_recorded_so(tmp_path: Path) -> None:
    """Nodes come while it is made: the answer does not count them, and a replay agrees."""
    nodes, wanted = unending_case(HARD)

    async def story() -> tuple[int, int]:
        journal = Journal(tmp_path)
        snapshot = RecordedSnapshot(journal)
        for one in nodes:
            snapshot.add_node(one)

        async def meanwhile(work: Callable[[], Any]) -> Any:
            for number in range(40):
                snapshot.add_node(node(f"new-{number}", 64))
            return work()

        decider = Decider(snapshot, "run", journal, aside=meanwhile)
        before = snapshot.version
        _, answer = await decider.place(wanted, DecisionSteps(Budget()))
        journal.close()
        return answer.version - before, snapshot.version - before

    assert asyncio.run(story()) == (0, 40)
    assert [one.is_same for one in replay(tmp_path)] == [True]
