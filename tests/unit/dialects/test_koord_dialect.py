"""A PodCliqueSet of grove.ai: cliques leave their groups, numbers become waves, equal names get different ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.support.dialects import koord_set, koord_sets, nested, pod_template, seed

from grove.api.koordset import GROUP
from grove.api.meta import Json
from grove.dialects.koord import to_set
from grove.dialects.reverse import to_dialect


def waits(obj: Json) -> dict[str, list[str]]:
    cliques = to_set(obj).manifest["spec"]["template"]["cliques"]
    return {one["name"]: one["spec"].get("startsAfter", []) for one in cliques}


def test_the_first_example_is_two_systems_in_which_decode_waits_for_prefill() -> None:
    found = to_set(seed("disaggregated-inference"))
    spec = found.manifest["spec"]
    assert spec["replicas"] == 2
    assert spec["template"]["cliqueStartupType"] == "CliqueStartupTypeExplicit"
    assert spec["template"]["podCliqueScalingGroups"] == [
        {"name": "inference-pipeline", "cliqueNames": ["prefill", "decode"], "replicas": 1, "minAvailable": 1}
    ]
    assert [(one["name"], one["spec"]["replicas"]) for one in spec["template"]["cliques"]] == [
        ("prefill", 4),
        ("decode", 8),
    ]
    assert waits(seed("disaggregated-inference")) == {"prefill": [], "decode": ["prefill"]}
    zone = "scheduling.koordinator.sh/network-topology-zone"
    assert found.manifest["metadata"]["annotations"][zone] == "nvlink-domain-1"
    assert found.faults == ()
    assert [one.partition(":")[0] for one in found.warnings] == [
        f"spec.template.podCliqueScalingGroups[0].podCliques[{index}].template.spec.containers[0].resources.limits"
        for index in (0, 1)
    ]


def test_the_second_example_is_eight_workers_and_a_leader_that_waits_for_them() -> None:
    assert waits(seed("mpi")) == {"worker": [], "leader": ["worker"]}


@pytest.mark.parametrize(
    ("groups", "want"),
    [
        pytest.param(
            {"g": [nested("a", order=0), nested("b", order=1), nested("c", order=2)]},
            {"a": [], "b": ["a"], "c": ["b"]},
            id="a chain waits for the link before it",
        ),
        pytest.param(
            {"g": [nested("a", order=0), nested("b", order=0), nested("c", order=7)]},
            {"a": [], "b": [], "c": ["a", "b"]},
            id="equal numbers start together, gaps do not matter",
        ),
        pytest.param(
            {"g": [nested("a", order=0), nested("b")]}, {"a": [], "b": []}, id="without a number nobody waits"
        ),
        pytest.param(
            {"g": [nested("a", order=0)], "h": [nested("b", order=1)]},
            {"a": [], "b": []},
            id="groups do not wait for each other",
        ),
        pytest.param(
            {"g": [nested("a", order=2**31 - 1), nested("b", order=0)]},
            {"a": ["b"], "b": []},
            id="huge numbers are only numbers",
        ),
    ],
)
def test_numbers_become_waves(groups: dict[str, list[Json]], want: dict[str, list[str]]) -> None:
    assert waits(koord_set(groups=groups)) == want


def test_without_any_order_the_set_has_none() -> None:
    template = to_set(koord_set(groups={"g": [nested("a"), nested("b")]})).manifest["spec"]["template"]
    assert template["cliqueStartupType"] == "CliqueStartupTypeAnyOrder"


def test_cliques_of_one_name_in_two_groups_are_distinguished_and_still_wait_for_their_own() -> None:
    pair = [nested("lead", order=1), nested("work", order=0)]
    found = to_set(koord_set(groups={"p": pair, "d": [*pair, nested("log")]}))
    template = found.manifest["spec"]["template"]
    assert [one["name"] for one in template["cliques"]] == ["p-lead", "p-work", "d-lead", "d-work", "log"]
    assert [one["cliqueNames"] for one in template["podCliqueScalingGroups"]] == [
        ["p-lead", "p-work"],
        ["d-lead", "d-work", "log"],
    ]
    assert template["cliques"][0]["spec"]["startsAfter"] == ["p-work"]
    assert sum("becomes p-lead" in one for one in found.warnings) == 1
    assert found.faults == ()


def test_cliques_outside_every_group_and_fields_of_the_template_travel() -> None:
    found = to_set(koord_set(podCliques=[nested("router")], terminationDelay="1h", priorityClassName="high"))
    template = found.manifest["spec"]["template"]
    assert (template["terminationDelay"], template["priorityClassName"]) == ("1h", "high")
    assert [one["name"] for one in template["cliques"]] == ["router"]
    assert "podCliqueScalingGroups" not in template


def test_a_clique_outside_the_order_is_reported() -> None:
    [warning] = to_set(koord_set(groups={"g": [nested("a", order=0), nested("b")]})).warnings
    assert warning.startswith("spec.template.podCliqueScalingGroups[0].podCliques[1].startOrder: not given")


@pytest.mark.parametrize(
    ("obj", "path", "words"),
    [
        pytest.param(
            koord_set(groups={"g": [nested("a", order=-1)]}),
            "spec.template.podCliqueScalingGroups[0].podCliques[0].startOrder",
            "0 or more",
            id="a negative number",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a"), nested("a")]}),
            "spec.template.podCliqueScalingGroups[0].podCliques[1].name",
            "has the same name",
            id="two cliques of one name in one group",
        ),
        pytest.param(
            koord_set(groups={"g": [nested("a", startsAfter=["b"])]}),
            "spec.template.podCliqueScalingGroups[0].podCliques[0].startsAfter",
            "use startOrder",
            id="the other API's word for order",
        ),
        pytest.param(
            koord_set(podCliques=[nested("a")], cliques=[]), "spec.template.cliques", "podCliques", id="cliques on top"
        ),
        pytest.param(koord_set(), "spec.template.podCliqueScalingGroups", "at least one clique", id="no clique at all"),
        pytest.param(
            koord_set("x" * 30, groups={"g" * 20: [nested("c" * 20)]}),
            "metadata.name",
            "have 40",
            id="names that leave no room for the set's",
        ),
    ],
)
def test_what_is_wrong_is_reported_in_the_words_of_the_object(obj: Json, path: str, words: str) -> None:
    [fault] = to_set(obj).faults
    assert fault.path == path
    assert words in fault.message


def test_a_long_name_is_cut_where_the_names_inside_leave_capacity() -> None:
    found = to_set(koord_set("x" * 40, groups={"g" * 10: [nested("c" * 10)]}))
    assert found.faults == ()
    assert len(found.name) == 25


@pytest.mark.parametrize(
    ("path", "theirs"),
    [
        (
            "spec.template.cliques[1].spec.podSpec.containers[0].image",
            "spec.template.podCliqueScalingGroups[0].podCliques[1].template.spec.containers[0].image",
        ),
        ("spec.template.cliques[2].spec.minAvailable", "spec.template.podCliques[0].minAvailable"),
        (
            "spec.template.cliques[1].spec.startsAfter[0]",
            "spec.template.podCliqueScalingGroups[0].podCliques[1].startOrder[0]",
        ),
        (
            "spec.template.podCliqueScalingGroups[0].cliqueNames[1]",
            "spec.template.podCliqueScalingGroups[0].podCliques[1].name",
        ),
        (
            "spec.template.podCliqueScalingGroups[0].minAvailable",
            "spec.template.podCliqueScalingGroups[0].minAvailable",
        ),
        ("spec.template.cliques.spec.startsAfter", "spec.template.podCliqueScalingGroups.podCliques.startOrder"),
    ],
)
def test_paths_of_the_set_are_spelled_as_the_author_would(path: str, theirs: str) -> None:
    obj = koord_set(groups={"g": [nested("a", order=0), nested("b", order=1)]}, podCliques=[nested("c")])
    assert to_set(obj).spelled(path) == theirs


def test_labels_of_a_template_reach_the_clique() -> None:
    template = {**pod_template(), "metadata": {"labels": {"app": "x"}}}
    found = to_set(koord_set(podCliques=[nested("a", template=template)]))
    assert found.manifest["spec"]["template"]["cliques"][0]["labels"] == {"app": "x"}


@given(koord_sets())
def test_there_and_back_and_there_again_is_the_same_set(obj: Json) -> None:
    there = to_set(obj).manifest
    back, lost = to_dialect(there, GROUP)
    assert lost == ()
    assert to_set(back).manifest["spec"] == there["spec"]


@given(koord_sets())
def test_every_set_drawn_is_sound(obj: Json) -> None:
    assert to_set(obj).faults == ()
