"""Writing a condition: touched only if something changed, transition time moved only with the status."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from grove.api.conditions import with_condition, without_condition
from grove.api.meta import Condition

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OTHER = Condition(type="Other", status="True", reason="Because", last_transition_time=THEN)


def condition(status: str = "True", reason: str = "Drift", message: str = "m", since: datetime = THEN) -> Condition:
    return Condition(type="C", status=status, reason=reason, message=message, last_transition_time=since)


@pytest.mark.parametrize(
    ("before", "said", "want"),
    [
        pytest.param((), ("True", "Drift", "m"), (condition(since=NOW),), id="a new one starts now"),
        pytest.param(
            (condition(), OTHER), ("True", "Drift", "m"), (condition(), OTHER), id="the same again is no change"
        ),
        pytest.param(
            (condition(), OTHER),
            ("True", "Drift", "n"),
            (condition(message="n"), OTHER),
            id="a new message keeps the time",
        ),
        pytest.param(
            (condition(), OTHER), ("True", "Why", "m"), (condition(reason="Why"), OTHER), id="and so does a new reason"
        ),
        pytest.param(
            (condition(), OTHER),
            ("False", "InSync", "m"),
            (condition(status="False", reason="InSync", since=NOW), OTHER),
            id="a new status moves the time and keeps the place",
        ),
    ],
)
def test_with_condition(before: tuple[Condition, ...], said: tuple[str, str, str], want: tuple[Condition, ...]) -> None:
    assert with_condition(before, "C", *said, NOW) == want


def test_an_unchanged_condition_gives_the_very_same_tuple() -> None:
    before = (condition(),)
    assert with_condition(before, "C", "True", "Drift", "m", NOW) is before
    assert without_condition(before, "D") is before


def test_a_newer_generation_is_a_change() -> None:
    (after,) = with_condition((condition(),), "C", "True", "Drift", "m", NOW, observed_generation=3)
    assert (after.observed_generation, after.last_transition_time) == (3, THEN)


def test_without_condition_removes_one() -> None:
    assert without_condition((condition(), OTHER), "C") == (OTHER,)
