"""Our numbers as a page of our own, for a Prometheus of the cluster, with prometheus-adapter or KEDA behind it.

Thousands of cliques with a dozen numbers each take longer than an autoscaler should wait: it is written in slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from grove.metrics.engines import OWN_METRICS
from grove.metrics.readings import Readings

SLICE_S = 0.0002
"""A request takes several turns of the loop, and each may wait for a slice."""
PART = 64 * 1024


def page_lines(readings: Readings, now: float) -> Iterator[str]:
    """Every number of ours for every clique, group and set, a line or nothing for each."""
    subjects = readings.subjects()
    for metric in OWN_METRICS:
        head = f"# HELP {metric} Of the pods of a clique, a scaling group or a set.\n# TYPE {metric} gauge\n"
        for subject in subjects:
            value = readings.find(subject, metric, now)
            if value is None:
                yield ""
                continue
            # Names in Kubernetes have nothing that would need escaping.
            labels = f'kind="{subject.kind}",name="{subject.name}",namespace="{subject.namespace}"'
            yield f"{head}{metric}{{{labels}}} {value.number!r}\n"
            head = ""


async def page_slices(readings: Readings) -> AsyncIterator[bytes]:
    """The page in parts of about `PART` characters; others have their turn after each slice of work."""
    loop = asyncio.get_running_loop()
    begun, lines, size = loop.time(), list[str](), 0
    for line in page_lines(readings, begun):
        lines.append(line)
        size += len(line)
        if size >= PART:
            yield "".join(lines).encode()
            lines, size = [], 0
        if loop.time() - begun > SLICE_S:
            await asyncio.sleep(0)
            begun = loop.time()
    yield "".join(lines).encode()
