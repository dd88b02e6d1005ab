"""What the loop remembers about units: one record for each, and nothing after it is dropped."""

from __future__ import annotations

import pytest

from grove.scheduler.loop.state.unit import Units


def test_a_unit_has_one_record() -> None:
    units = Units()
    units.of("ns/a").protected_by = ("budget",)
    assert units.of("ns/a").protected_by == ("budget",)
    assert [unit.name for unit in units] == ["ns/a"]


def test_reading_creates_no_record() -> None:
    units = Units()
    assert units.find("ns/a") is None
    assert list(units) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_unit_that_is_dropped_is_forgotten_entirely(times: int) -> None:
    units = Units()
    before = units.of("ns/a")
    before.ready_since_s, before.lacking_since_s = 1.0, 7.0
    for _ in range(times):
        units.drop("ns/a")
    assert units.find("ns/a") is None
    after = units.of("ns/a")
    assert (after.ready_since_s, after.lacking_since_s) == (None, None)


def test_a_late_answer_for_a_dropped_unit_does_not_bring_it_back() -> None:
    units = Units()
    late = units.of("ns/a")
    units.drop("ns/a")
    late.lacking_since_s = 3.0
    assert units.find("ns/a") is None
