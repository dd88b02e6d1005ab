"""General rules of a PodCliqueSet, one row a rule, on creation and on update: the literal path and message."""

from __future__ import annotations

import pytest
from tests.support.faulty_sets import ROWS, SHARE, T, explicit, with_templates
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import ABSENT, changed, faults, plain

from grove.admission.rules.lookups import BackendFacts
from grove.admission.rules.review import Admission

ADMISSION = Admission(backends=BackendFacts(enabled=("default-scheduler", "kai-scheduler", "volcano")))


@pytest.mark.parametrize(("obj", "want"), ROWS)
def test_a_broken_rule_is_told_with_its_path_on_creation(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, obj) == want


@pytest.mark.parametrize(("obj", "want"), ROWS)
def test_a_broken_rule_is_told_with_its_path_on_update(obj: dict, want: list[str]) -> None:
    # What may not change at all has its own table; here the stored object differs only where nothing is immutable.
    old = changed(obj, ("metadata.labels", {"stored": "yes"}))
    if obj["metadata"].get("labels"):
        old = changed(obj, ("spec.replicas", 7))
    assert faults(ADMISSION, obj, old) == want


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
