"""What engine metrics cost: 4,000 pods with pages of 200 KB every ten seconds, and autoscalers that ask meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.bench.figures import Figure

PODS, SECONDS, REQUESTS, INTERVAL_S = 4000, 40, 300, 10.0
GROUP = "podcliquescalinggroups.grove.io/s7-0-g"
SET = "podcliquesets.grove.io/s7"


def started(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.metrics_process", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    return child, int(child.stdout.readline())


def value(port: int, path: str) -> str:
    url = f"http://127.0.0.1:{port}/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/{path}"
    with urlopen(url, timeout=30) as answer:
        found: str = json.load(answer)["items"][0]["value"]
        return found


def is_said(port: int, path: str) -> bool:
    try:
        return bool(value(port, path))
    except HTTPError:
        return False


def run(results: dict[str, Figure]) -> None:
    engines, engines_port = started("engines")
    reader, port = started("reader", str(engines_port), str(PODS))
    try:
        while not is_said(port, f"{GROUP}/grove_e2e_p95_seconds"):
            time.sleep(1)  # a latency takes two pages of its pods
        times = []
        begun = time.monotonic()
        for number in range(REQUESTS):
            metric = ("grove_requests_waiting", "grove_e2e_p95_seconds")[number % 2]
            asked = time.perf_counter()
            value(port, f"{GROUP}/{metric}")
            times.append(time.perf_counter() - asked)
            time.sleep(max(0.0, begun + (number + 1) * SECONDS / REQUESTS - time.monotonic()))
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
    finally:
        for child in (reader, engines):
            child.kill()
            child.wait()
    times.sort()
    results["metrics: 4,000 pods, 200 KB each 10 s, of a core"] = Figure(100 * cost["core"], "%", "≤ 50 %")
    results["metrics: the same, memory"] = Figure(cost["mb"], "MB", "≤ 300 MB")
    results["metrics: pages read"] = Figure(cost["per_s"], "/s", f"≥ {PODS / INTERVAL_S:g} /s")
    results["metrics: a request of the HPA controller meanwhile, median"] = Figure(1000 * times[len(times) // 2], "ms")
    results["metrics: CPU before its turn comes, slowest of a hundred"] = Figure(cost["turn_ms"], "ms", "≤ 5 ms")
    slow = times[int(len(times) * 0.99)]
    results["metrics: the same, slowest of a hundred, on the clock"] = Figure(1000 * slow, "ms")
    results["metrics: from a jump to all 40 pods' sight of it"] = Figure(seen_s, "s", "≤ one interval + 1 s = 11 s")
