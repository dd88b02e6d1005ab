"""Objects of every kind as tools that wait for them see them, and what each tool is to make of them.

`kstatus` has the published rules of sigs.k8s.io/cli-utils/pkg/kstatus for kinds without rules of their own. Flux health
checks and `helm install --wait` of Helm 4 use that library. `ROWS` is the one table of objects: the rules here and the
Lua of Argo CD are tested on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from grove.api.podcliqueset import PodCliqueSet

Json = dict[str, Any]

CURRENT, IN_PROGRESS, FAILED, TERMINATING = "Current", "InProgress", "Failed", "Terminating"
HEALTHY, PROGRESSING, DEGRADED, SUSPENDED = "Healthy", "Progressing", "Degraded", "Suspended"


def kstatus(obj: Json) -> str:
    """The answer of kstatus for an object of a custom kind."""
    meta, status = obj["metadata"], obj.get("status", {})
    if meta.get("deletionTimestamp"):
        return TERMINATING
    if status.get("observedGeneration", meta.get("generation")) != meta.get("generation"):
        return IN_PROGRESS
    conditions = status.get("conditions", [])
    for one in conditions:
        if one["type"] == "Reconciling" and one["status"] == "True":
            return IN_PROGRESS
        if one["type"] == "Stalled" and one["status"] == "True":
            return FAILED
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "True")
    return CURRENT if ready == "True" else IN_PROGRESS


class Row(NamedTuple):
    """An object, what kstatus says of it, and its health in Argo CD."""

    id: str
    obj: Json
    kstatus: str
    health: str


def _object(kind: str, generation: int = 2, *, deleted: bool = False, **status: Any) -> Json:
    group = "scheduler.grove.io" if kind == "PodGang" else "grove.io"
    meta: Json = {"name": "chat", "namespace": "default", "generation": generation}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: Json = {} if kind == "PodGang" else {"replicas": 2}
    found = {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
    return {**found, "status": status} if status else found


def _said(state: str, reason: str, message: str = "why") -> list[Json]:
    """The conditions that `with_standing` writes, beside one that tools do not read."""
    words = {"reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    other = {"type": "TopologyLevelsUnavailable", "status": "False", **words}
    ready = {"type": "Ready", "status": "True" if state == "Ready" else "False", **words}
    return [other, ready, *([] if state == "Ready" else [{"type": state, "status": "True", **words}])]


def _rows(kind: str) -> list[Row]:
    def row(id_: str, obj: Json, kstatus_: str, health: str) -> Row:
        return Row(f"{kind}: {id_}", obj, kstatus_, health)

    rows = [
        row("ready", _object(kind, conditions=_said("Ready", "Enough")), CURRENT, HEALTHY),
        row("on its way", _object(kind, conditions=_said("Reconciling", "NotReady")), IN_PROGRESS, PROGRESSING),
        row("stalled", _object(kind, conditions=_said("Stalled", "FailedCreate")), FAILED, DEGRADED),
        row("deleted", _object(kind, deleted=True, conditions=_said("Ready", "Enough")), TERMINATING, PROGRESSING),
    ]
    if kind != "PodCliqueSet":
        # Grove creates these objects. So no tool waits for them before they have a status; the CRD has no default.
        rows.append(row("nobody has seen it", _object(kind), CURRENT, PROGRESSING))
    if kind == "PodGang":
        return rows
    seen = {"replicas": 2, "observedGeneration": 2}
    return [
        *rows,
        row("ready and observed", _object(kind, **seen, conditions=_said("Ready", "Enough")), CURRENT, HEALTHY),
        row(
            "ready before a change",
            _object(kind, 3, **seen, conditions=_said("Ready", "Enough")),
            IN_PROGRESS,
            PROGRESSING,
        ),
        row(
            "stalled and observed",
            _object(kind, **seen, conditions=_said("Stalled", "MaximumReached")),
            FAILED,
            DEGRADED,
        ),
    ]


_NEW = _object("PodCliqueSet", 1, **PodCliqueSet.BEFORE_FIRST_STATUS)
_PAUSED = _object("PodCliqueSet", 3, observedGeneration=2, conditions=_said("Reconciling", "UpdatePaused"))
_PAUSED["metadata"]["annotations"] = {"grove.io/rollout-paused": "true"}

ROWS = [
    *(row for kind in ("PodCliqueSet", "PodCliqueScalingGroup", "PodClique", "PodGang") for row in _rows(kind)),
    Row("PodCliqueSet: no operator has seen it", _NEW, IN_PROGRESS, PROGRESSING),
    Row("PodCliqueSet: an update is paused", _PAUSED, IN_PROGRESS, SUSPENDED),
]

HALF: list[Json] = [
    {},
    {"kind": "PodCliqueSet"},
    {"metadata": {}},
    {"metadata": {"name": "chat"}, "spec": {}},
    {"metadata": {"generation": 1}, "status": {}},
    {"metadata": {"generation": 1}, "status": {"conditions": []}},
    {"metadata": {"generation": 1}, "status": {"conditions": [{}]}},
    {"metadata": {"generation": 1}, "status": {"conditions": [{"type": "Ready"}]}},
    {"metadata": {"generation": 1}, "spec": {"template": {}}, "status": {"observedGeneration": 1}},
    {"metadata": {"generation": 1}, "spec": {"template": {"cliques": [{}]}}},
]
"""Objects that lack what a script may read: before the first status, cut off, or from an older version."""
