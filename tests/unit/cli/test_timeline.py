"""A timeline says each thing once: what happens to several objects within a second is one line with a count."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from rich.console import Console

from grove.api.core import Pod
from grove.show.timeline import Moment, folded, own_words, painted

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
            [moment("Pod", pod, "PodStartupBlocked=False", "router=1/1") for pod in ("p-a", "p-b")]
            + [moment("Pod", pod, "Waits", f"waits for {pod}") for pod in ("p-c", "p-d")],
            ["Pod/p-a +1 PodStartupBlocked=False", "Pod/p-c +1 Waits"],
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
            ("PodReadyToStartContainers", "True"),
            ("Initialized", "True"),
            ("ContainersReady", "False"),
            ("Ready", "True"),
            ("PodScheduled", "True"),
        )
    ]
    pod = msgspec.convert({"metadata": {"name": "p"}, "status": {"conditions": conditions}}, Pod)
    assert [one.reason for one in own_words("Pod", pod)] == ["ContainersReady=False", "Ready=True", "PodScheduled=True"]


LONG = (
    "no rack has capacity for default/wide-0 (5 pods); rack z0-b0-r3 comes closest, with capacity for wide-0 4/5 pods"
)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 200])
def test_nothing_is_cut_however_narrow_the_terminal(width: int) -> None:
    moments = folded(
        [
            moment("PodCliqueSet", "chat", "TopologyLevelsUnavailable=False", LONG),
            moment("Pod", "chat-0-decode-0-decode-worker-abcde", "PodScheduled=True", "it has a node"),
        ]
    )
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(painted(moments, width))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    said = "".join("".join(lines).split())
    for word in ("TopologyLevelsUnavailable=False", "PodScheduled=True", "PodCliqueSet/chat", *LONG.split()):
        assert word in said


def test_an_event_that_came_again_and_again_is_one_line() -> None:
    again = [
        Moment(NOW + timedelta(seconds=at), "Pod", "p", "BackOff", "restarting", "kubelet", True, count)
        for at, count in ((0, 3), (60, 2))
    ]
    console = Console(file=io.StringIO(), width=120, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(painted(folded(again), 120))
    [_, line] = captured.get().splitlines()
    assert line.split() == ["12:00:00", "Pod/p", "BackOff", "×5", "until", "12:01:00", "restarting"]


def test_what_is_new_is_reported_in_the_columns_of_all() -> None:
    first = moment("Pod", "a-rather-long-name-of-a-pod", "Created")
    second = moment("Pod", "b", "Ready=True", "said", ms=3000)
    console = Console(file=io.StringIO(), width=120, color_system=None, highlight=False)

    def shown(only: set[Moment] | None) -> list[str]:
        with console.capture() as captured:
            console.print(painted([first, second], 120, only), end="")
        return captured.get().splitlines()

    assert shown({second}) == shown(None)[-1:]
    assert shown(set()) == []
