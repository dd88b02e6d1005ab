"""Every recorded set becomes the objects that it became before the operator was rebuilt, but for what is listed."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.support import golden, sample_graphs

from grove.api.meta import Json

SETS = dict(sample_graphs.sample_sets())
GRAPHS = sample_graphs.recorded()

EXPLAINED = {
    r"(ServiceAccount|Role|RoleBinding|Secret)/\S+: missing": "made for sets with a start order only",
    r"PodGang/\S+: metadata\.annotations\b.*grove\.io/network-affinity.* instead of nothing": (
        "cliques that start one after the other talk to each other, and their scheduler is told"
    ),
    r"HorizontalPodAutoscaler/\S+: .*describedObject\.name: '(\S+)' instead of 'self'": (
        "a metric about self is about the object that is scaled"
    ),
    r"Pod/\S+: .*/network-topology-selector: nothing instead of .*": "an annotation that crashes Koordinator",
}
"""Differences from the graphs on record, each with its reason."""


@cache
def graph(name: str) -> dict[str, Json]:
    return sample_graphs.graph_of(SETS[name])


@pytest.mark.parametrize("name", SETS)
def test_the_objects_of_a_sample_are_those_on_record(name: str) -> None:
    lines = golden.differences(graph(name), GRAPHS[name])
    assert [line for line in lines if not any(re.fullmatch(one, line) for one in EXPLAINED)] == []


def test_every_explanation_is_needed() -> None:
    lines = [line for name in SETS for line in golden.differences(graph(name), GRAPHS[name])]
    assert [one for one in EXPLAINED if not any(re.fullmatch(one, line) for line in lines)] == []


def test_only_sets_with_a_start_order_have_what_it_needs() -> None:
    with_access = {name for name in SETS if any(one.get("kind") == "ServiceAccount" for one in graph(name).values())}
    ordered = {name for name in SETS if any(waits(one) for one in GRAPHS[name].values())}
    assert with_access == ordered != set()


def waits(obj: Json) -> bool:
    return obj.get("kind") == "PodClique" and bool(obj["spec"].get("startsAfter"))
