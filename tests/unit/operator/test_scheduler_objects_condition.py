"""A set names its gangs whose scheduler objects differ from them, and says nothing while all is well."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.support import objects

from grove.api.meta import Condition
from grove.api.podgang import PodGang
from grove.operator.podgang.status import with_gang_conditions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def gang_with_condition(name: str, status: str = "", reason: str = "", spread: str = "") -> PodGang:
    said = [{"type": "SchedulerObjectsReady", "status": status, "reason": reason, "message": "why"}] if status else []
    not_honoured = {"type": "TopologyNotHonoured", "status": "True", "reason": "TopologyNotHonoured", "message": spread}
    said += [not_honoured] if spread else []
    return objects.gang(name, status={"conditions": said})


def said(conditions: tuple[Condition, ...]) -> list[tuple[str, str, str, str]]:
    return [(one.type, one.status, one.reason, one.message) for one in conditions]


@pytest.mark.parametrize(
    ("gangs", "want"),
    [
        pytest.param([], None, id="no gangs"),
        pytest.param([gang_with_condition("a")], None, id="a scheduler that reads PodGangs itself"),
        pytest.param([gang_with_condition("a", "True", "Told")], None, id="told"),
        pytest.param(
            [gang_with_condition("a", "False", "PodsHeld"), gang_with_condition("b", "False", "Replacing")],
            None,
            id="on its way",
        ),
        pytest.param(
            [gang_with_condition("a", "True", "Told"), gang_with_condition("b", "False", "NameConflict")],
            ("False", "NameConflict", "b: why"),
            id="one of two",
        ),
        pytest.param(
            [gang_with_condition("a", "True", "GangNotEnforced"), gang_with_condition("b", "False", "NameConflict")],
            ("False", "NameConflict", "b: why"),
            id="not told at all is worse than not placed as told",
        ),
        pytest.param(
            [gang_with_condition(f"g{n}", "False", "GangsNotOffered") for n in (4, 3, 2, 1, 0)],
            ("False", "GangsNotOffered", "g0, g1, g2 and 2 more: why"),
            id="many alike",
        ),
    ],
)
def test_what_a_set_says(gangs: list[PodGang], want: tuple[str, str, str] | None) -> None:
    found = with_gang_conditions((), gangs, 1, NOW)
    assert said(found) == ([("SchedulerObjectsReady", *want)] if want else [])


def test_it_goes_when_the_trouble_is_over() -> None:
    before = with_gang_conditions((), [gang_with_condition("a", "False", "NameConflict")], 1, NOW)
    assert with_gang_conditions(before, [gang_with_condition("a", "True", "Told")], 1, NOW) == ()


def test_a_topology_that_was_not_kept_is_said_beside_it_and_goes_with_it() -> None:
    gangs = [
        gang_with_condition("b", "False", "NameConflict", "two racks"),
        gang_with_condition("a", "True", "Told", "three racks"),
    ]
    found = with_gang_conditions((), gangs, 1, NOW)
    assert said(found) == [
        ("SchedulerObjectsReady", "False", "NameConflict", "b: why"),
        ("TopologyNotHonoured", "True", "TopologyNotHonoured", "a, b: three racks"),
    ]
    assert (
        with_gang_conditions(found, [gang_with_condition("a", "True", "Told"), gang_with_condition("b")], 1, NOW) == ()
    )
