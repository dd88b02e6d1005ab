"""A scheduler's topology object: made like its binding where it is ours to make, left alone where it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.observed import binding

from grove.api.meta import Json
from grove.backends.base import TopologyBackend
from grove.backends.grove import GroveBackend
from grove.backends.kai import KaiBackend
from grove.backends.koord import build as koord
from grove.operator.topology.plan import LEAVE, TopologyPlan, plan_topology

FROZEN = KaiBackend()
LEVELS = [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]


def ours() -> Any:
    found = binding("topo", ("rack", "example.com/rack"), ("host", "kubernetes.io/hostname"))
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, uid="b1"))


def there(levels: list[Json], owner: str = "b1") -> Json:
    return {"metadata": {"name": "topo", "ownerReferences": [{"uid": owner}]}, "spec": {"levels": levels}}


MADE = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": {
        "name": "topo",
        "labels": {"app.kubernetes.io/managed-by": "grove-operator"},
        "ownerReferences": [
            {
                "apiVersion": "grove.io/v1alpha1",
                "kind": "ClusterTopologyBinding",
                "name": "topo",
                "uid": "b1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {"levels": LEVELS},
}


@pytest.mark.parametrize(
    ("backend", "reference", "observed", "wanted"),
    [
        pytest.param(GroveBackend(), None, None, LEAVE, id="a scheduler without an object of its own has none made"),
        pytest.param(FROZEN, None, None, TopologyPlan(create=MADE), id="what is missing is made"),
        pytest.param(FROZEN, None, there(LEVELS), LEAVE, id="what is right stays"),
        pytest.param(
            FROZEN,
            None,
            there(LEVELS[:1]),
            TopologyPlan(delete=True, create=MADE),
            id="what is wrong and cannot be changed is made anew",
        ),
        pytest.param(
            FROZEN,
            None,
            there(LEVELS, owner="other"),
            TopologyPlan(refused="Topology topo exists and does not belong to this binding"),
            id="what is somebody else's is not touched, though it is right",
        ),
        pytest.param(FROZEN, "theirs", None, LEAVE, id="what is named and missing is not made"),
        pytest.param(FROZEN, "theirs", there(LEVELS[:1]), LEAVE, id="what is named and wrong is left"),
    ],
)
def test_a_topology_object(
    backend: TopologyBackend, reference: str | None, observed: Json | None, wanted: TopologyPlan
) -> None:
    assert plan_topology(ours(), backend, reference, observed) == wanted


def test_what_is_wrong_and_can_be_changed_is_patched() -> None:
    backend = koord({"topologyLayers": {"rack": "RackLayer"}}, "koord")
    assert isinstance(backend, TopologyBackend)
    made = plan_topology(ours(), backend, None, None).create
    assert made is not None
    wrong = {**made, "spec": {"networkTopologySpec": []}}
    assert plan_topology(ours(), backend, None, made) == LEAVE
    assert plan_topology(ours(), backend, None, wrong) == TopologyPlan(patch={"spec": made["spec"]})


def test_what_would_be_made_the_same_again_is_left_though_it_differs_from_the_binding() -> None:
    """A Topology of KAI has sixteen levels at most: with a seventeenth, the operator would make it again for ever."""
    deep = binding("topo", *((f"d{at}", f"example.com/{at}") for at in range(17)))
    made = plan_topology(deep, FROZEN, None, None).create
    assert made is not None
    assert not FROZEN.topology_drift(deep, "topo", made).in_sync
    assert plan_topology(deep, FROZEN, None, made) == LEAVE
