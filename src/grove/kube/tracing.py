"""Traces: spans about one object, which several processes write into one trace without talking to each other.

The trace id of an object is its uid without dashes. The id of its first span is the first half of that. So every
process computes both, nothing is written to the cluster, and `kubectl get -o jsonpath={.metadata.uid}` finds the trace.
A span is recorded when it has ended. `otel` exports it; only a process that is asked for traces imports that module.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from grove.kube.clock import SYSTEM, Clock

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Environment variables of OpenTelemetry; a process exports traces if one of them is set."""
TRACE_ID = "grove.io/trace-id"
"""Annotation of Events."""

Value = str | int | bool
log = structlog.get_logger(__name__)


def trace_id_of(uid: str) -> str:
    """32 hex digits. The uid of an object is a UUID on every API server; other strings are hashed."""
    digits = uid.replace("-", "").lower()
    is_uuid = len(digits) == 32 and not digits.strip("0123456789abcdef") and int(digits[:16], 16)
    return digits if is_uuid else hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()


def root_id_of(uid: str) -> str:
    """The id of the first span of the object's trace: 16 hex digits."""
    return trace_id_of(uid)[:16]


@dataclass(slots=True)
class Span:
    """A span of a trace: the work of one process for one object. `is_root` marks the parent of all other spans."""

    uid: str
    name: str
    began: datetime
    ended: datetime
    span_id: str
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""
    is_root: bool = False


class Traces:
    """Records spans. `export` takes each as it ends and does not wait."""

    def __init__(self, export: Callable[[Span], None], clock: Clock = SYSTEM) -> None:
        self._export, self._clock = export, clock

    def now(self) -> datetime:
        return self._clock.now()

    def record(
        self,
        uid: str,
        name: str,
        began: datetime,
        *,
        attributes: Mapping[str, Value] | None = None,
        error: str = "",
        is_root: bool = False,
    ) -> None:
        """A span that ends now."""
        span_id = root_id_of(uid) if is_root else _new_id()
        ended = self.now()
        self._export(Span(uid, name, min(began, ended), ended, span_id, dict(attributes or {}), error, is_root))

    @contextmanager
    def span(self, uid: str, name: str, attributes: Mapping[str, Value]) -> Iterator[Span]:
        """A span around a block. Log lines of the block carry `trace_id` and `span_id`."""
        now = self.now()
        span = Span(uid, name, now, now, _new_id(), dict(attributes))
        with structlog.contextvars.bound_contextvars(trace_id=trace_id_of(uid), span_id=span.span_id):
            try:
                yield span
            except BaseException as err:
                span.error = span.error or str(err) or type(err).__name__
                raise
            finally:
                span.ended = self.now()
                self._export(span)


def _new_id() -> str:
    return f"{random.getrandbits(64) or 1:016x}"


def traces_asked_for(service: str) -> tuple[Traces | None, Callable[[], None]]:
    """The traces of this process, and how to end them; None if the environment does not ask for traces."""
    if not any(os.environ.get(name) for name in ENDPOINTS) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None, lambda: None
    try:
        from grove.kube.otel import otlp_traces  # noqa: PLC0415 (it needs the packages of the extra)
    except ImportError as err:
        log.warning("no traces: install the packages with pip install 'grove-k8s[otel]'", missing=str(err))
        return None, lambda: None
    log.info("traces are exported", service=service)
    return otlp_traces(service)
