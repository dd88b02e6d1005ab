"""The load of a story: a model of engines in which nothing is lost, and the arithmetic of autoscalers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api.meta import Json
from grove.demo.scaling import STABLE_S, Proposal, Recommender, proposal
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.sim.load import Engine, Pipeline, Stage, engine_page, front_page

moments = st.lists(st.tuples(st.floats(0, 200), st.integers(0, 12)), min_size=1, max_size=40)


@given(moments, st.floats(0.1, 10), st.integers(1, 32))
def test_no_request_is_lost_and_no_place_is_taken_twice(
    moments: list[tuple[float, int]], service_s: float, batch: int
) -> None:
    stage = Stage(Engine(service_s, batch))
    for requests, units in moments:
        served = stage.advance(1.0, requests, units)
        assert served >= 0
        assert stage.waiting >= -1e-6
        assert stage.running <= units * batch + 1e-6
        assert stage.arrived == pytest.approx(stage.waiting + stage.running + stage.done, abs=1e-3)
        assert 0 <= stage.usage(units) <= 1


def test_more_than_it_can_serve_waits_and_a_second_unit_ends_that() -> None:
    stage = Stage(Engine(service_s=2.0, batch=10))
    for _ in range(60):
        stage.advance(1.0, 8.0, 1)
    assert stage.waiting == pytest.approx(60 * 8 - 10 - 59 * 5, abs=10), "it serves five a second"
    assert stage.usage(1) == 1.0
    for _ in range(600):
        stage.advance(1.0, 8.0, 2)
    assert stage.waiting == pytest.approx(0, abs=1e-6)
    assert stage.usage(2) == pytest.approx(0.8, abs=0.01)


def test_what_one_stage_served_is_the_load_of_the_next_and_the_front_measures_the_whole() -> None:
    line = Pipeline({"prefill": Stage(Engine(1.0, 10)), "decode": Stage(Engine(4.0, 10))}, requests_per_second=2.0)
    line.advance(300.0, {"prefill": 1, "decode": 1})
    assert line.stages["decode"].arrived == pytest.approx(line.stages["prefill"].done)
    assert line.in_system == pytest.approx(2.0 * 1.0 + 2.0 * 4.0, rel=0.05)
    assert line.latency.counts[-1] == pytest.approx(line.stages["decode"].done)
    assert line.latency.counts[3] == 0, "nobody was served within two and a half seconds"
    assert line.latency.counts[4] == pytest.approx(line.latency.counts[-1]), "everybody within five"


def test_pages_are_read_as_those_of_engines() -> None:
    stage = Stage(Engine(1.0, 10))
    stage.advance(1.0, 30.0, 2)
    gauges, histograms = numbers_of(scan(engine_page(stage, 2, stage.latency), wanted_names(())))
    assert gauges["grove_requests_waiting"].value == 5.0, "half of those that wait"
    assert gauges["grove_kv_cache_usage"].value == 1.0
    assert histograms["e2e"][1][math.inf] == 0
    line = Pipeline({"a": stage})
    gauges, _ = numbers_of(scan(front_page(line, 1, line.latency), wanted_names(())))
    assert (gauges["grove_requests_waiting"].value, gauges["grove_requests_waiting"].rank) == (10.0, 1)


@pytest.mark.parametrize("wrong", [{"service_s": 0.0}, {"batch": 0}])
def test_an_engine_serves_something(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least one request"):
        Engine(**wrong)  # type: ignore[arg-type]


def metric(type_: str, **target: str) -> Json:
    return {"type": type_, type_.lower(): {"metric": {"name": "m"}, "target": target}}


@pytest.mark.parametrize(
    ("spec", "replicas", "value", "want"),
    [
        pytest.param(metric("Object", averageValue="4"), 1, 40.0, 10, id="a queue of forty at four each"),
        pytest.param(metric("Object", averageValue="4"), 10, 41.0, 10, id="within a tenth nothing moves"),
        pytest.param(metric("Object", averageValue="4"), 0, 5.0, 2, id="from zero"),
        pytest.param(metric("External", averageValue="4"), 3, 0.0, 0, id="nothing waits"),
        pytest.param(metric("Object", value="700m"), 2, 1.0, 3, id="a share above its target"),
        pytest.param(metric("Object", value="700m"), 2, 0.72, 2, id="a share near its target"),
        pytest.param(metric("Pods", averageValue="10"), 2, 20.0, 4, id="a mean of pods: units, not pods"),
        pytest.param(metric("Object", averageValue="4"), 3, None, None, id="nobody says it"),
    ],
)
def test_what_a_metric_asks_for(spec: Json, replicas: int, value: float | None, want: int | None) -> None:
    assert proposal(spec, replicas, value).replicas == want


def asked(*numbers: int | None) -> list[Proposal]:
    return [Proposal(f"m{index}", number) for index, number in enumerate(numbers)]


def test_the_largest_proposal_counts_within_the_limits() -> None:
    assert Recommender().decide(asked(3, 5), 2, 1, 4, 0.0)[0] == 4
    assert Recommender().decide(asked(0), 2, 1, 4, 0.0)[0] == 1
    assert Recommender().decide(asked(100), 3, 1, 999, 0.0)[0] == 7, "four more at a step"
    assert Recommender().decide(asked(100), 10, 1, 999, 0.0)[0] == 20, "or double"


def test_a_missing_metric_keeps_it_from_scaling_in_and_not_from_scaling_out() -> None:
    assert Recommender().decide(asked(1, None), 5, 1, 9, 0.0) == (5, None)
    assert Recommender().decide(asked(7, None), 5, 1, 9, 0.0)[0] == 7
    assert Recommender().decide(asked(None), 5, 1, 9, 0.0) == (5, None)


def test_a_smaller_number_must_hold_for_five_minutes() -> None:
    memory = Recommender()
    assert memory.decide(asked(8), 8, 1, 9, 0.0)[0] == 8
    assert memory.decide(asked(2), 8, 1, 9, 15.0)[0] == 8
    assert memory.decide(asked(2), 8, 1, 9, STABLE_S)[0] == 8
    assert memory.decide(asked(2), 8, 1, 9, STABLE_S + 15.0)[0] == 2


def test_zero_replicas_are_left_alone_unless_the_minimum_is_zero() -> None:
    assert Recommender().decide(asked(3), 0, 1, 9, 0.0) == (0, None)
    assert Recommender().decide(asked(3), 0, 0, 9, 0.0)[0] == 3
