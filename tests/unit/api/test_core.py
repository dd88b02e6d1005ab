"""Views of Kubernetes' own kinds: unusual objects decode, and a pod answers what is asked of it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from tests.support.objects import pod

from grove.api import core
from grove.api.core import CustomResourceDefinition, Event, HorizontalPodAutoscaler, Lease, Node, Pod, Role
from grove.api.meta import Object

KINDS = [
    kind for kind in vars(core).values() if isinstance(kind, type) and issubclass(kind, Object) and kind is not Object
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_empty_object_decodes(kind: type[Object]) -> None:
    assert msgspec.json.decode(b"{}", type=kind) == kind()


def test_the_pod_view_reads_what_an_api_server_writes() -> None:
    pod = msgspec.json.decode(
        b"""{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": "2026-01-01T12:00:00Z", "managedFields": []},
        "spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}], "priority": 0,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": 1}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}]}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}},
            "unknownToUs": {"deep": [1]}},
        "status": {"phase": "Running", "podIP": "10.1.1.1", "startTime": "2026-01-01T12:00:01Z",
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}],
            "containerStatuses": [{"name": "c", "ready": true, "started": true, "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-01T12:00:02Z"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}""",
        type=Pod,
    )
    (container,), (side, once) = pod.spec.containers, pod.spec.init_containers
    assert container.resources.requests == {"cpu": "1500m", "memory": 1}
    assert (container.ports[0].host_port, container.ports[0].host_ip, container.ports[0].protocol) == (
        8080,
        "10.0.0.1",
        "UDP",
    )
    assert (side.is_sidecar, once.is_sidecar) == (True, False)
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    assert pod.spec.affinity.node_affinity.required is not None
    assert pod.spec.affinity.node_affinity.required.node_selector_terms[0].match_expressions[0].values == ("b",)
    assert pod.status.pod_ip == "10.1.1.1"
    assert pod.status.start_time == datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)
    (status,) = pod.status.container_statuses
    assert status.last_state.terminated is not None
    assert (status.restart_count, status.last_state.terminated.exit_code) == (2, 137)


GATED = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}


@pytest.mark.parametrize(
    ("given", "true"),
    [
        pytest.param(pod(), {"is_active"}, id="a new pod"),
        pytest.param(pod(spec={"nodeName": "n"}), {"is_active", "is_bound"}, id="a bound pod"),
        pytest.param(
            pod(spec={"schedulingGates": [{"name": "g"}]}, status=GATED),
            {"is_active", "is_gated", "is_held_by_gate"},
            id="a gated pod",
        ),
        pytest.param(pod(status={"phase": "Failed"}), {"is_finished"}, id="a failed pod"),
        pytest.param(pod(deletionTimestamp="2026-01-01T12:00:00Z"), set(), id="a pod on its way out"),
        pytest.param(
            pod(
                status={"conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}
            ),
            {"is_active", "is_ready", "is_scheduled"},
            id="a ready pod",
        ),
    ],
)
def test_a_pod_answers(given: Pod, true: set[str]) -> None:
    questions = ("is_active", "is_bound", "is_gated", "is_held_by_gate", "is_finished", "is_ready", "is_scheduled")
    assert {question for question in questions if getattr(given, question)} == true


def test_a_pod_has_its_gates_by_name() -> None:
    gated = pod(spec={"schedulingGates": [{"name": "a"}]})
    assert gated.has_gate("a")
    assert not gated.has_gate("b")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(Role, b'{"rules": null}', id="a role without rules"),
        pytest.param(HorizontalPodAutoscaler, b'{"spec": {"metrics": null}}', id="an autoscaler without metrics"),
        pytest.param(
            CustomResourceDefinition, b'{"status": {"conditions": null, "storedVersions": null}}', id="a new CRD"
        ),
        pytest.param(Event, b'{"firstTimestamp": null, "eventTime": null, "source": {}}', id="an event of the new API"),
        pytest.param(Lease, b'{"spec": {"renewTime": "2026-01-01T12:00:00.123456Z"}}', id="a lease with microseconds"),
    ],
)
def test_nulls_that_api_servers_write(kind: type[Object], text: bytes) -> None:
    msgspec.json.decode(text, type=kind)


def test_a_node_is_ready_only_if_it_says_so() -> None:
    unknown = msgspec.convert({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, Node)
    ready = msgspec.convert({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, Node)
    assert (Node().is_ready, unknown.is_ready, ready.is_ready) == (False, False, True)
