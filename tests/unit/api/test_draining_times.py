"""What annotations say about draining, also those that no admission checked."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from tests.support import objects

from grove.api.core import Pod
from grove.api.draining import drain_s, draining_until, is_serving, replica_drain_s
from grove.api.labels import DRAIN_SECONDS, DRAINING
from grove.api.meta import Json, ObjectMeta
from grove.api.podcliqueset import PodCliqueSet


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param([{}, {}], 0, id="nothing is said"),
        pytest.param([{DRAIN_SECONDS: "30"}, {DRAIN_SECONDS: "60"}], 30, id="the first counts"),
        pytest.param([{DRAIN_SECONDS: "0"}, {DRAIN_SECONDS: "60"}], 0, id="a part without draining"),
        pytest.param([{}, {DRAIN_SECONDS: " 60 "}], 60, id="the set's"),
        pytest.param([{DRAIN_SECONDS: "soon"}], 0, id="nonsense"),
        pytest.param([{DRAIN_SECONDS: "31536000"}], 3600, id="a year is an hour"),
    ],
)
def test_seconds(annotations: list[dict[str, str]], want: int) -> None:
    assert drain_s(*annotations) == want


@pytest.mark.parametrize(
    ("mark", "want"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05", None),
        ("true", None),
    ],
)
def test_the_end_of_a_mark(mark: str, want: datetime | None) -> None:
    assert draining_until(Pod(metadata=ObjectMeta(annotations={DRAINING: mark}))) == want


def draining_pod(*, ready: bool, containers: bool, mark: bool) -> Pod:
    status = {
        "conditions": objects.conditions(Ready=str(ready)),
        "containerStatuses": [{"name": "main", "ready": containers}],
    }
    return objects.pod(status=status, annotations={DRAINING: "2026-01-02T03:04:05Z"} if mark else {})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(draining_pod(ready=True, containers=True, mark=False), True, id="ready"),
        pytest.param(draining_pod(ready=False, containers=True, mark=True), True, id="not ready because it drains"),
        pytest.param(draining_pod(ready=False, containers=True, mark=False), False, id="not ready for another reason"),
        pytest.param(draining_pod(ready=False, containers=False, mark=True), False, id="broken while it drains"),
    ],
)
def test_a_pod_that_may_have_requests(one: Pod, want: bool) -> None:
    assert is_serving(one) is want


def test_a_replica_of_the_set_drains_as_long_as_its_slowest_part() -> None:
    own: Json = {"annotations": {DRAIN_SECONDS: "90"}}
    groups = [{"name": "g", "cliqueNames": ["m"]} | own]
    template: Json = {"cliques": [{"name": "a"}, {"name": "m"}], "podCliqueScalingGroups": groups}
    found: Json = {"metadata": {"annotations": {DRAIN_SECONDS: "20"}}, "spec": {"template": template}}
    pcs = msgspec.convert(found, PodCliqueSet)
    assert replica_drain_s(pcs) == 90
