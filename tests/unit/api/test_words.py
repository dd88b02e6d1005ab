"""Counted nouns: one of a thing is not called by its plural."""

from __future__ import annotations

import pytest

from grove.api.words import many


@pytest.mark.parametrize(
    ("count", "words", "want"),
    [
        pytest.param(0, ("pod",), "0 pods", id="none"),
        pytest.param(1, ("pod",), "1 pod", id="one"),
        pytest.param(2, ("more gang",), "2 more gangs", id="several"),
        pytest.param(1, ("pod has", "pods have"), "1 pod has", id="one, and what it does"),
        pytest.param(3, ("pod has", "pods have"), "3 pods have", id="several, and what they do"),
    ],
)
def test_many(count: int, words: tuple[str, ...], want: str) -> None:
    assert many(count, *words) == want
