"""Which units a scale-in removes first, as the engines or a planner say on the pods of the units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from grove.api.labels import DELETION_COST, POD_DELETION_COST
from grove.api.pod import Pod


def find_cost(pod: Pod) -> int | None:
    """The deletion cost in the annotations of a pod, None without a number.

    Grove's annotation has precedence over that of Kubernetes.
    """
    own = pod.metadata.annotations
    for key in (DELETION_COST, POD_DELETION_COST):
        with suppress(KeyError, ValueError):
            return int(own[key])
    return None


def unit_costs(units: Mapping[int, Iterable[Pod]]) -> dict[int, int]:
    """The cost of each unit that has one: the lowest that one of its pods has."""
    costs_by_unit = {
        index: [cost for pod in pods if (cost := find_cost(pod)) is not None] for index, pods in units.items()
    }
    return {index: min(costs) for index, costs in costs_by_unit.items() if costs}


def staying(indexes: Sequence[int], count: int, costs: Mapping[int, int], first: int = 0) -> tuple[int, ...]:
    """The units that are left when a scale-in leaves `count` of these.

    The lowest cost goes first, then the highest index. Units below `first` go last: they are part of the base gang.
    """
    order = sorted(indexes, key=lambda index: (index < first, costs.get(index, 0) if index >= first else 0, -index))
    return tuple(sorted(order[max(0, len(order) - count) :]))


def next_indexes(
    recorded: Sequence[int], asked: Sequence[int], costs: Mapping[int, int], first: int = 0
) -> tuple[int, ...]:
    """`status.replicaIndexes` after a change of `replicas`; empty without gaps.

    `recorded` are the units of before. `asked` are those that stay or come if no unit has a cost.
    """
    count = len(asked)
    indexes = staying(recorded, count, costs, first) if costs else asked
    return () if isinstance(indexes, range) or indexes == (*range(count),) else tuple(indexes)


def filled(kept: Sequence[int], count: int) -> Sequence[int]:
    """The indexes of `count` units if `kept` are there already: the last ones go, and gaps are filled first."""
    if not kept:
        return range(count)
    free = (index for index in range(count) if index not in kept)
    return tuple(sorted((*kept[:count], *islice(free, max(0, count - len(kept))))))
