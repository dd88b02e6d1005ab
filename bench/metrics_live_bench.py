"""What an autoscaler sees of engines through the API server: how long a request takes, and how soon a jump is seen."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable

from tests.support.manifests import clique, group, pcs
from tests.support.metered import NAMESPACE, QUICK, Metered, metered, object_metric
from tests.support.pages import vllm
from tests.support.waiting import nothing_missing

from bench.figures import Figure
from grove.api.core import HorizontalPodAutoscaler
from grove.api.podcliqueset import PodCliqueSet
from grove.local.controlplane import ControlPlane

INTERVAL_S, JUMPS, REQUESTS = 10.0, 5, 200
PATH = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/podcliquesets.grove.io/jump/grove_requests_waiting"


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as directory, ControlPlane(directory, **QUICK) as plane:
        asyncio.run(_measured(plane, results))


async def _measured(plane: ControlPlane, results: dict[str, Figure]) -> None:
    async with metered(plane, interval_s=INTERVAL_S) as world:
        waiting = 3
        world.engines.default = lambda pod: vllm(waiting=waiting)
        metric = object_metric("grove_requests_waiting", "PodCliqueSet", type="Value", value="1000")
        scale = {"minReplicas": 1, "maxReplicas": 2, "metrics": [metric]}
        lead = clique("lead", annotations={"prometheus.io/port": "8000"})
        manifest = pcs("jump", lead, groups=[group("grp", "lead", scale=scale)], namespace=NAMESPACE)
        await world.client.create(PodCliqueSet, manifest)
        await nothing_missing(lambda: _unseen(world, waiting))
        times, baseline = [], []
        for _ in range(REQUESTS):
            times.append(await _taken(lambda: world.get_raw(PATH)))
            baseline.append(await _taken(lambda: world.get_raw("/version")))
            await asyncio.sleep(0.02)
        served, seen = [], []
        for number in range(JUMPS):
            await asyncio.sleep(0.37 * INTERVAL_S * (number + 1) % INTERVAL_S)  # anywhere between two reads
            waiting, jumped = 10 + number, time.monotonic()
            await nothing_missing(lambda: _unserved(world, waiting))  # noqa: B023
            served.append(time.monotonic() - jumped)
            await nothing_missing(lambda: _unseen(world, waiting))  # noqa: B023
            seen.append(time.monotonic() - jumped)
    for share, words in ((0.5, "median"), (0.99, "slowest of a hundred")):
        ours, least = (1000 * sorted(taken)[int(len(taken) * share)] for taken in (times, baseline))
        name = f"metrics live: a request through the API server, a connection each, {words}"
        results[name] = Figure(ours, "ms", "baseline: /version", baseline=least)
    aim = f"≤ one interval + 1 s = {INTERVAL_S + 1:g} s"
    results["metrics live: from a jump to the metrics API, longest of five"] = Figure(max(served), "s", aim)
    name = "metrics live: from a jump to the HPA's status (it looks every second), longest of five"
    results[name] = Figure(max(seen), "s", f"{aim}, and its own look")


async def _taken(ask: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await ask()
    return time.perf_counter() - begun


async def _unserved(world: Metered, waiting: int) -> str:
    status, body = await world.get_raw(PATH)
    return "" if status == 200 and body["items"][0]["value"] == str(waiting) else f"{status} {body}"


async def _unseen(world: Metered, waiting: int) -> str:
    scaler = await world.client.get(HorizontalPodAutoscaler.RESOURCE, "jump-0-grp", NAMESPACE)
    seen = (scaler.get("status") or {}).get("currentMetrics") or []
    return "" if seen and seen[0]["object"]["current"].get("value") == str(waiting) else f"{seen}"
