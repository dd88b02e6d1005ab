"""The status a PodGang should have, from the verdict and its pods; and that saying it twice changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from grove.api.meta import Condition, Key, ObjectMeta, find_condition
from grove.api.podgang import PodGang, PodGangSpec, PodGangStatus, PodGroup
from grove.diagnosis.reasons import sentence
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import Life
from grove.scheduler.policy.gang_state import GangState, Verdict
from grove.scheduler.policy.podgang_status import status_patch, wanted_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INITIALIZED = Condition(
    type="Initialized", status="True", reason="PodGangPodsCreated", message="", last_transition_time=NOW
)
PLACED = Verdict(True, "GangScheduled", Reason("Placed", numbers={"pods": 3, "score": 1}))
REFUSED = Verdict(False, "Unschedulable", Reason("Wants", "GPUs", {"wanted": 8, "free": 4}))


def state(**fields: Any) -> GangState:
    groups = (PodGroup(name="a", min_replicas=2), PodGroup(name="b", min_replicas=1))
    podgang = PodGang(spec=PodGangSpec(podgroups=groups), status=PodGangStatus(conditions=(INITIALIZED,)))
    made = GangState("ns/g", podgang)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def status(
    gang: GangState,
    verdict: Verdict | None,
    standing: tuple[int, int],
    ready: tuple[int, int] = (0, 0),
    before: PodGangStatus | None = None,
) -> PodGangStatus:
    counts = [dict(zip("ab", numbers, strict=True)) for numbers in (standing, ready)]
    return wanted_status(gang, verdict, before or gang.podgang.status, counts[0], counts[1], NOW, sentence)


def said(found: PodGangStatus, type_: str) -> tuple[str, str, str] | None:
    condition = find_condition(found.conditions, type_)
    return None if condition is None else (condition.status, condition.reason, condition.message)


@pytest.mark.parametrize(
    ("verdict", "standing", "ready", "phase", "scheduled", "is_ready"),
    [
        pytest.param(None, (0, 0), (0, 0), "Pending", None, None, id="nothing decided"),
        pytest.param(REFUSED, (0, 0), (0, 0), "Pending", ("False", "Unschedulable"), None, id="refused"),
        pytest.param(PLACED, (0, 0), (0, 0), "Pending", None, None, id="chosen and not bound"),
        pytest.param(PLACED, (2, 1), (0, 0), "Starting", ("True", "GangScheduled"), "False", id="bound"),
        pytest.param(PLACED, (2, 1), (2, 0), "Starting", ("True", "GangScheduled"), "False", id="one group ready"),
        pytest.param(PLACED, (3, 1), (2, 1), "Running", ("True", "GangScheduled"), "True", id="minima ready"),
        pytest.param(None, (2, 1), (0, 0), "Starting", ("True", "GangScheduled"), "False", id="bound before our time"),
        pytest.param(
            REFUSED, (2, 1), (0, 0), "Starting", ("True", "GangScheduled"), "False", id="bound by somebody else"
        ),
    ],
)
def test_phase_and_conditions(
    verdict: Verdict | None,
    standing: tuple[int, int],
    ready: tuple[int, int],
    phase: str,
    scheduled: tuple[str, str] | None,
    is_ready: str | None,
) -> None:
    found = status(state(), verdict, standing, ready)
    assert found.phase == phase
    told = said(found, "Scheduled")
    assert (told[:2] if told else None) == scheduled
    told = said(found, "Ready")
    assert (told[0] if told else None) == is_ready
    assert find_condition(found.conditions, "Initialized") == INITIALIZED


@pytest.mark.parametrize(
    ("maker", "missing", "verdict", "told"),
    [
        pytest.param("grove-operator", 0, PLACED, True, id="with the first word about a gang of the operator"),
        pytest.param("grove-operator", 0, None, False, id="not by itself"),
        pytest.param("grove-operator", 1, REFUSED, False, id="not while a pod is missing"),
        pytest.param("", 0, PLACED, False, id="not of a gang that somebody else made"),
    ],
)
def test_that_all_pods_exist_is_said_for_the_operator(
    maker: str, missing: int, verdict: Verdict | None, told: bool
) -> None:
    made = state(group_of={Key("ns", "p"): "a"}, missing={Key("ns", f"m{n}") for n in range(missing)})
    meta = ObjectMeta(name="g", labels={"app.kubernetes.io/managed-by": maker})
    made.podgang = structs.replace(made.podgang, metadata=meta, status=PodGangStatus())

    found = status(made, verdict, (2, 1) if verdict is PLACED else (0, 0))

    assert said(found, "Initialized") == (("True", "PodGangPodsCreated", "all pods exist") if told else None)


def test_lost_pods_are_reported_with_numbers() -> None:
    found = status(state(life=Life(stood=True)), None, (1, 1))
    assert said(found, "Scheduled") == ("False", "PodsLost", "pods are missing since the gang was placed: a 1/2")
    assert found.phase == "Pending"


def test_saying_it_again_changes_nothing() -> None:
    first = status(state(score=0.5), PLACED, (2, 1), (2, 1))
    later = wanted_status(
        state(score=0.5), PLACED, first, {"a": 2, "b": 1}, {"a": 2, "b": 1}, NOW + timedelta(hours=1), sentence
    )
    assert later == first


def test_the_score_is_kept_once_written() -> None:
    first = status(state(score=0.5), PLACED, (2, 1))
    assert first.placement_score == 0.5
    assert status(state(), None, (2, 1), before=first).placement_score == 0.5


def test_a_victim_is_marked_until_it_stands_again() -> None:
    marked = status(state(life=Life(victim_of="evicted for ns/other")), None, (2, 1))
    assert said(marked, "DisruptionTarget") == ("True", "PreemptedByHigherPriority", "evicted for ns/other")
    gone = status(state(), None, (0, 0), before=marked)
    assert said(gone, "DisruptionTarget") == said(marked, "DisruptionTarget")
    again = status(state(), PLACED, (2, 1), before=gone)
    assert said(again, "DisruptionTarget") is None


def test_the_patch_holds_required_fields_even_when_empty_and_the_version_it_was_made_from() -> None:
    podgang = PodGang(metadata=PodGang().metadata.__class__(name="g", resource_version="7"))
    patch = status_patch(podgang, PodGangStatus(phase="Pending", conditions=(INITIALIZED,)))
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["status"]["conditions"] == [
        {
            "type": "Initialized",
            "status": "True",
            "reason": "PodGangPodsCreated",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
