"""Reasons and steps for pods that are not ready: images, probes, init containers, ends of containers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import objects

from grove.api.core import Event
from grove.api.meta import Json
from grove.api.pod import Pod
from grove.diagnosis.pod_causes import pod_cause

IMAGE = "registry.example.com/llm:9"
PULL = 'Failed to pull image "registry.example.com/llm:9": rpc error: code = '
RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
NO_VLLM = 'exec: "vllm": executable file not found in $PATH'
REFUSED = 'Get "http://10.0.0.7:8000/health": dial tcp 10.0.0.7:8000: connect: connection refused'


def pod_with_status(status: Json | None = None, *, init: bool = False, ports: tuple[int, ...] = ()) -> Pod:
    container = {"name": "llm", "image": IMAGE, "ports": [{"containerPort": port} for port in ports]}
    spec: Json = {"nodeName": "n1", "containers": [container]}
    if init:
        spec["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    said = {"initContainerStatuses" if init else "containerStatuses": [status] if status else []}
    return objects.pod(spec=spec, status=said)


def waiting(reason: str, message: str = "") -> Json:
    return {"name": "llm", "state": {"waiting": {"reason": reason, "message": message}}}


def ended(code: int, reason: str = "Error", message: str = "", name: str = "llm") -> Json:
    last = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"name": name, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}


def warning(message: str, at: int = 0, name: str = "p", reason: str = "") -> Event:
    about = {"kind": "Pod", "name": name, "namespace": "ns"}
    when = f"2026-01-01T00:00:{at:02d}Z"
    return msgspec.convert(
        {
            "metadata": {"name": f"e{at}"},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": when,
        },
        Event,
    )


@pytest.mark.parametrize(
    ("found", "warnings", "reason", "step"),
    [
        pytest.param(
            pod_with_status(waiting("ImagePullBackOff", "Back-off pulling image")),
            [PULL + "NotFound desc = llm:9: not found"],
            f"image {IMAGE} not found (container llm)",
            "tag",
            id="an image that is not there",
        ),
        pytest.param(
            pod_with_status(waiting("ErrImagePull", PULL + "Unknown desc = 401 unauthorized")),
            [],
            f"image {IMAGE}: the registry refuses the pull (container llm)",
            "imagePullSecrets",
            id="no right to pull",
        ),
        pytest.param(
            pod_with_status(waiting("ErrImagePull", PULL + "Unknown desc = dial tcp: lookup: no such host")),
            [],
            f"image {IMAGE}: registry.example.com does not answer (container llm)",
            "network",
            id="a silent registry",
        ),
        pytest.param(
            pod_with_status(waiting("InvalidImageName")),
            [],
            f"image name {IMAGE} is not valid (container llm)",
            "correct",
            id="a bad name",
        ),
        pytest.param(
            pod_with_status(waiting("ErrImageNeverPull")),
            [],
            f"image {IMAGE} is not on node n1 and may not be pulled (container llm)",
            "IfNotPresent",
            id="never pulled",
        ),
        pytest.param(
            pod_with_status(waiting("ImagePullBackOff", "Back-off pulling image")), [], "", "", id="no cause is known"
        ),
        pytest.param(
            pod_with_status(ports=(8080,)),
            [f"Readiness probe failed: {REFUSED}"],
            "readiness probe on port 8000 refused; the container declares port 8080",
            "set the port of the readinessProbe to 8080",
            id="a probe of another port",
        ),
        pytest.param(
            pod_with_status(ports=(8000,)),
            [f"Readiness probe failed: {REFUSED}"],
            "readiness probe on port 8000 refused",
            "does the server listen on port 8000?",
            id="a server that does not listen",
        ),
        pytest.param(
            pod_with_status(),
            ['Startup probe failed: Get "http://10.0.0.7:8000/": HTTP probe failed with statuscode: 503'],
            "startup probe on port 8000 answers 503",
            "kubectl logs p",
            id="a probe with an answer",
        ),
        pytest.param(
            pod_with_status(),
            ['Readiness probe failed: Get "http://10.0.0.7:8000/": context deadline exceeded'],
            "readiness probe on port 8000 has no answer in time",
            "timeoutSeconds",
            id="a slow server",
        ),
        pytest.param(
            pod_with_status(),
            ["Readiness probe failed: cat: /ready: No such file"],
            "readiness probe fails: cat: /ready: No such file",
            "readinessProbe",
            id="a probe by command",
        ),
        pytest.param(
            pod_with_status(ended(137)),
            [f"Liveness probe failed: {REFUSED}"],
            "liveness probe on port 8000 refused, so the kubelet restarts container llm",
            "kubectl logs p",
            id="a liveness probe",
        ),
        pytest.param(
            pod_with_status(ended(137, "OOMKilled")),
            [],
            "container llm is out of memory (OOMKilled)",
            "raise resources.limits.memory of llm",
            id="out of memory",
        ),
        pytest.param(
            pod_with_status(ended(127, message='exec: "vllm": not found')),
            [],
            'container llm cannot start its command: exec: "vllm": not found',
            "command",
            id="no such command",
        ),
        pytest.param(
            pod_with_status(ended(1, message="a\nno space on /models", name="fetch"), init=True),
            [],
            "init container fetch ends with exit code 1: no space on /models",
            "kubectl logs p -c fetch --previous",
            id="an init container",
        ),
        pytest.param(pod_with_status(ended(1)), [], "", "", id="an exit code that says nothing"),
        pytest.param(
            pod_with_status(ended(1, message="cannot open the model")),
            [f"Readiness probe failed: {REFUSED}"],
            "container llm ends with exit code 1: cannot open the model",
            "kubectl logs p -c llm --previous",
            id="a container that ended refuses its probe: its own message counts",
        ),
        pytest.param(
            pod_with_status(ended(1) | {"state": {"running": {}}}),
            [f"Readiness probe failed: {REFUSED}"],
            "readiness probe on port 8000 refused",
            "kubectl logs p",
            id="a container that runs again and refuses its probe",
        ),
        pytest.param(pod_with_status(), ["Created container llm"], "", "", id="another warning"),
        pytest.param(
            pod_with_status(
                waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
            ),
            [],
            "container llm may not run as root, and its image does",
            "set securityContext.runAsUser of llm",
            id="an image of root",
        ),
        pytest.param(
            pod_with_status(
                waiting("RunContainerError", f"{RUNC}unable to start container process: {NO_VLLM}: unknown")
            ),
            [],
            f"container llm cannot start its command: {NO_VLLM}",
            "correct command and args",
            id="a command that the kubelet could not start",
        ),
        pytest.param(
            pod_with_status(ended(128, "StartError", f"{RUNC}unable to start container process: {NO_VLLM}: unknown")),
            [],
            f"container llm cannot start its command: {NO_VLLM}",
            "correct command and args",
            id="a command that could not be started, without the names of the runtime's layers",
        ),
        pytest.param(
            pod_with_status(waiting("CreateContainerError", "context deadline exceeded")),
            [],
            "container llm cannot be created: context deadline exceeded",
            "kubectl describe pod p",
            id="another fault of the template",
        ),
        pytest.param(
            pod_with_status(waiting("CreateContainerConfigError", 'secret "hf-token" not found')),
            [],
            "",
            "",
            id="a Secret that is missing is named by its reference",
        ),
        pytest.param(
            pod_with_status(ended(0, "Completed")),
            [],
            "container llm ends by itself with exit code 0, again and again",
            "so that it keeps running",
            id="a command that ends",
        ),
        pytest.param(
            pod_with_status(waiting("CrashLoopBackOff") | {"state": {"terminated": {"exitCode": 0}}}),
            [],
            "",
            "",
            id="a command that ended once",
        ),
    ],
)
def test_why_a_pod_is_not_ready(found: Pod, warnings: list[str], reason: str, step: str) -> None:
    said = pod_cause(found, [warning(text, at) for at, text in enumerate(warnings)])
    assert (said[0] if said else "") == reason
    assert step in (said[1] if said else "")


@pytest.mark.parametrize(
    ("event", "reason", "step"),
    [
        pytest.param(
            warning(
                'MountVolume.SetUp failed for volume "models" : rpc error: code = DeadlineExceeded desc = timed out',
                reason="FailedMount",
            ),
            "volume models cannot be mounted: timed out",
            "check the volume's CSI driver on node n1",
            id="a volume that cannot be mounted",
        ),
        pytest.param(
            warning(
                "Unable to attach or mount volumes: unmounted volumes=[models], unattached volumes=[], failed to "
                "process volumes=[]: timed out waiting for the condition",
                reason="FailedMount",
            ),
            "volume models cannot be mounted: timed out waiting for the condition",
            "kubectl describe pod p",
            id="a volume that never came",
        ),
        pytest.param(
            warning(
                'Multi-Attach error for volume "pvc-7" Volume is already used by pod_with_status(s) other-0',
                reason="FailedAttachVolume",
            ),
            "volume pvc-7 is attached to another node, and allows one",
            "ReadWriteMany",
            id="a volume of another node",
        ),
        pytest.param(
            warning(
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
                '"ab": plugin type="cilium-cni" failed (add): unable to allocate IP',
                reason="FailedCreatePodSandBox",
            ),
            "node n1 cannot set up the pod: unable to allocate IP",
            "check the network plugin on node n1",
            id="a node without addresses",
        ),
    ],
)
def test_what_a_node_does_before_it_starts_containers(event: Event, reason: str, step: str) -> None:
    said = pod_cause(pod_with_status(), [event])
    assert said is not None
    assert said[0] == reason
    assert step in said[1]


def test_the_mount_of_an_absent_secret_is_not_a_fault_of_the_node() -> None:
    message = 'MountVolume.SetUp failed for volume "t" : secret "hf-token" not found'
    assert pod_cause(pod_with_status(), [warning(message, reason="FailedMount")]) is None


def test_the_latest_warning_of_the_pod_itself_counts() -> None:
    def probe(port: int) -> str:
        return f"Readiness probe failed: dial tcp 10.0.0.7:{port}: connect: connection refused"

    said: Any = pod_cause(
        pod_with_status(), [warning(probe(1), 1), warning(probe(2), 2), warning(probe(3), 3, "other")]
    )
    assert said[0] == "readiness probe on port 2 refused"


@pytest.mark.parametrize(
    ("field", "step"),
    [
        pytest.param("spec.containers{llm}", "set the port of the readinessProbe to 8080", id="the probe's container"),
        pytest.param("spec.containers{proxy}", "set the port of the readinessProbe to 9090", id="the sidecar's"),
        pytest.param("", "does the server listen on port 8000?", id="not said, so no port is proposed"),
    ],
)
def test_only_a_port_of_the_container_that_is_probed_is_proposed(field: str, step: str) -> None:
    found = objects.pod(
        spec={
            "nodeName": "n1",
            "containers": [
                {"name": "proxy", "image": IMAGE, "ports": [{"containerPort": 9090}]},
                {"name": "llm", "image": IMAGE, "ports": [{"containerPort": 8080}]},
            ],
        },
        status={},
    )
    event = warning(f"Readiness probe failed: {REFUSED}")
    about = msgspec.structs.replace(event.involved_object, field_path=field)
    cause = pod_cause(found, [msgspec.structs.replace(event, involved_object=about)])
    assert cause is not None
    assert step in cause[1]
