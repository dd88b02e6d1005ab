"""An update in place: a pod gets new images, labels and annotations, and keeps its node and its claims.

A pod of a set with `updateStrategy.inPlace: IfPossible` has a readiness gate, and an annotation that says what of it
cannot be patched. An update takes such a pod in three steps, and looks at the pod again before each:

    drained    the gate is closed, so the kubelet reports the pod as not ready
    patched    a pod that is not ready gets its images, labels and annotations; the annotation names the old containers
    back       the kubelet has started other containers: the gate opens, and the probes decide about readiness

A pod is recreated instead if more than that changed, if `rollout restart` asked for it, or if it is not
`restartPolicy: Always`. The same holds if its kubelet still runs the old containers after two minutes. In a coherent
update it is also recreated if a container would keep its old GROVE_REVISION. If a pod is no longer chosen, after a
pause or an undo, its gate opens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api import labels, labelsets
from grove.api.conditions import DRAINS, FALSE, IN_PLACE, IN_PLACE_UPDATE, READY_FOR_TRAFFIC, TRUE
from grove.api.core import Pod
from grove.api.draining import has_readiness_gate
from grove.api.meta import Json, Struct, find_condition
from grove.api.podclique import PodClique

PATIENCE_S = 120.0
"""How long a kubelet may run the old containers of a patched pod before the pod is recreated."""


class InPlaceRecord(Struct):
    """The record of a template on its pod: a hash of the parts that no patch can change, and the template's keys.

    `stopping` are the ids of the containers that a patch has the kubelet stop, by name; `since` is when.
    """

    base: str = ""
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    stopping: dict[str, str] = {}
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class InPlaceStep:
    """The next step for one pod. `gate` is the new status of its readiness gate; empty if it stays."""

    gate: str = ""
    patch: tuple[Json, ...] = ()
    recreate: bool = False
    wait_s: float | None = None


def prepare(pod: Json, clique: PodClique) -> None:
    """Gives a new pod its gate and its record.

    `clique` is what the pod is made from: its template may be another than that of the set now.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    if spec.get("restartPolicy", "Always") != "Always":
        return
    add_gate(spec)
    record = InPlaceRecord(
        base=_base(spec, clique.metadata.annotations.get(labels.RESTARTED_AT, "")),
        labels=labelsets.template_keys(clique.metadata.labels),
        annotations=tuple(sorted(clique.metadata.annotations)),
    )
    metadata["annotations"][labels.IN_PLACE] = msgspec.json.encode(record).decode()


def add_gate(spec: Json) -> None:
    gates = spec.get("readinessGates") or ()
    if not any(gate.get("conditionType") == IN_PLACE for gate in gates):
        spec["readinessGates"] = [*gates, {"conditionType": IN_PLACE}]


def record_of(pod: Pod) -> InPlaceRecord | None:
    """The record of a pod; None if it has none, or a hand has spoilt it: then it is recreated."""
    try:
        return msgspec.json.decode(pod.metadata.annotations[labels.IN_PLACE], type=InPlaceRecord)
    except (KeyError, msgspec.DecodeError):
        return None


def can_be_patched(pod: Pod, wanted: Json) -> bool:
    """True if a patch makes the pod equal to a new pod of the template."""
    there, now = record_of(pod), _record_in(wanted)
    is_whole = {container.name for container in pod.spec.containers} >= {
        container["name"] for container in wanted["spec"]["containers"]
    }
    return there is not None and now is not None and there.base == now.base and has_readiness_gate(pod) and is_whole


def keeps_old_revision(pod: Pod, wanted: Json) -> bool:
    """Whether a patch leaves a container running with the GROVE_REVISION of before.

    Only another image restarts a container. Containers that Grove did not write do not have the variable.
    """
    if pod.metadata.labels.get(labels.REVISION) == wanted["metadata"]["labels"].get(labels.REVISION):
        return False
    images, spec = {container.name: container.image for container in pod.spec.containers}, wanted["spec"]
    has_sidecar = any(container.get("restartPolicy") == "Always" for container in spec.get("initContainers") or ())
    return has_sidecar or any(images.get(container["name"]) == container["image"] for container in spec["containers"])


def step_of_chosen(pod: Pod, wanted: Json, now: datetime) -> InPlaceStep:
    """The next step of a pod that an update takes, and that can be patched."""
    if gate_of(pod) != FALSE and pod.is_bound:
        return InPlaceStep(gate=FALSE)
    if pod.is_ready:
        return InPlaceStep()  # its kubelet reports soon that the gate is closed
    return InPlaceStep(patch=tuple(_patch(pod, wanted, now)))


def step_of_staying(pod: Pod, now: datetime) -> InPlaceStep:
    """The next step of a pod that stays as it is: its gate opens, unless the kubelet still stops old containers."""
    if not has_readiness_gate(pod) or not pod.status.conditions or gate_of(pod) == TRUE:
        return InPlaceStep()
    record = record_of(pod) or InPlaceRecord()
    running = {status.name: status.container_id for status in pod.status.container_statuses}
    if not any(running.get(name) == old for name, old in record.stopping.items()):
        return InPlaceStep(gate=TRUE)
    left_s = PATIENCE_S - (now - record.since).total_seconds() if record.since is not None else 0.0
    return InPlaceStep(recreate=True) if left_s <= 0 else InPlaceStep(wait_s=left_s)


def gate_words(status: str, *, drains: bool = False) -> tuple[str, str]:
    """Reason and message of the gate's condition."""
    if drains:
        return DRAINS, "the pod drains"
    if status == TRUE:
        return READY_FOR_TRAFFIC, "no update in place is under way"
    return IN_PLACE_UPDATE, "the pod is updated in place"


def gate_of(pod: Pod) -> str:
    """The status of a pod's readiness gate; empty while the pod does not have the condition."""
    condition = find_condition(pod.status.conditions, IN_PLACE)
    return condition.status if condition is not None else ""


def _record_in(wanted: Json) -> InPlaceRecord | None:
    text = wanted["metadata"]["annotations"].get(labels.IN_PLACE)
    return msgspec.json.decode(text, type=InPlaceRecord) if text else None


def _patch(pod: Pod, wanted: Json, now: datetime) -> Iterable[Json]:
    there, made = record_of(pod) or InPlaceRecord(), _record_in(wanted) or InPlaceRecord()
    at = {container.name: index for index, container in enumerate(pod.spec.containers)}
    before = {container.name: container.image for container in pod.spec.containers}
    changed = {
        container["name"]: container["image"]
        for container in wanted["spec"]["containers"]
        if before[container["name"]] != container["image"]
    }
    ids = {status.name: status.container_id for status in pod.status.container_statuses}
    stopping = {name: ids[name] for name in sorted(changed) if ids.get(name)}
    record = msgspec.structs.replace(made, stopping=stopping, since=now)
    own = {**wanted["metadata"]["annotations"], labels.IN_PLACE: msgspec.json.encode(record).decode()}
    yield {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
    yield from _keys("labels", pod.metadata.labels, wanted["metadata"]["labels"], there.labels)
    yield from _keys("annotations", pod.metadata.annotations, own, there.annotations)
    for name, image in changed.items():
        path = f"/spec/containers/{at[name]}"
        yield {"op": "test", "path": f"{path}/name", "value": name}
        yield {"op": "replace", "path": f"{path}/image", "value": image}


def _keys(part: str, there: dict[str, str], wanted: dict[str, str], ours: Iterable[str]) -> Iterable[Json]:
    for key, value in sorted(wanted.items()):
        if there.get(key) != value:
            yield {"op": "add", "path": f"/metadata/{part}/{_escaped(key)}", "value": value}
    for key in sorted({*ours} & there.keys() - wanted.keys()):
        yield {"op": "remove", "path": f"/metadata/{part}/{_escaped(key)}"}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _base(spec: Json, restarted_at: str) -> str:
    """A digest of all that a pod cannot get while it runs. The start-order container has done its work by then.

    `rollout restart` writes an annotation alone, and a patch of annotations restarts nothing.
    """
    fixed = {
        **spec,
        **({labels.RESTARTED_AT: restarted_at} if restarted_at else {}),
        "containers": [{**container, "image": ""} for container in spec["containers"]],
        "initContainers": [
            container for container in spec.get("initContainers") or () if container["name"] != labels.STARTUP_CONTAINER
        ],
    }
    return hashlib.sha256(msgspec.json.encode(fixed, order="sorted")).hexdigest()[:16]
