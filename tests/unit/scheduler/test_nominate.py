"""Victims are named for a place only if all that was looked at is still so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.scheduler.kit import pod

from grove.api.podgang import PodGang
from grove.scheduler.evict.preempt import Victims
from grove.scheduler.loop.deciding.victim_search import VictimSearch
from grove.scheduler.loop.holds import nominations as nominate
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.state.gang_trees import Unit
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.model.answers import Budget, Placement
from grove.scheduler.model.gang import PodGroup, gang_of
from grove.scheduler.model.seams import Refusal
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.policy.hold_ledger import Ledger
from grove.scheduler.policy.waiting_queue import Order, Stage
from grove.sim.loop import LoopClock, run


@pytest.mark.parametrize("aside", [0, 1], ids=["in the first try", "in the second"])
def test_a_try_in_which_the_cluster_moved_on_makes_those_after_it_doubtful(
    monkeypatch: pytest.MonkeyPatch, aside: int
) -> None:
    """Who runs was looked at before the first one: its answer was checked, and refused for another reason."""
    decider = SimpleNamespace(asides=0)
    tries: list[object] = []
    wants = pod("a")
    tree = gang_of("g", [PodGroup("g", 1, (wants,))])
    unit = Unit("g", tree, Order((), Stage.MINIMUM, 0.0, "g"), GangState("g", PodGang()))

    async def victims(self: Nominations, tree: Any, *_: Any) -> tuple[str, Victims]:
        decider.asides += len(tries) == aside
        tries.append(tree)
        return "d", Victims("g", (), (), (), Placement("g", (wants.on("n"),), 1, 1.0))

    seams = SimpleNamespace(may_reclaim=lambda *_: False)
    counted = SimpleNamespace(
        running=SimpleNamespace(lowest_priority=lambda: -1),
        take=lambda *_: Refusal("n", "it has not") if len(tries) == 1 else None,
    )
    view: Any = SimpleNamespace(
        snapshot=SimpleNamespace(seams=seams, terminating=list, nodes=SimpleNamespace(row_of={"n": 0})),
        cache=SimpleNamespace(on_event=lambda *_: None),
        units=Units(),
        counted=counted,
    )
    monkeypatch.setattr(nominate, "running_units", lambda *_: [])
    monkeypatch.setattr(VictimSearch, "victims", victims)
    monkeypatch.setattr(Nominations, "_nominate", lambda *_, **__: None)
    parts: list[Any] = [view, decider, None, None, LoopClock()]
    made = Nominations(*parts, fits=lambda _: True)
    still_waits = iter((True, False)) if aside == 0 else iter((False,))

    closed = Ledger().closed_to("g", unit.order)
    assert not run(made.try_preempt(unit, Budget(), 0.0, closed, lambda: next(still_waits), lambda *_: None))
    assert len(tries) == 2
    assert made.take_unsettled() == {"g"}
