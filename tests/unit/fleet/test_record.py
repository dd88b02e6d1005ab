"""What a recorder makes of the sets that it saw."""

from __future__ import annotations

import msgspec
import pytest

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.file import Load, Part, Serving, Team, load
from grove.fleet.manifests import batch_set, serving_set
from grove.fleet.record import SetRecord, serving_rows, write_traces

TEAM = Team("research")


def record(body: Json, until_s: float | None = None, priority: str = "") -> SetRecord:
    body["spec"]["template"]["priorityClassName"] = priority
    return SetRecord(msgspec.convert(body, PodCliqueSet), 10.0, until_s)


def test_the_domains_that_a_service_requires_are_recorded():
    parts = [Part("decode", 1.0, pods=2, gpus=4, pack="rack"), Part("prefill", 1.0)]
    (row,) = serving_rows([record(serving_set(Serving("web", "research", parts, Load(1.0), pack="zone"), TEAM))])
    assert row["pack"] == "zone"
    assert [part.get("pack") for part in row["parts"]] == ["rack", None]


def test_gangs_that_require_a_domain_have_a_trace_of_their_own(tmp_path):
    records = [
        record(batch_set(name, TEAM, pods=pods, gpus=8, priority=None, pack=pack), 100.0)
        for name, pods, pack in (("a", 1, ""), ("b", 2, "rack"), ("c", 3, "block"), ("d", 4, "rack"))
    ]
    rows = write_traces(tmp_path / "mine.csv", records, {}, 3600.0)
    assert rows == [
        {"file": "mine.csv"},
        {"file": "mine-block.csv", "pack": "block"},
        {"file": "mine-rack.csv", "pack": "rack"},
    ]
    text = "lasts: 1h\ncluster: {nodes: [{name: n, racks: 2, nodes: 4}]}\nteams: [{name: others}]\nwork: {traces: "
    (tmp_path / "mine.yaml").write_text(f"{text}{rows}}}\n")
    jobs = load(str(tmp_path / "mine.yaml")).jobs
    assert {name: [job.pods for job in found] for name, found in jobs.items()} == {
        "mine.csv": [1],
        "mine-block.csv": [3],
        "mine-rack.csv": [2, 4],
    }


def test_sets_of_one_name_in_two_namespaces_get_different_names():
    body = serving_set(Serving("web", "research", [Part("decode", 1.0)], Load(1.0)), TEAM)
    assert [row["name"] for row in serving_rows([record(body), record(body)])] == ["web", "web-2"]


@pytest.mark.parametrize(("value", "recorded"), [(1000, 1000), (2_000_000_000, 1_000_000_000)])
def test_a_priority_of_the_system_becomes_the_highest_of_a_fleet(tmp_path, value, recorded):
    one = record(batch_set("a", TEAM, pods=1, gpus=8, priority=None, pack=""), 100.0, priority="high")
    write_traces(tmp_path / "mine.csv", [one], {"high": value}, 3600.0)
    assert (tmp_path / "mine.csv").read_text().splitlines()[1] == f"10,1,8,90,others,{recorded}"
