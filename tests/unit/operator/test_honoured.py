"""Whether bound pods stand where their gang requires them: which requirements are broken, and in which words."""

from __future__ import annotations

import pytest
from tests.support import objects
from tests.support.observed import binding, pod

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.operator.podgang.honoured import Spread, broken_requirements, spread_message

BLOCK, RACK = "example.com/block", "example.com/rack"
NODES = {
    "n1": {BLOCK: "b1", RACK: "r1"},
    "n2": {BLOCK: "b1", RACK: "r1"},
    "n3": {BLOCK: "b1", RACK: "r2"},
    "n4": {BLOCK: "b2", RACK: "r1"},
    "n5": {BLOCK: "b1"},
    "n6": {BLOCK: "b1"},
}


def required(key: str) -> Json:
    return {"packConstraint": {"required": key}}


def gang_of_two_groups(**spec: object) -> PodGang:
    groups = [{"name": "d-0-a", "minReplicas": 1}, {"name": "d-0-b", "minReplicas": 1}]
    return objects.gang("d-0", *groups, spec=spec)


WHOLE = gang_of_two_groups(topologyConstraint=required(RACK))
PREFERRED = gang_of_two_groups(topologyConstraint={"packConstraint": {"preferred": RACK}})
TOGETHER = gang_of_two_groups(
    topologyConstraint=required(BLOCK),
    topologyConstraintGroupConfigs=[
        {"name": "d-0-g-0", "podGroupNames": ["d-0-a", "d-0-b"], "topologyConstraint": required(RACK)}
    ],
)
CLIQUE = gang_of_two_groups(
    podgroups=[
        {"name": "d-0-a", "minReplicas": 1, "topologyConstraint": required(RACK)},
        {"name": "d-0-b", "minReplicas": 1},
    ]
)


def bound(*places: tuple[str, str], **more: bool) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for at, (clique, node) in enumerate(places):
        found.setdefault(f"d-0-{clique}", []).append(
            pod(f"d-0-{clique}", at, name=f"{clique}{at}", node=node, gang="d-0", **more)  # type: ignore[arg-type]
        )
    return found


@pytest.mark.parametrize(
    ("seen", "pods", "want"),
    [
        pytest.param(WHOLE, bound(("a", "n1"), ("b", "n2")), [], id="one rack"),
        pytest.param(WHOLE, bound(("a", "n1"), ("b", "")), [], id="the other has no node yet"),
        pytest.param(
            WHOLE, bound(("a", "n1"), ("b", "n3")), [("the gang", RACK, {"r1": ["a0"], "r2": ["b1"]})], id="two racks"
        ),
        pytest.param(
            WHOLE,
            bound(("a", "n1"), ("a", "n2"), ("a", "n3")),
            [("the gang", RACK, {"r1": ["a0", "a1"], "r2": ["a2"]})],
            id="a pod above the minimum counts",
        ),
        pytest.param(
            WHOLE,
            bound(("a", "n1"), ("b", "n4")),
            [("the gang", RACK, {"b1/r1": ["a0"], "b2/r1": ["b1"]})],
            id="racks of one name in two blocks are two racks",
        ),
        pytest.param(
            WHOLE,
            bound(("a", "n1"), ("b", "n5")),
            [("the gang", RACK, {"r1": ["a0"], f"node n5 without {RACK}": ["b1"]})],
            id="a node without the label",
        ),
        pytest.param(WHOLE, bound(("a", "n5"), ("b", "n5")), [], id="one node, though it has no label"),
        pytest.param(
            WHOLE,
            bound(("a", "n5"), ("b", "n6")),
            [("the gang", RACK, {f"node n5 without {RACK}": ["a0"], f"node n6 without {RACK}": ["b1"]})],
            id="two nodes without the label may be anywhere",
        ),
        pytest.param(WHOLE, bound(("a", "n1"), ("b", "gone")), [], id="a node that is gone says nothing"),
        pytest.param(PREFERRED, bound(("a", "n1"), ("b", "n3")), [], id="a preference is no requirement"),
        pytest.param(
            TOGETHER,
            bound(("a", "n1"), ("b", "n3")),
            [("d-0-g-0", RACK, {"r1": ["a0"], "r2": ["b1"]})],
            id="the replica's rack is broken, the gang's block is kept",
        ),
        pytest.param(CLIQUE, bound(("a", "n1"), ("a", "n2"), ("b", "n3")), [], id="the clique alone is constrained"),
    ],
)
def test_requirements_that_bound_pods_break(seen: PodGang, pods: dict[str, list[Pod]], want: list[object]) -> None:
    found = broken_requirements(seen, lambda name: pods.get(name, []), NODES.get, binding())
    assert [(one.owner, one.key, dict(one.domains)) for one in found] == want


def test_pods_that_leave_do_not_count() -> None:
    pods = bound(("a", "n1")) | bound(("b", "n3"), deleting=True)
    assert broken_requirements(WHOLE, lambda name: pods.get(name, []), NODES.get, None) == []


def test_the_message_names_the_pods_of_each_domain_and_counts_the_rest() -> None:
    domains = {"r1": ["a0", "a1", "a2", "a3", "a4"], "r2": ["b0"]}
    assert spread_message([Spread("the gang", RACK, domains)]) == (
        "example.com/rack is required of the gang, and its pods stand in 2 domains: r1 (a0, a1, a2 and 2 more), r2 (b0)"
    )
    many = {f"r{n}": [f"p{n}"] for n in range(7)}
    assert spread_message([Spread("d-0-a", RACK, many)]).endswith("r3 (p3), r4 (p4) and 2 more domains")
