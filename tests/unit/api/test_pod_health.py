"""The one judgement of a pod: what its phase, its conditions and its containers say together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.support import objects

from grove.api.meta import Json
from grove.api.pod import Pod, PodHealth, pod_health, unprepared_since

RUNNING: Json = {"running": {}}
LOOPING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}


def ended(code: int) -> Json:
    return {"terminated": {"exitCode": code}}


def waits(reason: str) -> Json:
    return {"waiting": {"reason": reason}}


def one(state: Json, name: str = "engine", last: Json | None = None, **facts: Any) -> Json:
    return {"name": name, "state": state, "lastState": last or {}, **facts}


def pod_with_containers(
    *main: Json,
    init: tuple[Json, ...] = (),
    policy: str = "Always",
    phase: str = "Running",
    ready: bool = False,
    sidecars: tuple[str, ...] = (),
) -> Pod:
    inits = [{"name": each["name"], "restartPolicy": "Always" if each["name"] in sidecars else ""} for each in init]
    conditions = objects.conditions(Ready="True") if ready else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": main, "initContainerStatuses": init}
    spec = {"nodeName": "n", "restartPolicy": policy, "initContainers": inits}
    return objects.pod(spec=spec, status=status)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(pod_with_containers(phase="Pending"), "starting", id="no container has a status yet"),
        pytest.param(pod_with_containers(one(RUNNING), ready=True), "ready", id="ready"),
        pytest.param(
            pod_with_containers(one(RUNNING, last=ended(1)), ready=True), "ready", id="ready again after a crash"
        ),
        pytest.param(pod_with_containers(one(RUNNING)), "starting", id="it loads before its startup probe passes"),
        pytest.param(
            pod_with_containers(one(RUNNING, started=True)), "unready", id="it started and its readiness probe fails"
        ),
        pytest.param(pod_with_containers(one(LOOPING, last=ended(1))), "crashing", id="a crash loop"),
        pytest.param(
            pod_with_containers(one(LOOPING, last=ended(0))), "crashing", id="a loop of clean ends is a crash loop too"
        ),
        pytest.param(pod_with_containers(one(RUNNING, last=ended(137))), "crashing", id="it crashed and loads again"),
        pytest.param(pod_with_containers(one(ended(2))), "crashing", id="it crashed this moment"),
        pytest.param(pod_with_containers(one(waits("ImagePullBackOff"))), "stuck", id="its image cannot be pulled"),
        pytest.param(
            pod_with_containers(one(waits("ContainerCreating"))), "starting", id="its container is being created"
        ),
        pytest.param(
            pod_with_containers(one(RUNNING), init=(one(ended(0), "fetch", last=ended(1), ready=True),)),
            "starting",
            id="an init container failed once and then succeeded",
        ),
        pytest.param(
            pod_with_containers(one(RUNNING), init=(one(ended(0), "fetch", last=ended(1)),)),
            "starting",
            id="the same from a kubelet that does not call it ready",
        ),
        pytest.param(
            pod_with_containers(init=(one(LOOPING, "fetch", last=ended(1)),), phase="Pending"),
            "crashing",
            id="an init container fails again and again",
        ),
        pytest.param(
            pod_with_containers(one(RUNNING), one(RUNNING, "proxy", last=ended(1), ready=True)),
            "starting",
            id="a second container recovered while the engine loads",
        ),
        pytest.param(
            pod_with_containers(
                one(RUNNING), init=(one(RUNNING, "proxy", last=ended(1), ready=True),), sidecars=("proxy",)
            ),
            "starting",
            id="a sidecar recovered while the engine loads",
        ),
        pytest.param(
            pod_with_containers(one(RUNNING), init=(one(RUNNING, "proxy", last=ended(1)),), sidecars=("proxy",)),
            "crashing",
            id="a sidecar crashed and is not ready since",
        ),
        pytest.param(
            pod_with_containers(one(RUNNING), init=(one(ended(1), "proxy"),), sidecars=("proxy",), policy="Never"),
            "crashing",
            id="a sidecar is restarted whatever the pod's policy",
        ),
        pytest.param(pod_with_containers(phase="Failed"), "failed", id="a failed pod"),
        pytest.param(pod_with_containers(phase="Succeeded", policy="OnFailure"), "ended", id="a pod that succeeded"),
        pytest.param(
            pod_with_containers(one(ended(1)), one(RUNNING, "proxy", ready=True), policy="Never"),
            "failed",
            id="one dead container of two is never started again",
        ),
        pytest.param(
            pod_with_containers(one(ended(0)), one(RUNNING, "proxy", ready=True), policy="Never"),
            "ended",
            id="one container of two is done",
        ),
        pytest.param(
            pod_with_containers(one(ended(0)), one(RUNNING, "proxy"), policy="OnFailure"),
            "ended",
            id="done also where failures restart",
        ),
        pytest.param(
            pod_with_containers(one(ended(1)), one(RUNNING, "proxy"), policy="OnFailure"),
            "crashing",
            id="a failure that is restarted",
        ),
        pytest.param(
            pod_with_containers(one(ended(0)), one(LOOPING, "proxy", last=ended(3)), policy="OnFailure"),
            "crashing",
            id="the worst container decides",
        ),
    ],
)
def test_health(given: Pod, want: str) -> None:
    assert pod_health(given).value == want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(pod_with_containers(ready=True), "gone", id="what a pod last said does not count"),
        pytest.param(pod_with_containers(phase="Failed"), "failed", id="a failed pod has failed wherever it was"),
        pytest.param(pod_with_containers(phase="Succeeded"), "ended", id="a finished pod needs no node"),
    ],
)
def test_a_pod_goes_with_its_node(given: Pod, want: str) -> None:
    assert pod_health(given, node_is_gone=True).value == want


def test_a_minimum_counts_what_is_ready_or_starting() -> None:
    assert {one for one in PodHealth if one.is_up} == {PodHealth.READY, PodHealth.STARTING}


@pytest.mark.parametrize("policy", ["Always", "Never"])
@pytest.mark.parametrize(
    "reason",
    ["ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "RunContainerError"],
)
def test_a_container_that_its_kubelet_cannot_start_is_not_on_its_way(reason: str, policy: str) -> None:
    for given in (
        pod_with_containers(one(waits(reason)), phase="Pending", policy=policy),
        pod_with_containers(
            one(waits("PodInitializing")), init=(one(waits(reason), "fetch"),), phase="Pending", policy=policy
        ),
    ):
        assert pod_health(given) is PodHealth.STUCK
        assert not pod_health(given).is_up


SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def prepared(status: str, *, scheduled: bool = True) -> Pod:
    conditions = [{"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": SINCE.isoformat()}]
    given = {"metadata": {"name": "p"}, "spec": {"nodeName": "n" if scheduled else ""}}
    return msgspec.convert({**given, "status": {"phase": "Pending", "conditions": conditions}}, Pod, strict=False)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(prepared("False"), SINCE, id="its volumes, devices or network are not ready"),
        pytest.param(prepared("True"), None, id="it has them, and may pull its image for an hour"),
        pytest.param(prepared("False", scheduled=False), None, id="it has no node"),
        pytest.param(pod_with_containers(phase="Pending"), None, id="a kubelet that does not say it"),
        pytest.param(pod_with_containers(ready=True), None, id="a ready pod"),
    ],
)
def test_since_when_a_node_prepares_a_pod(given: Pod, want: datetime | None) -> None:
    assert unprepared_since(given) == want
