"""Random quantities of a fleet file."""

from __future__ import annotations

import pytest

from grove.fleet.amounts import BadAmount, number, parse, seconds, stream


@pytest.mark.parametrize(
    ("text", "unit", "mean"),
    [
        pytest.param("8", number, 8.0, id="a number"),
        pytest.param("90s", seconds, 90.0, id="a Go duration"),
        pytest.param("30d", seconds, 30 * 86400.0, id="days"),
        pytest.param("2w", seconds, 14 * 86400.0, id="weeks"),
        pytest.param("uniform(1h, 3h)", seconds, 7200.0, id="uniform"),
        pytest.param("exponential(4h)", seconds, 14400.0, id="exponential"),
        pytest.param("lognormal(1h, 0)", seconds, 3600.0, id="lognormal without spread is its median"),
        pytest.param("choice(1:3, 8:1)", number, 2.75, id="weighted choice"),
        pytest.param("choice(2, 4)", number, 3.0, id="choice without weights"),
    ],
)
def test_mean_of_a_quantity(text, unit, mean):
    assert parse(text, unit).mean == pytest.approx(mean)


@pytest.mark.parametrize(
    ("text", "unit", "why"),
    [
        pytest.param("soon", seconds, "is not a time", id="a word"),
        pytest.param("-5", number, "must not be negative", id="negative"),
        pytest.param("uniform(3h, 1h)", seconds, "first value is above", id="bounds the wrong way round"),
        pytest.param("exponential(0s)", seconds, "must be above 0", id="mean of nothing"),
        pytest.param("choice(1:0)", number, "weights", id="no weight"),
        pytest.param("normal(1, 2)", number, "is not a quantity", id="unknown distribution"),
        pytest.param("inf", number, "finite", id="infinite"),
    ],
)
def test_bad_quantity_says_why(text, unit, why):
    with pytest.raises(BadAmount, match=why):
        parse(text, unit)


def test_draws_stay_near_the_mean():
    amount = parse("lognormal(2h, 0.5)", seconds)
    rng = stream(1, "draws")
    drawn = [amount.draw(rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(amount.mean, rel=0.03)


def test_streams_of_different_names_do_not_disturb_each_other():
    alone = [stream(1, "a").random() for _ in range(1)]
    other = stream(1, "b")
    other.random()
    assert [stream(1, "a").random()] == alone
    assert stream(1, "a").random() != stream(1, "b").random()
    assert stream(1, "a").random() != stream(2, "a").random()
