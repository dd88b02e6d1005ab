"""Holds against greedy placement without holds: a stream of small jobs, and gangs that need every node."""

from __future__ import annotations

from pathlib import Path

from tests.support.running import without_logs

from grove.api.meta import Json
from grove.fleet.file import load
from grove.fleet.results import results
from grove.fleet.run import run_fleet

FLEET = """\
lasts: 26h
cluster:
  nodes: [{name: h100, nodes: 4}]
teams: [{name: research}]
work:
  batch:
  - {name: job, team: research, every: 17m, pods: 1, gpus: 8, lasts: "uniform(40m, 80m)"}
  - {name: large, team: research, every: 10h, pods: 4, gpus: 8, lasts: 30m}
settings:
  scheduler: SCHEDULER
"""
HOUR_S = 3600.0


def figures(path: Path, scheduler: str) -> Json:
    path.write_text(FLEET.replace("SCHEDULER", scheduler))
    with without_logs():
        return results(run_fleet(load(str(path))))


def test_holds_place_large_gangs_in_hours_where_greedy_placement_starves_them(tmp_path):
    ours = figures(tmp_path / "default.yaml", "{}")
    greedy = figures(tmp_path / "greedy.yaml", "{holdAfter: 0s}")
    large_ours, large_greedy = (one["waiting"]["size"]["2 to 4 pods"] for one in (ours, greedy))
    assert ours["promises"] == greedy["promises"] == []
    assert large_ours["count"] == large_greedy["count"] >= 3
    assert large_ours["worst"] < 4 * HOUR_S
    assert large_greedy["worst"] > 12 * HOUR_S
    assert ours["waiting"]["all"]["all"]["worst"] < greedy["waiting"]["all"]["all"]["worst"]
