"""The script of the stranger's test: its sets are valid, and one seed always breaks the same ones."""

from __future__ import annotations

import pytest
from tools.break_sets import HEALTHY, NAMES, POOL, drawn, manifest

from grove.crds.check import published_check


@pytest.mark.parametrize("fault", sorted(POOL))
def test_every_fault_has_a_valid_set_that_differs_from_a_healthy_one_or_changes_later(
    fault: str,
) -> None:
    edit, _, after = POOL[fault]
    obj = manifest("ash")
    edit(obj)
    assert published_check("podcliquesets.grove.io").faults(obj) == []
    assert obj != manifest("ash") or after.__name__ != "nothing"


def test_one_seed_always_breaks_the_same_sets() -> None:
    names, answers = drawn(7, 10)
    assert (names, answers) == drawn(7, 10)
    assert len(answers) == 10
    assert len(set(names)) == len(NAMES) == 10 + HEALTHY
