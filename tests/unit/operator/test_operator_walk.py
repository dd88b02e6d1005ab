"""A reader who follows one set from apply to Ready meets few modules."""

from __future__ import annotations

from tests.walk import LEFT_OUT, walk

from grove.sim.loop import run

MOST = 40


def test_the_way_of_a_plain_set_is_short() -> None:
    met = list(run(walk(*LEFT_OUT)))
    assert "grove.operator.podcliqueset.plan" in met
    assert "grove.operator.podclique.plan" in met
    assert len(met) <= MOST, met
