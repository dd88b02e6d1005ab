"""A draining time: whole seconds, at most an hour, on a set, a scaling group or a clique."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import faults, schedulers, warnings

from grove.admission.rules.review import Admission
from grove.api.labels import DRAIN_SECONDS
from grove.api.meta import Json

ADMISSION = Admission(backends=schedulers("default-scheduler"))
KEY = f"annotations.{DRAIN_SECONDS}"
NUMBER = "must be a whole number of seconds, 0 or more"
LONG = "must not be longer than an hour (3600): pods that drain keep their GPUs all the time"


def demo(of_set: str = "", of_clique: str = "", of_group: str = "") -> Json:
    found = pcs("d", clique("a"), clique("m"), groups=[group("g", "m")])
    template = found["spec"]["template"]
    parts = (found["metadata"], template["cliques"][0], template["podCliqueScalingGroups"][0])
    for part, seconds in zip(parts, (of_set, of_clique, of_group), strict=True):
        part |= {"annotations": {DRAIN_SECONDS: seconds}} if seconds else {}
    return found


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(demo("30", "0", "3600"), [], id="up to an hour"),
        pytest.param(demo("31536000"), [f'metadata.{KEY}: Invalid value: "31536000": {LONG}'], id="a year"),
        pytest.param(demo("30s"), [f'metadata.{KEY}: Invalid value: "30s": {NUMBER}'], id="with a unit"),
        pytest.param(demo("-1"), [f'metadata.{KEY}: Invalid value: "-1": {NUMBER}'], id="less than nothing"),
        pytest.param(
            demo(of_clique="3601"),
            [f'spec.template.cliques[0].{KEY}: Invalid value: "3601": {LONG}'],
            id="on a clique",
        ),
        pytest.param(
            demo(of_group="soon"),
            [f'spec.template.podCliqueScalingGroups[0].{KEY}: Invalid value: "soon": {NUMBER}'],
            id="on a scaling group",
        ),
    ],
)
def test_a_draining_time(obj: Json, want: list[str]) -> None:
    assert faults(ADMISSION, obj) == want


def with_deadline(obj: Json, deadline: str) -> Json:
    obj["spec"]["updateStrategy"] = {"progressDeadline": deadline}
    return obj


def of_member(seconds: str) -> Json:
    found = demo()
    found["spec"]["template"]["cliques"][1]["annotations"] = {DRAIN_SECONDS: seconds}
    return found


DEADLINE = "spec.updateStrategy.progressDeadline: "


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(demo("30", "0", "3600"), "", id="nothing is wrong"),
        pytest.param(
            of_member("30"),
            f"spec.template.cliques[1].annotations[{DRAIN_SECONDS}]: no effect, because a replica of a scaling group",
            id="on a clique of a scaling group",
        ),
        pytest.param(
            with_deadline(demo("10", "0", "60"), "1m"),
            f"{DEADLINE}1m is not longer than the draining time of 60 s",
            id="as long as the deadline of updates",
        ),
        pytest.param(with_deadline(demo("10", "0", "59"), "1m"), "", id="shorter than the deadline of updates"),
        pytest.param(with_deadline(demo(), "1s"), "", id="a deadline without draining"),
    ],
)
def test_a_warning_about_a_draining_time(obj: Json, want: str) -> None:
    found = warnings(ADMISSION, obj)
    assert len(found) == bool(want)
    assert "".join(found).startswith(want)


def test_a_stored_deadline_that_is_no_duration_does_not_stop_another_edit() -> None:
    """An earlier version admitted it."""
    old, new = (with_deadline(demo("60"), "soon") for _ in range(2))
    new["metadata"]["labels"] = {"team": "a"}
    assert warnings(ADMISSION, new, old) == []
