"""Two checkouts side by side: every figure that the benchmarks of both print, in turns in one run.

    python -m bench.against /path/to/earlier/checkout kube admission ...

Each benchmark runs from its own checkout, in a process of its own, the earlier checkout first. They take turns,
`--rounds` times, so that a busy moment meets both. The table has the median of each figure. Figures that only one
checkout has are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
RUN = """
import importlib, json, sys
results = {}
importlib.import_module(f"{sys.argv[1]}.{sys.argv[2]}_bench").run(results)
print("FIGURES" + json.dumps({name: (one.value, one.unit) for name, one in results.items()}))
"""

Found = dict[str, tuple[list[float], str]]


def figures(checkout: Path, name: str, measured: Found) -> None:
    """Adds what a benchmark of a checkout prints."""
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout}", "PYTHONDONTWRITEBYTECODE": "1"}
    package = "bench" if (checkout / "bench").is_dir() else "tests.bench"
    command = [sys.executable, "-c", RUN, package, name]
    out = subprocess.run(command, cwd=checkout, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout
    printed = next(line for line in out.splitlines() if line.startswith("FIGURES"))
    for figure, (value, unit) in json.loads(printed.removeprefix("FIGURES")).items():
        measured.setdefault(figure, ([], unit))[0].append(value)


def main(words: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    asked.add_argument("earlier", type=Path)
    asked.add_argument("names", nargs="+")
    asked.add_argument("--rounds", type=int, default=1)
    given = asked.parse_args(words)
    before: Found = {}
    now: Found = {}
    for name in given.names:
        for _ in range(given.rounds):
            for checkout, measured in ((given.earlier, before), (HERE, now)):
                print(f"— {name} of {checkout}", file=sys.stderr, flush=True)
                figures(checkout, name, measured)
    table = Table("what", "before", "now", "ratio", box=None)
    for figure in (figure for figure in now if figure in before):
        (was, unit), (values, _) = before[figure], now[figure]
        old, new = median(was), median(values)
        table.add_row(figure, f"{old:,.4g} {unit}", f"{new:,.4g} {unit}", f"{new / old:.2f}" if old else "")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
