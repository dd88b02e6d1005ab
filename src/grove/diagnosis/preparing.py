"""Why a node cannot prepare a pod: its volumes or its network, from the kubelet's warnings, and what to do. Pure."""

from __future__ import annotations

import re

from grove.api.core import Event
from grove.api.pod import Pod

_VOLUME = re.compile(r"volume \"([^\"]+)\"|unmounted volumes=\[([^\],\s]+)")
_LAYERS = re.compile(r".*?(?:desc = |failed \(add\): |sandbox \"[^\"]*\": )", re.DOTALL)
"""What kubelets and runtimes put before the cause."""
_MULTI_ATTACH = "Multi-Attach error"
MOST_WORDS = 160


def not_prepared(pod: Pod, event: Event) -> tuple[str, str] | None:
    """The reason and the step, if a warning says that the volumes or the network of a pod cannot be set up."""
    node, name = pod.spec.node_name, pod.metadata.name
    volume = _VOLUME.search(event.message)
    of = f"volume {volume[1] or volume[2]}" if volume else "a volume"
    match event.reason:
        case "FailedAttachVolume" if _MULTI_ATTACH in event.message:
            step = "let its claim allow ReadWriteMany or ReadOnlyMany, or delete the pod on the other node"
            return f"{of} is attached to another node, and allows one", step
        case "FailedMount" | "FailedAttachVolume":
            verb = "mounted" if event.reason == "FailedMount" else "attached"
            step = f"check the volume's CSI driver on node {node}, and its storage; kubectl describe pod {name}"
            return f"{of} cannot be {verb}: {_cause(event.message)}", step
        case "FailedCreatePodSandBox":
            step = f"check the network plugin on node {node}; for another node: kubectl cordon {node}, delete the pod"
            return f"node {node} cannot set up the pod: {_cause(event.message)}", step
    return None


def _cause(message: str) -> str:
    """The last part of a message, behind the names of the layers that it came through."""
    text = message.strip().splitlines()[0] if message.strip() else ""
    while (match := _LAYERS.match(text)) is not None and text[match.end() :]:
        text = text[match.end() :]
    if text.startswith("Unable to attach or mount volumes"):
        text = text.rpartition(": ")[2]
    elif text == message and " : " in text:
        text = text.partition(" : ")[2]
    return text[:MOST_WORDS]
