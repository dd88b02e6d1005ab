"""Warnings about quotas and reservations that are not there, or are not for the pods of the set that names them."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, pcs
from tests.support.reviews import review_of, schedulers, warnings

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import VALIDATE_SET, Admission
from grove.api.meta import Json

QUOTA = "quota.scheduling.koordinator.sh/name"
REF = "scheduling.koordinator.sh/reservation-ref"
ADMISSION = Admission(backends=schedulers("default-scheduler", "koord-scheduler", "grove-scheduler"))


def quota(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "teams"}, "spec": {"min": {"cpu": "1"}}}


def reservation(name: str, *owners: Json) -> Json:
    return {"metadata": {"name": name, "labels": {"pool": "p"}}, "spec": {"owners": list(owners)}}


MINE = {"labelSelector": {"matchLabels": {"app.kubernetes.io/part-of": "d"}}}
THEIRS = {"labelSelector": {"matchLabels": {"app": "web"}}}
BY_CLIQUE = {"controller": {"kind": "PodClique", "name": "d-0-a", "namespace": "ns"}}
BY_REPLICA = {"labelSelector": {"matchLabels": {"grove.io/podcliqueset-replica-index": "7"}}}
ELSEWHERE = {"controller": {"kind": "PodClique", "namespace": "other"}}


def asks(quota_: str = "", ref: str = "", scheduler: str = "koord-scheduler") -> Json:
    meta = {"labels": {QUOTA: quota_} if quota_ else {}, "annotations": {REF: ref} if ref else {}}
    return pcs("d", clique("a"), scheduler=scheduler, namespace="ns", metadata=meta)


@pytest.mark.parametrize(
    ("obj", "lists", "want"),
    [
        pytest.param(asks("team"), {"ElasticQuota": [quota("team")]}, "", id="a quota that is there"),
        pytest.param(
            asks("team"),
            {"ElasticQuota": [quota("other")]},
            f"metadata.labels[{QUOTA}]: there is no ElasticQuota team; koord-scheduler counts its pods against the "
            "default quota",
            id="a quota that is not there",
        ),
        pytest.param(
            asks("team", scheduler="grove-scheduler"),
            {"ElasticQuota": []},
            f"metadata.labels[{QUOTA}]: there is no ElasticQuota team; its gangs wait until there is one",
            id="grove-scheduler lets it wait",
        ),
        pytest.param(asks("team", scheduler="default-scheduler"), {}, "", id="a scheduler that knows no quotas"),
        pytest.param(
            asks("team"),
            {},
            f"metadata.labels[{QUOTA}]: this cluster has no ElasticQuota "
            "(scheduling.sigs.k8s.io), so team limits nothing",
            id="no such kind",
        ),
        pytest.param(asks("team"), {"ElasticQuota": ConnectionError("busy")}, "", id="could not be read"),
        pytest.param(asks(ref="r1"), {"Reservation": [reservation("r1", MINE)]}, "", id="a reservation for its pods"),
        pytest.param(asks(ref="r1"), {"Reservation": [reservation("r1", BY_CLIQUE)]}, "", id="by their PodClique"),
        pytest.param(asks(ref="r1"), {"Reservation": [reservation("r1", BY_REPLICA)]}, "", id="for one replica of it"),
        pytest.param(asks(ref="pool=p"), {"Reservation": [reservation("r1", MINE)]}, "", id="found by label"),
        pytest.param(
            asks(ref="r1"),
            {"Reservation": [reservation("r2", MINE)]},
            f"metadata.annotations[{REF}]: no Reservation is meant by r1; the gangs wait for one",
            id="not there",
        ),
        pytest.param(
            asks(ref="r1"),
            {"Reservation": [reservation("r1", THEIRS)]},
            f"metadata.annotations[{REF}]: the owners of r1 match no pod of clique a: they cannot use it",
            id="for somebody else",
        ),
        pytest.param(
            asks(ref="r1"),
            {"Reservation": [reservation("r1", ELSEWHERE)]},
            f"metadata.annotations[{REF}]: the owners of r1 match no pod of clique a: they cannot use it",
            id="for another namespace",
        ),
        pytest.param(
            asks(ref="r1"),
            {"Reservation": [reservation("r1")]},
            f"metadata.annotations[{REF}]: the owners of r1 match no pod of clique a: they cannot use it",
            id="for nobody",
        ),
    ],
)
def test_what_a_set_names(obj: Json, lists: dict, want: str) -> None:
    found = warnings(ADMISSION, obj, lookups=Known(lists=lists))
    assert [one for one in found if "koordinator.sh" in one] == ([want] if want else [])


KAI_QUEUE = "kai.scheduler/queue"
BOTH = Admission(backends=schedulers("grove-scheduler", "kai-scheduler", "default-scheduler"))


@pytest.mark.parametrize("scheduler", ["grove-scheduler", "kai-scheduler"])
@pytest.mark.parametrize(
    ("lists", "want"),
    [
        pytest.param({"Queue": [{"metadata": {"name": "nosuch"}}]}, "", id="a queue that is there"),
        pytest.param({"Queue": []}, "there is no Queue nosuch; its gangs wait until there is one", id="not there"),
        pytest.param({}, "this cluster has no Queue (scheduling.run.ai), so nosuch limits nothing", id="no such kind"),
        pytest.param({"Queue": ConnectionError("busy")}, "", id="could not be read"),
    ],
)
def test_a_queue_of_kai_that_a_set_names(scheduler: str, lists: dict, want: str) -> None:
    obj = pcs("d", clique("a"), scheduler=scheduler, namespace="ns", metadata={"labels": {KAI_QUEUE: "nosuch"}})
    found = [one for one in warnings(BOTH, obj, lookups=Known(lists=lists)) if KAI_QUEUE in one]
    assert found == ([f"metadata.labels[{KAI_QUEUE}]: {want}"] if want else [])


def test_only_what_is_named_is_looked_up() -> None:
    def needs(obj: Json) -> frozenset[str]:
        return ADMISSION.needs(VALIDATE_SET, review_of(obj)).lists

    assert needs(asks()) == frozenset()
    assert needs(asks("team", "r1")) == {"ElasticQuota", "Reservation"}
    assert needs(asks("team", "r1", scheduler="default-scheduler")) == frozenset()


CLASSES = {"PriorityClass": [{"metadata": {"name": "high"}, "value": 9}], "Queue": [{"metadata": {"name": "q"}}]}
SET_CLASS = "spec.template.priorityClassName"
POD_CLASS = "spec.template.cliques[0].spec.podSpec.priorityClassName"
EVERYWHERE = Admission(backends=schedulers("default-scheduler", "kai-scheduler"))


@pytest.mark.parametrize(
    ("of_set", "of_pods", "scheduler", "want"),
    [
        pytest.param("high", "high", "default-scheduler", [], id="classes that are there"),
        pytest.param("none", "", "default-scheduler", [SET_CLASS], id="the set's, which its pods get"),
        pytest.param("", "none", "default-scheduler", [POD_CLASS], id="a clique's own"),
        pytest.param("none", "none", "default-scheduler", [POD_CLASS, SET_CLASS], id="both"),
        pytest.param("none", "", "kai-scheduler", [], id="KAI has the set's for its PodGroups only"),
        pytest.param("none", "none", "kai-scheduler", [POD_CLASS], id="but a clique's own is one of pods everywhere"),
    ],
)
def test_a_priority_class_that_is_not_there_is_a_warning(
    of_set: str, of_pods: str, scheduler: str, want: list[str]
) -> None:
    queue = {"labels": {"kai.scheduler/queue": "q"}}
    of_clique = {"priorityClassName": of_pods} if of_pods else {}
    obj = pcs("d", clique("a", **of_clique), scheduler=scheduler, metadata=queue, priorityClassName=of_set)
    words = "there is no PriorityClass none; the API server refuses pods until there is one"
    assert warnings(EVERYWHERE, obj, lookups=Known(lists=CLASSES)) == [f"{path}: {words}" for path in want]
    asked = EVERYWHERE.needs(VALIDATE_SET, review_of(obj)).lists
    assert ("PriorityClass" in asked) is bool(want or (of_set == "high"))


def test_priority_classes_that_cannot_be_read_are_no_warning() -> None:
    obj = pcs("d", clique("a"), priorityClassName="none")
    assert warnings(EVERYWHERE, obj, lookups=Known(lists={"PriorityClass": ConnectionError("busy")})) == []
