"""Every golden set, decided to its end without a cluster, gives the golden graph: objects, owners, specs, status."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import golden
from tests.support.puregraph import PureGraph

from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.backends.grove import GroveBackend


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_graph_is_the_golden_one(name: str) -> None:
    wanted = golden.load(name)
    world = PureGraph(wanted.set)
    world.settle()

    assert golden.differences(golden.normalise(world.children()), wanted.children) == []


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_status_of_the_set_is_the_golden_one(name: str) -> None:
    wanted = golden.load(name)
    world = PureGraph(wanted.set)
    world.settle()

    mine = golden.normalise([world.objects["PodCliqueSet", world.set_name]])
    assert golden.differences(mine, {f"PodCliqueSet/{world.set_name}": wanted.set}) == []


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_settled_graph_needs_no_further_write(name: str) -> None:
    world = PureGraph(golden.load(name).set)
    world.settle()
    before = world.writes

    world.step()

    assert world.writes == before


def test_with_our_own_scheduler_only_its_name_and_the_gate_differ() -> None:
    wanted = golden.load("simple1")
    world = PureGraph(wanted.set, GroveBackend())
    world.step()
    assert not any(pod.is_gated for pod in world.all(Pod)), "no gate is ever set"
    world.settle()

    lines = golden.differences(golden.normalise(world.children()), wanted.children)
    assert lines
    assert all("spec.schedulerName" in line or "grove.io/scheduler-name" in line for line in lines), lines


def test_the_normaliser_changes_nothing_that_is_normal_already() -> None:
    for name in golden.NAMES:
        held = golden.load(name)
        assert golden.normalise(held.children.values()) == held.children


def test_a_difference_is_seen() -> None:
    held = golden.load("simple1").children
    name = next(one for one in held if one.startswith("PodClique/"))
    changed = {**held, name: {**held[name], "spec": {**held[name]["spec"], "minAvailable": 99}}}
    assert golden.differences(changed, held) == [f"{name}: spec.minAvailable: 99 instead of 3"]


def test_a_missing_and_a_surplus_object_are_seen() -> None:
    held = golden.load("simple1").children
    fewer = {name: obj for name, obj in held.items() if not name.startswith("Service/")}
    assert golden.differences(fewer, held) == ["Service/simple1-0: missing"]
    assert golden.differences(held, fewer) == ["Service/simple1-0: not in the golden graph"]


def test_golden_sets_decode_into_our_kinds() -> None:
    for name in golden.NAMES:
        held = golden.load(name)
        assert msgspec.convert({**held.set, "status": {}}, PodCliqueSet).spec.template.cliques
        for obj in held.children.values():
            if obj["kind"] == "PodClique":
                assert msgspec.convert({**obj, "status": {}}, PodClique).spec.pod_spec["containers"]
