"""Which units a scale-in leaves, and which indexes a scale-out fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.support.objects import pod

from grove.api.deletion_cost import filled, find_cost, staying, unit_costs
from grove.api.labels import DELETION_COST, POD_DELETION_COST


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({}, None),
        ({DELETION_COST: "cheap"}, None),
        ({DELETION_COST: "-3", POD_DELETION_COST: "9"}, -3),
        ({DELETION_COST: "", POD_DELETION_COST: "9"}, 9),
    ],
)
def test_what_a_pod_says(annotations: dict[str, str], want: int | None) -> None:
    assert find_cost(pod(annotations=annotations)) == want


def test_a_unit_costs_the_lowest_that_one_of_its_pods_says() -> None:
    plain, low, high = pod(), pod(annotations={DELETION_COST: "-1"}), pod(annotations={DELETION_COST: "4"})
    assert unit_costs({0: [plain], 1: [plain, high], 2: [high, low]}) == {1: 4, 2: -1}


@pytest.mark.parametrize(
    ("indexes", "count", "costs", "first", "want"),
    [
        pytest.param(range(3), 2, {}, 1, (0, 1), id="the last one goes"),
        pytest.param(range(3), 2, {1: -1}, 1, (0, 2), id="the cheapest goes"),
        pytest.param(range(3), 2, {2: 1}, 1, (0, 2), id="the dearest stays"),
        pytest.param(range(3), 1, {1: 5, 2: 5}, 1, (0,), id="all but the base gang"),
        pytest.param(range(3), 2, {0: -9}, 2, (0, 1), id="the base gang has no price"),
        pytest.param(range(3), 1, {0: -9, 2: 7}, 2, (0,), id="the base gang goes from its end"),
        pytest.param((0, 2, 4), 2, {}, 1, (0, 2), id="beside a gap"),
        pytest.param(range(2), 0, {1: 3}, 1, (), id="to zero"),
    ],
)
def test_who_stays(
    indexes: Sequence[int], count: int, costs: Mapping[int, int], first: int, want: tuple[int, ...]
) -> None:
    assert staying(indexes, count, costs, first) == want


@pytest.mark.parametrize(
    ("kept", "count", "want"),
    [
        ((), 3, (0, 1, 2)),
        ((0, 2), 2, (0, 2)),
        ((0, 2), 1, (0,)),
        ((0, 2), 3, (0, 1, 2)),
        ((0, 4), 3, (0, 1, 4)),
        ((0, 4), 6, (0, 1, 2, 3, 4, 5)),
        ((0, 2), 0, ()),
    ],
)
def test_gaps_are_filled_first(kept: tuple[int, ...], count: int, want: tuple[int, ...]) -> None:
    assert tuple(filled(kept, count)) == want
