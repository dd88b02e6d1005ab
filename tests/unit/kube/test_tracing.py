"""Traces: ids from uids, spans by the SDK of OpenTelemetry, and nothing of it where they are not asked for."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from grove.kube import otel
from grove.kube.otel import OtelExport
from grove.kube.tracing import ENDPOINTS, Traces, root_id_of, trace_id_of, traces_asked_for

UID = "6f1b0c52-3d1e-4f8a-9c77-0a1b2c3d4e5f"
BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Later:
    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=5)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Traces:
    return Traces(OtelExport("grove-operator", SimpleSpanProcessor(exporter)), Later())


def test_the_trace_id_is_the_uid() -> None:
    assert trace_id_of(UID) == trace_id_of(UID.upper()) == "6f1b0c523d1e4f8a9c770a1b2c3d4e5f"
    assert root_id_of(UID) == "6f1b0c523d1e4f8a"


@pytest.mark.parametrize("uid", ["uid-web", "00000000-0000-0000-0000-000000000001", ""])
def test_what_cannot_be_a_trace_id_is_hashed(uid: str) -> None:
    found = trace_id_of(uid)
    assert len(found) == 32
    assert int(root_id_of(uid), 16), "OpenTelemetry refuses an id of zeros"
    assert found != uid.replace("-", "")


def test_every_span_is_below_the_first_one(traces: Traces, exporter: InMemorySpanExporter) -> None:
    traces.record(UID, "admission", BEGAN, attributes={"operation": "CREATE"}, error="refused")
    traces.record(UID, "apply", BEGAN, is_root=True)
    below, root = exporter.get_finished_spans()
    assert root.parent is None
    assert below.parent.span_id == root.context.span_id
    assert below.context.trace_id == root.context.trace_id == int(trace_id_of(UID), 16)
    assert below.end_time - below.start_time == 5_000_000_000
    assert (below.status.status_code, below.status.description) == (StatusCode.ERROR, "refused")
    assert below.resource.attributes["service.name"] == "grove-operator"


def test_log_lines_of_a_block_carry_the_ids(traces: Traces, exporter: InMemorySpanExporter) -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        log = structlog.get_logger()
        with traces.span(UID, "reconcile", {"name": "chat"}) as traced:
            log.info("inside")
            traced.error = "broken"
        log.info("outside")
    (span,) = exporter.get_finished_spans()
    assert lines[0]["trace_id"] == trace_id_of(UID)
    assert lines[0]["span_id"] == f"{span.context.span_id:016x}"
    assert "trace_id" not in lines[1]
    assert span.status.description == "broken"


@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio"])
@pytest.mark.parametrize(("ratio", "count"), [("0", 0), ("1", 2)])
def test_a_trace_is_sampled_whole(
    monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter, sampler: str, ratio: str, count: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    traces = Traces(OtelExport("grove-operator", SimpleSpanProcessor(exporter)), Later())
    traces.record(UID, "apply", BEGAN, is_root=True)
    traces.record(UID, "ready", BEGAN)
    assert len(exporter.get_finished_spans()) == count


def test_spans_are_sent_to_the_endpoint_before_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        monkeypatch.setattr(otel, "END_S", 60.0)  # the machine may be busy
        monkeypatch.setenv(ENDPOINTS[0], f"http://127.0.0.1:{server.server_port}")
        traces, end = traces_asked_for("grove-scheduler")
        assert traces is not None
        traces.record(UID, "decision", BEGAN)
        end()
    finally:
        server.shutdown()
        server.server_close()
    (request,) = received
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("decision", trace_id_of(UID))


def test_without_an_endpoint_there_are_no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert traces_asked_for("grove-operator")[0] is None


def test_without_the_packages_a_log_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "grove.kube.otel", None)
    with structlog.testing.capture_logs() as lines:
        assert traces_asked_for("grove-operator")[0] is None
    assert "grove-k8s[otel]" in lines[0]["event"]


def test_no_process_imports_the_packages_unasked() -> None:
    program = (
        "import sys, grove.cli.operator, grove.cli.scheduler, grove.operator.wiring, grove.scheduler.loop.live, "
        "grove.admission.serving.service\n"
        "from grove.kube.tracing import traces_asked_for\n"
        "assert traces_asked_for('x')[0] is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert ended.stdout.strip() == "[]"
