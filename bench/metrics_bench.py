"""What engine metrics cost: 4,000 pods with pages of 200 KB every ten seconds, and autoscalers that ask meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

from bench.figures import Figure

PODS, SECONDS, REQUESTS, INTERVAL_S = 4000, 40, 300, 10.0
GROUP = "podcliquescalinggroups.grove.io/s7-0-g"
SET = "podcliquesets.grove.io/s7"


def started(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.metrics_process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, int(child.stdout.readline())


def value(port: int, path: str) -> str:
    url = f"http://127.0.0.1:{port}/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/{path}"
    with urlopen(url, timeout=30) as answer:
        answer_value: str = json.load(answer)["items"][0]["value"]
        return answer_value


def is_said(port: int, path: str) -> bool:
    try:
        return bool(value(port, path))
    except HTTPError:
        return False


def asked_times(
    port: int, idle_port: int, seconds: float, requests: int, meanwhile: Callable[[int], None]
) -> tuple[list[float], list[float]]:
    """How long requests took, evenly spread, ours and those of a server that does nothing else, sorted by length."""
    times: dict[int, list[float]] = {port: [], idle_port: []}
    begun = time.monotonic()
    for number in range(requests):
        meanwhile(number)
        metric = ("grove_requests_waiting", "grove_e2e_p95_seconds")[number % 2]
        for asked_port, taken in times.items():
            asked = time.perf_counter()
            value(asked_port, f"{GROUP}/{metric}")
            taken.append(time.perf_counter() - asked)
        time.sleep(max(0.0, begun + (number + 1) * seconds / requests - time.monotonic()))
    return sorted(times[port]), sorted(times[idle_port])


def fetched(engines_port: int) -> float:
    """The share of a core that getting the same pages takes, without a look at them."""
    child, _ = started("fetch", str(engines_port), str(PODS))
    assert child.stdin is not None
    assert child.stdout is not None
    time.sleep(3 * INTERVAL_S)
    child.stdin.close()
    core: float = json.loads(child.stdout.readline())
    child.wait(timeout=30)
    return core


def run(results: dict[str, Figure]) -> None:
    engines, engines_port = started("engines")
    idle, idle_port = started("idle")
    reader, port = started("reader", str(engines_port), str(PODS))
    try:
        while not is_said(port, f"{GROUP}/grove_e2e_p95_seconds"):
            time.sleep(1)  # a latency takes two pages of its pods
        with ThreadPoolExecutor(1) as other:

            def read_page(number: int) -> None:
                if number % 100 == 0:  # a Prometheus that reads our page of 4,200 owners
                    pages.append(other.submit(lambda: len(urlopen(f"http://127.0.0.1:{port}/metrics").read())))

            pages: list[Future[int]] = []
            times, baseline = asked_times(port, idle_port, SECONDS, REQUESTS, read_page)
            assert all(page.result() > PODS * 100 for page in pages)
        assert value(port, f"{SET}/grove_requests_waiting") == "40"
        urlopen(f"http://127.0.0.1:{engines_port}/jump", timeout=30).read()
        jumped = time.monotonic()
        while value(port, f"{SET}/grove_requests_waiting") != "80":
            time.sleep(0.05)
        seen_s = time.monotonic() - jumped
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.close()
        cost = json.loads(reader.stdout.readline())
        least_core = fetched(engines_port)
    finally:
        for child in (reader, engines, idle):
            child.kill()
            child.wait()
    core, mb = (cost[f"serving {what}"] + cost[f"reading {what}"] for what in ("core", "mb"))
    results["metrics: 4,000 pods, 200 KB each 10 s, of a core"] = Figure(
        100 * core, "%", "≤ 50 %; baseline: pages that no program reads", 100 * least_core
    )
    results["metrics: the serving process' part of it"] = Figure(100 * cost["serving core"], "%")
    results["metrics: both processes' memory"] = Figure(mb, "MB", "≤ 300 MB")
    results["metrics: pages read"] = Figure(cost["per_s"], "/s", f"≥ {PODS / INTERVAL_S:g} /s")
    for share, words in ((0.5, "median"), (0.99, "slowest of a hundred")):
        ours, least = (1000 * taken[int(len(taken) * share)] for taken in (times, baseline))
        name = f"metrics: a request of the HPA controller meanwhile, {words}"
        results[name] = Figure(ours, "ms", "≤ 5 ms on a quiet machine", baseline=least)
    results["metrics: from a jump to all 40 pods' sight of it"] = Figure(seen_s, "s", "≤ one interval + 1 s = 11 s")
