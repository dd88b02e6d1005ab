"""Merge patches between what is and what shall be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api.meta import Condition
from grove.api.patch import apply_merge_patch, merge_patch, struct_patch, to_json
from grove.api.podcliqueset import PodCliqueSetStatus, PodCliqueSetUpdateProgress, ReplicaUpdate
from grove.api.podgang import PodGang, PodGangSpec, PodGangStatus, PodGroup
from grove.api.topology import SchedulerTopologyStatus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="nothing changed"),
        pytest.param({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}, id="changed and new"),
        pytest.param({"a": 1}, {}, {"a": None}, id="gone"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}, id="gone inside"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="lists are replaced whole"),
        pytest.param({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a value becomes an object"),
    ],
)
def test_merge_patch(before: Any, after: Any, want: Any) -> None:
    assert merge_patch(before, after) == want
    assert apply_merge_patch(before, want) == after


OBJECT = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
TOP = st.dictionaries(st.sampled_from("abcd"), OBJECT, max_size=4)


@given(TOP, TOP)
def test_applying_a_patch_gives_what_it_was_made_for(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply_merge_patch(before, merge_patch(before, after)) == after


@pytest.mark.parametrize(
    ("struct", "want"),
    [
        pytest.param(
            PodCliqueSetStatus(),
            {"updatedReplicas": 0, "availableReplicas": 0},
            id="required numbers are written as zero",
        ),
        pytest.param(ReplicaUpdate(), {"replicaIndex": 0}, id="replica 0 has an index"),
        pytest.param(
            SchedulerTopologyStatus(scheduler_name="s", topology_reference="t"),
            {"schedulerName": "s", "topologyReference": "t", "inSync": False},
            id="a required false is written",
        ),
        pytest.param(
            Condition(type="T", status="True", reason="R", last_transition_time=NOON + timedelta(microseconds=5)),
            {"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z"},
            id="a condition has a message even if it is empty, and whole seconds",
        ),
        pytest.param(
            PodGang(spec=PodGangSpec(podgroups=(PodGroup(name="a", min_replicas=1),))).spec,
            {"podgroups": [{"name": "a", "podReferences": [], "minReplicas": 1}]},
            id="a gang without pods yet has an empty list of them",
        ),
        pytest.param(
            PodGangStatus(phase="Running", placement_score=0.0),
            {"phase": "Running", "placementScore": 0.0},
            id="a score of 0",
        ),
    ],
)
def test_to_json(struct: Any, want: Any) -> None:
    assert to_json(struct) == want


def test_a_status_patch_holds_what_changed_and_nothing_else() -> None:
    before = PodCliqueSetStatus(
        replicas=2, available_replicas=2, update_progress=PodCliqueSetUpdateProgress(update_started_at=NOON)
    )
    after = PodCliqueSetStatus(
        replicas=2, available_replicas=0, update_progress=PodCliqueSetUpdateProgress(updated_pod_cliques_count=1)
    )
    assert struct_patch(before, after) == {
        "availableReplicas": 0,
        "updateProgress": {"updateStartedAt": None, "updatedPodCliquesCount": 1},
    }
    assert struct_patch(after, after) == {}
