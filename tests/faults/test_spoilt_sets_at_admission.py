"""Five thousand invalid sets: admission answers each of them without a crash."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.support.mutants import check_set, mutated

PARTS = [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, 5))]
"""Each has seeds of its own."""


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=1000)
@given(obj=mutated())
def test_five_thousand_spoilt_sets_get_a_sound_answer(part: int, obj: dict) -> None:
    check_set(obj)
