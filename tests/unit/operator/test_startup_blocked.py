"""Which pods show that they wait, for which clique, and when they show that the wait is over."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec import structs
from tests.support.observed import NOW, pod

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.operator.pod.plan import blocked_changes, condition_patch, reached_in_gang

SCHEDULED: Json = {"type": "PodScheduled", "status": "True"}
INITIALIZED: Json = {"type": "Initialized", "status": "True"}
RUNS: Json = {"name": "main", "state": {"running": {}}}
CRASHED: Json = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
MINIMUMS = (("d-0-a", 2), ("d-0-b", 1))


def blocked(status: str, message: str = "d-0-a=1/2, d-0-b=1/1") -> Json:
    reason = "PrerequisitesNotReady" if status == "True" else "PrerequisitesReady"
    since = (NOW - timedelta(minutes=5)).isoformat()
    said = {"type": "PodStartupBlocked", "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": since}


def waiting(*conditions: Json, gate: bool = True, phase: str = "Pending", deleting: bool = False) -> Pod:
    found = pod("d-0-c", node="n", deleting=deleting)
    containers = [{"name": key.STARTUP_CONTAINER}] if gate else []
    spec = {"nodeName": "n", "initContainers": containers}
    return msgspec.convert(
        {
            "metadata": msgspec.to_builtins(found.metadata),
            "spec": spec,
            "status": {"phase": phase, "conditions": list(conditions)},
        },
        Pod,
    )


@pytest.mark.parametrize(
    ("one", "ready", "want"),
    [
        pytest.param(
            waiting(SCHEDULED),
            {"d-0-a": 1, "d-0-b": 1},
            ("True", "d-0-a=1/2, d-0-b=1/1", True),
            id="it waits, and says for whom",
        ),
        pytest.param(waiting(SCHEDULED, blocked("True")), {"d-0-a": 1, "d-0-b": 1}, None, id="it said so already"),
        pytest.param(
            waiting(SCHEDULED, blocked("True")),
            {"d-0-a": 1},
            ("True", "d-0-a=1/2, d-0-b=0/1", False),
            id="the numbers changed",
        ),
        pytest.param(
            waiting(SCHEDULED, blocked("True")),
            {"d-0-a": 2, "d-0-b": 1},
            ("False", "d-0-a=2/2, d-0-b=1/1", True),
            id="the wait is over",
        ),
        pytest.param(waiting(SCHEDULED), {"d-0-a": 2, "d-0-b": 1}, None, id="it never had to wait"),
        pytest.param(waiting(SCHEDULED, blocked("False")), {"d-0-a": 2, "d-0-b": 1}, None, id="that is said once"),
        pytest.param(
            waiting(SCHEDULED, INITIALIZED, blocked("True")),
            {},
            ("False", "d-0-a=0/2, d-0-b=0/1", True),
            id="it started: parents that fail later do not concern it",
        ),
        pytest.param(waiting(SCHEDULED, INITIALIZED), {}, None, id="it started without having waited"),
        pytest.param(waiting(SCHEDULED, phase="Failed"), {}, None, id="it is over"),
        pytest.param(waiting(), {}, None, id="nothing is known of it yet"),
        pytest.param(waiting(SCHEDULED, gate=False), {}, None, id="it does not wait for anyone"),
        pytest.param(waiting(SCHEDULED, deleting=True), {}, None, id="it is going"),
    ],
)
def test_tellings(one: Pod, ready: dict[str, int], want: tuple[str, str, bool] | None) -> None:
    found = blocked_changes([one], MINIMUMS, ready)
    assert [(t.status, t.message, t.turned) for t in found] == ([want] if want else [])


OPEN: Json = {"type": "grove.io/startup-order", "status": "True"}
SHUT: Json = {"type": "grove.io/startup-order", "status": "False"}
READY = {"d-0-a": 2, "d-0-b": 1}


@pytest.mark.parametrize(
    ("one", "ready", "want"),
    [
        pytest.param(waiting(SCHEDULED), READY, ("False", "True"), id="it had no need to wait, but the gate has"),
        pytest.param(waiting(SCHEDULED), {}, ("True", "False"), id="it waits"),
        pytest.param(waiting(SCHEDULED, blocked("True"), SHUT), READY, ("False", "True"), id="the wait is over"),
        pytest.param(waiting(SCHEDULED, blocked("False"), OPEN), READY, None, id="that is said once"),
        pytest.param(waiting(SCHEDULED, blocked("False")), READY, ("False", "True"), id="only the gate was lost"),
        pytest.param(waiting(SCHEDULED, blocked("False"), OPEN), {}, ("True", "False"), id="a parent fell back early"),
        pytest.param(
            waiting(SCHEDULED, INITIALIZED, blocked("False"), OPEN),
            {},
            None,
            id="it started: parents that fail later do not make it unready",
        ),
        pytest.param(
            waiting(SCHEDULED, INITIALIZED, blocked("True"), SHUT),
            {},
            ("False", "True"),
            id="it started before we looked",
        ),
    ],
)
def test_a_readiness_gate_says_the_same_the_other_way_round(
    one: Pod, ready: dict[str, int], want: tuple[str, str] | None
) -> None:
    gate = ({"conditionType": "grove.io/startup-order"},)
    gated = structs.replace(one, spec=structs.replace(one.spec, readiness_gates=gate))
    found = blocked_changes([gated], MINIMUMS, ready)
    steps = [step["value"] for telling in found for step in condition_patch(telling, NOW) if step["op"] != "test"]
    said = {step["type"]: step["status"] for step in steps}
    assert said == ({"PodStartupBlocked": want[0], "grove.io/startup-order": want[1]} if want else {})


def test_the_first_telling_is_added_behind_what_others_said() -> None:
    (telling,) = blocked_changes([waiting(SCHEDULED)], MINIMUMS, {})
    (step,) = condition_patch(telling, NOW)
    assert (step["op"], step["path"]) == ("add", "/status/conditions/-")
    assert step["value"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("ready", "since"),
    [
        pytest.param({"d-0-b": 0}, "2026-01-01T11:55:00Z", id="other words keep the time"),
        pytest.param({"d-0-a": 2, "d-0-b": 1}, "2026-01-01T12:00:00Z", id="a turn is dated"),
    ],
)
def test_a_later_telling_replaces_only_its_own(ready: dict[str, int], since: str) -> None:
    (telling,) = blocked_changes([waiting(SCHEDULED, blocked("True"))], MINIMUMS, ready)
    test, step = condition_patch(telling, NOW)
    assert test == {"op": "test", "path": "/status/conditions/1/type", "value": "PodStartupBlocked"}
    assert (step["op"], step["path"], step["value"]["lastTransitionTime"]) == ("replace", "/status/conditions/1", since)


def test_only_pods_of_the_same_gang_count() -> None:
    found = [
        pod("a", 0, ready=True, gang="g"),
        pod("a", 1, ready=True, gang="h"),
        pod("a", 2, ready=True, gang="g", deleting=True),
        pod("a", 3, gang="g"),
    ]
    assert [reached_in_gang(found, "g", one) for one in ("Ready", "Started", "Created")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("status", "node", "want"),
    [
        pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, "n", [1, 1, 1], id="ready"),
        pytest.param({"containerStatuses": [RUNS, RUNS]}, "n", [0, 1, 1], id="its containers run"),
        pytest.param({"containerStatuses": [RUNS, CRASHED]}, "n", [0, 0, 1], id="one container does not run"),
        pytest.param({}, "n", [0, 0, 1], id="it has a node"),
        pytest.param({}, "", [0, 0, 0], id="it has no node"),
        pytest.param({"phase": "Failed"}, "n", [0, 0, 0], id="it is over"),
    ],
)
def test_a_pod_counts_for_the_start_conditions_that_it_satisfies(status: Json, node: str, want: list[int]) -> None:
    found = msgspec.convert(
        {"metadata": {"labels": {key.POD_GANG: "g"}}, "spec": {"nodeName": node}, "status": status}, Pod
    )
    assert [reached_in_gang([found], "g", one) for one in ("Ready", "Started", "Created")] == want


def test_a_pod_that_waits_for_another_condition_says_which() -> None:
    (change,) = blocked_changes([waiting(SCHEDULED)], MINIMUMS, {"d-0-a": 1}, "Started")
    assert change.message == "d-0-a=1/2 Started, d-0-b=0/1 Started"
