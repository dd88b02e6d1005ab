"""A simulated day of the small lab with default settings: the same bytes twice, every promise held, a whole report."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import msgspec
import pytest
from tests.support.running import without_logs

from grove.fleet.compare import compare
from grove.fleet.file import Time, load
from grove.fleet.report import page
from grove.fleet.results import encode, results
from grove.fleet.run import run_fleet


@pytest.fixture(scope="module")
def day():
    fleet = msgspec.structs.replace(load("lab"), lasts=Time("1d"))
    with without_logs():
        run = run_fleet(fleet)
    return run, results(run)


def test_every_promise_holds(day):
    run, found = day
    assert run.broken == []
    assert found["promises"] == []


def test_work_is_placed_and_served(day):
    _, found = day
    assert found["waiting"]["all"]["all"]["count"] >= 15
    assert found["batch"]["finished"] >= 5
    assert found["serving"]["chat"]["requests"] > 100_000
    assert found["serving"]["chat"]["scaled"] > 0
    assert 0 < found["utilisation"]["serving"] < 1


def test_writes_are_counted_by_kind_and_cpu_stays_out_of_the_figures(day):
    run, found = day
    assert found["writesByKind"]["scheduler"]["create pods/binding"] > 15
    for who, by_kind in found["writesByKind"].items():
        assert sum(by_kind.values()) == found["writes"][who]
    assert 0 < run.scheduler_cpu_s < run.cpu_s
    assert b"cpu" not in encode(found).lower()


def test_teams_use_what_they_ask_for_at_most(day):
    _, found = day
    for team in found["teams"].values():
        assert 0 < team["used"] <= team["asked"]


def test_gpu_hours_add_up_to_the_capacity(day):
    run, found = day
    hours = found["gpuHours"]
    capacity = hours["serving"] + hours["starting"] + hours["idle"] + hours.get("down", 0.0)
    assert capacity == pytest.approx(run.fleet.gpus * 24, rel=0.001)


def test_the_report_needs_no_network(day):
    _, found = day
    text = page(found)
    assert text.count("<svg") == 3
    assert not re.search(r"(src|href)=", text)
    assert "<script" not in text
    assert "A small lab" in text


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    """Also in another process, whose sets of names have another order."""
    fleet = msgspec.structs.replace(load("lab"), lasts=Time("4h"))
    with without_logs():
        first, other = (encode(results(run_fleet(msgspec.structs.replace(fleet, seed=seed)))) for seed in (1, 2))
    command = [sys.executable, "-m", "grove", "fleet", "lab", "--for", "4h", "--json", str(tmp_path / "again.json")]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "7"}, check=True, capture_output=True, cwd=tmp_path)
    assert (tmp_path / "again.json").read_bytes() == first
    assert first != other


def test_a_run_compared_with_itself_differs_nowhere(day):
    _, found = day
    rows = compare(found, found)
    assert len(rows) > 10
    assert {row.better for row in rows} == {""}


def test_a_run_that_loses_two_percent_of_the_requests_is_worse(day):
    _, found = day
    chat = found["serving"]["chat"]
    worse = found | {"serving": {"chat": chat | {"servedShare": chat["servedShare"] - 0.02}}}
    assert [(row.name, row.better) for row in compare(found, worse) if row.better] == [("chat requests lost", "a")]
