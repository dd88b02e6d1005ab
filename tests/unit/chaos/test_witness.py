"""The witness of a chaos run sees a broken promise, and calls nothing broken that is not."""

from __future__ import annotations

from typing import Any

import pytest
from chaos.ending import MORE_FILES, leaks
from chaos.processes import Sample
from chaos.witness import GPU, Witness
from tests.support import objects

DEADLINE_S = 10.0


def member(name: str, node: str = "", *, gpus: int = 1, group: str = "w", phase: str = "Running", **meta: Any) -> Any:
    containers = [{"resources": {"requests": {GPU: str(gpus)}}}]
    body = objects.pod_manifest(
        "n", name, clique=group, labels={"grove.io/podgang": "g"}, nodeName=node, containers=containers
    )
    return body | {"metadata": body["metadata"] | {"uid": name, **meta}, "status": {"phase": phase}}


@pytest.fixture
def witness() -> Witness:
    made = Witness(DEADLINE_S)
    made.node({"metadata": {"name": "n1"}, "status": {"allocatable": {GPU: "4"}}}, gone=False)
    groups = [{"name": "w", "minReplicas": 2}, {"name": "v", "minReplicas": 1}]
    made.gang({"metadata": {"name": "g", "namespace": "n"}, "spec": {"podgroups": groups}}, gone=False)
    return made


def whole(witness: Witness) -> None:
    for name, group in (("a", "w"), ("b", "w"), ("c", "v")):
        witness.pod(member(name, "n1", group=group), gone=False)


def test_a_whole_gang_keeps_the_promises(witness: Witness) -> None:
    whole(witness)
    witness.attended(DEADLINE_S + 1)
    assert (witness.broken, witness.seen["placements"]) == ([], 1)


def test_a_gang_in_part_after_its_deadline_is_a_broken_promise(witness: Witness) -> None:
    witness.pod(member("a", "n1"), gone=False)
    witness.attended(DEADLINE_S - 1)
    assert witness.broken == []
    witness.attended(2)
    assert witness.broken == ["Atomic: gang g: in part for 11 s: ['w']"]


def test_a_gang_that_lost_pods_after_it_stood_is_not_in_part(witness: Witness) -> None:
    whole(witness)
    witness.pod(member("a", "n1"), gone=True)
    witness.attended(DEADLINE_S + 1)
    assert witness.broken == []


def test_pods_that_came_and_died_before_the_last_count_as_placed(witness: Witness) -> None:
    witness.pod(member("a", "n1"), gone=False)
    witness.pod(member("b", "n1"), gone=False)
    witness.pod(member("a", "n1"), gone=True)
    witness.pod(member("c", "n1", group="v"), gone=False)
    witness.attended(DEADLINE_S + 1)
    assert witness.broken == []


def test_a_gang_taken_back_whole_is_not_in_part(witness: Witness) -> None:
    witness.pod(member("a", "n1"), gone=False)
    witness.pod(member("a", "n1", deletionTimestamp="now"), gone=False)
    witness.attended(DEADLINE_S + 1)
    assert witness.broken == []


@pytest.mark.parametrize(
    ("last", "broken"),
    [
        pytest.param(member("x", "n1", gpus=4), [], id="as much as the node has"),
        pytest.param(member("x", "n1", gpus=5), ["Exact: x overfills n1: 5 of 4 GPUs"], id="more than the node has"),
        pytest.param(member("x", "n1", gpus=5, phase="Failed"), [], id="a pod that is over takes nothing"),
    ],
)
def test_a_node_is_never_overfilled(witness: Witness, last: Any, broken: list[str]) -> None:
    witness.pod(last, gone=False)
    assert witness.broken == broken


def test_a_terminating_pod_still_has_its_gpus(witness: Witness) -> None:
    witness.pod(member("old", "n1", gpus=4, deletionTimestamp="now"), gone=False)
    witness.pod(member("new", "n1", gpus=1), gone=False)
    assert witness.broken == ["Exact: new overfills n1: 5 of 4 GPUs"]
    witness.pod(member("old", "n1", gpus=4), gone=True)
    witness.pod(member("newer", "n1", gpus=1), gone=False)
    assert len(witness.broken) == 1


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param(20 + MORE_FILES, [], id="a few more connections"),
        pytest.param(21 + MORE_FILES, ["operator: files grew from 20 to 31"], id="growth"),
    ],
)
def test_what_grew_from_the_beginning_to_the_end_is_a_leak(files: int, found: list[str]) -> None:
    first, last = Sample(1.0, "operator-1", 1, 90.0, 20, 30), Sample(99.0, "operator-1", 2, 95.0, files, 30)
    assert leaks([first, last], before_s=5.0) == found


def test_a_process_that_was_not_seen_is_not_called_healthy() -> None:
    assert leaks([Sample(99.0, "operator-1", 2, 95.0, 10, 30)], before_s=5.0) == [
        "operator: not seen at the beginning or at the end"
    ]
