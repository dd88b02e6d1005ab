"""Divides a whole among those who ask: first the guaranteed part of each, then the rest by weight, in exact integers.

The rest is divided in rounds, in proportion to the weights. A queue that has all it asks for takes no more, and the
others share what it leaves. What does not divide goes to the largest remainders. So nothing is lost, and no queue is
more than one unit away from the exact share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ShareClaim(NamedTuple):
    """The claim of one of several siblings. Without `lends` it keeps its whole guarantee, even if it asks for less."""

    guaranteed: int
    demand: int
    limit: int
    weight: int = 1
    lends: bool = True

    @property
    def first(self) -> int:
        """The amount that it gets before the rest is shared."""
        return min(self.guaranteed, self.limit, self.demand if self.lends else self.guaranteed)

    @property
    def most(self) -> int:
        return max(self.first, min(self.demand, self.limit))


def fair_shares(total: int, claims: Sequence[ShareClaim]) -> list[int]:
    """The share of each claim, in their order. Where even the guarantees are too much they are cut in proportion."""
    first = [claim.first for claim in claims]
    left = total - sum(first)
    if left < 0:
        return poured(max(0, total), first, first)
    more = poured(
        left, [claim.most - got for claim, got in zip(claims, first, strict=True)], [c.weight for c in claims]
    )
    return [got + extra for got, extra in zip(first, more, strict=True)]


def poured(amount: int, capacities: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Shares of `amount` in proportion to the weights, none above its capacity; ties go to the earlier one."""
    shares = [0] * len(capacities)
    open_ = [i for i, capacity in enumerate(capacities) if capacity > 0 and weights[i] > 0]
    while open_ and amount > 0:
        width = sum(weights[i] for i in open_)
        full = [i for i in open_ if amount * weights[i] >= capacities[i] * width]
        if not full:
            break
        for i in full:
            shares[i] = capacities[i]
        amount -= sum(capacities[i] for i in full)
        open_ = [i for i in open_ if not shares[i]]
    if open_ and amount > 0:
        width = sum(weights[i] for i in open_)
        for i in open_:
            shares[i] = amount * weights[i] // width
        short = amount - sum(shares[i] for i in open_)
        for i in sorted(open_, key=lambda i: (-(amount * weights[i] % width), i))[:short]:
            shares[i] += 1
    return shares
