"""The recent past of figures: of each its values and the times at which they changed. Pure.

A figure keeps its value until its next point. A point without a value means that the figure is not known from there on.
The past is bounded: of a figure with too many points, the older half loses every second one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence

MOST_POINTS = 720
BLOCKS = "▁▂▃▄▅▆▇█"

Point = tuple[float, float | None]
"""Seconds since 1970, and the value from then on."""
Values = Mapping[str, float | None]


class Past:
    """The points of the figures of some subjects, by the keys of the subjects and the names of the figures."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: dict[str, dict[str, list[Point]]] = {}

    def record(self, key: str, values: Values, at: float) -> bool:
        """Adds a point for each value that is another than before; whether there was any."""
        known = self._points.setdefault(key, {})
        changed = False
        for name, value in values.items():
            points = known.setdefault(name, [])
            if (points[-1][1] if points else None) == value:
                continue
            changed = True
            points.append((at, value))
            if len(points) > self._most:
                half = len(points) // 2
                points[:half] = points[:half:2]
        return changed

    def forget(self, key: str) -> None:
        self._points.pop(key, None)

    def keys(self) -> list[str]:
        return list(self._points)

    def of(self, key: str) -> dict[str, list[Point]]:
        """The points of each figure of a subject, the oldest first."""
        return {name: list(points) for name, points in self._points.get(key, {}).items() if points}


def joined(before: Sequence[Point], own: Sequence[Point], *, counts: bool) -> list[Point]:
    """Points from elsewhere up to the first own one, and the own ones after them.

    A figure that `counts` goes on from the last count before: both counted from a different start.
    """
    if not own:
        return list(before)
    first_at = own[0][0]
    earlier = [point for point in before if point[0] < first_at]
    last = next((value for _, value in reversed(earlier) if value is not None), None)
    start = own[0][1]
    shift = last - start if counts and last is not None and start is not None else 0.0
    return [*earlier, *((at, value + shift if value is not None else None) for at, value in own)]


def bucketed(points: Sequence[Point], since: float, until: float, cells: int, *, counts: bool) -> list[float | None]:
    """One number a cell of time: the highest value in it; of a figure that counts, by how much it grew."""
    width = (until - since) / cells
    buckets: list[float | None] = [None] * cells
    at_start = bisect_right(points, since, key=lambda point: point[0])
    value = points[at_start - 1][1] if at_start else None
    rest = deque(points[at_start:])
    for cell in range(cells):
        end = since + (cell + 1) * width
        highest, grown = value, 0.0
        while rest and rest[0][0] <= end:
            _, then = rest.popleft()
            if then is not None:
                highest = then if highest is None else max(highest, then)
                grown += max(0.0, then - value) if value is not None else 0.0
            value = then
        buckets[cell] = (grown if highest is not None else None) if counts else highest
    return buckets


def spark(cells: Sequence[float | None]) -> str:
    """A line of blocks from zero to the highest number; a cell without a number is empty."""
    top = max((cell for cell in cells if cell is not None), default=0.0)
    return "".join(
        " " if cell is None else BLOCKS[min(7, int(8 * cell / top))] if top > 0 and cell > 0 else BLOCKS[0]
        for cell in cells
    )
