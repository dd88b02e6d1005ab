"""Held capacity as it is written on a PodGang: complete, read back as it was, and never trusted blindly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import objects
from tests.support.scheduler.kit import GPU, pod, shape

from grove.api.core import Pod, PodSpec
from grove.api.meta import Json
from grove.api.pod import PodStatus
from grove.api.podgang import PodGang
from grove.scheduler.model.facts import PODS
from grove.scheduler.policy.gang_state import ReplacedPod
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason
from grove.scheduler.policy.hold_records import read, read_pod, records
from grove.scheduler.policy.waiting_queue import Order, Stage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDER = Order((0,), Stage.MINIMUM, 0.0, "ns/g")
NODES = [f"n{number}" for number in range(100)]


def podgang(holds: Any = (), conditions: Any = (), minimum: int = len(NODES)) -> PodGang:
    status = {"capacityHolds": list(holds), "conditions": list(conditions)}
    return objects.gang("g", {"name": "w", "minReplicas": minimum, "podReferences": []}, status=status)


@given(
    st.frozensets(st.sampled_from(NODES), min_size=1),
    st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 8))),
    st.frozensets(st.sampled_from(NODES)),
)
def test_what_is_written_is_read_back(
    nodes: frozenset[str], lost: list[tuple[str, int]], former: frozenset[str]
) -> None:
    hold = CapacityHold("ns/g", ORDER, HoldReason.OVERTAKEN, NOON, nodes)
    replaced = {"w": [ReplacedPod(f"u{i}", node, shape(gpus)) for i, (node, gpus) in enumerate(lost)]}
    written = records([hold], replaced, former, NOON, ())
    wire = msgspec.json.decode(msgspec.json.encode(written))
    found = read(podgang(wire), NODES)
    assert found.faults == ()
    assert found.waiting is not None
    assert (frozenset(found.waiting.nodes), found.waiting.since) == (nodes, NOON)
    assert list(found.replaced.get("w", ())) == [(node, ((GPU, gpus), (PODS, 1))) for node, gpus in lost]
    assert found.former == former


def test_a_nomination_is_written_pod_by_pod() -> None:
    pods = (pod("a", 2, on="n1", group="w"), pod("b", 2, on="n2", group="w"))
    (written,) = records([CapacityHold("ns/g", ORDER, HoldReason.NOMINATED, NOON, pods=pods)], {}, (), NOON, ())
    assert written.reason == "Nominated"
    assert [(one.group, one.node, one.requests) for one in written.amounts] == [
        ("w", "n1", {GPU: "2"}),
        ("w", "n2", {GPU: "2"}),
    ]


def amounts(**changes: Any) -> Json:
    return {"reason": "Replacement", "amounts": [{"group": "w", "node": "n1", "requests": {GPU: "1"}} | changes]}


@pytest.mark.parametrize(
    ("hold", "fault"),
    [
        pytest.param({"reason": "Because"}, "unknown reason 'Because'", id="an unknown reason"),
        pytest.param({"reason": "WaitedLong", "nodes": ["gone"]}, "WaitedLong: there is no node gone", id="a node"),
        pytest.param(amounts(node="gone"), "Replacement: there is no node gone", id="an amount on an unknown node"),
        pytest.param(
            {"reason": "Nominated", "amounts": [{"group": "w", "node": "gone"}]},
            "Nominated: there is no node gone",
            id="a nomination on an unknown node",
        ),
        pytest.param(
            {"reason": "Headroom", "amounts": [{"node": "gone"}]},
            "Headroom: there is no node gone",
            id="headroom on an unknown node",
        ),
        pytest.param(amounts(group="x"), "Replacement: there is no group 'x'", id="an unknown group"),
        pytest.param(
            amounts(requests={GPU: "lots"}), f"Replacement: {GPU}: 'lots' is not a quantity", id="no quantity"
        ),
        pytest.param(amounts(requests={GPU: "-1"}), f"Replacement: {GPU}: '-1' is negative", id="a negative amount"),
        pytest.param(
            {"reason": "Overtaken", "nodes": ["n1"] * 10_001}, "Overtaken: more than 10000 entries", id="endless"
        ),
        pytest.param(
            amounts(requests={GPU: "9e30"}), f"Replacement: {GPU}: '9e30' is more than a node can have", id="too much"
        ),
        pytest.param(
            {"reason": "Headroom", "amounts": [{"node": "n1", "requests": {GPU: "8E"}}]},
            f"Headroom: {GPU}: '8E' is more than a node can have",
            id="too much headroom",
        ),
        pytest.param(
            amounts(requests={f"example.com/r{number}": "1" for number in range(65)}),
            "Replacement: more than 64 resources",
            id="too many resources",
        ),
    ],
)
def test_what_cannot_be_used_is_a_fault_and_holds_nothing(hold: Json, fault: str) -> None:
    found = read(podgang([hold, {"reason": "FormerPlace", "nodes": ["n2"]}]), NODES)
    assert found.faults == (fault,)
    assert found.waiting is None
    assert not found.replaced
    assert not found.headroom
    assert found.former == {"n2"}, "the other records are read"


def test_of_a_former_place_the_nodes_that_exist_are_read() -> None:
    found = read(podgang([{"reason": "FormerPlace", "nodes": ["gone", "n2"]}]), NODES)
    assert (found.former, found.faults) == ({"n2"}, ("FormerPlace: there is no node gone",))


def test_it_is_read_since_when_a_unit_is_nominated() -> None:
    written = {"reason": "Nominated", "since": "2026-01-01T12:00:00Z", "amounts": [{"group": "w", "node": "n1"}]}
    found = read(podgang([written]), NODES)
    assert (found.nominated_since, found.faults) == (NOON, ())


def test_a_record_of_more_nodes_than_the_minimum_has_pods_is_a_fault() -> None:
    found = read(podgang([{"reason": "WaitedLong", "nodes": ["n1", "n2", "n3"]}], minimum=2), NODES)
    assert (found.waiting, found.faults) == (None, ("WaitedLong: 3 nodes for a minimum of 2 pods",))


@pytest.mark.parametrize(
    ("named", "bound_to", "nodes", "faults"),
    [
        pytest.param("n1", "", ("n1",), (), id="the node it names"),
        pytest.param("", "", (), (), id="it names none"),
        pytest.param("n1", "n2", (), (), id="it is bound"),
        pytest.param("gone", "", (), ("there is no node gone",), id="an unknown node"),
    ],
)
def test_a_pod_without_a_podgang_names_its_node(
    named: str, bound_to: str, nodes: tuple[str, ...], faults: tuple[str, ...]
) -> None:
    one = Pod(spec=PodSpec(node_name=bound_to), status=PodStatus(nominated_node_name=named))
    found = read_pod(one, NODES)
    assert (found.waiting.nodes if found.waiting is not None else (), found.faults) == (nodes, faults)


def test_conditions_of_an_older_scheduler_are_understood() -> None:
    at = "2026-01-01T12:00:00Z"
    conditions = [
        {"type": "NodesHeld", "status": "True", "reason": "Overtaken", "message": "2 nodes are held for it: n1, n2"},
        {"type": "FormerPlace", "status": "True", "reason": "ReuseReservation", "message": "n3 n4"},
        {"type": "SeatsKept", "status": "True", "reason": "PodsLost", "message": "w: n5 n5"},
    ]
    found = read(podgang(conditions=[{**one, "lastTransitionTime": at} for one in conditions]), NODES)
    assert found.faults == ()
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.since, found.waiting.nodes) == ("Overtaken", NOON, ())
    assert found.former == {"n3", "n4"}
    assert [node for node, _ in found.replaced["w"]] == ["n5", "n5"]
