"""What a recorder makes of the sets that it saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.support.objects import conditions, node

from grove.api.core import Node
from grove.api.meta import Conditions, Json
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.file import Load, Part, Serving, Team, load
from grove.fleet.manifests import batch_set, serving_set
from grove.fleet.record import Recorder, SetRecord, serving_rows, write_traces

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


def test_a_service_named_like_the_trace_gets_another_name():
    body = serving_set(Serving("web", "research", [Part("decode", 1.0)], Load(1.0)), TEAM)
    assert [row["name"] for row in serving_rows([record(body)], taken=["web"])] == ["web-2"]


def test_pods_of_a_clique_outside_groups_are_instances_that_are_scaled():
    body = serving_set(Serving("web", "research", [Part("decode", 1.0, max_replicas=4)], Load(1.0)), TEAM)
    (clique,), (group,) = body["spec"]["template"]["cliques"], body["spec"]["template"].pop("podCliqueScalingGroups")
    clique["spec"] |= {"replicas": 3, "minAvailable": 2, "autoScalingConfig": group["scaleConfig"]}
    (row,) = serving_rows([record(body)])
    (part,) = row["parts"]
    assert {name: part[name] for name in ("replicas", "minAvailable", "maxReplicas")} == {
        "replicas": 3,
        "minAvailable": 2,
        "maxReplicas": 4,
    }
    assert part.get("pods", 1) == 1
    assert row["load"]["peak"] == 1.5


def test_names_that_are_too_long_for_a_fleet_file_are_cut(tmp_path):
    """Names of a set, a group and its clique may have 45 characters together. A part has its name in its cliques."""
    parts = [Part(name, 1.0, pods=2) for name in ("a", "b")]
    body = serving_set(Serving("multi-node-disaggregated", "others", parts, Load(1.0)), TEAM)
    groups = body["spec"]["template"]["podCliqueScalingGroups"]
    groups[0]["name"], groups[1]["name"] = "prefill-long-1", "prefill-long-2"
    rows = serving_rows([record(body)])
    assert [part["name"] for part in rows[0]["parts"]] == ["prefill-long", "prefill-long-2"]
    head = "cluster: {nodes: [{name: n, nodes: 8}]}\nteams: [{name: others}]\nwork: {serving: "
    (tmp_path / "mine.yaml").write_text(f"{head}{rows}}}\n")
    assert len(load(str(tmp_path / "mine.yaml")).work.serving) == 1


def test_a_set_that_arrives_at_the_end_is_in_the_time_of_the_file(tmp_path):
    one = SetRecord(record(batch_set("a", TEAM, pods=1, gpus=8, priority=None, pack="")).pcs, 10.97)
    write_traces(tmp_path / "mine.csv", [one], {}, 10.99)
    assert (tmp_path / "mine.csv").read_text().splitlines()[1] == "10.9,1,8,1,others,"


class Watched:
    """A cache of which a test makes the events."""

    def __init__(self) -> None:
        self.see: dict[type, Callable[[Any, Any], None]] = {}

    def on_event(self, kind: type, see: Callable[[Any, Any], None]) -> None:
        self.see[kind] = see


def node_that_is(*, ready: bool) -> Node:
    status = structs.replace(node().status, conditions=msgspec.convert(conditions(Ready=str(ready)), Conditions))
    return structs.replace(node(), status=status)


@pytest.mark.parametrize(
    ("states", "failures", "repairs"),
    [
        pytest.param([None, False, True], 0, 0, id="a new node becomes ready"),
        pytest.param([True, False, True], 1, 1, id="a node fails and is repaired"),
        pytest.param([True, None, False, True], 1, 1, id="a node is deleted and comes back"),
        pytest.param([True, False, False, None], 1, 0, id="a node that failed is deleted"),
    ],
)
async def test_a_failure_is_a_ready_node_that_is_not_ready_any_more(states, failures, repairs):
    cache = Watched()
    recorder = Recorder(cache, asyncio.get_running_loop())  # type: ignore[arg-type]
    recorder.is_synced = True
    nodes = [None if ready is None else node_that_is(ready=ready) for ready in states]
    for old, new in pairwise(nodes):
        cache.see[Node](old, new)
    assert (recorder.failures, len(recorder.repairs_s)) == (failures, repairs)


@pytest.mark.parametrize(("value", "recorded"), [(1000, 1000), (2_000_000_000, 1_000_000_000)])
def test_a_priority_of_the_system_becomes_the_highest_of_a_fleet(tmp_path, value, recorded):
    one = record(batch_set("a", TEAM, pods=1, gpus=8, priority=None, pack=""), 100.0, priority="high")
    write_traces(tmp_path / "mine.csv", [one], {"high": value}, 3600.0)
    assert (tmp_path / "mine.csv").read_text().splitlines()[1] == f"10,1,8,90,others,{recorded}"
