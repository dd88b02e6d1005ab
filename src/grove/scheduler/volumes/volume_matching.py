"""Volumes for claims, one for each."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

C = TypeVar("C", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def share_out(suits: Mapping[C, Sequence[V]], needed: Collection[C]) -> tuple[dict[C, V], set[C]]:
    """A volume for each claim of those that suit it, the first rather; and claims that there are too few for.

    Those in `needed` come first and have all got one, or a few are named that cannot all have one. The others may do
    without.
    """
    owner: dict[V, C] = {}

    def give(claim: C, asked: set[V], met: set[C]) -> bool:
        met.add(claim)
        free = [volume for volume in suits[claim] if volume not in owner]
        for volume in (*free[:1], *suits[claim]):
            if volume not in asked:
                asked.add(volume)
                if volume not in owner or give(owner[volume], asked, met):
                    owner[volume] = claim
                    return True
        return False

    for claim in (*needed, *(claim for claim in suits if claim not in needed)):
        met: set[C] = set()
        if not give(claim, set(), met) and claim in needed:
            return {}, met
    return {claim: volume for volume, claim in owner.items()}, set()
