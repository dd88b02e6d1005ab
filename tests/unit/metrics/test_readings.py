"""What pods' pages come to: quantiles, windows, owners, ranks, and what is absent rather than zero."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.support.pages import cumulative, gauge, histogram, vllm

from grove.api import labels as key
from grove.api import selector
from grove.metrics import exposition
from grove.metrics.engines import OWN_METRICS
from grove.metrics.exposition import page_slices
from grove.metrics.histogram import of_mapping, quantile, summed
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.metrics.readings import CLIQUE, GROUP, POD, SET, Readings, Subject

INF = math.inf


@pytest.mark.parametrize(
    ("q", "bounds", "counts", "want"),
    [
        pytest.param(0.5, (1, 2, INF), (0, 10, 10), 1.5, id="evenly spread inside a bucket"),
        pytest.param(0.5, (1, 2, INF), (10, 10, 10), 0.5, id="the first bucket begins at zero"),
        pytest.param(0.5, (-1, 2, INF), (10, 10, 10), -1, id="unless its bound is not positive"),
        pytest.param(0.99, (1, 2, INF), (0, 0, 10), 2, id="in the open bucket it is the bound before"),
        pytest.param(0.5, (1, 2, INF), (0, 0, 0), None, id="nothing observed, nothing said"),
        pytest.param(0.5, (1, 2, INF), (4, 3, 8), 1, id="counts that fall are lifted"),
        pytest.param(0.5, (1, 2), (4, 8), None, id="without an open bucket it is no histogram"),
        pytest.param(0.5, (INF,), (4,), None, id="nor with nothing else"),
    ],
)
def test_quantile(q: float, bounds: tuple[float, ...], counts: tuple[float, ...], want: float | None) -> None:
    assert quantile(q, bounds, counts) == want


@example([1.0, 1.0, 1.0, 0.0625, 0.0625, 0.0625], 0.5)
@given(st.lists(st.floats(0.01, 20), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_lies_in_the_bucket_that_holds_it(observed: list[float], q: float) -> None:
    bounds = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, INF)
    found = quantile(q, bounds, cumulative(observed))
    exact = sorted(observed)[math.ceil(q * len(observed)) - 1]
    upper = next(bound for bound in bounds if exact <= bound)
    lower = max((bound for bound in bounds if bound < exact), default=0.0)
    assert found is not None
    assert lower <= found <= (upper if upper != INF else 10.0)


@given(st.lists(st.floats(0, 20), max_size=30), st.lists(st.floats(0, 20), max_size=30))
def test_histograms_of_different_bounds_add_up_to_all_that_was_observed(one: list[float], other: list[float]) -> None:
    fine, coarse = (0.5, 1.0, 5.0), (1.0, 10.0)
    parts = [
        of_mapping(dict(zip((*bounds, INF), cumulative(seen, bounds), strict=True)))
        for bounds, seen in ((fine, one), (coarse, other))
    ]
    whole = summed(parts)
    assert whole is not None
    assert whole[1][-1] == len(one) + len(other)


LABELS = {key.PART_OF: "d", key.SCALING_GROUP: "d-0-g", key.POD_CLIQUE: "d-0-g-0-lead", key.CLIQUE_NAME: "lead"}


class World:
    """Pods of one set with pages at chosen seconds."""

    def __init__(self, *names: str) -> None:
        self.readings = Readings(10.0)
        for name in names:
            self.readings.add_pod("n", name, {**LABELS, key.POD_CLIQUE: f"d-0-g-{name}-lead"})

    def page(self, pod: str, page: bytes, at: float, *raw: str) -> None:
        self.readings.observe("n", pod, numbers_of(scan(page, wanted_names(raw))), at)

    def value(self, metric: str, now: float, kind: str = GROUP, name: str = "d-0-g") -> float | None:
        found = self.readings.find(Subject("n", kind, name), metric, now)
        return found.number if found is not None else None


def test_counts_are_summed_and_shares_averaged_over_pods() -> None:
    world = World("a", "b")
    world.page("a", vllm(waiting=3, running=8, kv=0.9), 0)
    world.page("b", vllm(waiting=1, running=2, kv=0.5), 1)
    assert world.value("grove_requests_waiting", 2) == 4
    assert world.value("grove_requests_running", 2, SET, "d") == 10
    assert world.value("grove_kv_cache_usage", 2) == pytest.approx(0.7)
    assert world.value("grove_requests_waiting", 2, POD, "a") == 3
    assert world.value("grove_requests_waiting", 2, CLIQUE, "d-0-g-b-lead") == 1
    assert world.value("grove_requests_waiting", 2, SET, "another") is None


def test_within_a_pod_counts_are_summed_and_shares_are_the_highest() -> None:
    world = World("a")
    page = gauge("sglang:num_queue_reqs", ('rank="0"', 2), ('rank="1"', 3))
    page += gauge("sglang:token_usage", ('rank="0"', 0.2), ('rank="1"', 0.6))
    world.page("a", page.encode(), 0)
    assert world.value("grove_requests_waiting", 0) == 5
    assert world.value("grove_kv_cache_usage", 0) == 0.6


def test_a_value_older_than_three_intervals_is_absent_and_not_zero() -> None:
    world = World("a", "b")
    world.page("a", vllm(waiting=3), 0)
    world.page("b", vllm(waiting=1), 20)
    assert world.value("grove_requests_waiting", 30) == 4
    assert world.value("grove_requests_waiting", 31) == 1, "only the pod that still speaks"
    assert world.value("grove_requests_waiting", 51) is None


def test_a_deleted_pod_takes_its_numbers_along() -> None:
    world = World("a", "b")
    world.page("a", vllm(waiting=3), 0)
    world.page("b", vllm(waiting=1), 0)
    world.readings.remove_pod("n", "a")
    assert world.value("grove_requests_waiting", 1) == 1
    world.readings.remove_pod("n", "b")
    assert world.readings.subjects() == []


def test_a_frontend_before_engines_is_not_counted_twice_and_measures_latency() -> None:
    world = World("front", "engine")
    latency = histogram("dynamo_frontend_request_duration_seconds", cumulative([0.05] * 10))
    before = gauge("dynamo_frontend_queued_requests", ("", 9)) + histogram(
        "dynamo_frontend_request_duration_seconds", cumulative([])
    )
    world.page("front", before.encode(), 0)
    world.page("engine", vllm(waiting=4, latency=cumulative([])), 0)
    world.page("front", (gauge("dynamo_frontend_queued_requests", ("", 9)) + latency).encode(), 10)
    world.page("engine", vllm(waiting=4, latency=cumulative([7.0] * 100)), 10)
    assert world.value("grove_requests_waiting", 10) == 4
    assert world.value("grove_requests_waiting", 10, POD, "front") == 9, "by itself the frontend has its queue"
    assert world.value("grove_e2e_p50_seconds", 10) == pytest.approx(0.05)


def test_a_quantile_is_of_the_last_minute() -> None:
    world = World("a")
    slow, fast = [8.0] * 50, [0.05] * 50
    world.page("a", vllm(latency=cumulative(slow)), 0)
    assert world.value("grove_e2e_p95_seconds", 0) is None, "one page does not say when"
    world.page("a", vllm(latency=cumulative(slow + slow)), 10)
    assert world.value("grove_e2e_p95_seconds", 10) == pytest.approx(5 + 5 * 0.95)
    seen = slow + slow
    for at in range(20, 80, 10):
        seen = seen + fast
        world.page("a", vllm(latency=cumulative(seen)), at)
    assert world.value("grove_e2e_p95_seconds", 70) == pytest.approx(0.095), "the slow ones are over a minute ago"


def test_an_engine_that_restarted_begins_again() -> None:
    world = World("a")
    world.page("a", vllm(latency=cumulative([8.0] * 1000)), 0)
    world.page("a", vllm(latency=cumulative([0.05] * 10)), 10)
    assert world.value("grove_e2e_p99_seconds", 10) == pytest.approx(0.099)


@pytest.mark.parametrize(
    ("waiting", "want"),
    [pytest.param(0, 0.0, id="nobody asked, nobody waited"), pytest.param(3, None, id="some wait: nothing to say")],
)
def test_a_minute_in_which_no_client_was_served(waiting: float, want: float | None) -> None:
    world = World("a")
    for at in (0, 10):
        world.page("a", vllm(waiting=waiting, latency=cumulative([1.0])), at)
    assert world.value("grove_e2e_p95_seconds", 10) == want


def test_a_raw_name_is_served_as_it_is() -> None:
    world = World("a", "b")
    for pod in ("a", "b"):
        world.page(pod, gauge("my_engine_batches", ("", 2)).encode(), 0, "my_engine_batches")
    assert world.value("my_engine_batches", 0) == 4
    assert world.value("my_engine_batches", 0, POD, "a") == 2


def test_gpu_use_comes_from_elsewhere_and_grows_stale_by_itself() -> None:
    world = World("a", "b")
    world.readings.observe_gpu("n", "a", 0.8, 0)
    world.readings.observe_gpu("n", "b", 0.4, 20)
    world.readings.observe_gpu("n", "unknown", 0.4, 20)
    assert world.value("grove_gpu_utilization", 30) == pytest.approx(0.6)
    assert world.value("grove_gpu_utilization", 40) == pytest.approx(0.4)


def test_our_names() -> None:
    assert set(OWN_METRICS) == {
        "grove_requests_waiting",
        "grove_requests_running",
        "grove_kv_cache_usage",
        "grove_gpu_utilization",
        *(f"grove_{x}_p{q}_seconds" for x in ("ttft", "tpot", "e2e") for q in (50, 95, 99)),
    }


@given(st.lists(st.lists(st.floats(0.01, 20), max_size=5), min_size=2, max_size=20), st.integers(5, 20))
def test_the_growth_of_a_minute_is_what_was_observed_in_it(rounds: list[list[float]], every_s: int) -> None:
    world = World("a")
    seen: list[float] = []
    for index, new in enumerate(rounds):
        seen += new
        world.page("a", vllm(latency=cumulative(seen)), index * every_s)
    growth = world.readings._pods["n", "a"].history.growths["e2e"][1]
    last = (len(rounds) - 1) * every_s
    inside = [new for index, new in enumerate(rounds) if index and (index - 1) * every_s > last - 60]
    want = cumulative([one for new in inside for one in new])
    assert np.array_equal(growth.total, want)


async def test_our_own_page_has_every_owner_with_numbers() -> None:
    world = World("a", "b")
    now = asyncio.get_running_loop().time()
    world.page("a", vllm(waiting=3, kv=0.5), now)
    page = b"".join([part async for part in page_slices(world.readings)]).decode()
    found = {
        (sample.name, sample.labels["kind"], sample.labels["name"], sample.labels["namespace"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["grove_requests_waiting", GROUP, "d-0-g", "n"] == 3
    assert found["grove_requests_waiting", SET, "d", "n"] == 3
    assert found["grove_kv_cache_usage", CLIQUE, "d-0-g-a-lead", "n"] == 0.5
    assert "d-0-g-b-lead" not in page, "nobody has said anything of it"
    assert "grove_e2e" not in page


async def test_others_have_their_turn_while_a_long_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SLICE_S", 0.0)
    world = World(*map(str, range(50)))
    for name in range(50):
        world.page(str(name), vllm(waiting=1), asyncio.get_running_loop().time())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.get_running_loop().create_task(other())
    lines = b"".join([part async for part in page_slices(world.readings)]).splitlines()
    beside.cancel()
    assert turns >= 50
    assert len(lines) > 100


@pytest.mark.parametrize(
    ("selected", "want"),
    [
        pytest.param("app.kubernetes.io/part-of=d", ["a", "b"], id="by its set"),
        pytest.param("grove.io/podclique in (d-0-g-a-lead,x)", ["a"], id="by one of several cliques"),
        pytest.param("app.kubernetes.io/part-of=d,grove.io/podclique=d-0-g-b-lead", ["b"], id="both must hold"),
        pytest.param("app.kubernetes.io/part-of=other", [], id="of a set that is not there"),
        pytest.param("app.kubernetes.io/part-of!=d", [], id="all but a set's"),
        pytest.param("grove.io/clique-name=lead", ["a", "b"], id="by a label that is no owner's"),
        pytest.param("", ["a", "b"], id="all of them"),
    ],
)
def test_pods_are_selected_by_labels(selected: str, want: list[str]) -> None:
    world = World("a", "b")
    world.readings.add_pod("elsewhere", "c", LABELS)
    assert world.readings.selected("n", selector.parse(selected)) == want
