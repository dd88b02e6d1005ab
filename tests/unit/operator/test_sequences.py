"""Laws over whole sequences: however a set got there, it ends as a fresh one of the same wishes would."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import golden
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.puregraph import PureGraph

from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend

DEMO = pcs(
    "demo",
    clique("router", 2, min_available=1),
    clique("lead", 1),
    clique("work", 2),
    groups=[group("grp", "lead", "work", replicas=3, min_available=2)],
    startup="CliqueStartupTypeInOrder",
)


def test_the_worked_example_comes_to_22_pods_in_6_gangs() -> None:
    world = PureGraph(worked_example())
    world.settle()
    assert Counter(kind for kind, _ in world.objects) == {
        "PodCliqueSet": 1,
        "PodClique": 14,
        "PodCliqueScalingGroup": 2,
        "PodGang": 6,
        "Service": 2,
        "Pod": 22,
    }
    assert world.pcs.status.available_replicas == 2


def test_scaled_gangs_are_let_go_after_their_base_gang() -> None:
    world = PureGraph(worked_example(replicas=1), KubeBackend())
    world.step()  # pods and gangs are made, gates are on
    assert all(pod.is_gated for pod in world.all(Pod))
    world.step()  # all pods are listed: the base gang goes, no pod has a node yet
    base = {pod.metadata.name: "grove.io/base-podgang" not in pod.metadata.labels for pod in world.all(Pod)}
    assert {pod.metadata.name: not pod.is_gated for pod in world.all(Pod)} == base
    world.run_pods()
    world.step()
    assert not any(pod.is_gated for pod in world.all(Pod))


def test_zero_and_back_at_every_level() -> None:
    fresh = PureGraph(DEMO)
    fresh.settle()
    want = golden.normalise(fresh.children())
    for kind, name in (
        ("PodCliqueSet", "demo"),
        ("PodCliqueScalingGroup", "demo-0-grp"),
        ("PodClique", "demo-0-router"),
        ("PodClique", "demo-0-grp-0-work"),
    ):
        world = PureGraph(DEMO)
        world.settle()
        full = world.objects[kind, name]["spec"]["replicas"]
        world.scale(kind, name, 0)
        world.settle()
        assert world.pcs.status.available_replicas == world.pcs.spec.replicas, "what is at zero is not missed"
        world.scale(kind, name, full)
        world.settle()
        assert _without_generations(golden.normalise(world.children())) == _without_generations(want), name


def test_a_set_at_zero_keeps_only_what_is_the_sets_own() -> None:
    world = PureGraph(DEMO)
    world.settle()
    world.scale("PodCliqueSet", "demo", 0)
    world.settle()
    assert sorted({kind for kind, _ in world.objects}) == [
        "PodCliqueSet",
        "Role",
        "RoleBinding",
        "Secret",
        "ServiceAccount",
    ]


def _without_generations(objects: dict[str, golden.Json]) -> dict[str, golden.Json]:
    """Objects without what only counts how often they were changed."""
    return {
        name: {**one, "status": {k: v for k, v in one.get("status", {}).items() if k != "observedGeneration"}}
        for name, one in objects.items()
    }


changes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("group"), st.integers(0, 1), st.integers(0, 4)),
        st.tuples(st.just("clique"), st.integers(0, 9), st.integers(0, 3)),
        st.tuples(st.just("fail"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("step"), st.just(0), st.just(0)),
        st.tuples(st.just("run"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("backend", [GroveBackend(), KubeBackend()], ids=lambda backend: backend.name)
@given(steps=changes)
@settings(max_examples=30)
def test_any_sequence_ends_where_a_fresh_set_would(
    backend: GroveBackend | KubeBackend, steps: list[tuple[str, int, int]]
) -> None:
    world = PureGraph(DEMO, backend)
    world.step()
    for what, where, count in steps:
        if what == "set":
            world.scale("PodCliqueSet", "demo", where)
        elif what == "group" and (groups := world.all(PodCliqueScalingGroup)):
            world.scale("PodCliqueScalingGroup", groups[where % len(groups)].metadata.name, count)
        elif what == "clique" and (cliques := world.all(PodClique)):
            world.scale("PodClique", cliques[where % len(cliques)].metadata.name, count)
        elif what == "fail" and (pods := world.all(Pod)):
            world.fail(pods[where % len(pods)].metadata.name)
        elif what == "step":
            world.step()
            _check_indexes(world)
        elif what == "run":
            world.run_pods()
    world.settle()
    _check_indexes(world)

    fresh = PureGraph(DEMO, backend)
    fresh.scale("PodCliqueSet", "demo", world.pcs.spec.replicas)
    fresh.settle()
    for group_ in world.all(PodCliqueScalingGroup):
        fresh.scale("PodCliqueScalingGroup", group_.metadata.name, group_.spec.replicas)
    fresh.settle()
    for one in world.all(PodClique):
        fresh.scale("PodClique", one.metadata.name, one.spec.replicas)
    fresh.settle()
    assert _shape(world) == _shape(fresh)


def _check_indexes(world: PureGraph) -> None:
    for one in world.all(PodClique):
        pods = world.pods_of(one.metadata.name)
        hostnames = [pod.spec.hostname for pod in pods]
        assert len(hostnames) == len(set(hostnames)), "no index twice"
        settled = world.plans.get(one.metadata.name)
        if settled is not None and settled.is_settled:
            assert len(pods) == one.spec.replicas


def _shape(world: PureGraph) -> dict[str, object]:
    """Everything but which indexes survived and how often objects changed: that is history."""
    found: dict[str, object] = {}
    for (kind, name), obj in world.objects.items():
        if kind == "Pod":
            continue
        if kind == "PodGang":
            groups = obj["spec"]["podgroups"]
            found[name] = [(one["name"], one["minReplicas"], len(one["podReferences"])) for one in groups]
        else:
            status = {key: value for key, value in obj.get("status", {}).items() if key.endswith("eplicas")}
            found[f"{kind}/{name}"] = (obj["spec"].get("replicas") if "spec" in obj else None, status)
    return found
