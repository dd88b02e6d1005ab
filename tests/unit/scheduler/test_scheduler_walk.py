"""A reader who follows one PodGang from its watch event to bound pods meets no more modules than the docs say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.walk import missing_in_the_tour, walk_of_a_gang

from grove.sim.loop import run

DOCS = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_the_way_of_a_plain_gang_is_no_longer_than_it_is_said_to_be() -> None:
    met = [module for module in run(walk_of_a_gang()) if module.startswith("grove.scheduler")]
    said = re.search(r"at most (\d+) modules of the scheduler", DOCS.read_text())
    assert said is not None
    loop = "grove.scheduler.loop"
    assert {f"{loop}.following.follower", "grove.scheduler.solve.place", f"{loop}.writes.bind"} <= set(met)
    assert len(met) <= int(said[1]), met
    assert missing_in_the_tour(met) == []
