"""A gang found by its name is the gang that unfolding the whole set gives, and no other name finds one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.puregraph import gang_layouts

from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.operator.podgang.gangs import find_gang_layout
from grove.operator.shared.layout import find_replica, replica_layouts

SHAPE = pcs(
    "a-1",
    clique("w"),
    clique("lead"),
    clique("m"),
    clique("n"),
    replicas=12,
    groups=[
        group("g", "lead", "m", replicas=3, min_available=1),
        group("g-0", "n", replicas=2, min_available=2),
    ],
)
SET = msgspec.convert(SHAPE, PodCliqueSet)


def by_template(fqn: str, config: ScalingGroupConfig) -> range:
    return range(config.replicas)


def test_every_gang_is_found_by_its_name() -> None:
    for layout in gang_layouts(SET, by_template):
        assert find_gang_layout(SET, layout.name, by_template) == layout


def test_the_gangs_of_all_replicas_are_the_gangs_of_the_set() -> None:
    each = [layout for replica in range(12) for layout in replica_layouts(SET, replica, by_template)]
    assert sorted(one.name for one in each) == sorted(one.name for one in gang_layouts(SET, by_template))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a-1-12", id="a replica too many"),
        pytest.param("a-1-0-g-2", id="a replica too many"),
        pytest.param("a-1-0-x-0", id="no such group"),
        pytest.param("a-2-0", id="of another set"),
        pytest.param("a-1", id="the set itself"),
        pytest.param("a-1-", id="no number"),
        pytest.param("", id="nothing"),
    ],
)
def test_other_names_find_none(name: str) -> None:
    assert find_gang_layout(SET, name, by_template) is None


@given(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.integers(0, 10_000))
def test_the_replica_is_read_from_a_base_gangs_name(pcs_name: str, replica: int) -> None:
    assert find_replica(pcs_name, f"{pcs_name}-{replica}") == replica
