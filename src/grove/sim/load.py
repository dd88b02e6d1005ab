"""A load of requests on the engines of a set: a small model of what their queues, caches and latencies would be.

Requests are a fluid. A stage (a scaling group, or a clique that is scaled by itself) has units; each serves `batch`
requests at a time and takes `service_s` for one. What does not find a place waits; what one stage has served is the
load of the next. A unit's cache is as full as its places are taken. That is enough to see autoscalers at work, and no
prediction of any engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

STEP_S = 1.0
BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


@dataclass(frozen=True, slots=True)
class Engine:
    """One unit: how many requests at a time, and how long one takes."""

    service_s: float = 2.0
    batch: int = 16

    def __post_init__(self) -> None:
        if self.service_s <= 0 or self.batch <= 0:
            raise ValueError("an engine serves at least one request at a time, in some time")


@dataclass(slots=True)
class Latency:
    """A histogram as engines show it: cumulative counts by upper bound, the last one unbounded."""

    counts: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS) + 1))

    def observe(self, seconds: float, requests: float) -> None:
        for index, bound in enumerate((*BOUNDS, math.inf)):
            if seconds <= bound:
                self.counts[index] += requests

    def add(self, grown: list[float]) -> None:
        self.counts = [count + more for count, more in zip(self.counts, grown, strict=True)]


@dataclass(slots=True)
class Stage:
    """The requests in the units of one group or clique.

    Invariant: no request is lost, `arrived` is the sum of `waiting`, `running` and `done`.
    """

    engine: Engine = field(default_factory=Engine)
    waiting: float = 0.0
    running: float = 0.0
    arrived: float = 0.0
    done: float = 0.0
    latency: Latency = field(default_factory=Latency)
    wait_s: float = 0.0
    """How long one that comes now will wait."""

    def advance(self, seconds: float, requests: float, units: int) -> float:
        """Lets time pass in which this number of requests arrive; returns how many were served."""
        places = units * self.engine.batch
        if self.running > places:  # a unit went: its requests are asked again
            self.waiting += self.running - places
            self.running = float(places)
        served = self.running * min(1.0, seconds / self.engine.service_s)
        self.arrived += requests
        started = min(self.waiting + requests, places - self.running + served)
        self.waiting += requests - started
        self.running += started - served
        self.done += served
        speed = places / self.engine.service_s
        self.wait_s = self.waiting / speed if speed else (math.inf if self.waiting else 0.0)
        return served

    def usage(self, units: int) -> float:
        """The share of places taken."""
        return min(1.0, self.running / (units * self.engine.batch)) if units else 0.0


@dataclass(slots=True)
class Pipeline:
    """The stages of one set in a row, behind a front that measures the whole."""

    stages: dict[str, Stage]
    requests_per_second: float = 0.0
    latency: Latency = field(default_factory=Latency)

    def advance(self, seconds: float, units: dict[str, int]) -> None:
        """Lets time pass; `units` are the stages' units that serve now."""
        steps = max(1, round(seconds / STEP_S))
        for _ in range(steps):
            self._step(seconds / steps, units)

    def _step(self, seconds: float, units: dict[str, int]) -> None:
        requests, so_far_s = self.requests_per_second * seconds, 0.0
        for name, stage in self.stages.items():
            requests = stage.advance(seconds, requests, units.get(name, 0))
            so_far_s += min(stage.wait_s, 3600.0) + stage.engine.service_s
            stage.latency.observe(min(stage.wait_s, 3600.0) + stage.engine.service_s, requests)
        self.latency.observe(so_far_s, requests)

    @property
    def in_system(self) -> float:
        return sum(stage.waiting + stage.running for stage in self.stages.values())


def engine_page(stage: Stage, units: int, latency: Latency) -> bytes:
    """One unit's page of a stage, with the names of vLLM: its share of the gauges and its own histogram."""
    share = 1.0 / units
    gauges = {
        "vllm:num_requests_waiting": stage.waiting * share,
        "vllm:num_requests_running": stage.running * share,
        "vllm:kv_cache_usage_perc": stage.usage(units),
    }
    return _page(gauges, "vllm:e2e_request_latency_seconds", latency)


def front_page(pipeline: Pipeline, fronts: int, latency: Latency) -> bytes:
    """The metrics page of one front pod: requests that no stage has taken yet, and the duration of whole requests."""
    share = 1.0 / fronts
    first = next(iter(pipeline.stages.values()), Stage())
    gauges = {
        "dynamo_frontend_queued_requests": first.waiting * share,
        "dynamo_frontend_inflight_requests": pipeline.in_system * share,
    }
    return _page(gauges, "dynamo_frontend_request_duration_seconds", latency)


def _page(gauges: dict[str, float], histogram: str, latency: Latency) -> bytes:
    lines = [line for name, value in gauges.items() for line in (f"# TYPE {name} gauge", f"{name} {value}")]
    lines.append(f"# TYPE {histogram} histogram")
    uppers = [*map(str, BOUNDS), "+Inf"]
    lines += [
        f'{histogram}_bucket{{le="{upper}"}} {count}' for upper, count in zip(uppers, latency.counts, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()
