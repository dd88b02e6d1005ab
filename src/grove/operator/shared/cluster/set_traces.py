"""What the operator adds to the trace of a set: every reconcile until the set is ready, and what became ready.

A set that is ready at its current generation is not traced, so a cluster at rest records nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from grove.api.conditions import READY, SCHEDULED, TRUE
from grove.api.core import Pod
from grove.api.meta import Conditions, Key, Object, Struct, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.controller import Tracing
from grove.kube.tracing import Span, Traces, trace_id_of
from grove.operator.shared.cluster.sets import set_key

POD_SCHEDULED = "PodScheduled"
T = TypeVar("T", bound=Object)


class SetTraces:
    """Spans of one operator. It finds sets in the cache."""

    def __init__(self, traces: Traces, cache: Cache) -> None:
        self._traces, self._cache = traces, cache

    def of_controller(self, controller: str) -> Tracing[Any] | None:
        """How the reconciles of a controller are traced; None if it does not work on sets or their parts."""
        names: dict[str, Callable[[Any], tuple[PodCliqueSet | None, str]]] = {
            "podcliqueset-controller": lambda key: (self._cache.get(PodCliqueSet, key), key.name),
            "podcliquescalinggroup-controller": lambda key: (self._of_part(PodCliqueScalingGroup, key), key.name),
            "podclique-controller": lambda key: (self._of_part(PodClique, key), key.name),
            "podgang": lambda key: (self._cache.get(PodCliqueSet, Key(key.namespace, key.pcs)), key.name),
        }
        find = names.get(controller)
        return partial(self._reconcile, controller, find) if find is not None else None

    def trace_id_of(self, about: Object) -> str:
        """The trace of the set that an object is part of; empty if it is part of none."""
        pcs = self._set_of(about)
        return trace_id_of(pcs.metadata.uid) if pcs is not None else ""

    def status_written(self, before: Object, status: Struct) -> None:
        """Records the start of a trace, and what became ready; gangs of other schedulers when they are placed."""
        pcs, old = self._set_of(before), getattr(before, "status", None)
        if pcs is None:
            return
        uid, meta = pcs.metadata.uid, before.metadata
        created = meta.creation_timestamp or self._traces.now()
        if isinstance(before, PodCliqueSet) and before.status.observed_generation is None:
            name = f"{meta.namespace}/{meta.name}"
            self._traces.record(uid, "apply", created, attributes={"set": name}, is_root=True)
        turned = SCHEDULED if isinstance(before, PodGang) else READY
        if is_true(_conditions(old), turned) or not is_true(_conditions(status), turned):
            return
        attributes = {"kind": before.RESOURCE.kind, "name": meta.name}
        if isinstance(before, PodCliqueSet):
            unready = find_condition(_conditions(old), READY)
            since = unready.last_transition_time if unready is not None else None
            self._traces.record(uid, "ready", since or created, attributes=attributes)
        elif isinstance(before, PodClique):
            pods = self._cache.owned(Pod, by=meta.uid)
            placed = [
                condition
                for pod in pods
                if (condition := find_condition(pod.status.conditions, POD_SCHEDULED)) is not None
            ]
            bound = [
                condition.last_transition_time for condition in placed if condition.last_transition_time is not None
            ]
            self._traces.record(uid, "start", min(bound, default=created), attributes=attributes)
        elif isinstance(before, PodGang):
            self._traces.record(uid, "gang", created, attributes=attributes)

    def _set_of(self, part: Object) -> PodCliqueSet | None:
        if isinstance(part, PodCliqueSet):
            return part
        key = set_key(part)
        return self._cache.get(PodCliqueSet, key) if key is not None else None

    def _of_part(self, kind: type[T], key: Key) -> PodCliqueSet | None:
        part = self._cache.get(kind, key)
        return self._set_of(part) if part is not None else None

    def _reconcile(
        self, controller: str, find: Callable[[Any], tuple[PodCliqueSet | None, str]], key: Any
    ) -> AbstractContextManager[Span] | None:
        pcs, name = find(key)
        if pcs is None:
            return None
        ready = find_condition(pcs.status.conditions, READY)
        if ready is not None and ready.status == TRUE and ready.observed_generation == pcs.metadata.generation:
            return None
        return self._traces.span(pcs.metadata.uid, "reconcile", {"controller": controller, "name": name})


def _conditions(status: Any) -> Conditions:
    conditions: Conditions = getattr(status, "conditions", ())
    return conditions
