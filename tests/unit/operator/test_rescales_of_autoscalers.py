"""When two statuses of an autoscaler show that it changed replicas."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from grove.api.core import HorizontalPodAutoscalerStatus
from grove.api.meta import Condition
from grove.operator.shared.cluster.autoscale_events import rescale_between

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 12, 0, 15, tzinfo=UTC)
NEVER = HorizontalPodAutoscalerStatus()


def status(current: int, desired: int, at: datetime | None) -> HorizontalPodAutoscalerStatus:
    looked = (Condition(type="AbleToScale", status="True"),)
    return HorizontalPodAutoscalerStatus(current, desired, last_scale_time=at, conditions=looked)


CASES = {
    "a rescale": (status(4, 4, NOON), status(4, 8, LATER), (4, 8)),
    "the first rescale": (status(1, 1, None), status(1, 3, NOON), (1, 3)),
    "the next look after a rescale": (status(4, 8, NOON), status(8, 8, NOON), None),
    "the same rescale again, with new metrics": (status(4, 8, NOON), status(4, 8, NOON), None),
    "a second rescale within one second": (status(4, 8, NOON), status(8, 10, NOON), (8, 10)),
    "a rescale of which only the next look was seen": (status(4, 8, NOON), status(10, 10, LATER), (8, 10)),
    "there and back while nobody watched": (status(8, 8, NOON), status(8, 8, LATER), None),
    "a person scaled, the autoscaler looked": (status(8, 8, NOON), status(5, 5, NOON), None),
    "a person scaled, the autoscaler's own scaling failed": (status(8, 8, NOON), status(5, 8, NOON), None),
    "the first status after a time not watched": (NEVER, status(8, 8, LATER), None),
}


@pytest.mark.parametrize(("old", "new", "wanted"), CASES.values(), ids=CASES)
def test_rescale_between(
    old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus, wanted: tuple[int, int] | None
) -> None:
    assert rescale_between(old, new) == wanted
