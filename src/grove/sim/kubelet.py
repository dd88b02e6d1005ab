"""What a kubelet reads and writes about one pod, as pure functions: the view, and the status it reports.

Every report is one merge patch. Lists in it are whole, so the API server's own PodScheduled condition is carried over.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import ClassVar

from msgspec import field

from grove.api.meta import Condition, Json, Object, Resource, Struct, is_true, rfc3339
from grove.api.patch import to_json
from grove.api.pod import ContainerStatus, Pod, SchedulingGate
from grove.api.startorder import CONDITION_ARGUMENT, READY, reached

STARTUP_GATE = "grove-initc"
_PARENT = "--podcliques="
CLIQUE_LABEL = "grove.io/podclique"


Waited = tuple[str, str, str]
"""Namespace, clique and start condition that pods wait for."""


class RunContainer(Struct):
    name: str = ""
    image: str = ""
    args: tuple[str, ...] = ()
    restart_policy: str = ""


class ReadinessGate(Struct):
    condition_type: str = ""


class RunSpec(Struct):
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    restart_policy: str = "Always"
    host_network: bool = False


class RunStatus(Struct):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = field(name="podIP", default="")
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()


class RunPod(Object):
    """A pod as its node sees it."""

    RESOURCE: ClassVar[Resource] = Pod.RESOURCE

    spec: RunSpec = RunSpec()
    status: RunStatus = RunStatus()

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, "Ready")

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def counts_for(self) -> set[Waited]:
        """The conditions of start order that this pod satisfies for other pods.

        A pod that is being deleted satisfies none.
        """
        if self.metadata.is_deleting:
            return set()
        status, clique = self.status, self.metadata.labels.get(CLIQUE_LABEL, "")
        conditions = reached(self.spec.node_name, status.phase, status.container_statuses, status.conditions)
        return {(self.metadata.namespace, clique, condition) for condition in conditions}


def has_open_gates(pod: RunPod) -> bool:
    """All readiness gates of the pod have their condition, so its containers alone decide."""
    return all(is_true(pod.status.conditions, gate.condition_type) for gate in pod.spec.readiness_gates)


def awaits_report(pod: RunPod) -> bool:
    """A readiness gate turned, or was turned back, since the pod was last reported."""
    if not pod.spec.readiness_gates or pod.status.phase != "Running":
        return False
    return pod.is_ready != (has_open_gates(pod) and is_true(pod.status.conditions, "ContainersReady"))


def parents(pod: RunPod) -> dict[Waited, int]:
    """How many pods of which cliques the pod's startup gate waits for, and what they must be."""
    args = [arg for container in pod.spec.init_containers if container.name == STARTUP_GATE for arg in container.args]
    conditions = [arg.removeprefix(CONDITION_ARGUMENT) for arg in args if arg.startswith(CONDITION_ARGUMENT)]
    condition = conditions[-1] if conditions else READY
    wanted: dict[Waited, int] = {}
    for arg in args:
        if arg.startswith(_PARENT):
            clique, _, count = arg.removeprefix(_PARENT).rpartition(":")
            wanted[pod.metadata.namespace, clique, condition] = int(count)
    return wanted


def running(pod: RunPod, now: datetime, *, ready: bool = True, restarts: int | None = None) -> Json:
    """Running, with all containers up; ready or not."""
    stamp = rfc3339(now)
    before = {status.name: status.restart_count for status in pod.status.container_statuses}
    address = pod.status.pod_ip or _address(pod.metadata.uid)
    state = {"running": {"startedAt": stamp}}
    statuses = [
        _container(c, state, ready=ready, restarts=before.get(c.name, 0) if restarts is None else restarts)
        for c in pod.spec.containers
    ]
    status: Json = {
        "phase": "Running",
        "startTime": rfc3339(pod.status.start_time or now),
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": _address(pod.spec.node_name),
        "conditions": _conditions(pod, stamp, initialized=True, ready=ready),
        "containerStatuses": statuses,
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_finished_init(c, stamp) for c in pod.spec.init_containers]
    return _patch(pod, status)


def has_other_images(pod: RunPod) -> bool:
    """True if the image of a container changed after the container started."""
    images = {container.name: container.image for container in pod.spec.containers}
    return pod.status.phase == "Running" and any(
        status.image and status.image != images.get(status.name) for status in pod.status.container_statuses
    )


def replacing(pod: RunPod, now: datetime) -> Json:
    """The containers with another image are stopped, and started again with it, whatever the restart policy."""
    stamp = rfc3339(now)
    known = {status.name: status for status in pod.status.container_statuses}
    ended = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": stamp}}
    statuses: list[Json] = []
    for container in pod.spec.containers:
        before = known[container.name]
        if before.image == container.image:
            statuses.append(to_json(before))
            continue
        waiting = _container(
            container, {"waiting": {"reason": "ContainerCreating"}}, ready=False, restarts=before.restart_count + 1
        )
        statuses.append({**waiting, "containerID": "", "lastState": ended})
    conditions = _conditions(pod, stamp, initialized=True, ready=False)
    return _patch(pod, {"conditions": conditions, "containerStatuses": statuses})


def heeding_gates(pod: RunPod, now: datetime) -> Json:
    """As it was, with Ready as the containers and the readiness gates have it."""
    ready = is_true(pod.status.conditions, "ContainersReady")
    return _patch(pod, {"conditions": _conditions(pod, rfc3339(now), initialized=True, ready=ready)})


def initializing(pod: RunPod, now: datetime) -> Json:
    """Pending in its last init container, as a pod that waits for its parents shows itself."""
    stamp, inits = rfc3339(now), pod.spec.init_containers
    waiting = _container(inits[-1], {"running": {"startedAt": stamp}}, ready=False, restarts=0)
    status = {
        "phase": "Pending",
        "startTime": stamp,
        "conditions": _conditions(pod, stamp, initialized=False, ready=False),
        "initContainerStatuses": [*(_finished_init(c, stamp) for c in inits[:-1]), waiting],
        "containerStatuses": [
            _container(c, {"waiting": {"reason": "PodInitializing"}}, ready=False, restarts=0)
            for c in pod.spec.containers
        ],
    }
    return _patch(pod, status)


def over(pod: RunPod, now: datetime, *, exit_code: int, reason: str = "") -> Json:
    """Succeeded or Failed, by exit code; the containers will not run again."""
    stamp = rfc3339(now)
    ended = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed"), "finishedAt": stamp}
    status: Json = {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": _conditions(pod, stamp, initialized=True, ready=False),
        "containerStatuses": [
            _container(c, {"terminated": ended}, ready=False, restarts=0) for c in pod.spec.containers
        ],
    }
    if reason:
        status["reason"] = reason
    return _patch(pod, status)


def crashed(pod: RunPod, now: datetime, *, exit_code: int) -> Json:
    """Running but not ready: every container just died and waits to be started again."""
    stamp = rfc3339(now)
    before = {status.name: status.restart_count for status in pod.status.container_statuses}
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error", "finishedAt": stamp}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
    statuses = [
        {**_container(c, waiting, ready=False, restarts=before.get(c.name, 0) + 1), "lastState": ended}
        for c in pod.spec.containers
    ]
    conditions = _conditions(pod, stamp, initialized=True, ready=False)
    return _patch(pod, {"phase": "Running", "conditions": conditions, "containerStatuses": statuses})


def unreachable(pod: RunPod, now: datetime) -> Json:
    """As it was, but not ready: its node no longer reports."""
    conditions = [
        {"type": c.type, "status": c.status, "reason": c.reason, "lastTransitionTime": rfc3339(c.last_transition_time)}
        for c in pod.status.conditions
        if c.type != "Ready" and c.last_transition_time
    ]
    lost = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(now)}
    return _patch(pod, {"conditions": [*conditions, lost]})


def _patch(pod: RunPod, status: Json) -> Json:
    # The uid makes a report about a pod that is gone and came back under its name a Conflict.
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _conditions(pod: RunPod, stamp: str, *, initialized: bool, ready: bool) -> list[Json]:
    wanted = {
        "PodScheduled": True,
        "PodReadyToStartContainers": True,
        "Initialized": initialized,
        "ContainersReady": ready,
        "Ready": ready and has_open_gates(pod),
    }
    before = {c.type: c for c in pod.status.conditions}
    conditions: list[Json] = []
    for type_, holds in wanted.items():
        status, old = "True" if holds else "False", before.get(type_)
        since = (
            rfc3339(old.last_transition_time) if old and old.status == status and old.last_transition_time else stamp
        )
        condition: Json = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        if not holds:
            condition["reason"] = "ContainersNotInitialized" if type_ == "Initialized" else "ContainersNotReady"
        conditions.append(condition)
    # What others say of the pod a kubelet leaves alone.
    return [*conditions, *(to_json(c) for c in pod.status.conditions if c.type not in wanted)]


def _container(container: RunContainer, state: Json, *, ready: bool, restarts: int) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
        "containerID": f"sim://{container.name}-{zlib.crc32(container.image.encode()):08x}-{restarts}",
    }


def _finished_init(container: RunContainer, stamp: str) -> Json:
    if container.restart_policy == "Always":
        return _container(container, {"running": {"startedAt": stamp}}, ready=True, restarts=0)
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": stamp}}
    return _container(container, done, ready=True, restarts=0)


def _address(seed: str) -> str:
    number = zlib.crc32(seed.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
