"""One pod in an update in place: which step comes next, and what is patched."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.observed import NOW

from grove.api import labels
from grove.api.conditions import IN_PLACE
from grove.api.core import Pod
from grove.api.meta import Json, ObjectMeta
from grove.api.podclique import PodClique
from grove.api.podcliqueset import CliqueTemplate
from grove.operator.podclique.in_place import (
    PATIENCE_S,
    InPlaceStep,
    can_be_patched,
    keeps_old_revision,
    prepare,
    record_of,
    step_of_chosen,
    step_of_staying,
)

TEMPLATE = CliqueTemplate(labels={"tier": "a"}, annotations={"note": "one"})
OLD_ID = "containerd://old"


def made(image: str = "engine:1", template: CliqueTemplate = TEMPLATE, **spec: Any) -> Json:
    """A pod as it is made from this template."""
    pod: Json = {
        "metadata": {"name": "p", "labels": dict(template.labels), "annotations": dict(template.annotations)},
        "spec": {"containers": [{"name": "main", "image": image}], **spec},
    }
    metadata = ObjectMeta(labels=template.labels, annotations=template.annotations)
    prepare(pod, PodClique(metadata=metadata))
    return pod


def live(pod: Json, gate: str = "True", ready: bool = True, container: str = OLD_ID, node: str = "n") -> Pod:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    if gate:
        conditions.append({"type": IN_PLACE, "status": gate})
    status = {"conditions": conditions, "containerStatuses": [{"name": "main", "containerID": container}]}
    found = {**pod, "metadata": {**pod["metadata"], "uid": "u"}, "spec": {**pod["spec"], "nodeName": node}}
    return msgspec.convert({**found, "status": status}, Pod)


def patched(pod: Pod, steps: tuple[Json, ...]) -> Json:
    """What the steps set, by path; None for what they remove."""
    return {one["path"]: one.get("value") for one in steps if one["op"] != "test"}


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        pytest.param(made("engine:2"), True, id="another image"),
        pytest.param(made(template=CliqueTemplate(labels={"tier": "b"})), True, id="other labels and annotations"),
        pytest.param(
            made(template=CliqueTemplate(annotations={labels.RESTARTED_AT: "2026-01-01T00:00:00Z"})),
            False,
            id="a restart that a person asked for",
        ),
        pytest.param(made(nodeSelector={"a": "b"}), False, id="another place"),
        pytest.param(made(initContainers=[{"name": "fetch", "image": "i"}]), False, id="another init container"),
        pytest.param(made(restartPolicy="Never"), False, id="containers that are not restarted"),
    ],
)
def test_only_images_labels_and_annotations_can_be_patched(wanted: Json, want: bool) -> None:
    assert can_be_patched(live(made()), wanted) is want


def test_the_image_of_an_init_container_cannot_be_patched() -> None:
    one, two = (made(initContainers=[{"name": "fetch", "image": image}]) for image in ("a", "b"))
    assert not can_be_patched(live(one), two)


def test_the_start_order_container_has_done_its_work() -> None:
    one, two = (made(initContainers=[{"name": labels.STARTUP_CONTAINER, "image": image}]) for image in ("a", "b"))
    assert can_be_patched(live(one), two)


def of_revision(revision: str, *images: str, **spec: Any) -> Json:
    template = CliqueTemplate(labels={labels.REVISION: revision})
    return made(template=template, **{"containers": [{"name": image[0], "image": image} for image in images], **spec})


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        pytest.param(of_revision("two", "a:2"), False, id="its only container restarts"),
        pytest.param(of_revision("two", "a:1"), True, id="only labels changed"),
        pytest.param(of_revision("one", "a:1"), False, id="of the same revision"),
        pytest.param(
            of_revision("two", "a:2", initContainers=[{"name": "s", "restartPolicy": "Always"}]),
            True,
            id="a sidecar does not restart",
        ),
        pytest.param(
            of_revision("two", "a:2", initContainers=[{"name": "i"}]), False, id="an init container has ended"
        ),
    ],
)
def test_whether_a_container_keeps_the_old_revision(wanted: Json, want: bool) -> None:
    assert keeps_old_revision(live(of_revision("one", "a:1")), wanted) is want


def test_one_of_two_containers_keeps_the_old_revision() -> None:
    pod = live(of_revision("one", "a:1", "b:1"))
    assert keeps_old_revision(pod, of_revision("two", "a:2", "b:1"))
    assert not keeps_old_revision(pod, of_revision("two", "a:2", "b:2"))


def test_a_pod_without_a_gate_or_with_a_spoilt_record_is_recreated() -> None:
    plain = {"metadata": {"name": "p", "annotations": {}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    assert not can_be_patched(live(plain), made("engine:2"))
    spoilt = made()
    spoilt["metadata"]["annotations"][labels.IN_PLACE] = "{"
    assert not can_be_patched(live(spoilt), made("engine:2"))


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(live(made()), "False", id="the gate closes first"),
        pytest.param(live(made(), gate="False"), "", id="then its kubelet has to say so"),
    ],
)
def test_a_pod_is_drained_before_it_is_patched(pod: Pod, want: str) -> None:
    assert step_of_chosen(pod, made("engine:2"), NOW) == InPlaceStep(gate=want)


def test_a_drained_pod_gets_what_changed_and_loses_what_its_template_lost() -> None:
    pod = live(made(), gate="False", ready=False)
    step = step_of_chosen(pod, made("engine:2", CliqueTemplate(labels={"role/x": "b"})), NOW)
    found = patched(pod, step.patch)
    record = msgspec.json.decode(found.pop("/metadata/annotations/grove.io~1in-place"))
    assert found == {
        "/metadata/labels/role~1x": "b",
        "/metadata/labels/tier": None,
        "/metadata/annotations/note": None,
        "/spec/containers/0/image": "engine:2",
    }
    assert record["stopping"] == {"main": OLD_ID}
    assert {"op": "test", "path": "/metadata/uid", "value": "u"} in step.patch


def test_a_pod_without_a_node_needs_no_drain() -> None:
    assert step_of_chosen(live(made(), gate="", ready=False, node=""), made("engine:2"), NOW).patch


def stopping(age_s: float, container: str) -> Pod:
    """A pod that was patched so long ago, and runs this container."""
    pod = made("engine:2")
    before = record_of(live(pod))
    assert before is not None
    since = NOW - timedelta(seconds=age_s)
    record = msgspec.structs.replace(before, stopping={"main": OLD_ID}, since=since)
    pod["metadata"]["annotations"][labels.IN_PLACE] = msgspec.json.encode(record).decode()
    return live(pod, gate="False", ready=False, container=container)


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(live(made(), gate="", ready=False), InPlaceStep(gate="True"), id="a new pod is let in"),
        pytest.param(live(made()), InPlaceStep(), id="once"),
        pytest.param(live(made(), gate="False"), InPlaceStep(gate="True"), id="also one that is no longer chosen"),
        pytest.param(stopping(5, OLD_ID), InPlaceStep(wait_s=PATIENCE_S - 5), id="the old container still runs"),
        pytest.param(stopping(5, ""), InPlaceStep(gate="True"), id="it is stopped: the probes decide from here"),
        pytest.param(stopping(5, "containerd://new"), InPlaceStep(gate="True"), id="another one runs"),
        pytest.param(stopping(PATIENCE_S, OLD_ID), InPlaceStep(recreate=True), id="its kubelet does not act"),
    ],
)
def test_a_pod_that_stays(pod: Pod, want: InPlaceStep) -> None:
    assert step_of_staying(pod, NOW) == want
