"""The share of free GPUs that a gang cannot use, and the size of the gang that it is measured with."""

from __future__ import annotations

import pytest

from grove.api.fragmentation import GangSize, gang_size, unusable_share


@pytest.mark.parametrize(
    ("gangs", "want"),
    [
        pytest.param([], None, id="no gang"),
        pytest.param([("a", False, [0, 0])], None, id="none asks for it"),
        pytest.param([("a", False, [8, 8]), ("b", False, [4]), ("c", False, [4])], GangSize(1, 4), id="frequent"),
        pytest.param([("a", False, [8, 8]), ("b", False, [4])], GangSize(2, 8), id="of equals the larger"),
        pytest.param([("a", True, [4]), ("b", True, [8, 8]), ("c", False, [1])], GangSize(2, 8, "b"), id="it waits"),
        pytest.param([("a", True, [8, 8, 1])], GangSize(2, 8, "a"), id="unequal pods count as the largest ones"),
    ],
)
def test_the_size_to_measure_with(gangs: list[tuple[str, bool, list[int]]], want: GangSize | None) -> None:
    assert gang_size(gangs) == want


@pytest.mark.parametrize(
    ("domains", "size", "outside", "want"),
    [
        pytest.param([[8, 8], [8]], None, 0, 0.0, id="no size"),
        pytest.param([], GangSize(1, 8), 0, 0.0, id="nothing free"),
        pytest.param([[8, 8, 8, 8], [3, 8, 8, 8, 8, 8]], GangSize(4, 8), 0, 0.147, id="75 GPUs are free"),
        pytest.param([[7, 7], [7]], GangSize(1, 8), 0, 1.0, id="dust"),
        pytest.param([[8], [8]], GangSize(2, 8), 0, 1.0, id="one node in each domain"),
        pytest.param([[8]], GangSize(1, 8), 8, 0.5, id="nodes without a domain"),
    ],
)
def test_the_share_that_is_of_no_use(
    domains: list[list[int]], size: GangSize | None, outside: int, want: float
) -> None:
    assert unusable_share(domains, size, outside) == want
