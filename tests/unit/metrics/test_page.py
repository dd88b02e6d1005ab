"""Scanning a page of Prometheus text: wanted names are found among others, and nonsense costs one line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pages import BOUNDS, by_name, cumulative, gauge, histogram, padded, vllm

from grove.metrics.page import MOST_BUCKETS, Wanted, labelled, scan

WAITING, LATENCY = "vllm:num_requests_waiting", "vllm:e2e_request_latency_seconds"
WANTED = Wanted({WAITING}, {LATENCY})


def sum_of(page: bytes, name: str = WAITING, wanted: Wanted = WANTED) -> float | None:
    total = scan(page, wanted).totals.get(name)
    return total.sum if total is not None else None


@pytest.mark.parametrize(
    ("page", "want"),
    [
        pytest.param(gauge(WAITING, ("", 3)), 3, id="a sample without labels"),
        pytest.param(gauge(WAITING, ('a="1"', 3), ('a="2"', 4)), 7, id="label sets are added"),
        pytest.param(gauge("other", ("", 9)) + gauge(WAITING, ("", 3)) + gauge("z", ("", 9)), 3, id="among others"),
        pytest.param(gauge(WAITING, ('a="}, b=\\"{ # {"', 3)), 3, id="braces and quotes inside a label"),
        pytest.param(f"# TYPE {WAITING} gauge\n{WAITING} 3 1700000000000\n", 3, id="a timestamp after the value"),
        pytest.param(f"# TYPE {WAITING} gauge\n{WAITING} 3", 3, id="no line feed at the end"),
        pytest.param(f"# TYPE {WAITING} gauge\n# a remark\n{WAITING}\t3.5e1\n", 35, id="a remark, a tab, an exponent"),
        pytest.param(f'# TYPE {WAITING} gauge\n{WAITING}{{a="b"}} 3 # {{id="x"}} 9 1\n', 3, id="an exemplar"),
        pytest.param(gauge(f"{WAITING}_more", ("", 9)), None, id="a longer name is another"),
        pytest.param(f"# TYPE x gauge\nx 1\n{WAITING} 3\n", None, id="a name without TYPE hides in a typed page"),
        pytest.param(f"{WAITING} 3\nother 4\n", 3, id="a page without any TYPE is searched by name"),
        pytest.param(f'other 4\n{WAITING}{{a="1"}} 3\n{WAITING}{{a="2"}} 5', 8, id="and has label sets too"),
        pytest.param(f"# HELP x # TYPE {WAITING} gauge\n# TYPE x gauge\nx 1\n", None, id="a name in a HELP line"),
        pytest.param("", None, id="an empty page"),
    ],
)
def test_what_a_page_says(page: str, want: float | None) -> None:
    assert sum_of(page.encode()) == want


def test_a_thorough_scan_finds_untyped_names_and_the_next_one_remembers_them() -> None:
    page = gauge("x", ("", 1)).encode() + by_name({WAITING: 3})
    thorough = scan(page, WANTED, thorough=True)
    assert thorough.totals[WAITING].sum == 3
    assert thorough.untyped == {WAITING}
    assert scan(page, WANTED, untyped=thorough.untyped).totals[WAITING].sum == 3


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"{WAITING} NaN", id="not a number"),
        pytest.param(f"{WAITING} +Inf", id="infinite"),
        pytest.param(f"{WAITING} -1", id="negative"),
        pytest.param(f"{WAITING} 1_000", id="an underscore that only Python reads"),
        pytest.param(f"{WAITING} many", id="a word"),
        pytest.param(WAITING, id="nothing"),
        pytest.param(f'{WAITING}{{a="b"}}', id="labels and nothing"),
        pytest.param(f'{WAITING}{{a="b" 3', id="labels that do not end"),
    ],
)
def test_a_wrong_number_costs_its_line_and_is_reported(line: str) -> None:
    found = scan(f'# TYPE {WAITING} gauge\n{line}\n{WAITING}{{a="2"}} 5\n'.encode(), WANTED)
    assert found.totals[WAITING].sum == 5
    assert len(found.faults) == 1
    assert WAITING in found.faults[0]


def test_buckets_are_added_over_label_sets() -> None:
    counts = cumulative([0.05, 0.3, 3, 30])
    page = histogram(LATENCY, counts, 'rank="0"') + "".join(
        line + "\n" for line in histogram(LATENCY, counts, 'rank="1"').splitlines() if not line.startswith("#")
    )
    found = scan(page.encode(), WANTED).histograms[LATENCY]
    assert found == dict(zip((*BOUNDS, math.inf), [2 * one for one in counts], strict=True))


def test_the_count_of_a_histogram_is_a_sample_by_its_own_name() -> None:
    page = histogram(LATENCY, cumulative([1, 2, 3])).encode()
    assert sum_of(page, f"{LATENCY}_count", Wanted({f"{LATENCY}_count"}, {LATENCY})) == 3
    assert sum_of(page, f"{LATENCY}_count", Wanted({f"{LATENCY}_count"}, ())) == 3


def test_a_histogram_with_buckets_without_end_is_refused() -> None:
    bounds = [one / 7 for one in range(MOST_BUCKETS + 5)]
    found = scan(histogram(LATENCY, range(MOST_BUCKETS + 6), bounds=bounds).encode(), WANTED)
    assert found.histograms[LATENCY] == {}
    assert "more than 256 buckets" in found.faults[0]


def test_a_wanted_name_in_a_long_page_is_found() -> None:
    page = padded(vllm(waiting=7, latency=cumulative([1, 2])), 200 * 1024)
    found = scan(page, WANTED)
    assert len(page) > 200_000
    assert found.totals[WAITING].sum == 7
    assert found.histograms[LATENCY][math.inf] == 2


@given(st.binary(max_size=400))
def test_any_bytes_are_a_page(noise: bytes) -> None:
    for page in (noise, f"# TYPE {WAITING} gauge\n".encode() + noise, f"\n{LATENCY}_bucket{{".encode() + noise):
        found = scan(page, WANTED, thorough=True)
        assert all(math.isfinite(total.sum) for total in found.totals.values())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e6)), max_size=5), st.integers(0, 5))
def test_where_a_family_stands_does_not_matter(series: list[tuple[str, float]], before: int) -> None:
    mine = gauge(WAITING, *((f'x="{label}{index}"', value) for index, (label, value) in enumerate(series)))
    others = [gauge(f"other_{index}", ("", 1.0)) for index in range(5)]
    page = "".join([*others[:before], mine, *others[before:]]).encode()
    assert sum_of(page) == (sum(value for _, value in series) if series else None)


def test_samples_with_their_labels() -> None:
    seen: list[tuple[str, str, float]] = []
    labels = 'gpu="0",namespace="n",pod="p-0",container="c"'
    page = gauge("DCGM_FI_DEV_GPU_UTIL", (labels, 80.0), ('gpu="1"', 10.0)).encode()
    labelled(page, "DCGM_FI_DEV_GPU_UTIL", lambda one, value: seen.append((one.get("pod", ""), one["gpu"], value)))
    assert seen == [("p-0", "0", 80.0), ("", "1", 10.0)]
