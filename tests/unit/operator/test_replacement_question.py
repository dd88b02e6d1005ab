"""When a slice of a coherent update asks the scheduler first: new pods that may not fit where the old ones are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import pod, set_of

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import SlicePart, UpdateSlice
from grove.operator.shared.children import template_hashes
from grove.operator.shared.replacement import asked_of_nodes, asked_replacement, asks_more

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
DEDICATED = {"key": "dedicated", "operator": "Exists"}
NEAR = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}}


def spec(cpu: str = "4", **more: Any) -> Json:
    container = {"name": "main", "image": "engine:1", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], **more}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (spec(), spec(), False),
        (spec(), spec("4000m"), False),
        (spec(), spec("3"), False),
        (spec(), spec("4001m"), True),
        (spec(), spec(overhead={"memory": "1Gi"}), True),
        (spec(), spec(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "9"}}}]), True),
        (spec(), spec(initContainers=[{"name": "i", "resources": {"requests": {"cpu": "2"}}}]), False),
        (spec(), spec(nodeSelector={"pool": "b"}), True),
        (spec(nodeSelector={"pool": "b", "zone": "a"}), spec(nodeSelector={"pool": "b"}), False),
        (spec(tolerations=[DEDICATED]), spec(), True),
        (spec(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]), spec(), False),
        (spec(), spec(tolerations=[DEDICATED]), False),
        (spec(), spec(affinity=NEAR), True),
        (spec(affinity=NEAR), spec(affinity=NEAR), False),
        (spec(), spec(topologySpreadConstraints=[SPREAD]), True),
        (spec(topologySpreadConstraints=[SPREAD]), spec(), False),
        (spec(), spec(terminationGracePeriodSeconds=5), False),
    ],
)
def test_whether_a_new_pod_may_not_fit_where_the_old_one_is(old: Json, new: Json, expected: bool) -> None:
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": old}, Pod)

    assert asks_more(new, pod) is expected


@pytest.mark.parametrize(
    ("second", "asked"),
    [
        pytest.param({"ready": True}, ["wl-0-g-0-w-0", "wl-0-g-1-w-0"], id="both replicas are whole"),
        pytest.param(
            {"ready": True, "phase": "Failed"}, ["wl-0-g-0-w-0"], id="a failed pod, whatever its last probe said"
        ),
        pytest.param({"ready": True, "draining": True}, ["wl-0-g-0-w-0"], id="a pod that drains"),
        pytest.param({}, ["wl-0-g-0-w-0"], id="a pod that is not ready"),
    ],
)
def test_the_question_is_about_replicas_that_are_whole(second: dict[str, Any], asked: list[str]) -> None:
    """The update takes other replicas at once, and asks nothing about them."""
    template = clique("w", cpu="4")
    observed = set_of(pcs("wl", template, groups=[group("g", "w", replicas=2)], strategy={"type": "Coherent"}))
    draining = second.pop("draining", False)
    last = pod("wl-0-g-1-w", template_hash="old", name="wl-0-g-1-w-0", **second)
    if draining:
        last.metadata.annotations[labels.DRAINING] = "2026-01-01T12:00:00Z"
    pods = {
        "wl-0-g-0-w": [pod("wl-0-g-0-w", template_hash="old", name="wl-0-g-0-w-0", ready=True)],
        "wl-0-g-1-w": [last],
    }
    slice_ = UpdateSlice(number=1, parts=(SlicePart(name="g", units=2, keep=0),))

    question = asked_replacement(
        observed, 0, slice_, template_hashes(observed), lambda fqn: pods.get(fqn, []), lambda fqn, config: range(2)
    )

    assert question is not None
    assert [name for one in question.pod_groups for name in one.pod_names] == asked


def test_the_question_has_nothing_that_nodes_are_not_asked_for() -> None:
    container = {
        "name": "main",
        "image": "engine:1",
        "env": [{"name": "TOKEN", "value": "x"}],
        "ports": [{"hostPort": 1}],
    }

    asked = asked_of_nodes({"containers": [container], "serviceAccountName": "a", "nodeSelector": {"pool": "b"}})

    assert asked == {"containers": [{"name": "main", "ports": [{"hostPort": 1}]}], "nodeSelector": {"pool": "b"}}
