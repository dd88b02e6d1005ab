"""One trace from apply to ready: operator and scheduler write into it without talking to each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.operating import World, operating
from tests.support.running import beside
from tests.support.workloads import wl1

from grove.api.core import Event
from grove.diagnosis.reasons import sentence
from grove.kube.otel import OtelExport
from grove.kube.tracing import TRACE_ID, Traces
from grove.scheduler.loop.live import Scheduler
from grove.sim.topology import Topology

PARTS = {"apply", "reconcile", "gang", "decision", "bind", "start", "ready"}


@dataclass
class Traced:
    world: World
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if not name or one.name == name]


@pytest.fixture
async def traced(cluster: object) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    traces = Traces(OtelExport("grove", SimpleSpanProcessor(exporter)), cluster.clock)
    async with operating(cluster, nodes=Topology(racks=2, nodes=4, pods=8), traces=traces) as world:
        world.binder.allow(0)
        scheduler = Scheduler(world.client, clock=cluster.clock, say=sentence, traces=traces)
        async with beside(scheduler.run()):
            yield Traced(world, exporter)


async def test_one_trace_from_apply_to_ready(traced: Traced) -> None:
    world = traced.world
    made = await world.apply(wl1())
    await world.available("wl")

    async def all_parts() -> bool:
        return {one.name for one in traced.spans()} >= PARTS

    await world.eventually(all_parts)
    spans = traced.spans()
    trace_id = made.metadata.uid.replace("-", "")
    assert {f"{one.context.trace_id:032x}" for one in spans} == {trace_id}
    (root,) = traced.spans("apply")
    assert root.parent is None
    assert root.attributes["set"] == f"{world.namespace}/wl"
    assert {one.parent.span_id for one in spans if one is not root} == {root.context.span_id}
    assert len({one.context.span_id for one in spans}) == len(spans)
    assert all(one.start_time <= one.end_time for one in spans)
    assert {one.attributes["result"] for one in traced.spans("decision")} == {"placed"}
    assert Counter(one.attributes["name"] for one in traced.spans("gang")) == {"wl-0": 1}
    assert sum(one.attributes["pods"] for one in traced.spans("bind")) == 10
    starts = {one.attributes["name"] for one in traced.spans("start")}
    assert starts == {"wl-0-pc-a"} | {f"wl-0-sg-x-{n}-{name}" for n in range(2) for name in ("pc-b", "pc-c")}
    (ready,) = traced.spans("ready")
    assert ready.end_time >= max(one.end_time for one in traced.spans("start"))

    async def events_of_both() -> bool:
        events = [one for one in (await world.client.list(Event, world.namespace)).items if _is_grove(one)]
        ids = {one.metadata.annotations.get(TRACE_ID) for one in events}
        sources = {one.source["component"] for one in events}
        return ids == {trace_id} and sources == {"grove-operator", "grove-scheduler"}

    await world.eventually(events_of_both)


@pytest.mark.simulated
async def test_a_set_at_rest_records_nothing(traced: Traced) -> None:
    world = traced.world
    await world.apply(wl1())
    await world.available("wl")
    await world.cluster.settle(60)
    before = len(traced.spans())
    await asyncio.sleep(5 * 3600)
    assert len(traced.spans()) == before, "the look at everything after four hours is not traced"


@pytest.mark.simulated
async def test_a_gang_that_does_not_fit_shows_the_reason_in_the_trace_and_the_log(cluster: object) -> None:
    exporter = InMemorySpanExporter()
    traces = Traces(OtelExport("grove", SimpleSpanProcessor(exporter)), cluster.clock)
    async with operating(cluster, nodes=Topology(nodes=1, pods=3), traces=traces) as world:
        world.binder.allow(0)
        with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
            async with beside(Scheduler(world.client, clock=cluster.clock, say=sentence, traces=traces).run()):
                made = await world.apply(wl1())
                await asyncio.sleep(120)
    refused = [one for one in exporter.get_finished_spans() if one.name == "decision"]
    assert {one.attributes["result"] for one in refused} == {"refused"}
    assert "pods" in refused[0].attributes["message"]
    lines = [line for line in logs if line["event"] == "no place"]
    assert lines
    assert {line["trace_id"] for line in lines} == {made.metadata.uid.replace("-", "")}
    assert {line["span_id"] for line in lines} <= {f"{one.context.span_id:016x}" for one in refused}


def _is_grove(event: Event) -> bool:
    return event.source.get("component") in ("grove-operator", "grove-scheduler")
