"""Rules about where gangs go: a gang's own pods on a level of the topology are packed, everything else is affinity."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.support.dialects import gang_set, rule, seed, wish

from grove.api.dynamo import PlacementStatus
from grove.api.meta import Json
from grove.dialects.dynamo import to_set
from grove.dialects.placement import Match, Placement, PodPlace, matches, placed, rule_faults, rule_status

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"
LEVELS = {RACK: ("fake-nodes", "rack"), "example.com/block": ("fake-nodes", "block"), "other": ("second", "row")}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = {"app": "worker"}


def where(*rules: Json, pack: bool = True) -> Placement:
    return placed(rules, WORKER, "default", LEVELS, pack=pack)


def test_the_example_puts_workers_near_prefill_pods_and_packs_nothing() -> None:
    found = placed([seed("podclique")], {"app": "dynamo-worker"}, "default", LEVELS, pack=True)
    [term] = found.affinity["podAffinity"][PREFERRED]
    assert term["weight"] == 100
    assert term["podAffinityTerm"]["topologyKey"] == RACK
    assert found.constraint == {}
    assert found.effects["prefill-decode-clique"].applied_as == "PodAffinity"


@pytest.mark.parametrize(
    ("found", "constraint", "applied"),
    [
        pytest.param(
            where(rule(**{PREFERRED: [wish(RACK)]})),
            {"topologyName": "fake-nodes", "pack": {"preferred": "rack"}},
            "Pack",
            id="no labels: the gang's own pods",
        ),
        pytest.param(
            where(rule(**{PREFERRED: [wish(RACK, app="worker")]})),
            {"topologyName": "fake-nodes", "pack": {"preferred": "rack"}},
            "Pack",
            id="labels that all its pods have",
        ),
        pytest.param(
            where(rule(**{REQUIRED: [{"topologyKey": RACK}]})),
            {"topologyName": "fake-nodes", "pack": {"required": "rack"}},
            "Pack",
            id="a must is a must",
        ),
        pytest.param(where(rule(**{PREFERRED: [wish(HOST)]})), {}, "PodAffinity", id="a key that is no level"),
        pytest.param(
            where(rule(**{PREFERRED: [wish(RACK)]}), pack=False), {}, "PodAffinity", id="a set that runs already"
        ),
        pytest.param(
            where(rule(**{PREFERRED: [wish("example.com/block", 10), wish(RACK, 90)]})),
            {"topologyName": "fake-nodes", "pack": {"preferred": "rack"}},
            "PodAffinity",
            id="the highest weight packs, others are affinity",
        ),
        pytest.param(
            where(rule(**{REQUIRED: [{"topologyKey": "example.com/block"}], PREFERRED: [wish("other")]})),
            {"topologyName": "fake-nodes", "pack": {"required": "block"}},
            "PodAffinity",
            id="one topology only",
        ),
    ],
)
def test_terms_about_own_pods_pack(found: Placement, constraint: Json, applied: str) -> None:
    assert found.constraint == constraint
    assert found.effects["near"].applied_as == applied


def test_rules_that_are_about_others_change_nothing() -> None:
    assert where(rule(about={"app": "other"}, **{PREFERRED: [wish(RACK)]})) == Placement()


def test_several_rules_add_up_in_the_order_of_their_names() -> None:
    far = {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": HOST}}]}
    found = where(
        rule("b", **{PREFERRED: [wish(HOST, 2, x="2")]}),
        rule("a", podAntiAffinity=far, **{PREFERRED: [wish(HOST, 1, x="1")]}),
    )
    assert [one["weight"] for one in found.affinity["podAffinity"][PREFERRED]] == [1, 2]
    assert found.affinity["podAntiAffinity"] == far


def test_placement_is_added_to_what_the_pod_template_says() -> None:
    obj = gang_set(labels=WORKER)
    obj["spec"]["template"]["spec"]["affinity"] = {"podAffinity": {PREFERRED: [wish(HOST, 5)]}}
    found = to_set(obj, where(rule(**{PREFERRED: [wish(RACK, 7, component="prefill")]})))
    spec = found.manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    assert [one["weight"] for one in spec["affinity"]["podAffinity"][PREFERRED]] == [5, 7]


def test_placement_survives_the_record() -> None:
    found = where(rule(**{PREFERRED: [wish(RACK), wish(HOST, 1)]}))
    assert Placement.of(found.to_json()) == found


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        pytest.param(
            rule(**{PREFERRED: [wish("", 1)]}),
            f"spec.topology.{PREFERRED}[0].podAffinityTerm.topologyKey",
            id="near in terms of nothing",
        ),
        pytest.param(
            rule(**{PREFERRED: [wish(RACK, 101)]}), f"spec.topology.{PREFERRED}[0].weight", id="a weight above 100"
        ),
        pytest.param(rule(), "spec.topology", id="no topology"),
        pytest.param(
            {**rule(**{PREFERRED: [wish(RACK)]}), "spec": {"topology": {PREFERRED: [wish(RACK)]}}},
            "spec.selector",
            id="about nobody",
        ),
        pytest.param(
            {"spec": {**rule(**{PREFERRED: [wish(RACK)]})["spec"], "replicas": 3}},
            "spec.replicas",
            id="taken for the other PodClique",
        ),
    ],
)
def test_what_is_wrong_with_a_rule_is_reported(obj: Json, path: str) -> None:
    assert [fault.path for fault in rule_faults(obj)] == [path]


def test_a_selector_that_cannot_be_read_matches_nothing() -> None:
    obj = rule(**{PREFERRED: [wish(RACK)]})
    obj["spec"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert not matches(obj, WORKER)
    assert [fault.path for fault in rule_faults(obj)] == ["spec.selector"]


def pod_place(name: str, rack: str | None, **labels: str) -> PodPlace:
    return PodPlace("default", name, labels, None if rack is None else {RACK: rack})


def test_the_status_counts_pods_and_those_for_which_the_terms_hold() -> None:
    obj = rule(**{PREFERRED: [wish(RACK, component="prefill")]})
    pods = [
        pod_place("w0", "r1", app="worker"),
        pod_place("w1", "r2", app="worker"),
        pod_place("w2", None, app="worker"),
        pod_place("p0", "r1", component="prefill"),
    ]
    found = rule_status(PlacementStatus(), obj, 3, [Match("serving", "PodAffinity")], pods, [], NOW)
    assert (found.matched_pods, found.satisfied_pods, found.observed_generation) == (3, 1, 3)
    assert [(one.name, one.applied_as) for one in found.matched_pod_gang_sets] == [("serving", "PodAffinity")]
    assert [(one.status, one.reason) for one in found.conditions] == [("True", "Applied")]


def test_a_pod_is_not_near_to_itself() -> None:
    obj = rule(**{PREFERRED: [wish(RACK, app="worker")]})
    alone = rule_status(PlacementStatus(), obj, 1, [], [pod_place("w0", "r1", app="worker")], [], NOW)
    assert alone.satisfied_pods == 0


@pytest.mark.parametrize(
    ("matched", "reason", "words"),
    [
        pytest.param([], "NothingMatches", "no PodGangSet", id="nothing matches"),
        pytest.param([Match("a", "")], "WaitingForRollout", "next rollout of a", id="a set that runs without it"),
        pytest.param(
            [Match("a", "Pack"), Match("b", "")], "WaitingForRollout", "gang of its own", id="two gangs stay two"
        ),
    ],
)
def test_the_condition_says_why_a_rule_is_not_in_effect(matched: list[Match], reason: str, words: str) -> None:
    [found] = rule_status(PlacementStatus(), rule(), 1, matched, [], [], NOW).conditions
    assert (found.status, found.reason) == ("False", reason)
    assert words in found.message
