"""How many units each domain gets so that a spread holds: plain numbers in, plain numbers out.

Let `low` be the fewest units that any domain has in the end. Every domain has at least `low`, and a domain that gets a
unit has at most `low + skew`. For each `low` these are bounds on every domain by itself, so the distributions are easy
to list. The highest `low` comes first, which is the most even distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

MOST_DOMAINS = 64
"""With more domains only the most even distribution for each `low` is listed, and not all of them."""

Distribution = tuple[int, ...]


def distributions(counts: Sequence[int], capacity: Sequence[int], units: int, skew: int) -> Iterator[Distribution]:
    """Ways to add units to domains with these counts within the skew, the most even one first.

    `capacity` is how many more units each domain can hold at most.
    """
    if not counts:
        return
    seen: set[Distribution] = set()
    for low in range(_highest_low(counts, capacity, units), min(counts) - 1, -1):
        least = [max(0, low - count) for count in counts]
        most = [min(held, max(0, low + skew - count)) for count, held in zip(counts, capacity, strict=True)]
        if any(a > b for a, b in zip(least, most, strict=True)) or not sum(least) <= units <= sum(most):
            continue
        even = _evenly(counts, capacity, least, most, units)
        if even not in seen:
            seen.add(even)
            yield even
        if len(counts) > MOST_DOMAINS:
            continue
        for distribution in _between(least, most, units):
            if distribution not in seen:
                seen.add(distribution)
                yield distribution


def _highest_low(counts: Sequence[int], capacity: Sequence[int], units: int) -> int:
    """The most units that the emptiest domain can have in the end."""
    low, high = min(counts), min(count + held for count, held in zip(counts, capacity, strict=True))
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, middle - count) for count in counts) <= units:
            low = middle
        else:
            high = middle - 1
    return low


def _evenly(
    counts: Sequence[int], capacity: Sequence[int], least: Sequence[int], most: Sequence[int], units: int
) -> Distribution:
    """The units beyond the least go where there are fewest; of equals to the domain with the most capacity."""
    given = list(least)
    heap = [(count + n, n - held, i) for i, (count, held, n) in enumerate(zip(counts, capacity, given, strict=True))]
    heapify(heap)
    for _ in range(units - sum(least)):
        while given[heap[0][2]] >= most[heap[0][2]]:
            heappop(heap)
        total, spare, i = heappop(heap)
        given[i] += 1
        heappush(heap, (total + 1, spare + 1, i))
    return tuple(given)


def _between(least: Sequence[int], most: Sequence[int], units: int) -> Iterator[Distribution]:
    """All ways between two bounds."""
    after_least, after_most = [0], [0]
    for a, b in zip(reversed(least), reversed(most), strict=True):
        after_least.append(after_least[-1] + a)
        after_most.append(after_most[-1] + b)
    after_least.reverse()
    after_most.reverse()

    def from_domain(i: int, left: int, given: Distribution) -> Iterator[Distribution]:
        if i == len(least):
            yield given
            return
        fewest, largest = max(least[i], left - after_most[i + 1]), min(most[i], left - after_least[i + 1])
        for n in range(largest, fewest - 1, -1):
            yield from from_domain(i + 1, left - n, (*given, n))

    return from_domain(0, units, ())


def divided(
    total: Distribution, capacities: Sequence[Sequence[int]], sizes: Sequence[int]
) -> Iterator[tuple[Distribution, ...]]:
    """Ways to divide a distribution among groups of these sizes; each domain has a capacity for each group.

    With many domains only one way is tried.
    """
    if len(sizes) == 1:
        yield (total,)
        return
    later = [sum(map(min, column, sizes[1:])) for column in zip(*capacities[1:], strict=True)]
    least = [max(0, units - rest) for units, rest in zip(total, later, strict=True)]
    most = [min(units, held) for units, held in zip(total, capacities[0], strict=True)]
    if any(a > b for a, b in zip(least, most, strict=True)) or not sum(least) <= sizes[0] <= sum(most):
        return
    ways = _between(least, most, sizes[0]) if len(total) <= MOST_DOMAINS else [_filled(least, most, sizes[0])]
    for first in ways:
        left = tuple(units - given for units, given in zip(total, first, strict=True))
        for others in divided(left, capacities[1:], sizes[1:]):
            yield (first, *others)


def _filled(least: Sequence[int], most: Sequence[int], units: int) -> Distribution:
    """One way between two bounds: the first domains get as many as they can."""
    left, given = units - sum(least), list(least)
    for i, limit in enumerate(most):
        more = min(left, limit - given[i])
        given[i] += more
        left -= more
    return tuple(given)


def skew_of(counts: Sequence[int], added: Sequence[int]) -> int:
    """By how much a domain that gets a unit exceeds the domain with the fewest, in the end."""
    ends = [count + more for count, more in zip(counts, added, strict=True)]
    return max((end - min(ends) for end, more in zip(ends, added, strict=True) if more), default=0)
