"""What admission says about autoscaling: it refuses names that mean nothing, and warns of surprises."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs

from grove.admission.rules.autoscaling import autoscaling_faults, autoscaling_notes, metric_questions
from grove.admission.rules.lookups import Known, Needs
from grove.admission.rules.sets import general_faults
from grove.admission.rules.view import SetView
from grove.admission.serving.reader import ClusterReader
from grove.api.labels import METRICS_CLIQUE
from grove.api.meta import Json, Resource
from grove.kube.errors import Unavailable

T = "spec.template"
G = f"{T}.podCliqueScalingGroups[0]"


def object_metric(
    name: str = "grove_requests_waiting", kind: str = "PodCliqueScalingGroup", about: str = "self"
) -> Json:
    return {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": about},
            "metric": {"name": name},
            "target": {"type": "AverageValue", "averageValue": "4"},
        },
    }


def pods_metric(name: str) -> Json:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "4"}}}


def external(name: str) -> Json:
    return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": "Value", "value": "4"}}}


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def scaled(*metrics: Json, low: int = 1, annotations: dict[str, str] | None = None, **metadata: Any) -> SetView:
    """A group of a leader and two workers with these metrics."""
    scale = {"minReplicas": low, "maxReplicas": 9, "metrics": list(metrics)}
    config = group("g", "lead", "work", scale=scale, annotations=annotations or {})
    return SetView(pcs("d", clique("lead"), clique("work", 2), groups=[config], metadata=metadata))


def faults(view: SetView) -> list[str]:
    return [str(one) for one in autoscaling_faults(view)]


EVERYTHING = Known()


@pytest.mark.parametrize(
    ("view", "want"),
    [
        pytest.param(scaled(object_metric()), [], id="self as the group that is scaled"),
        pytest.param(scaled(object_metric(kind="PodCliqueSet")), [], id="self as the set"),
        pytest.param(scaled(object_metric(kind="Service", about="queue")), [], id="any object by its name"),
        pytest.param(
            scaled(object_metric(kind="PodClique")),
            [
                f'{G}.scaleConfig.metrics[0].object.describedObject.kind: Invalid value: "PodClique": '
                "self is the PodCliqueScalingGroup that is scaled, or with kind PodCliqueSet the set"
            ],
            id="self as something that is not scaled",
        ),
        pytest.param(scaled(annotations={METRICS_CLIQUE: "work"}), [], id="a member is measured"),
        pytest.param(
            scaled(annotations={METRICS_CLIQUE: "router"}),
            [f'{G}.annotations[{METRICS_CLIQUE}]: Invalid value: "router": must name a clique of the group'],
            id="a clique outside the group is measured",
        ),
        pytest.param(
            SetView(pcs("d", clique("a"), metadata={"annotations": {METRICS_CLIQUE: "b"}})),
            [f'metadata.annotations[{METRICS_CLIQUE}]: Invalid value: "b": must name a clique of the set'],
            id="a set names a clique it does not have",
        ),
    ],
)
def test_names_that_mean_nothing_are_refused(view: SetView, want: list[str]) -> None:
    assert faults(view) == want


def served(*listed: tuple[str, str], view: SetView) -> Known:
    """A cluster whose discovery lists these and nothing else."""
    return Known(metrics={asked: asked in listed for asked in metric_questions(view)})


OURS = ("custom.metrics.k8s.io", "pods/grove_requests_waiting")
OURS_TOO = ("custom.metrics.k8s.io", "podcliquescalinggroups.grove.io/grove_requests_waiting")
UNSERVED = f"{G}.scaleConfig.metrics[0]: no metrics API of this cluster serves "


@pytest.mark.parametrize(
    ("metric", "listed", "want"),
    [
        pytest.param(object_metric(), [OURS_TOO], [], id="our metric, served"),
        pytest.param(object_metric(), [], [f"{UNSERVED}grove_requests_waiting"], id="our metric, nobody serves it"),
        pytest.param(object_metric("grove_requests_wating"), [OURS], [f"{UNSERVED}grove_requests_wating"], id="a slip"),
        pytest.param(object_metric("vllm:x"), [OURS], [], id="a raw name: grove-metrics looks for it once asked"),
        pytest.param(object_metric("vllm:x"), [], [f"{UNSERVED}vllm:x"], id="a raw name and no server"),
        pytest.param(external("queue"), [("external.metrics.k8s.io", "queue")], [], id="an external metric, served"),
        pytest.param(
            external("s0-q"), [("external.metrics.k8s.io", "externalmetrics")], [], id="KEDA lists nothing by name"
        ),
        pytest.param(external("queue"), [], [f"{UNSERVED}queue"], id="an external metric that nobody serves"),
        pytest.param(object_metric(kind="Service", about="q"), [], [], id="other objects are not ours to judge"),
    ],
)
def test_a_metric_no_one_serves_is_reported(metric: Json, listed: list[tuple[str, str]], want: list[str]) -> None:
    view = scaled(metric)
    assert list(autoscaling_notes(view, served(*listed, view=view))) == want


@pytest.mark.parametrize("metric", [CPU, pods_metric("x")], ids=["Resource", "Pods"])
def test_a_metric_that_counts_pods_of_a_unit_says_which_pod(metric: Json) -> None:
    path = f"{G}.scaleConfig.metrics[0]"
    (note,) = autoscaling_notes(scaled(metric), EVERYTHING)
    assert note.startswith(f"{path}: of the 3 pods of a replica only pod 0 of clique lead is measured")
    (other,) = autoscaling_notes(scaled(metric, annotations={METRICS_CLIQUE: "work"}), EVERYTHING)
    assert "pod 0 of clique work is measured" in other


def test_a_unit_of_one_pod_is_measured_whole() -> None:
    scale = {"minReplicas": 1, "maxReplicas": 9, "metrics": [CPU]}
    alone = SetView(pcs("d", clique("lead"), groups=[group("g", "lead", scale=scale)]))
    by_itself = SetView(pcs("d", clique("web", 3, scale={**scale, "minReplicas": 3})))
    assert [*autoscaling_notes(alone, EVERYTHING), *autoscaling_notes(by_itself, EVERYTHING)] == []


def test_a_minimum_of_zero_is_admitted_and_reported() -> None:
    view = scaled(object_metric(), low=0)
    assert list(general_faults(view)) == []
    (note,) = autoscaling_notes(view, EVERYTHING)
    assert note.startswith(f"{G}.scaleConfig.minReplicas: 0 needs the feature gate HPAScaleToZero")


def test_a_minimum_between_zero_and_what_gangs_keep_is_refused() -> None:
    scale = {"minReplicas": 1, "maxReplicas": 9}
    view = SetView(pcs("d", clique("a"), groups=[group("g", "a", replicas=2, min_available=2, scale=scale)]))
    (fault,) = general_faults(view)
    assert "must be greater than or equal to minAvailable (2)" in str(fault)


class Discovery:
    """A cluster that lists some names, or fails."""

    def __init__(self, *listed: str, error: Exception | None = None) -> None:
        self.listed, self.error = listed, error

    async def serves(self, kind: Resource) -> bool:
        if self.error is not None:
            raise self.error
        return kind.plural in self.listed


async def test_discovery_is_asked_and_a_cluster_that_fails_gives_no_warning() -> None:
    view = scaled(object_metric())
    needs = Needs(metrics=metric_questions(view))
    known = await ClusterReader(Discovery("pods/x")).fetch(needs)  # type: ignore[arg-type]
    assert len(list(autoscaling_notes(view, known))) == 1
    known = await ClusterReader(Discovery(OURS_TOO[1])).fetch(needs)  # type: ignore[arg-type]
    assert list(autoscaling_notes(view, known)) == []
    down = Unavailable("down", code=503, reason="", details={})
    known = await ClusterReader(Discovery(error=down)).fetch(needs)  # type: ignore[arg-type]
    assert list(autoscaling_notes(view, known)) == []
