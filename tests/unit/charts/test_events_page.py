"""The page of events and conditions has every type and reason that Grove writes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from grove.api import conditions
from grove.api.conditions import EventReason
from grove.operator.podcliqueset.status import API_NOT_SERVED, FEATURES_UNAVAILABLE
from grove.operator.shared import outcome, readiness

PAGE = (Path(__file__).parents[3] / "docs/events.md").read_text()
NOT_A_NAME = {conditions.TRUE, conditions.FALSE, conditions.UNKNOWN, conditions.ALL_PODS_EXIST}
MORE = {
    FEATURES_UNAVAILABLE,
    API_NOT_SERVED,
    outcome.REPLICA_FAILURE,
    outcome.FAILED_CREATE,
    outcome.FAILED_DELETE,
    outcome.PRIORITY_CLASS_NOT_FOUND,
    readiness.ALL_REPLICAS_AVAILABLE,
    readiness.REPLICAS_NOT_AVAILABLE,
    readiness.PARTS_NOT_READY,
    readiness.WAITING_FOR_OLD_OBJECTS,
    readiness.UNSCHEDULABLE,
    readiness.UPDATE_PAUSED,
}


def constants(of: ModuleType | type) -> set[str]:
    return {value for name, value in vars(of).items() if name.isupper() and isinstance(value, str)}


def missing(names: set[str]) -> list[str]:
    return sorted(one for one in names if f"`{one}`" not in PAGE)


def test_every_condition_type_and_reason_is_in_the_page() -> None:
    names = constants(conditions) - NOT_A_NAME
    assert len(names) > 60
    assert missing(names | MORE) == []


@pytest.mark.parametrize("reason", sorted(constants(EventReason)))
def test_every_event_reason_has_a_row(reason: str) -> None:
    rows = PAGE[PAGE.index("## Events of a PodCliqueSet") :].splitlines()
    assert [row for row in rows if row.startswith(f"| `{reason}` |")]
