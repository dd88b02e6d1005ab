"""A timeline says each thing once: what happens to several objects within a second is one line with a count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from grove.api.core import Pod
from grove.show.timeline import Moment, folded, own_words

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def moment(kind: str, name: str, reason: str, message: str = "", ms: int = 0) -> Moment:
    return Moment(NOW + timedelta(milliseconds=ms), kind, name, reason, message, "condition")


def told(*moments: Moment) -> list[str]:
    return [f"{one.kind}/{one.name} +{one.others} {one.reason}" for one in folded(moments)]


@pytest.mark.parametrize(
    ("moments", "want"),
    [
        pytest.param(
            [moment("Pod", pod, what, ms=at) for at, pod in enumerate("abc") for what in ("Ready=True", "Created")],
            ["Pod/a +2 Created", "Pod/a +2 Ready=True"],
            id="what alternates between objects",
        ),
        pytest.param(
            [moment("PodGang", name, "Scheduled=True", f"placed {name} whole") for name in ("x-0", "x-1")],
            ["PodGang/x-0 +1 Scheduled=True"],
            id="messages that differ by the object's own name",
        ),
        pytest.param(
            [moment("Pod", "a", "Ready=True", ms=0), moment("Pod", "b", "Ready=True", ms=2500)],
            ["Pod/a +0 Ready=True", "Pod/b +0 Ready=True"],
            id="seconds apart",
        ),
        pytest.param(
            [
                moment("Pod", "a", "Created"),
                moment("PodCliqueSet", "s", "Updated"),
                moment("PodGang", "s-0", "Created"),
            ],
            ["PodCliqueSet/s +0 Updated", "PodGang/s-0 +0 Created", "Pod/a +0 Created"],
            id="outside in",
        ),
        pytest.param(
            [moment("Pod", pod, "PodStartupBlocked=False", f"{pod}-parent=1/1") for pod in "ab"]
            + [moment("Pod", pod, "Waits", f"{pod}=0/1, other {pod}") for pod in "cd"],
            ["Pod/a +1 PodStartupBlocked=False", "Pod/c +1 Waits"],
            id="two things that several objects say",
        ),
    ],
)
def test_what_is_alike_is_one_line(moments: list[Moment], want: list[str]) -> None:
    assert told(*moments) == want


def test_a_pod_says_of_its_conditions_what_is_worth_saying() -> None:
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": "2026-05-01T12:00:00Z"}
        for kind, status in (
            ("PodReadyToStartContainers", "True"), ("Initialized", "True"), ("ContainersReady", "False"),
            ("Ready", "True"), ("PodScheduled", "True"),
        )
    ]  # fmt: skip
    pod = msgspec.convert({"metadata": {"name": "p"}, "status": {"conditions": conditions}}, Pod)
    assert [one.reason for one in own_words("Pod", pod)] == ["ContainersReady=False", "Ready=True", "PodScheduled=True"]
