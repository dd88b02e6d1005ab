"""Line and branch coverage of every package, from what `make coverage` recorded in all tiers together.

    python tools/coverage_by_package.py coverage.json [--markdown]

A package is a folder of `src/grove`. The folders of operator, scheduler and admission count separately. Modules below
the aim are listed with the lines that no test reached. Ends with 1 when a whole package is below it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AIM = 90.0
DIVIDED = ("operator", "scheduler", "admission")


@dataclass
class Package:
    lines: int = 0
    reached: int = 0
    branches: int = 0
    taken: int = 0
    low: list[str] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        return share(self.reached, self.lines) >= AIM

    def add(self, module: str, packages: Mapping[str, Any]) -> None:
        summary = packages["summary"]
        self.lines += summary["num_statements"]
        self.reached += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.taken += summary["covered_branches"]
        if share(summary["covered_lines"], summary["num_statements"]) < AIM:
            self.low.append(f"{module}: {ranges(packages['missing_lines'])}")


def package_of(path: str) -> str:
    """`src/grove/scheduler/solve/fill.py` is in scheduler/solve, `src/grove/kube/http.py` in kube."""
    parts = Path(path).parts
    inside = parts[parts.index("grove") + 1 : -1]
    if not inside:
        return "grove"
    return "/".join(inside[:2]) if inside[0] in DIVIDED else inside[0]


def ranges(numbers: list[int]) -> str:
    """`1-3, 7` for [1, 2, 3, 7]."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def packages(report: Mapping[str, Any]) -> dict[str, Package]:
    by_name: dict[str, Package] = defaultdict(Package)
    for path, of_module in sorted(report["files"].items()):
        by_name[package_of(path)].add(Path(path).name, of_module)
    return dict(sorted(by_name.items()))


def share(part: int, whole: int) -> float:
    return part / whole * 100 if whole else 100.0


def total(measured: Iterable[Package]) -> Package:
    every = list(measured)
    return Package(
        sum(package.lines for package in every),
        sum(package.reached for package in every),
        sum(package.branches for package in every),
        sum(package.taken for package in every),
    )


def row(name: str, package: Package) -> tuple[str, str, str, str, str]:
    """Name, lines, share of them reached, branches, share of them taken; of no branches no share."""
    taken = f"{share(package.taken, package.branches):.1f} %" if package.branches else ""
    return name, f"{package.lines:,}", f"{share(package.reached, package.lines):.1f} %", f"{package.branches:,}", taken


def plain(packages: Mapping[str, Package]) -> list[str]:
    """The table for a terminal, and below it its modules below the aim."""
    head = ("package", "lines", "reached", "branches", "taken")
    body = [(*row(name, package), "" if package.is_reached else "below the aim") for name, package in packages.items()]
    rows = [(*head, ""), *body, (*row("all", total(packages.values())), "")]
    table = [f"{a:<24}{b:>8}{c:>9}{d:>10}{e:>9}  {mark}".rstrip() for a, b, c, d, e, mark in rows]
    low = [f"  {name}/{line}" for name, package in packages.items() for line in package.low]
    return [*table, "", f"Modules below {AIM:g} %, and the lines that no test reached:", *low] if low else table


def markdown(packages: Mapping[str, Package]) -> list[str]:
    """The table of `docs/coverage.md`."""
    head = ["| Package | Lines | reached | Branches | taken |", "|---|--:|--:|--:|--:|"]
    body = [row(f"`{name}`", package) for name, package in packages.items()]
    return head + [f"| {' | '.join(cells)} |" for cells in [*body, row("all", total(packages.values()))]]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, help="what `coverage json` wrote")
    parser.add_argument("--markdown", action="store_true", help="as in docs/coverage.md")
    asked = parser.parse_args(argv)
    measured = packages(json.loads(asked.report.read_text()))
    print("\n".join((markdown if asked.markdown else plain)(measured)))
    below = [name for name, package in measured.items() if not package.is_reached]
    if below:
        print(f"less than {AIM:g} % of the lines are reached in {', '.join(below)}", file=sys.stderr)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
