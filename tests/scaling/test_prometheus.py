"""Our quantiles against Prometheus' own `histogram_quantile`, on the same pages read at the same times.

The pages are loaded into Prometheus with their times, so nothing waits for a minute to pass.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from tests.support.pages import BOUNDS, cumulative, vllm
from tests.support.prometheus import prometheus

from grove.api import labels as key
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.metrics.readings import GROUP, Readings, Subject

FAMILY = "vllm:e2e_request_latency_seconds"
PODS, PAGES, EVERY_S = 6, 12, 10
SEEDS = range(5)


def histories(seed: int) -> dict[str, list[list[float]]]:
    """Pods' latencies seen so far, page by page. One pod restarts, one is idle, speeds differ and change."""
    rng = random.Random(seed)
    found: dict[str, list[list[float]]] = {}
    for pod in range(PODS):
        seen: list[float] = []
        pages: list[list[float]] = []
        for page in range(PAGES):
            if pod == 1 and page == PAGES - 3:
                seen = []
            many = 0 if pod == 2 else rng.randrange(5, 60)
            seen = [*seen, *(rng.lognormvariate(rng.uniform(-2, 2), 0.8) for _ in range(many))]
            pages.append(seen)
        found[f"s{seed}-p{pod}"] = pages
    return found


def test_quantiles_are_those_of_prometheus(tmp_path: Path) -> None:
    start = int(time.time()) // 10 * 10 - 7200
    lines = [f"# TYPE {FAMILY} histogram"]
    readings = Readings(EVERY_S)
    for seed in SEEDS:
        for number, (pod, pages) in enumerate(histories(seed).items()):
            readings.add_pod("n", pod, {key.PART_OF: "d", key.SCALING_GROUP: f"g{seed}"})
            for page, seen in enumerate(pages):
                # Pods are read one after the other, each at its own second of the interval.
                at = start + page * EVERY_S + number
                counts = cumulative(seen)
                readings.observe("n", pod, numbers_of(scan(vllm(latency=counts), wanted_names(()))), at)
                uppers = [*map(str, BOUNDS), "+Inf"]
                lines += [
                    f'{FAMILY}_bucket{{group="g{seed}",pod="{pod}",le="{upper}"}} {count} {at}'
                    for upper, count in zip(uppers, counts, strict=True)
                ]
    series = sorted(lines[1:], key=lambda line: line.rsplit(" ", 2)[0])
    now = start + (PAGES - 1) * EVERY_S + PODS
    compared = 0
    with prometheus(tmp_path, "\n".join([lines[0], *series, "# EOF\n"])) as url:
        for seed in SEEDS:
            for percent in (50, 95, 99):
                rate = f'sum by (le) (rate({FAMILY}_bucket{{group="g{seed}"}}[1m]))'
                query = {"query": f"histogram_quantile({percent / 100}, {rate})", "time": str(now)}
                with urlopen(f"{url}/api/v1/query?{urlencode(query)}", timeout=30) as answer:
                    (result,) = json.load(answer)["data"]["result"]
                theirs = float(result["value"][1])
                ours = readings.find(Subject("n", GROUP, f"g{seed}"), f"grove_e2e_p{percent}_seconds", now)
                assert ours is not None
                assert ours.number == pytest.approx(theirs, rel=0.01), f"seed {seed}, p{percent}"
                compared += 1
    assert compared == len(SEEDS) * 3
