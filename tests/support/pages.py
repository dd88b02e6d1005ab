"""Pages of engines, as their /metrics answer: for tests of scanning and quantiles, and for engines that are faked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def gauge(name: str, *series: tuple[str, float]) -> str:
    """A gauge with its TYPE line; each series is its labels as text and its value."""
    lines = [f"# HELP {name} Something.", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in series]
    return "\n".join(lines) + "\n"


def histogram(
    name: str, counts: Sequence[float], labels: str = 'model_name="m"', bounds: Sequence[float] = BOUNDS
) -> str:
    """A histogram of cumulative counts by `bounds` and then +Inf."""
    uppers = [*map(str, bounds), "+Inf"]
    lines = [f"# HELP {name} Seconds.", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{le="{upper}",{labels}}} {count}' for upper, count in zip(uppers, counts, strict=True)]
    lines += [f"{name}_count{{{labels}}} {counts[-1]}", f"{name}_sum{{{labels}}} {sum(counts)}"]
    return "\n".join(lines) + "\n"


def vllm(waiting: float = 0, running: float = 0, kv: float = 0.0, latency: Sequence[float] | None = None) -> bytes:
    """What a vLLM engine of one model shows; `latency` are cumulative counts of its e2e histogram."""
    labels = 'engine="0",model_name="m"'
    text = gauge("vllm:num_requests_waiting", (labels, waiting)) + gauge("vllm:num_requests_running", (labels, running))
    text += gauge("vllm:kv_cache_usage_perc", (labels, kv))
    if latency is not None:
        text += histogram("vllm:e2e_request_latency_seconds", latency, labels)
    return text.encode()


def padded(page: bytes, size: int) -> bytes:
    """The page behind other families, until it has about `size` bytes, as an engine with much to say has it."""
    filler: list[str] = []
    length, number = len(page), 0
    while length < size:
        name = f"vllm:other_{number}_seconds"
        text = histogram(name, [float(number + one) for one in range(len(BOUNDS) + 1)], 'engine="0",model_name="m"')
        filler.append(text)
        length, number = length + len(text), number + 1
    half = len(filler) // 2
    return "".join(filler[:half]).encode() + page + "".join(filler[half:]).encode()


def cumulative(observations: Sequence[float], bounds: Sequence[float] = BOUNDS) -> list[float]:
    """Cumulative counts of observed seconds."""
    return [float(sum(one <= upper for one in observations)) for upper in (*bounds, float("inf"))]


def by_name(values: Mapping[str, float]) -> bytes:
    """Samples without TYPE lines."""
    return "".join(f"{name} {value}\n" for name, value in values.items()).encode()
