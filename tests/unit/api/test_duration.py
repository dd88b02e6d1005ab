"""Go durations: read, written in Go's own spelling, and the same span back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api import duration
from grove.api.duration import InvalidDuration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        pytest.param("4h0m0s", 14_400_000_000_000, id="the default termination delay"),
        pytest.param("1h30m", 5_400_000_000_000, id="two units"),
        pytest.param("1.5s", 1_500_000_000, id="a fraction"),
        pytest.param(".5m", 30_000_000_000, id="a fraction without a leading zero"),
        pytest.param("1.m", 60_000_000_000, id="a point without a fraction"),
        pytest.param("250ms", 250_000_000, id="milliseconds are not minutes"),
        pytest.param("3us", 3000, id="microseconds in plain letters"),
        pytest.param("3µs", 3000, id="microseconds with the micro sign"),
        pytest.param("3μs", 3000, id="microseconds with the Greek letter"),
        pytest.param("0", 0, id="zero needs no unit"),
        pytest.param("-1m", -60_000_000_000, id="negative"),
        pytest.param("+1m", 60_000_000_000, id="an explicit plus"),
        pytest.param("0.0000000001s", 0, id="less than a nanosecond is cut off"),
        pytest.param("1m1m", 120_000_000_000, id="a unit twice, which Go takes too"),
    ],
)
def test_parse(text: str, nanoseconds: int) -> None:
    assert duration.parse_ns(text) == nanoseconds


# Python reads no number of more than 4300 digits.
LONG = [pytest.param("1" * 5000 + "s", id="5000 digits"), pytest.param(f"1.{'1' * 5000}s", id="5000 decimals")]


@pytest.mark.parametrize("text", ["", "5", "s", "1 s", "1d", "1h-1m", "-", ".s", "1e3s", "٣s", "3000000h", *LONG])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidDuration):
        duration.parse_ns(text)


@pytest.mark.parametrize(
    ("span", "want"),
    [
        pytest.param(timedelta(hours=4), "4h0m0s", id="hours"),
        pytest.param(timedelta(seconds=90), "1m30s", id="minutes"),
        pytest.param(timedelta(seconds=1, milliseconds=500), "1.5s", id="a fraction of a second"),
        pytest.param(timedelta(milliseconds=250), "250ms", id="less than a second"),
        pytest.param(timedelta(microseconds=1), "1µs", id="microseconds"),
        pytest.param(timedelta(0), "0s", id="nothing"),
        pytest.param(timedelta(seconds=-1), "-1s", id="negative"),
    ],
)
def test_format(span: timedelta, want: str) -> None:
    assert duration.format(span) == want


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_nanoseconds_come_back(nanoseconds: int) -> None:
    assert duration.parse_ns(duration.format_ns(nanoseconds)) == nanoseconds


@given(st.timedeltas(timedelta(days=-90_000), timedelta(days=90_000)))
def test_spans_come_back(span: timedelta) -> None:
    assert duration.parse(duration.format(span)) == span
