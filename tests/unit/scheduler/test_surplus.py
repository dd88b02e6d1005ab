"""Pods above the minimum: the gang goes where all of them find a place, if there is such a place."""

from __future__ import annotations

import pytest
from tests.support.scheduler.kit import BLOCK, RACK, branch, gang, group, node, snap, used

from grove.scheduler.model.answers import Placement
from grove.scheduler.solve.place import place

TWO_RACKS = [node("a0", 4, zone="z", block="b", rack="a"), node("b0", 8, zone="z", block="b", rack="b")]


def racks(answer: object) -> dict[str, int]:
    assert isinstance(answer, Placement), answer
    found: dict[str, int] = {}
    for pod in answer.pods:
        found[pod.node[0]] = found.get(pod.node[0], 0) + 1
    return found


@pytest.mark.parametrize(
    ("wanted", "found", "core"),
    [
        pytest.param(gang(group("w", 8, minimum=4), required=RACK), {"b": 8}, 4, id="the gang requires a rack"),
        pytest.param(gang(group("w", 8, minimum=4), preferred=RACK), {"b": 8}, 4, id="the gang prefers a rack"),
        pytest.param(gang(group("w", 8, minimum=4, required=RACK)), {"b": 8}, 4, id="the group requires a rack"),
        pytest.param(gang(group("w", 8, minimum=4)), {"b": 8}, 4, id="nothing is asked for"),
        pytest.param(
            gang(group("p", 4, minimum=2), group("d", 4, minimum=2), required=RACK), {"b": 8}, 4, id="two groups"
        ),
        pytest.param(
            gang(branch("i", group("p", 4, minimum=2), group("d", 4, minimum=2), required=RACK), required=BLOCK),
            {"b": 8},
            4,
            id="a branch requires a rack",
        ),
        pytest.param(gang(group("w", 9, minimum=2), required=RACK), {"b": 8}, 2, id="no rack holds all: the roomier"),
        pytest.param(gang(group("w", 4, minimum=2), required=RACK), {"a": 4}, 2, id="both hold all: the tighter"),
        pytest.param(gang(group("w", 8, minimum=0), required=RACK), {"b": 8}, 0, id="none of them must run"),
    ],
)
def test_surplus_pods_count_when_the_domain_is_chosen(wanted, found, core):
    answer = place(snap(TWO_RACKS), wanted)
    assert racks(answer) == found
    assert answer.core == core


def test_core_pods_are_the_first_of_their_groups_and_come_first():
    answer = place(snap(TWO_RACKS), gang(group("p", 4, minimum=2), group("d", 4, minimum=1), required=RACK))
    assert isinstance(answer, Placement)
    assert [p.name for p in answer.pods[: answer.core]] == ["p-0", "p-1", "d-0"]


def test_surplus_that_fits_nowhere_does_not_keep_the_core_out():
    answer = place(snap(TWO_RACKS, [used("a0", 4), used("b0", 6)]), gang(group("w", 8, minimum=2), required=RACK))
    assert isinstance(answer, Placement)
    assert (answer.core, len(answer.pods), len(answer.unplaced)) == (2, 2, 6)
