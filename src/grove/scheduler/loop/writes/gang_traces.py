"""What the scheduler adds to the trace of a set: decisions about its gangs, binds, and how long a gang waited.

The owner of a PodGang is its set, whose uid names the trace. Units that belong to no set have no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Object
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.kube.tracing import Span, Traces, Value, trace_id_of
from grove.scheduler.policy.gang_state import GangState


class GangTraces:
    """Spans of one scheduler. `gangs` has its gangs by namespace and name."""

    def __init__(self, traces: Traces, gangs: Mapping[str, GangState]) -> None:
        self._traces, self._gangs = traces, gangs
        self._decision: Span | None = None
        """The present decision; the scheduler makes one at a time."""

    @contextmanager
    def decision(self, unit: str) -> Iterator[None]:
        """The span around a decision about a unit, by its name. `decided` gives its result."""
        gang = self._gangs.get(unit)
        if gang is None or not (uid := _set_uid(gang.podgang)):
            yield
            return
        with self._traces.span(uid, "decision", {"gang": gang.podgang.metadata.name}) as self._decision:
            try:
                yield
            finally:
                self._decision = None

    def decided(self, result: str, **attributes: Value) -> None:
        if self._decision is not None:
            self._decision.attributes.update(result=result, **attributes)

    @contextmanager
    def bind(self, gang: GangState, pods: int) -> Iterator[Span | None]:
        """The span around the binding of pods."""
        if not (uid := _set_uid(gang.podgang)):
            yield None
            return
        with self._traces.span(uid, "bind", {"gang": gang.podgang.metadata.name, "pods": pods}) as span:
            yield span

    def placed(self, gang: GangState) -> None:
        """The minimum of a gang that waited is on nodes."""
        meta = gang.podgang.metadata
        if uid := _set_uid(gang.podgang):
            attributes = {"kind": gang.podgang.RESOURCE.kind, "name": meta.name}
            self._traces.record(uid, "gang", meta.creation_timestamp or self._traces.now(), attributes=attributes)

    def trace_id_of(self, about: Object) -> str:
        """The trace of a gang or of a pod of a gang; empty if it belongs to no set."""
        podgang = about if isinstance(about, PodGang) else None
        if isinstance(about, Pod):
            gang = self._gangs.get(f"{about.metadata.namespace}/{about.metadata.labels.get(labels.POD_GANG)}")
            podgang = gang.podgang if gang is not None else None
        uid = _set_uid(podgang) if podgang is not None else ""
        return trace_id_of(uid) if uid else ""


def _set_uid(gang: PodGang) -> str:
    owner = gang.metadata.controller
    return owner.uid if owner is not None and owner.kind == PodCliqueSet.RESOURCE.kind else ""
