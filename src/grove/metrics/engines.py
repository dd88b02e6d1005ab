"""What engines call the numbers that inference is scaled by, and our names for them.

A pod runs one engine. If several names mean the same, the first one on the page counts. Names have a rank. If an owner
has pods of two ranks (a Dynamo frontend before vLLM workers), only the pods of the lowest rank count. Otherwise a
request would count twice. Queues are those of the engines. Latency is that of the frontend, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    COUNT = "count"
    """Summed over label sets and over pods."""
    SHARE = "share"
    """The highest of a pod's label sets, the mean over pods."""
    LATENCY = "latency"
    """A histogram: its buckets are summed over label sets and pods, and a quantile is interpolated."""


@dataclass(frozen=True, slots=True)
class Source:
    """One engine's name for a meaning. `scale` brings it to our unit."""

    name: str
    rank: int = 0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Meaning:
    """A number under our name; of a latency the name is `ttft`, `tpot` or `e2e`, and `metrics` has its quantiles."""

    name: str
    kind: Kind
    sources: tuple[Source, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        if self.kind is not Kind.LATENCY:
            return (self.name,)
        return tuple(f"grove_{self.name}_p{round(quantile * 100)}_seconds" for quantile in QUANTILES)


QUANTILES = (0.5, 0.95, 0.99)
GPU_UTILIZATION = "grove_gpu_utilization"
REQUESTS_WAITING, REQUESTS_RUNNING = "grove_requests_waiting", "grove_requests_running"
KV_CACHE_USAGE = "grove_kv_cache_usage"
DCGM = Source("DCGM_FI_DEV_GPU_UTIL", scale=0.01)

MEANINGS = (
    Meaning(
        REQUESTS_WAITING,
        Kind.COUNT,
        (
            Source("vllm:num_requests_waiting"),
            Source("sglang:num_queue_reqs"),
            Source("llamacpp:requests_deferred"),
            Source("dynamo_frontend_queued_requests", rank=1),
        ),
    ),
    Meaning(
        REQUESTS_RUNNING,
        Kind.COUNT,
        (
            Source("vllm:num_requests_running"),
            Source("sglang:num_running_reqs"),
            Source("llamacpp:requests_processing"),
            Source("dynamo_frontend_inflight_requests", rank=1),
        ),
    ),
    Meaning(
        KV_CACHE_USAGE,
        Kind.SHARE,
        (Source("vllm:kv_cache_usage_perc"), Source("vllm:gpu_cache_usage_perc"), Source("sglang:token_usage")),
    ),
    Meaning(GPU_UTILIZATION, Kind.SHARE, (DCGM,)),
    Meaning(
        "ttft",
        Kind.LATENCY,
        (
            Source("dynamo_frontend_time_to_first_token_seconds"),
            Source("vllm:time_to_first_token_seconds", rank=1),
            Source("sglang:time_to_first_token_seconds", rank=1),
            Source("trtllm_time_to_first_token_seconds", rank=1),
        ),
    ),
    Meaning(
        "tpot",
        Kind.LATENCY,
        (
            Source("dynamo_frontend_inter_token_latency_seconds"),
            Source("vllm:inter_token_latency_seconds", rank=1),
            Source("vllm:time_per_output_token_seconds", rank=1),
            Source("sglang:inter_token_latency_seconds", rank=1),
            Source("trtllm_time_per_output_token_seconds", rank=1),
        ),
    ),
    Meaning(
        "e2e",
        Kind.LATENCY,
        (
            Source("dynamo_frontend_request_duration_seconds"),
            Source("vllm:e2e_request_latency_seconds", rank=1),
            Source("sglang:e2e_request_latency_seconds", rank=1),
        ),
    ),
)

OWN_METRICS = tuple(metric for meaning in MEANINGS for metric in meaning.metrics)
"""Every name of ours, as the metrics APIs list them."""
_BY_METRIC = {metric: meaning for meaning in MEANINGS for metric in meaning.metrics}
_QUANTILE_OF = {
    metric: share
    for meaning in MEANINGS
    if meaning.kind is Kind.LATENCY
    for metric, share in zip(meaning.metrics, QUANTILES, strict=True)
}


def find_meaning(metric: str) -> Meaning | None:
    return _BY_METRIC.get(metric)


def quantile_of(metric: str) -> float:
    """The quantile that a latency's metric stands for."""
    return _QUANTILE_OF[metric]


GAUGE_NAMES = frozenset(
    source.name for meaning in MEANINGS if meaning.kind is not Kind.LATENCY for source in meaning.sources
) - {DCGM.name}
HISTOGRAM_NAMES = frozenset(
    source.name for meaning in MEANINGS if meaning.kind is Kind.LATENCY for source in meaning.sources
)
