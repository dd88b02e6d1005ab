"""How a set unfolds: the worked example, the shifted numbering, and names that end alike."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.observed import clique_of, group_of, set_of
from tests.support.puregraph import gang_layouts

from grove.api.podclique import PodCliqueSpec
from grove.operator.shared.layout import (
    group_minimum,
    live_replicas,
    member_units,
    standalone_units,
    unit_of,
)


def gangs(manifest: dict, **scaled: int) -> dict[str, list[str]]:
    observed = set_of(manifest)
    groups = [group_of(observed, name.replace("_", "-"), replicas) for name, replicas in scaled.items()]
    return {one.name: [unit.fqn for unit in one.units] for one in gang_layouts(observed, live_replicas(groups))}


def test_the_worked_example() -> None:
    assert gangs(worked_example()) == {
        "demo-0": ["demo-0-router", "demo-0-grp-0-lead", "demo-0-grp-0-work"],
        "demo-1": ["demo-1-router", "demo-1-grp-0-lead", "demo-1-grp-0-work"],
        "demo-0-grp-0": ["demo-0-grp-1-lead", "demo-0-grp-1-work"],
        "demo-0-grp-1": ["demo-0-grp-2-lead", "demo-0-grp-2-work"],
        "demo-1-grp-0": ["demo-1-grp-1-lead", "demo-1-grp-1-work"],
        "demo-1-grp-1": ["demo-1-grp-2-lead", "demo-1-grp-2-work"],
    }


def two_base(replicas: int = 4) -> dict:
    return pcs("d", clique("r"), clique("w"), groups=[group("g", "w", replicas=replicas, min_available=2)])


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        pytest.param(
            4,
            {"d-0": ["d-0-r", "d-0-g-0-w", "d-0-g-1-w"], "d-0-g-0": ["d-0-g-2-w"], "d-0-g-1": ["d-0-g-3-w"]},
            id="replicas from the minimum on are gangs, numbered from 0",
        ),
        pytest.param(2, {"d-0": ["d-0-r", "d-0-g-0-w", "d-0-g-1-w"]}, id="at the minimum there is only the base gang"),
        pytest.param(1, {"d-0": ["d-0-r", "d-0-g-0-w"]}, id="below the minimum the base gang has what there is"),
        pytest.param(0, {"d-0": ["d-0-r"]}, id="zero releases the group"),
    ],
)
def test_gangs_follow_the_live_size_of_a_group(live: int, wanted: dict[str, list[str]]) -> None:
    assert gangs(two_base(), d_0_g=live) == wanted


def test_a_group_without_object_has_the_size_of_its_template() -> None:
    assert len(gangs(two_base(replicas=3))) == 2


def test_no_replica_no_gang() -> None:
    assert gangs(worked_example(replicas=0)) == {}


def test_units_know_their_gang() -> None:
    observed = set_of(two_base())
    config = observed.spec.template.pod_clique_scaling_groups[0]
    base, scaled = next(member_units(observed, 0, config, 1)), next(member_units(observed, 0, config, 2))
    assert (base.gang, base.base_gang, base.is_scaled) == ("d-0", "d-0", False)
    assert (scaled.gang, scaled.base_gang, scaled.is_scaled) == ("d-0-g-0", "d-0", True)


def test_a_template_is_found_by_exact_name_not_by_how_it_ends() -> None:
    observed = set_of(pcs("x", clique("worker"), clique("prefill-worker")))
    unit = unit_of(observed, clique_of(observed, "x-0-prefill-worker"))
    assert unit is not None
    assert unit.template.name == "prefill-worker"


def test_a_member_whose_name_looks_like_a_standalone_clique_is_distinguished_by_its_labels() -> None:
    observed = set_of(pcs("x", clique("g-0-w"), clique("w"), groups=[group("g", "w", replicas=1, min_available=1)]))
    standalone = next(standalone_units(observed, 0))
    member = next(member_units(observed, 0, observed.spec.template.pod_clique_scaling_groups[0], 0))
    assert standalone.fqn == member.fqn == "x-0-g-0-w", "admission's business; here only which is which"
    assert standalone.group is None
    assert member.group is not None


@pytest.mark.parametrize(
    ("replicas", "min_available", "needs"),
    [
        pytest.param(3, 2, 2, id="above the minimum"),
        pytest.param(1, 2, 1, id="scaled below it the smaller of the two counts"),
        pytest.param(0, 2, 0, id="zero releases the clique"),
        pytest.param(3, None, 3, id="no minimum means all"),
        pytest.param(2, 0, 1, id="a clique with pods needs at least one"),
    ],
)
def test_current_minimum(replicas: int, min_available: int | None, needs: int) -> None:
    assert PodCliqueSpec(replicas=replicas, min_available=min_available).current_minimum == needs


@pytest.mark.parametrize(("asked", "needs"), [(3, 2), (2, 2), (1, 1), (0, 0)])
def test_group_minimum(asked: int, needs: int) -> None:
    assert group_minimum(asked, 2) == needs
