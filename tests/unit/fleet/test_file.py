"""Fleet files: what is read, and what is refused with line and reason."""

from __future__ import annotations

import pytest

from grove.fleet.batch import too_large
from grove.fleet.file import BadFleet, load, read, ready_made

GOOD = """\
lasts: 2d
cluster:
  nodes:
  - {name: h100, racks: 2, nodes: 2}
teams:
- {name: chat, priority: 10, quota: 8, limit: 16}
work:
  batch:
  - name: job
    team: chat
    every: 1h
    pods: choice(1:2, 4:1)
    lasts: 30m
"""


def test_a_good_file_is_read():
    fleet = read(GOOD)
    assert (fleet.lasts.s, fleet.gpus, fleet.seed) == (172800.0, 32, 1)
    assert fleet.work.batch[0].pods.amount.mean == 2.0
    assert fleet.priorities == {10}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param("lasts: 2d", "last: 2d", "line 1: last: there is no such field", id="unknown field"),
        pytest.param(
            "every: 1h", "every: -1h", r"line 11: work.batch\[0\].every: '-1h' must be above 0", id="negative rate"
        ),
        pytest.param(
            "team: chat", "team: chta", r"line 10: work.batch\[0\].team: there is no team 'chta'", id="no such team"
        ),
        pytest.param("racks: 2", "racks: 0", r"line 4: cluster.nodes\[0\].racks: must be at least 1", id="no racks"),
        pytest.param("racks: 2", "racks: two", r"line 4: .*Expected `int`", id="not a number"),
        pytest.param("limit: 16", "limit: 4", "line 6: .*the limit 4 is below the quota 8", id="limit below quota"),
        pytest.param(
            "choice(1:2, 4:1)", "many", r"line 12: work.batch\[0\].pods: 'many' is not a number", id="bad size"
        ),
        pytest.param(
            "lasts: 2d",
            "lasts: 2d\nsettings: {scheduler: {holdAfter: soon}}",
            "line 2: settings.scheduler",
            id="bad setting",
        ),
        pytest.param(
            "lasts: 2d",
            "lasts: 2d\nsettings: {operator: {colour: red}}",
            "line 2: settings.operator",
            id="unknown setting",
        ),
        pytest.param("- {name: chat", "- {name: [chat", "line 6: ", id="not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_reason(old, new, fault):
    assert old in GOOD
    with pytest.raises(BadFleet, match=fault):
        read(GOOD.replace(old, new))


def test_every_fault_is_named_at_once():
    text = GOOD.replace("racks: 2", "racks: 0").replace("team: chat", "team: x").replace("every: 1h", "every: never")
    with pytest.raises(BadFleet) as refused:
        read(text)
    assert [fault.split(":")[0] for fault in refused.value.faults] == ["line 4", "line 10", "line 11"]


HEADER = "arrival,pods,gpus,duration,team,priority\n"


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        pytest.param("0,2,8,600,chat,5\n60,,8,600,chat,\n", "line 3: pods is empty", id="a hole"),
        pytest.param("0,2,8\n", "line 2: the row has 3 columns fewer", id="a short row"),
        pytest.param("0,2,8,-5,chat,\n", "line 2: duration must be at least 1", id="negative duration"),
        pytest.param("soon,2,8,5,chat,\n", "line 2: arrival is not a number", id="not a number"),
        pytest.param("0,2,8,5,nobody,\n", "there is no team 'nobody'", id="unknown team"),
    ],
)
def test_a_trace_with_faults_is_refused(tmp_path, rows, fault):
    (tmp_path / "jobs.csv").write_text(HEADER + rows)
    text = GOOD + "  traces:\n  - {file: jobs.csv}\n"
    with pytest.raises(BadFleet, match=fault):
        read(text, folder=tmp_path)


def test_a_trace_is_read_in_order_of_arrival(tmp_path):
    (tmp_path / "jobs.csv").write_text(HEADER + "60,1,8,600,chat,\n0,2,8,60,chat,7\n")
    fleet = read(GOOD + "  traces:\n  - {file: jobs.csv}\n", folder=tmp_path)
    assert [(job.arrival_s, job.pods, job.priority) for job in fleet.jobs["jobs.csv"]] == [(0, 2, 7), (60, 1, None)]
    assert fleet.priorities == {7, 10}


def test_the_files_that_come_with_grove_are_good():
    assert set(ready_made()) == {"lab", "company", "cloud", "bad-week"}
    assert load("cloud").gpus == 40_000
    assert sum(kind.count for kind in load("company").cluster.nodes) == 200


@pytest.mark.parametrize(
    ("job", "faults"),
    [
        pytest.param("pods: 2, pack: rack", [], id="a rack takes it"),
        pytest.param(
            "pods: 3, pack: rack",
            ["job: gang job-0 has 3 pods of 8 GPUs; one rack takes at most 2 of them, so it would wait for ever"],
            id="larger than a rack",
        ),
        pytest.param("pods: 4, pack: block", [], id="a block takes it"),
        pytest.param(
            "pods: 9, gpus: 4",
            ["job: gang job-0 has 9 pods of 4 GPUs; the cluster takes at most 8 of them, so it would wait for ever"],
            id="larger than the cluster",
        ),
    ],
)
def test_a_gang_that_fits_nowhere_is_named_before_the_run(job: str, faults: list[str]):
    head = GOOD.partition("  - name: job")[0].replace(", limit: 16", "")
    fleet = read(f"{head}  - {{name: job, team: chat, every: 1h, lasts: 30m, {job}}}\n")
    assert too_large(fleet) == faults


@pytest.mark.parametrize("name", list(ready_made()))
def test_every_gang_of_a_ready_made_fleet_fits_on_its_empty_cluster(name: str):
    assert too_large(load(name)) == []
