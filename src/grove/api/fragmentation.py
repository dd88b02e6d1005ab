"""Fragmentation: the share of the free amount of a resource that a gang cannot use. Pure.

The gang is the largest one that waits. If no gang waits, it is the typical one: the most frequent size of those that
run. The command line, the console and the metrics of the scheduler all use these functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GangSize:
    """`pods` pods of `each` units. `waiting` is the name of the gang if it waits, empty for the typical size."""

    pods: int
    each: int
    waiting: str = ""

    @property
    def words(self) -> str:
        size = f"{self.pods} × {self.each}"
        return f"{size} ({self.waiting} waits)" if self.waiting else f"{size} (the most frequent size)"


def gang_size(gangs: Iterable[tuple[str, bool, Sequence[int]]]) -> GangSize | None:
    """The size to measure with; None if no gang asks for the resource.

    A gang is its name, whether it waits, and what each of its pods asks for. A gang of unequal pods counts as pods of
    its largest size.
    """
    waiting: list[GangSize] = []
    running: Counter[tuple[int, int]] = Counter()
    for name, waits, asked in gangs:
        each = max(asked, default=0)
        if not each:
            continue
        size = GangSize(max(1, sum(asked) // each), each, name)
        if waits:
            waiting.append(size)
        else:
            running[size.pods, size.each] += 1
    if waiting:
        return max(waiting, key=lambda size: (size.pods * size.each, size.each, size.waiting))
    if not running:
        return None
    return GangSize(*max(running, key=lambda size: (running[size], size[0] * size[1])))


def unusable_share(domains: Iterable[Sequence[int]], size: GangSize | None, outside: int = 0) -> float:
    """The share of what is free that gangs of this size, each within one domain, cannot use.

    `domains` are the free amounts of the nodes of each domain; `outside` is free on nodes that are in no domain.
    """
    if size is None:
        return 0.0
    free = usable = 0
    for nodes in domains:
        free += sum(nodes)
        slots = sum(node // size.each for node in nodes)
        usable += slots // size.pods * size.pods * size.each
    total = free + outside
    return round(1 - usable / total, 3) if total else 0.0
