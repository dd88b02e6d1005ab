"""General rules of a PodCliqueSet, one row a rule, on creation and on update: the literal path and message."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.faulty_sets import COLLISIONS, ROWS, SCALE, SHAPES, SHARE, TEMPLATE, T, explicit, with_templates
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import ABSENT, changed, faults, plain, schedulers, warnings

from grove.admission.rules.collisions import collision_faults
from grove.admission.rules.review import Admission
from grove.admission.rules.view import SetView
from grove.api import names

ADMISSION = Admission(backends=schedulers("default-scheduler", "kai-scheduler", "volcano"))


@pytest.mark.parametrize(("obj", "want"), [*SHAPES, *ROWS, *COLLISIONS])
def test_a_broken_rule_is_reported_with_its_path_on_creation(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, obj) == want


@pytest.mark.parametrize(("obj", "want"), ROWS)
def test_a_broken_rule_is_reported_with_its_path_on_update(obj: dict, want: list[str]) -> None:
    # What may not change at all has its own table; here the stored object differs only where nothing is immutable.
    assert faults(ADMISSION, obj, changed(obj, ("spec.replicas", 7))) == want


@pytest.mark.parametrize(("obj", "want"), SHAPES)
def test_a_shape_that_an_update_brings_is_reported_and_one_that_is_stored_is_not(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, obj, plain()) == want
    assert faults(ADMISSION, changed(obj, ("spec.replicas", 7)), obj) == []


@pytest.mark.parametrize(("obj", "want"), COLLISIONS)
def test_a_set_that_was_stored_with_names_that_collide_stays_editable(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, changed(obj, ("spec.replicas", 7)), obj) == []


@pytest.mark.parametrize(("obj", "want"), COLLISIONS)
def test_the_order_of_cliques_is_no_news_about_names(obj: dict, want: list[str]) -> None:
    turned = changed(obj, (f"{T}.cliques", obj["spec"]["template"]["cliques"][::-1]))
    assert faults(ADMISSION, turned, obj) == []


def test_an_edit_that_makes_two_autoscalers_one_is_reported() -> None:
    stored = pcs("demo", clique("same"), clique("work"), groups=[group("same", "work", scale=SCALE)])
    edited = changed(stored, (f"{T}.cliques.0.spec.autoScalingConfig", SCALE))
    assert faults(ADMISSION, edited, stored) == [
        f'{T}.cliques[0].name: Duplicate value: "same": a scaling group has this name too and both are autoscaled, '
        "so their autoscalers would be one"
    ]


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(
            pcs("demo", clique("grp-00-work"), clique("work"), groups=[group("grp", "work")]),
            id="an index is never padded",
        ),
        pytest.param(
            pcs("demo", clique("0-b"), clique("b"), groups=[group("a", "0-b"), group("a-x", "b")]),
            id="another group",
        ),
        pytest.param(
            pcs("demo", clique("0-c"), clique("b"), groups=[group("a", "0-c"), group("a-0", "b")]),
            id="another clique",
        ),
        pytest.param(
            pcs("demo", clique("a-0"), clique("a"), clique("0"), groups=[group("g", "0")]),
            id="numbers in names of cliques alone",
        ),
        pytest.param(
            pcs("demo", clique("same"), clique("work"), groups=[group("same", "work")]),
            id="a clique and a group of one name are two kinds",
        ),
        pytest.param(
            pcs(
                "demo",
                clique("same", sharing=[SHARE]),
                clique("work"),
                groups=[group("same", "work", resourceSharing=[SHARE | {"scope": "AllReplicas"}])],
                resourceClaimTemplates=[TEMPLATE],
            ),
            id="claims of other scopes",
        ),
        pytest.param(
            pcs(
                "demo",
                clique("lead", sharing=[SHARE]),
                clique("work", sharing=[SHARE]),
                groups=[group("grp", "lead", "work", resourceSharing=[SHARE])],
                resourceClaimTemplates=[TEMPLATE],
                resourceSharing=[SHARE],
            ),
            id="a template shared at every level",
        ),
    ],
)
def test_names_that_never_meet_are_admitted(obj: dict) -> None:
    assert faults(ADMISSION, obj) == []


NAMES = st.lists(st.sampled_from("ab01"), min_size=1, max_size=4).map("-".join)


@given(st.lists(NAMES, min_size=2, max_size=5, unique=True), st.lists(NAMES, max_size=2, unique=True), st.randoms())
def test_cliques_are_reported_when_two_can_have_one_name_and_only_then(
    cliques: list[str], groups: list[str], rng: Random
) -> None:
    owner = {one: rng.choice(["", *groups]) for one in cliques}
    obj = pcs("x", *map(clique, cliques), groups=[group(g, *(c for c in cliques if owner[c] == g)) for g in groups])
    made = [
        names.member_clique(names.scaling_group("x", 0, owner[one]), replica, one)
        if owner[one]
        else names.clique("x", 0, one)
        for one in cliques
        for replica in (range(2) if owner[one] else range(1))
    ]
    assert bool(list(collision_faults(SetView(obj)))) == (len(set(made)) < len(made))


def test_many_names_with_numbers_are_not_compared_with_each_other() -> None:
    """Users write them: ten thousand against ten thousand would take a minute."""
    cliques = [clique(f"{one}-0-1") for one in range(20_000)]
    members = [one["name"] for one in cliques[:10_000]]
    assert list(collision_faults(SetView(pcs("demo", *cliques, groups=[group("x", *members)])))) == []


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(plain(), id="a plain set"),
        pytest.param(pcs("demo", clique("a", 0, min_available=1)), id="no replicas of a clique"),
        pytest.param(
            pcs("demo", clique("a"), groups=[group("g", "a", replicas=0)]), id="no replicas of a scaling group"
        ),
        pytest.param(pcs("s" * 30, clique("c" * 15)), id="exactly 45 characters"),
        pytest.param(explicit(a=[], b=["a"], c=["a", "b"]), id="an explicit order without a circle"),
        pytest.param(pcs("demo", clique("a", starts_after=["nobody"])), id="startsAfter means nothing in any order"),
        pytest.param(pcs("demo", clique("worker"), clique("pworker")), id="names that end alike"),
        pytest.param(with_templates(**{f"{T}.resourceSharing": [SHARE]}), id="a shared device"),
        pytest.param(
            changed(plain(), ("metadata.name", ABSENT), ("metadata.generateName", "demo-")), id="a generated name"
        ),
    ],
)
def test_a_good_set_is_admitted(obj: dict) -> None:
    assert faults(ADMISSION, obj) == []


def test_all_faults_come_in_one_answer() -> None:
    broken = changed(
        plain(),
        ("spec.replicas", -1),
        (f"{T}.cliques.0.spec.minAvailable", 9),
        (f"{T}.cliques.1.spec.podSpec.containers", []),
        (f"{T}.terminationDelay", "soon"),
    )
    assert [fault.partition(": ")[0] for fault in faults(ADMISSION, broken)] == [
        "spec.replicas",
        f"{T}.cliques[0].spec.minAvailable",
        f"{T}.terminationDelay",
        f"{T}.cliques[1].spec.podSpec.containers",
    ]


def test_a_leading_digit_is_refused_for_new_sets_only() -> None:
    digit = changed(plain(), ("metadata.name", "9demo"))
    assert faults(ADMISSION, digit)[0].startswith(
        'metadata.name: Invalid value: "9demo": it becomes the name of Services'
    )
    assert faults(ADMISSION, digit, changed(digit, ("spec.replicas", 5))) == []


def test_a_set_on_its_way_out_is_not_judged() -> None:
    deleting = changed(plain(), ("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), ("spec.replicas", -1))
    assert faults(ADMISSION, deleting, changed(deleting, ("spec.replicas", -2))) == []


def test_a_change_of_finalizers_alone_is_not_judged() -> None:
    stored = changed(plain(), (f"{T}.terminationDelay", "long ago"))
    assert faults(ADMISSION, changed(stored, ("metadata.finalizers", ["grove.io/podcliqueset.grove.io"])), stored) == []


@pytest.mark.parametrize(
    ("edit", "want"),
    [
        pytest.param(
            (f"{T}.cliques.0.spec.replicas", 9),
            f"{T}.cliques[0].spec.replicas: PodCliques that exist keep",
            id="of a clique",
        ),
        pytest.param(
            (f"{T}.podCliqueScalingGroups.0.replicas", 9),
            f"{T}.podCliqueScalingGroups[0].replicas: scaling groups that exist keep",
            id="of a scaling group",
        ),
    ],
)
def test_replicas_of_a_template_are_reported_to_count_only_for_what_is_made(edit: tuple[str, int], want: str) -> None:
    stored = pcs("demo", clique("a", 2), clique("b"), groups=[group("g", "b", replicas=2)])
    (told,) = warnings(ADMISSION, changed(stored, edit), stored)
    assert told.startswith(want)
    assert warnings(ADMISSION, changed(stored, ("spec.replicas", 3)), stored) == []
    assert warnings(ADMISSION, stored) == []


@pytest.mark.parametrize(
    ("before", "now", "want"),
    [
        pytest.param(None, 0, ["spec.replicas: the set has 0 replicas, so it gets no pods"], id="made with 0"),
        pytest.param(None, ABSENT, ["spec.replicas: the set has 0 replicas, so it gets no pods"], id="made without"),
        pytest.param(None, 1, [], id="made with 1"),
        pytest.param(2, 0, ["spec.replicas: with 0 replicas the operator deletes all pods of the set"], id="to 0"),
        pytest.param(
            2, ABSENT, ["spec.replicas: with 0 replicas the operator deletes all pods of the set"], id="field removed"
        ),
        pytest.param(0, 0, [], id="0 as before"),
        pytest.param(0, 2, [], id="from 0"),
    ],
)
def test_a_set_without_replicas_has_a_warning(before: int | None, now: Any, want: list[str]) -> None:
    stored = None if before is None else changed(plain(), ("spec.replicas", before))
    found = warnings(ADMISSION, changed(plain(), ("spec.replicas", now)), stored)
    assert [one.partition(";")[0] for one in found] == want
    assert all("0 is the default" in one for one in found)


def test_a_set_with_a_start_order_is_not_called_like_the_account_of_its_namespace() -> None:
    ordered = pcs("default", clique("a"), clique("b"), startup="CliqueStartupTypeInOrder")
    (told,) = faults(ADMISSION, ordered)
    assert told.startswith('metadata.name: Invalid value: "default": a set with a start order has a ServiceAccount')
    assert faults(ADMISSION, changed(ordered, ("spec.replicas", 7)), ordered) == [], "what is stored stays editable"
    assert faults(ADMISSION, pcs("default", clique("a"), clique("b"))) == []
