"""When a slice of a coherent update asks the scheduler first: new pods that may not fit where the old ones are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from grove.api.core import Pod
from grove.api.meta import Json
from grove.operator.shared.replacement import asked_of_nodes, asks_more

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


def test_the_question_has_nothing_that_nodes_are_not_asked_for() -> None:
    container = {
        "name": "main",
        "image": "engine:1",
        "env": [{"name": "TOKEN", "value": "x"}],
        "ports": [{"hostPort": 1}],
    }

    asked = asked_of_nodes({"containers": [container], "serviceAccountName": "a", "nodeSelector": {"pool": "b"}})

    assert asked == {"containers": [{"name": "main", "ports": [{"hostPort": 1}]}], "nodeSelector": {"pool": "b"}}
