"""`make bench`: runs the benchmarks named on the command line, or all of them, and prints one table.

Figures, not tests: nothing here passes or fails. Each `<package>_bench.py` has `run(results)` which adds rows
`results[name] = Figure(value, unit, aim, baseline)`; a broken benchmark is reported and the others still run.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figure

HERE = Path(__file__).parent
RESULTS = HERE.parent / "bench-results.json"


def main(names: list[str]) -> int:
    known = sorted(path.stem.removesuffix("_bench") for path in HERE.glob("*_bench.py"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    results: dict[str, Figure] = {}
    failed = []
    for name in names or known:
        print(f"— {name}", file=sys.stderr, flush=True)
        try:
            importlib.import_module(f"bench.{name}_bench").run(results)
        except Exception:  # one broken benchmark must not hide the figures of the others
            traceback.print_exc()
            failed.append(name)
    show(results)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    figures = {name: figure._asdict() for name, figure in results.items()}
    RESULTS.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def show(results: dict[str, Figure]) -> None:
    table = Table("what", "measured", "baseline", "ratio", "aim", box=None)
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, figure in results.items():
        baseline = f"{figure.baseline:,.4g} {figure.unit}" if figure.baseline else ""
        ratio = f"{figure.ratio:.2f} x" if figure.ratio else ""
        table.add_row(name, f"{figure.value:,.4g} {figure.unit}", baseline, ratio, figure.aim)
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
