"""Whether it is a gang's turn, as a table: what its pods show, and what may be done."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import pod

from grove.api.meta import Condition, Key
from grove.api.podgang import NamespacedName, PodGang, PodGangSpec, PodGangStatus, PodGroup
from grove.diagnosis.reasons import sentence
from grove.scheduler.policy.gang_life import Life, Phase
from grove.scheduler.policy.gang_state import Base, GangState, Look, readiness
from grove.scheduler.policy.waiting_queue import Stage


def state(minimum: int = 2, *, initialized: str = "True", base: str = "", **fields: Any) -> GangState:
    refs = tuple(NamespacedName(namespace="ns", name=f"p{n}") for n in range(3))
    condition = Condition(type="Initialized", status=initialized, reason="", message="")
    podgang = PodGang(
        spec=PodGangSpec(podgroups=(PodGroup(name="w", min_replicas=minimum, pod_references=refs),)),
        status=PodGangStatus(conditions=(condition,)),
    )
    made = GangState("ns/g", podgang, base=base, **fields)
    made.adopt(podgang)
    return made


def seen(bound: int = 0, reserved: int = 0, pending: int = 3, **fields: Any) -> Look:
    gated = fields.pop("gated", False)
    usable = {"w": bound + reserved + (0 if gated else pending)}
    rest = {"is_leaving": False, "has_stood": False, **fields}
    return Look(
        {"w": bound},
        {"w": bound + reserved},
        [pod(spec={"schedulingGates": [{"name": "wait"}] if gated else []})] * pending,
        usable,
        **rest,
    )


@pytest.mark.parametrize(
    ("gang", "look", "phase", "stage"),
    [
        pytest.param(state(), seen(), Phase.QUEUED, Stage.MINIMUM, id="all pods wait for a place"),
        pytest.param(state(minimum=0), seen(), Phase.QUEUED, Stage.SURPLUS, id="no minimum: as far as there is room"),
        pytest.param(state(base="ns/base"), seen(), Phase.WAITING_FOR_BASE, None, id="its base waits"),
        pytest.param(state(initialized="False"), seen(), Phase.WAITING_FOR_PODS, None, id="pods are being created"),
        pytest.param(
            state(missing={Key("ns", "p0")}), seen(pending=2), Phase.WAITING_FOR_PODS, None, id="a pod is missing"
        ),
        pytest.param(
            state(missing={Key("ns", "p0")}, returns=True),
            seen(pending=2),
            Phase.QUEUED,
            Stage.MINIMUM,
            id="it lost every pod, and those that wait fill its minimum",
        ),
        pytest.param(
            state(missing={Key("ns", "p0")}, returns=True),
            seen(pending=1),
            Phase.WAITING_FOR_PODS,
            None,
            id="it lost every pod, and those that wait are too few",
        ),
        pytest.param(state(), seen(gated=True), Phase.WAITING_FOR_GATES, None, id="its pods are gated"),
        pytest.param(state(), seen(pending=2, is_leaving=True), Phase.WAITING_FOR_PODS, None, id="a pod is leaving"),
        pytest.param(state(), seen(bound=3, pending=0), Phase.PLACED, None, id="all are on nodes"),
        pytest.param(state(), seen(bound=2, pending=1), Phase.PLACED, Stage.SURPLUS, id="one above the minimum waits"),
        pytest.param(
            state(), seen(bound=1, pending=2, has_stood=True), Phase.REPAIRING, Stage.REPAIR, id="it lost a pod"
        ),
        pytest.param(
            state(), seen(bound=1, pending=0, has_stood=True), Phase.REPAIRING, None, id="what it lost is not there yet"
        ),
        pytest.param(
            state(life=Life(phase=Phase.BINDING)), seen(reserved=3, pending=0), Phase.PLACED, None, id="on its way"
        ),
        pytest.param(state(), seen(reserved=3, pending=0), Phase.QUEUED, None, id="on its way for a gang that is gone"),
    ],
)
def test_turn(gang: GangState, look: Look, phase: Phase, stage: Stage | None) -> None:
    found = readiness(gang, look, lambda _: Base.WAITS)
    assert (found.phase, found.stage) == (phase, stage)


def test_a_scaled_gang_comes_after_minima_of_base_gangs() -> None:
    found = readiness(state(base="ns/base"), seen(), lambda _: Base.STANDS)
    assert found.stage is Stage.SCALED_MINIMUM


def test_a_base_that_does_not_exist_is_distinguished() -> None:
    found = readiness(state(base="ns/base"), seen(), lambda _: Base.ABSENT)
    assert found.verdict is not None
    assert sentence(found.verdict.why) == "waits for its base PodGang ns/base, which does not exist"
