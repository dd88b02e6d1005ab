"""Five thousand spoilt sets, none of which makes admission stumble (a few hundred run with the unit tests)."""

from __future__ import annotations

from hypothesis import given, settings
from tests.mutants import check_set, mutated


@settings(max_examples=5000)
@given(obj=mutated())
def test_five_thousand_spoilt_sets_get_a_sound_answer(obj: dict) -> None:
    check_set(obj)
