"""Small sets of domains that could hold a part together, when no single one can.

Finding the smallest such set is a covering problem. Several greedy orders are tried, the last domain of each set is
exchanged for the tightest that will do, and sets come out smallest first. For one class of pods the largest-first order
is exactly right, and the only one tried.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.nodes import Ints

MOST_SETS = 12


def domain_sets(held: Ints, need: Ints) -> Iterator[Ints]:
    """Sets of domain indices, few domains first. `held[t, d]` is what domain d holds by test t, of `need[t]`."""
    found: dict[tuple[int, ...], None] = {}
    for order in _orders(held, need):
        chosen = _prefix(held, need, order)
        if chosen.size:
            found.setdefault(tuple(np.sort(_tight_last(held, need, chosen)).tolist()))
            found.setdefault(tuple(np.sort(chosen).tolist()))
    sets = sorted(found, key=lambda members: (len(members), int(held[:, list(members)].sum()), members))
    for members in sets[:MOST_SETS]:
        yield np.array(members, dtype=np.int64)
    # A set that passes the counting tests may still not pack: offer the best with one more domain as well.
    for members in sets[:2]:
        gains = np.minimum(held, need[:, None]).sum(axis=0)
        gains[list(members)] = -1
        if gains.size and gains.max() > 0:
            yield np.sort(np.append(np.array(members, dtype=np.int64), np.argmax(gains)))


def _orders(held: Ints, need: Ints) -> Iterator[Ints]:
    share = held / np.maximum(need, 1)[:, None]
    useful = np.minimum(share, 1).sum(axis=0)
    for t in range(held.shape[0]):
        yield np.lexsort((-useful, -held[t]))
    if held.shape[0] > 1:
        yield np.argsort(-share.min(axis=0), kind="stable")
        yield np.argsort(-useful, kind="stable")
        yield _by_cover(held, need)


def _by_cover(held: Ints, need: Ints) -> Ints:
    """Each next domain is the one that brings most of what is still missing."""
    missing = need.copy()
    left = np.ones(held.shape[1], dtype=np.bool_)
    order: list[int] = []
    while left.any() and (missing > 0).any():
        gains = (np.minimum(held, np.maximum(missing, 0)[:, None]) / np.maximum(need, 1)[:, None]).sum(axis=0)
        gains[~left] = -1.0
        best = int(np.argmax(gains))
        order.append(best)
        left[best] = False
        missing = missing - held[:, best]
    return np.array(order, dtype=np.int64)


def _prefix(held: Ints, need: Ints, order: Ints) -> Ints:
    """The shortest beginning of the order that passes every test; empty if the whole does not."""
    enough = np.flatnonzero((np.cumsum(held[:, order], axis=1) >= need[:, None]).all(axis=0))
    return order[: int(enough[0]) + 1] if enough.size else order[:0]


def _tight_last(held: Ints, need: Ints, chosen: Ints) -> Ints:
    """The set with its last domain replaced by the least roomy one that will still do."""
    base = held[:, chosen[:-1]].sum(axis=1)
    fits = (base[:, None] + held >= need[:, None]).all(axis=0)
    fits[chosen[:-1]] = False
    options = np.flatnonzero(fits)
    best = options[np.argmin(held[:, options].sum(axis=0))]
    return np.append(chosen[:-1], best)
