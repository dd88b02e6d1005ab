"""Why the containers of a pod do not run or are not ready, and what to do: images, probes, ends of containers. Pure.

The reason comes from the pod's status and from the warnings that kubelets wrote about the pod. What a node does before
it starts containers, volumes and network, is in `preparing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from grove.api.core import Event
from grove.api.pod import Container, ContainerStatus, ContainerTermination, Pod
from grove.diagnosis.last_words import exit_words, telling_line
from grove.diagnosis.preparing import not_prepared

OUT_OF_MEMORY = "OOMKilled"
CRASH_LOOP = "CrashLoopBackOff"
_PROBE = re.compile(r"^(Readiness|Liveness|Startup) probe (?:failed|errored[^:]*): (.*)", re.DOTALL)
_FIELD = re.compile(r"\{(.+)\}")
"""The name of a container in the field that an event is about: `spec.containers{llm}`."""
_PORT = re.compile(r":(\d{1,5})(?=[/\":\s]|$)")
_ANSWER = re.compile(r"statuscode: (\d+)")
_IMAGE_WAITS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_NOT_FOUND = re.compile(r"not found|manifest unknown|NotFound|does not exist", re.IGNORECASE)
_REFUSED = re.compile(r"unauthorized|denied|authentication required|forbidden|no basic auth", re.IGNORECASE)
_SILENT = re.compile(r"no such host|i/o timeout|connection refused|dial tcp|deadline exceeded", re.IGNORECASE)
_FULL = re.compile(r"no space left", re.IGNORECASE)
_NOT_CREATED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NO_COMMAND = re.compile(r"exec: .*?(?=: unknown$|$)", re.MULTILINE)
"""What a container runtime says about a command, behind the names of its own layers."""
_AS_ROOT = re.compile(r"runAsNonRoot", re.IGNORECASE)
_ABSENT = re.compile(r"\b(secret|configmap|persistentvolumeclaim) \"?([^\"\s]+)\"? not found", re.IGNORECASE)


def pod_cause(pod: Pod, warnings: Iterable[Event]) -> tuple[str, str] | None:
    """A reason and a step for a pod that is not ready; None if nothing more exact is known than its state."""
    mine = [warning for warning in warnings if warning.involved_object.name == pod.metadata.name]
    mine.sort(key=lambda event: str(event.last_timestamp or event.event_time or ""), reverse=True)
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for status in statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in _IMAGE_WAITS:
            return _image(pod, status, [waiting.message, *(event.message for event in mine)])
    probe = next((cause for event in mine if (cause := _probe(pod, event)) is not None), None)
    for status in statuses:
        if (cause := _not_created(pod, status) or _ended(pod, status, probe)) is not None:
            return cause
    if not any(status.state.running for status in statuses):
        causes = (not_prepared(pod, event) for event in mine if create_absent(event.message) == "")
        if (cause := next(filter(None, causes), None)) is not None:
            return cause
    # A container that ended refuses every probe: its own end is the cause, and the caller has that.
    return None if any(map(_is_down, statuses)) else probe


def create_absent(message: str) -> str:
    """The step for an object that a kubelet does not find; empty if a message is about something else."""
    match = _ABSENT.search(message)
    return f"create the {match[1].lower()} {match[2]} in its namespace, or correct the pod template" if match else ""


def waits_for_image(pod: Pod) -> bool:
    """True if a container of the pod waits because its image is not pulled."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(status.state.waiting is not None and status.state.waiting.reason in _IMAGE_WAITS for status in statuses)


def _is_down(status: ContainerStatus) -> bool:
    """True if the container ended with an error and is not started again yet."""
    ended = status.state.terminated or status.last_state.terminated
    return status.state.running is None and ended is not None and bool(ended.exit_code)


def _image(pod: Pod, status: ContainerStatus, messages: Sequence[str]) -> tuple[str, str] | None:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    image = next((container.image for container in containers if container.name == status.name), "") or status.image
    message, waiting = " ".join(messages), status.state.waiting
    where = f"container {status.name}"
    if waiting is not None and waiting.reason == "InvalidImageName":
        return f"image name {image} is not valid ({where})", "correct the image in the pod template"
    if waiting is not None and waiting.reason == "ErrImageNeverPull":
        step = "load the image on the node, or set imagePullPolicy: IfNotPresent"
        return f"image {image} is not on node {pod.spec.node_name} and may not be pulled ({where})", step
    if _REFUSED.search(message):
        step = "add a Secret of type kubernetes.io/dockerconfigjson to imagePullSecrets, or check that it is valid"
        return f"image {image}: the registry refuses the pull ({where})", step
    if _NOT_FOUND.search(message):
        return f"image {image} not found ({where})", "correct the image's name or tag, or push the image"
    if _FULL.search(message):
        return f"image {image}: node {pod.spec.node_name} has no space left", "free the node's disk"
    if _SILENT.search(message):
        registry = image.partition("/")[0] if "." in image.partition("/")[0] else "the registry"
        return f"image {image}: {registry} does not answer ({where})", "check the registry and the node's network"
    return None


def _probed(pod: Pod, event: Event) -> Container | None:
    """The container that the probe of an event is of; None if the event does not say which of several."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if named := _FIELD.search(event.involved_object.field_path):
        return next((container for container in containers if container.name == named[1]), None)
    return containers[0] if len(containers) == 1 else None


def _probe(pod: Pod, event: Event) -> tuple[str, str] | None:
    """The reason of a failed probe and a step, from its message and the ports that its container declares."""
    match = _PROBE.match(event.message)
    if match is None:
        return None
    kind, message = match[1].lower(), match[2].strip()
    ports = [int(port) for port in _PORT.findall(message)]
    where = f"{kind} probe on port {ports[-1]}" if ports else f"{kind} probe"
    if not ports:
        last = message.splitlines()[-1] if message else "failed"
        return f"{where} fails: {last[:120]}", f"kubectl logs {pod.metadata.name}, or correct the {kind}Probe"
    probed = _probed(pod, event)
    declared = sorted({port.container_port for port in probed.ports}) if probed is not None else []
    answer = _ANSWER.search(message)
    if answer is not None:
        return (
            f"{where} answers {answer[1]}",
            f"kubectl logs {pod.metadata.name}: the server is not ready yet, or fails",
        )
    if "refused" not in message:
        return (
            f"{where} has no answer in time",
            f"kubectl logs {pod.metadata.name}, or raise timeoutSeconds of the probe",
        )
    if declared and ports[-1] not in declared:
        others = ", ".join(map(str, declared))
        reason = f"{where} refused; the container declares port {others}"
        return reason, f"set the port of the {kind}Probe to {declared[0]}, or let the server listen on {ports[-1]}"
    return f"{where} refused", f"kubectl logs {pod.metadata.name}: does the server listen on port {ports[-1]}?"


def _not_created(pod: Pod, status: ContainerStatus) -> tuple[str, str] | None:
    """A container that the kubelet cannot create from its template. It never ran, so it has no log."""
    waiting = status.state.waiting
    if waiting is None or waiting.reason not in _NOT_CREATED or create_absent(waiting.message):
        return None
    who, message = _who(pod, status), telling_line(waiting.message)
    if _AS_ROOT.search(message):
        step = f"set securityContext.runAsUser of {status.name}, use an image with another user, or allow root"
        return f"{who} may not run as root, and its image does", step
    if (command := _NO_COMMAND.search(message)) is not None:
        return f"{who} cannot start its command: {command[0][:200]}", NO_SUCH_COMMAND
    text = f": {message[:200]}" if message else ""
    return f"{who} cannot be created{text}", f"correct the pod template; kubectl describe pod {pod.metadata.name}"


def _who(pod: Pod, status: ContainerStatus) -> str:
    init = any(container.name == status.name for container in pod.spec.init_containers)
    return f"init container {status.name}" if init else f"container {status.name}"


NO_SUCH_COMMAND = "correct command and args, or the image"


def _ended(pod: Pod, status: ContainerStatus, probe: tuple[str, str] | None) -> tuple[str, str] | None:
    """Ends of containers with a known cause."""
    ended = status.state.terminated or status.last_state.terminated
    if status.ready or ended is None:
        return None
    who, logs = _who(pod, status), f"kubectl logs {pod.metadata.name} -c {status.name} --previous"
    waiting = status.state.waiting
    if not ended.exit_code:
        if waiting is None or waiting.reason != CRASH_LOOP:
            return None
        step = f"correct command and args, so that it keeps running; {logs}"
        return f"{who} ends by itself with exit code 0, again and again", step
    if ended.reason == OUT_OF_MEMORY:
        return f"{who} is out of memory ({OUT_OF_MEMORY})", f"raise resources.limits.memory of {status.name}"
    if ended.exit_code in (126, 127, 128) or ended.reason in ("ContainerCannotRun", "StartError"):
        command = _NO_COMMAND.search(ended.message)
        words = command[0][:200] if command is not None else last_words(ended)
        return f"{who} cannot start its command" + (f": {words}" if words else ""), NO_SUCH_COMMAND
    if ended.exit_code in (137, 143) and probe is not None and probe[0].startswith(("liveness", "startup")):
        return f"{probe[0]}, so the kubelet restarts {who}", probe[1]
    words = last_words(ended)
    if words or who.startswith("init "):
        return f"{who} ends with {exit_words(ended.exit_code)}" + (f": {words}" if words else ""), logs
    return None


def last_words(ended: ContainerTermination) -> str:
    """What a container wrote about its end, in one line."""
    return telling_line(ended.message)[:200]
