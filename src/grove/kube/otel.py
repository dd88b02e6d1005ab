"""Exports spans with OpenTelemetry. The only module that imports its packages, which are the extra `grove-k8s[otel]`.

The SDK reads its own environment variables: endpoint, headers, sampler, batch sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from grove import __version__
from grove.kube.clock import SYSTEM, Clock
from grove.kube.tracing import Span, Traces, root_id_of, trace_id_of

END_S = 2.0
"""How long a process that ends waits for its last spans to be sent."""


class _GivenIds(IdGenerator):
    """Gives the next span the ids that were set: ours are computed from uids."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class OtelExport:
    """Turns each of our spans into one of the SDK. Every span of a trace is sampled, or none."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        self._ids = _GivenIds()
        resource = Resource.create({"service.name": service, "service.version": __version__})
        self.provider = TracerProvider(resource=resource, id_generator=self._ids)
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("grove", __version__)

    def __call__(self, span: Span) -> None:
        self._ids.trace_id = trace_id = int(trace_id_of(span.uid), 16)
        self._ids.span_id = int(span.span_id, 16)
        context = trace.set_span_in_context(trace.INVALID_SPAN)
        if not span.is_root:
            decision = self.provider.sampler.should_sample(None, trace_id, span.name).decision
            is_sampled = decision is Decision.RECORD_AND_SAMPLE
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if is_sampled else trace.TraceFlags.DEFAULT)
            parent = trace.SpanContext(trace_id, int(root_id_of(span.uid), 16), is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        made = self._tracer.start_span(
            span.name, context, attributes=span.attributes, start_time=_nanoseconds(span.began)
        )
        if span.error:
            made.set_status(trace.StatusCode.ERROR, span.error)
        made.end(_nanoseconds(span.ended))


def _nanoseconds(when: datetime) -> int:
    return round(when.timestamp() * 1e6) * 1000


def otlp_traces(service: str, clock: Clock = SYSTEM) -> tuple[Traces, Callable[[], None]]:
    """Traces that a thread sends over OTLP and HTTP, and the call that sends the last ones."""
    export = OtelExport(service, BatchSpanProcessor(OTLPSpanExporter()))

    def end() -> None:
        # In a thread: a collector that does not answer must not hold up the end of the process.
        last = threading.Thread(target=export.provider.shutdown, daemon=True)
        last.start()
        last.join(END_S)

    return Traces(export, clock), end
