"""Five thousand spoilt sets, none of which makes admission stumble (a few hundred run with the unit tests)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.support.mutants import check_set, mutated


@pytest.mark.parametrize("part", range(5))  # so that they are shared among workers; each has seeds of its own
@settings(max_examples=1000)
@given(obj=mutated())
def test_five_thousand_spoilt_sets_get_a_sound_answer(part: int, obj: dict) -> None:
    check_set(obj)
