"""Single pods: the nodes we call feasible are kube-scheduler's, row by row, and `place` agrees with the filters."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.scheduler.kit import observe
from tests.support.scheduler.parity import ROWS, Row

from grove.api.core import Node, Pod
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import feasible_nodes
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.gang import PodGroup, gang_of
from grove.scheduler.model.reading import read_pod
from grove.scheduler.solve.place import place


def snapshot_of(row: Row) -> Snapshot:
    snapshot = Snapshot()
    for name, labels in row.namespaces.items():
        snapshot.set_namespace(name, labels)
    for node in row.nodes:
        observe(snapshot, msgspec.convert(node, Node))
    for running in row.running:
        observe(snapshot, msgspec.convert(running, Pod))
    return snapshot


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_feasible_nodes(row):
    snapshot, pod = snapshot_of(row), read_pod(msgspec.convert(row.pod, Pod))
    assert feasible_nodes(snapshot, pod) == row.want.split()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_place_takes_a_feasible_node_if_there_is_one(row):
    snapshot, pod = snapshot_of(row), read_pod(msgspec.convert(row.pod, Pod))
    answer = place(snapshot, gang_of("g", [PodGroup("g", 1, (pod,))]))
    if row.want:
        assert isinstance(answer, Placement)
        assert answer.pods[0].node in row.want.split()
    else:
        assert not isinstance(answer, Placement)
        assert answer.proven


def test_there_are_enough_rows_and_no_two_have_the_same_name():
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


RESIZED = [
    pytest.param({"cpu": "1"}, {"cpu": "3"}, {"cpu": "3"}, "", 3_000, id="shrinking still takes what it had"),
    pytest.param({"cpu": "3"}, {"cpu": "1"}, {"cpu": "1"}, "", 3_000, id="growing takes what it will have"),
    pytest.param({"cpu": "9"}, {"cpu": "1"}, {"cpu": "2"}, "Infeasible", 2_000, id="an infeasible wish does not count"),
]


@pytest.mark.parametrize(("spec", "actual", "allocated", "pending", "want"), RESIZED)
def test_a_resize_under_way_is_counted_as_kubernetes_does(spec, actual, allocated, pending, want):
    status = {"name": "main", "resources": {"requests": actual}, "allocatedResources": allocated}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    pod = msgspec.convert(
        {
            "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": spec}}]},
            "status": {"containerStatuses": [status], "conditions": conditions},
        },
        Pod,
    )
    assert read_pod(pod).shape.amount("cpu") == want
