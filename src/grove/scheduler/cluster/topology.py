"""Domains: nodes sorted by their place in the hierarchy, so that every domain is one contiguous run.

A domain is the path of label values down to its level: `rack-1` in two zones is two racks. A node without a level's
label is in no domain of that level. The narrowest level is always the host, one domain a node, label or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from grove.scheduler.model.facts import HOSTNAME


class Tree:
    """Levels broad to narrow over the rows of a node table; immutable."""

    __slots__ = ("domains", "keys", "order", "position", "runs")

    def __init__(
        self,
        keys: tuple[str, ...],
        rows: npt.NDArray[np.int64],
        names: Sequence[str],
        ranks: list[npt.NDArray[np.int32]],
    ) -> None:
        """`ranks` has an array a key (the host's excepted), sorted like the values, -1 where a label is missing."""
        self.keys = keys
        by_name = np.empty(len(names), dtype=np.int64)
        by_name[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        sorting = np.lexsort([by_name, *(rank.astype(np.int64) for rank in reversed(ranks))])
        self.order = rows[sorting]
        """Rows sorted by path, then by node name."""
        size = int(rows.max()) + 1 if rows.size else 0
        self.position = np.full(size, -1, dtype=np.int64)
        self.position[self.order] = np.arange(rows.size)
        self.domains: list[npt.NDArray[np.int64]] = []
        """A level's domain number by position in `order`; numbers rise with position, -1 is no domain."""
        fresh = np.zeros(rows.size, dtype=np.bool_)
        fresh[:1] = True
        for rank in ranks:
            column = rank[sorting]
            fresh[1:] |= column[1:] != column[:-1]
            self.domains.append(np.where(column >= 0, np.cumsum(fresh) - 1, -1))
        self.domains.append(np.arange(rows.size))
        self.runs = [_runs(domains) for domains in self.domains]
        """A level's domains as (first position, position after the last, number)."""

    @property
    def host_level(self) -> int:
        return len(self.keys) - 1

    def find_level(self, key: str) -> int | None:
        return self.keys.index(key) if key in self.keys else None

    def domain_of(self, row: int, level: int) -> int:
        """The domain a node is in, -1 for none."""
        position = int(self.position[row]) if row < self.position.size else -1
        return int(self.domains[level][position]) if position >= 0 else -1

    def crossed(self, level: int, positions: npt.NDArray[np.int64]) -> int:
        """How many domains of a level these positions are in. A node outside every domain counts as a domain of its
        own.
        """
        domains = self.domains[level][positions]
        outside = domains < 0
        if not outside.any():
            return int(np.unique(domains).size)
        return int(np.unique(domains[~outside]).size + np.unique(positions[outside]).size)

    def rows_in(self, level: int, domain: int) -> npt.NDArray[np.int64]:
        starts, ends, numbers = self.runs[level]
        at = int(numbers.searchsorted(domain))
        if at == numbers.size or numbers[at] != domain:
            return self.order[:0]
        return self.order[starts[at] : ends[at]]


def _runs(
    domains: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    starts = np.flatnonzero(np.concatenate([[True], domains[1:] != domains[:-1]])[: domains.size])
    ends = np.append(starts[1:], domains.size)
    real = domains[starts] >= 0
    return starts[real], ends[real], domains[starts[real]]


def path_name(labels: Mapping[str, str], keys: Sequence[str], level: int, host: str) -> str:
    """The name of a domain in messages: its path of label values, broad to narrow."""
    parts = [labels.get(key, "") for key in keys[: level + 1] if key != HOSTNAME]
    if level == len(keys) - 1:
        parts.append(host)
    return "/".join(part for part in parts if part)


def levels_for(
    wanted: Iterable[str], named: str, topologies: Mapping[str, tuple[str, ...]], distinct: Callable[[str], int]
) -> tuple[str, ...]:
    """The level keys to sort by, for a gang that speaks of the wanted ones.

    The named topology if it has them all, else the first (by name) that has. Keys that no one topology holds stand by
    themselves, fewest values first, so a PodGang written by hand needs no binding.
    """
    keys = {key for key in wanted if key}
    candidates = [named] if named in topologies else []
    candidates += sorted(topologies)
    for name in candidates:
        levels = _to_host(topologies[name])
        if keys <= set(levels):
            return levels
    return (*sorted(keys - {HOSTNAME}, key=lambda key: (distinct(key), key)), HOSTNAME)


def _to_host(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Levels down to the host; anything a binding names below the host is the host, to a scheduler of nodes."""
    above = levels[: levels.index(HOSTNAME)] if HOSTNAME in levels else levels
    return (*above, HOSTNAME)
