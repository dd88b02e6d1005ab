"""Line and branch coverage of every room, from what `make coverage` recorded in all tiers together.

    python tools/coverage_by_room.py coverage.json

A room is a folder of `src/grove`, and each room inside the operator's and the scheduler's house. Modules below the aim
are named with the lines nothing reached.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AIM = 90.0
HOUSES = ("operator", "scheduler", "admission")


@dataclass
class Room:
    lines: int = 0
    reached: int = 0
    branches: int = 0
    taken: int = 0
    low: list[str] = field(default_factory=list)

    def add(self, module: str, found: Mapping[str, Any]) -> None:
        summary = found["summary"]
        self.lines += summary["num_statements"]
        self.reached += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.taken += summary["covered_branches"]
        if summary["num_statements"] and summary["covered_lines"] / summary["num_statements"] * 100 < AIM:
            self.low.append(f"{module}: {ranges(found['missing_lines'])}")


def room_of(path: str) -> str:
    """`src/grove/scheduler/solve/fill.py` is in scheduler/solve, `src/grove/kube/http.py` in kube."""
    parts = Path(path).parts
    inside = parts[parts.index("grove") + 1 : -1]
    if not inside:
        return "grove"
    return "/".join(inside[:2]) if inside[0] in HOUSES else inside[0]


def ranges(numbers: list[int]) -> str:
    """`1-3, 7` for [1, 2, 3, 7]."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def rooms(report: Mapping[str, Any]) -> dict[str, Room]:
    found: dict[str, Room] = defaultdict(Room)
    for path, of_module in sorted(report["files"].items()):
        found[room_of(path)].add(Path(path).name, of_module)
    return dict(sorted(found.items()))


def share(part: int, whole: int) -> float:
    return part / whole * 100 if whole else 100.0


def main(path: str) -> None:
    found = rooms(json.loads(Path(path).read_text()))
    print(f"{'room':<24}{'lines':>8}{'reached':>9}{'branches':>10}{'taken':>8}")
    for name, room in found.items():
        mark = "" if share(room.reached, room.lines) >= AIM else "  below the aim"
        print(
            f"{name:<24}{room.lines:>8}{share(room.reached, room.lines):>8.1f}%{room.branches:>10}"
            f"{share(room.taken, room.branches):>7.1f}%{mark}"
        )
    lines, reached = sum(one.lines for one in found.values()), sum(one.reached for one in found.values())
    print(f"{'all':<24}{lines:>8}{share(reached, lines):>8.1f}%")
    print(f"\nModules below {AIM:g} %, and the lines nothing reached:")
    for name, room in found.items():
        for line in room.low:
            print(f"  {name}/{line}")


if __name__ == "__main__":
    main(sys.argv[1])
