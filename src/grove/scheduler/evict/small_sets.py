"""Small sets of running gangs, those with the fewest pods first, and which of them may free enough. Pure.

Counting is cheap but there are many sets. So what one gang frees is counted once. Of gangs that share no node the
numbers are added up. Only sets of gangs that share a node are counted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, combinations, islice

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import Running
from grove.scheduler.filters.fit import CapacityWithout, Freed
from grove.scheduler.model.answers import DecisionSteps
from grove.scheduler.model.gang import Gang

MOST_LISTED = 20_000
"""Sets of gangs that are compared by counting alone."""
SETS_A_STEP = 16
"""Sets whose counting is as much work as a step of a search."""

Units = tuple[Running, ...]


class SmallSets:
    """Sets of these gangs. If there are too many, single gangs are listed before pairs."""

    def __init__(self, snapshot: Snapshot, gang: Gang, units: Sequence[Running]) -> None:
        self._capacity = CapacityWithout(snapshot, gang)
        self._units = sorted(units, key=lambda unit: (len(unit.pods), unit.priority, unit.name))
        self._freed: dict[str, Freed] = {}

    def by_size(self, steps: DecisionSteps) -> Iterator[tuple[int, Units]]:
        """Each set with its number of pods, the fewest pods first, while there are steps left."""
        for number, sized in enumerate(self._listed):
            if number % SETS_A_STEP == 0:
                steps.work(1)
            if steps.are_over:
                return
            yield sized

    @cached_property
    def _listed(self) -> list[tuple[int, Units]]:
        sets = chain.from_iterable(combinations(self._units, size) for size in range(1, len(self._units) + 1))
        sized = [(sum([len(unit.pods) for unit in some]), some) for some in islice(sets, MOST_LISTED)]
        return sorted(sized, key=lambda entry: (entry[0], len(entry[1])))

    def may_suffice(self, some: Units) -> bool:
        """True if every group of the waiting gang may have capacity without these gangs. False is certain."""
        freed = [self._freed_by(unit) for unit in some]
        if len(freed) > 1:
            rows = frozenset[int]().union(*(unit_freed.rows for unit_freed in freed))
            if len(rows) < sum(len(unit_freed.rows) for unit_freed in freed):
                return self._capacity.may_suffice(pod for unit in some for pod in unit.pods)
            return self._capacity.suffices(
                Freed(rows, tuple(map(sum, zip(*(unit_freed.gained for unit_freed in freed), strict=True))))
            )
        return self._capacity.suffices(freed[0])

    def _freed_by(self, unit: Running) -> Freed:
        known = self._freed.get(unit.name)
        if known is None:
            known = self._freed[unit.name] = self._capacity.without(unit.pods)
        return known
