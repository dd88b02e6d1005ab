"""The load of a serving set: requests by the hour and what instances make of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from grove.fleet.file import Load, Part
from grove.fleet.serving import Stage, requests_per_second

MONDAY, SATURDAY = (datetime(2026, 1, day, tzinfo=UTC) for day in (5, 10))


@pytest.mark.parametrize(
    ("at", "rate"),
    [
        pytest.param(MONDAY.replace(hour=15), 100.0, id="the peak hour"),
        pytest.param(MONDAY.replace(hour=3), 20.0, id="twelve hours later is the low"),
        pytest.param(MONDAY.replace(hour=9), 60.0, id="half way between"),
        pytest.param(SATURDAY.replace(hour=15), 50.0, id="half as much on a weekend"),
    ],
)
def test_requests_follow_day_and_week(at, rate):
    load = Load(peak=100, low=20, peak_hour=15, weekend=0.5)
    assert requests_per_second(load, at) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("instances", "served", "waiting", "lost"),
    [
        pytest.param(2, 600, 0, 0, id="enough instances serve all"),
        pytest.param(1, 300, 100, 200, id="one instance keeps what it can serve within the patience"),
        pytest.param(0, 0, 0, 600, id="without an instance every request is lost"),
    ],
)
def test_what_becomes_of_600_requests_in_a_minute(instances, served, waiting, lost):
    stage = Stage(Part(name="decode", requests_per_second=5.0))
    assert stage.advance(60.0, 600.0, instances, 20.0) == served
    assert (stage.waiting, stage.lost) == (waiting, lost)
    assert stage.arrived == stage.served + stage.waiting + stage.lost
