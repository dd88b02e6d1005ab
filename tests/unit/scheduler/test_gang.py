"""From a PodGang to the tree the scheduler works on."""

from __future__ import annotations

import pytest
from tests.support import objects
from tests.support.scheduler.kit import pod

from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.scheduler.model.gang import BadGang, Branch, build_gang


def podgang(groups, configs=(), required: str = "") -> PodGang:
    spec = {"topologyConstraintGroupConfigs": list(configs)}
    if required:
        spec["topologyConstraint"] = {"packConstraint": {"required": required}}
    return objects.gang("gang", *groups, spec=spec, namespace="default")


def entry(name: str, pods: list[str], minimum: int, required: str = "") -> dict:
    found = {"name": name, "minReplicas": minimum, "podReferences": [{"namespace": "default", "name": p} for p in pods]}
    if required:
        found["topologyConstraint"] = {"packConstraint": {"required": required, "preferred": "host"}}
    return found


def known(*pods):
    return {Key("default", p.name): p for p in pods}


def test_constraints_stand_at_every_level():
    gang = build_gang(
        podgang(
            [entry("a", ["a-0"], 1, "rack"), entry("b", ["b-0"], 1)],
            [{"name": "pair", "podGroupNames": ["a"], "topologyConstraint": {"packConstraint": {"required": "block"}}}],
            required="zone",
        ),
        known(pod("a-0"), pod("b-0")),
        priority=7,
    )
    assert (gang.name, gang.priority, gang.root.required) == ("default/gang", 7, "zone")
    pair, b = gang.root.children
    assert isinstance(pair, Branch)
    assert (pair.name, pair.required, [g.name for g in pair.children]) == ("pair", "block", ["a"])
    assert (pair.children[0].required, pair.children[0].preferred) == ("rack", "host")
    assert b.name == "b"
    assert gang.keys() == {"zone", "block", "rack", "host"}


def test_bound_pods_count_towards_the_minimum_and_terminating_ones_do_not():
    gang = build_gang(
        podgang([entry("a", ["a-0", "a-1", "a-2"], 3)]),
        known(pod("a-0", on="n1"), pod("a-1", on="n2", terminating=True), pod("a-2")),
    )
    (group,) = gang.groups()
    assert (group.bound, [p.name for p in group.pods], group.need, group.missing) == (("n1",), ["a-2"], 2, 1)


def test_pods_are_ordered_by_index():
    names = ["a-10", "a-2", "a-1"]
    gang = build_gang(podgang([entry("a", names, 3)]), known(*map(pod, names)))
    assert [p.name for p in next(gang.groups()).pods] == ["a-1", "a-2", "a-10"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        pytest.param(
            podgang([entry("a", ["gone"], 1)]), "pod default/gone of group 'a' does not exist", id="missing pod"
        ),
        pytest.param(podgang([entry("a", [], 0), entry("a", [], 0)]), "'a' is listed twice", id="group twice"),
        pytest.param(
            podgang([entry("a", [], 0)], [{"name": "c", "podGroupNames": ["z"]}]), "unknown pod group 'z'", id="unknown"
        ),
        pytest.param(
            podgang(
                [entry("a", [], 0)], [{"name": "c", "podGroupNames": ["a"]}, {"name": "d", "podGroupNames": ["a"]}]
            ),
            "'a' is in two constraint groups",
            id="group in two constraints",
        ),
    ],
)
def test_contradictions_are_reported(wrong, text):
    with pytest.raises(BadGang, match=text):
        build_gang(wrong, {})


def test_an_empty_gang_has_no_groups():
    assert list(build_gang(podgang([]), {}).groups()) == []
