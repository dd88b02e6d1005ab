"""Strict order in a simulated fleet: the second gang of a team waits for the first; other teams do not."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.running import without_logs

from grove.fleet.file import load
from grove.fleet.run import run_fleet

FLEET = """\
lasts: 8h
cluster:
  nodes: [{name: h100, nodes: 3}]
teams: [{name: research, quota: 24}, {name: product, quota: 24}]
work:
  traces: [{file: jobs.csv}]
"""
JOBS = """\
arrival,pods,gpus,duration,team,priority
0,2,8,7200,research,0
60,2,8,3600,research,0
90,1,8,600,research,0
100,1,8,600,product,0
"""
"""The first gang takes two of three nodes for two hours. The second needs two nodes, the third and the fourth one."""


@pytest.mark.parametrize(
    ("order", "waits"),
    [
        pytest.param("backfill", [False, True, False, False], id="a small gang passes a large one that waits"),
        pytest.param("strict", [False, True, True, False], id="it does not, and other teams are not held up"),
    ],
)
def test_who_waits(tmp_path, order, waits):
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    (tmp_path / "jobs.csv").write_text(JOBS)
    fleet = load(str(path))
    settings = msgspec.structs.replace(fleet.settings, order=order)
    with without_logs():
        run = run_fleet(msgspec.structs.replace(fleet, settings=settings))
    gangs = sorted([*run.figures.ended_gangs, *run.figures.gangs.values()], key=lambda gang: gang.arrived_s)
    waited = [gang.placed_s - gang.arrived_s for gang in gangs if gang.placed_s is not None]
    assert [seconds > 1200 for seconds in waited] == waits
    assert not run.broken
