"""A reader who follows one set from apply to Ready meets few modules."""

from __future__ import annotations

import re

from tests.walk import LEFT_OUT, TOUR, missing_in_the_tour, walk

from grove.sim.loop import run

MOST = 40


def test_the_way_of_a_plain_set_is_short() -> None:
    met = list(run(walk(*LEFT_OUT)))
    assert "grove.operator.podcliqueset.plan" in met
    assert "grove.operator.podclique.plan" in met
    assert len(met) <= MOST, met
    assert missing_in_the_tour(met) == []


def test_every_file_of_the_code_tour_exists():
    named = set(re.findall(r"`([\w/]+\.py)`", TOUR.read_text()))
    files = [path.as_posix() for path in (TOUR.parents[2] / "src").rglob("*.py")]
    assert len(named) > 80
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in files)] == []
