"""Moves in a simulated fleet: none by default, counted where the scheduler's settings switch them on."""

from __future__ import annotations

import pytest
from tests.support.running import without_logs

from grove.fleet.file import load
from grove.fleet.report import page
from grove.fleet.results import results
from grove.fleet.run import run_fleet

FLEET = """\
lasts: 6h
cluster:
  nodes: [{name: h100, nodes: 2}]
teams: [{name: research}]
work:
  traces: [{file: jobs.csv}]
settings:
  scheduler: {repack: REPACK}
"""
JOBS = """\
arrival,pods,gpus,duration,team,priority
0,1,4,3600,research,0
60,1,4,15000,research,0
120,1,4,15000,research,0
4000,1,8,600,research,0
"""
"""After an hour half of each node is free. The last gang needs a whole node."""


@pytest.mark.parametrize(
    ("repack", "moved"),
    [
        pytest.param("{}", 0, id="by default it waits until a node is free"),
        pytest.param("{automatic: true, disruption: allow}", 1, id="a gang is moved for it"),
    ],
)
def test_moved_gangs_are_counted_and_break_no_promise(tmp_path, repack, moved):
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET.replace("REPACK", repack))
    (tmp_path / "jobs.csv").write_text(JOBS)
    with without_logs():
        run = run_fleet(load(str(path)))
    found = results(run)
    assert found["promises"] == []
    assert found["events"]["moved gangs"] == moved
    assert f"<td>Moved gangs</td><td>{moved}</td>" in page(found)
    assert (found["waiting"]["all"]["all"]["worst"] > 3600) == (not moved)
