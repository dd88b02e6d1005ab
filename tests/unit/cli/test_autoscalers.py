"""Autoscalers as people see them: current and target of each metric, and the first thing that keeps them in place."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, group_of, pod, set_of

from grove.answers.answer import Answer
from grove.answers.autoscalers import measured_clique, scaler_table, with_autoscalers
from grove.api.core import HorizontalPodAutoscaler
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.cli.terminal import terminal
from grove.diagnosis.autoscalers import autoscaler_lines
from grove.diagnosis.seen import Seen
from grove.show.overview import Row

DEMO = set_of(pcs("d", clique("web", 2), clique("lead"), clique("work", 2), groups=[group("g", "lead", "work")]))


def seen(*, waiting: bool = False) -> Seen:
    labels = {"app.kubernetes.io/part-of": "d"}
    said = {"type": "Scheduled", "status": "False" if waiting else "True", "reason": "x", "message": ""}
    gang = msgspec.convert(
        {"metadata": {"name": "d-0-g-0", "namespace": "default", "labels": labels}, "status": {"conditions": [said]}},
        PodGang,
    )
    member = pod("d-0-g-1-lead", gang="d-0-g-0")
    member.metadata.labels["grove.io/podcliquescalinggroup"] = "d-0-g"
    return Seen([DEMO], [group_of(DEMO, "d-0-g")], [clique_of(DEMO, "d-0-web")], [gang], [member])


def object_metric(name: str, **values: Json) -> Json:
    return {"type": "Object", "object": {"metric": {"name": name}, **values}}


QUEUE = object_metric("grove_requests_waiting", target={"type": "AverageValue", "averageValue": "4"})
QUEUE_NOW = object_metric("grove_requests_waiting", current={"averageValue": "12500m"})
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
CPU_NOW = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 93, "averageValue": "1"}}}


def scaler(
    metrics: list[Json],
    now: list[Json] | None,
    *,
    kind: str = "PodCliqueScalingGroup",
    target: str = "d-0-g",
    current: int = 2,
    desired: int = 2,
    **conditions: tuple[str, str],
) -> HorizontalPodAutoscaler:
    said = [
        {"type": type_, "status": status, "reason": reason, "message": f"because {reason}"}
        for type_, (status, reason) in conditions.items()
    ]
    return msgspec.convert(
        {
            "metadata": {"name": target, "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": target},
                "minReplicas": 1,
                "maxReplicas": 9,
                "metrics": metrics,
            },
            "status": {
                "currentReplicas": current,
                "desiredReplicas": desired,
                "currentMetrics": now,
                "conditions": said,
            },
        },
        HorizontalPodAutoscaler,
    )


@pytest.mark.parametrize(
    ("metrics", "now", "want"),
    [
        pytest.param([QUEUE], [QUEUE_NOW], ("grove_requests_waiting 12.5/4",), id="an average a unit"),
        pytest.param([CPU], [CPU_NOW], ("cpu 93%/80%",), id="a share of what was asked for"),
        pytest.param([QUEUE, CPU], [CPU_NOW], ("grove_requests_waiting ?/4", "cpu 93%/80%"), id="one is missing"),
        pytest.param([QUEUE], None, ("grove_requests_waiting ?/4",), id="nothing was seen yet"),
        pytest.param([QUEUE], [{"type": ""}], ("grove_requests_waiting ?/4",), id="an empty entry"),
    ],
)
def test_current_and_target_of_each_metric(metrics: list[Json], now: list[Json] | None, want: tuple[str, ...]) -> None:
    (line,) = autoscaler_lines([scaler(metrics, now)], seen())
    assert line.measures == want


@pytest.mark.parametrize(
    ("found", "waiting", "want"),
    [
        pytest.param({}, False, "", id="nothing keeps it"),
        pytest.param(
            {"AbleToScale": ("False", "FailedGetScale")},
            False,
            "cannot scale: because FailedGetScale",
            id="its target cannot be read",
        ),
        pytest.param(
            {"ScalingActive": ("False", "FailedGetObjectMetric")},
            False,
            "metric missing: because FailedGetObjectMetric",
            id="a metric is missing",
        ),
        pytest.param(
            {"ScalingActive": ("False", "ScalingDisabled")},
            False,
            "off: its target has 0 replicas",
            id="switched off by zero",
        ),
        pytest.param({}, True, "waits for capacity: 1 of its gangs are not placed", id="a gang waits for room"),
        pytest.param({"ScalingLimited": ("True", "TooManyReplicas")}, False, "at its most (9)", id="at its limit"),
        pytest.param({"ScalingLimited": ("True", "TooFewReplicas")}, False, "at its least (1)", id="at its floor"),
        pytest.param(
            {"ScalingLimited": ("True", "ScaleUpLimit")},
            False,
            "scales out no faster than its behavior allows",
            id="its own rate",
        ),
        pytest.param({"ScalingLimited": ("False", "DesiredWithinRange")}, False, "", id="where it wants to be"),
        pytest.param(
            {"AbleToScale": ("True", "ScaleDownStabilized")},
            False,
            "scale-in waits until the load has been so for a while (stabilisation)",
            id="stabilisation",
        ),
        pytest.param(
            {"AbleToScale": ("True", "ScaleDownStabilized"), "ScalingLimited": ("True", "TooManyReplicas")},
            False,
            "scale-in waits until the load has been so for a while (stabilisation)",
            id="what it wanted a minute ago was above its limit",
        ),
        pytest.param(
            {"ScalingActive": ("False", "x"), "ScalingLimited": ("True", "TooManyReplicas")},
            True,
            "metric missing: because x",
            id="what a person can mend comes first",
        ),
    ],
)
def test_why_it_does_not_move(found: dict[str, tuple[str, str]], waiting: bool, want: str) -> None:
    (line,) = autoscaler_lines([scaler([QUEUE], [QUEUE_NOW], **found)], seen(waiting=waiting))
    assert line.why == want


IDLE_NOW = object_metric("grove_requests_waiting", current={"averageValue": "500m"})


@pytest.mark.parametrize(
    ("current", "now", "want"),
    [
        pytest.param(9, QUEUE_NOW, "at its most (9)", id="the load is above the target"),
        pytest.param(9, IDLE_NOW, "scale-in waits until the load has been so for a while (stabilisation)", id="idle"),
        pytest.param(8, QUEUE_NOW, "scale-in waits until the load has been so for a while (stabilisation)", id="below"),
    ],
)
def test_one_at_its_maximum_with_load_does_not_wait_to_scale_in(current: int, now: Json, want: str) -> None:
    held = {"AbleToScale": ("True", "ScaleDownStabilized"), "ScalingLimited": ("True", "TooManyReplicas")}
    (line,) = autoscaler_lines([scaler([QUEUE], [now], current=current, desired=current, **held)], seen())
    assert line.why == want


def test_one_at_its_minimum_does_not_wait_to_scale_in() -> None:
    held = {"AbleToScale": ("True", "ScaleDownStabilized"), "ScalingLimited": ("False", "DesiredWithinRange")}
    (line,) = autoscaler_lines([scaler([QUEUE], [QUEUE_NOW], current=1, desired=1, **held)], seen())
    assert line.why == "at its least (1)"


def test_autoscalers_of_anything_else_are_not_shown() -> None:
    other = scaler([CPU], [CPU_NOW])
    deployment = msgspec.structs.replace(
        other,
        spec=msgspec.structs.replace(
            other.spec,
            scale_target_ref=msgspec.structs.replace(other.spec.scale_target_ref, api_version="apps/v1"),
        ),
    )
    assert autoscaler_lines([deployment, scaler([CPU], None, target="gone")], seen()) == []


def test_autoscalers_of_sets_that_were_not_asked_for_are_not_shown() -> None:
    assert autoscaler_lines([scaler([CPU], [CPU_NOW])], dataclasses.replace(seen(), sets=[])) == []


def test_one_that_has_not_reckoned_yet_needs_nothing() -> None:
    lines = autoscaler_lines([scaler([QUEUE], None, current=2, desired=0)], seen())
    assert "2 → 0" not in drawn(scaler_table(lines, 100))


def drawn(picture: Any, width: int = 120) -> str:
    console = terminal()
    console.width = width
    with console.capture() as capture:
        console.print(picture)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_the_table_below_a_status() -> None:
    lines = autoscaler_lines(
        [
            scaler([CPU], [CPU_NOW], kind="PodClique", target="d-0-web"),
            scaler([QUEUE], [QUEUE_NOW], current=2, desired=5, ScalingLimited=("True", "TooManyReplicas")),
        ],
        seen(),
    )
    assert drawn(scaler_table(lines, 100)) == (
        "NAMESPACE  AUTOSCALER  REPLICAS  LIMITS  METRICS                        WHY IT DOES NOT MOVE\n"
        "default    d-0-g       2 → 5     1–9     grove_requests_waiting 12.5/4  at its most (9)\n"
        "default    d-0-web     2         1–9     cpu 93%/80%"
    )
    assert drawn(scaler_table(lines, 70)).startswith("AUTOSCALER  REPLICAS  METRICS"), "what may go goes first"


def test_a_row_of_a_set_has_its_autoscalers() -> None:
    row = Row("default", "d", "ready", "", 1, 1, 1, 4, 4, 0, 0, 0, 0, (), NOW, "nvidia.com/gpu")
    other = Row("default", "e", "ready", "", 1, 1, 1, 4, 4, 0, 0, 0, 0, (), NOW, "nvidia.com/gpu")
    lines = autoscaler_lines([scaler([QUEUE], [QUEUE_NOW])], seen())
    found = with_autoscalers(Answer([row, other], lambda width: "picture"), lines, everywhere=True)
    assert [one["autoscalers"] for one in found.data] == [
        [
            {
                "name": "d-0-g",
                "replicas": 2,
                "desired": 2,
                "minReplicas": 1,
                "maxReplicas": 9,
                "metrics": ["grove_requests_waiting 12.5/4"],
                "why": "",
            }
        ],
        [],
    ]
    bare = Answer([row], lambda width: "picture")
    assert with_autoscalers(bare, [], everywhere=True) is bare


def test_which_clique_is_measured() -> None:
    assert measured_clique(DEMO, DEMO) == "web"
    assert measured_clique(group_of(DEMO, "d-0-g"), DEMO) == "lead"
    assert measured_clique(clique_of(DEMO, "d-0-web"), DEMO) == ""
