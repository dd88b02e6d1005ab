"""`make chaos`: everything breaks on a real control plane while sets come and go, and the promises are watched over."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from chaos.picture import picture
from chaos.run import Result, Run
from chaos.timetable import FAULTS, timetable
from grove.kube.logs import configure_logs


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    asked.add_argument("--seed", type=int, default=random.randrange(10_000), help="plays the same timetable again")
    asked.add_argument("--minutes", type=float, default=5.0, help="how long things are broken (5: every fault once)")
    asked.add_argument("--only", action="append", choices=FAULTS, help="only this fault; may be given several times")
    asked.add_argument("--plan", action="store_true", help="print the timetable and do nothing")
    asked.add_argument("--picture", type=Path, help="where to draw memory, files and tasks over time (SVG)")
    asked.add_argument("--keep", type=Path, help="keep logs of all processes in this directory")
    given = asked.parse_args()
    configure_logs("error", "text")
    faults = tuple(given.only or FAULTS)
    if given.plan:
        for step in timetable(given.seed, given.minutes, faults):
            print(f"{step.at_s:7.1f} s  {step.action}")
        return 0
    print(f"seed {given.seed}: {given.minutes:g} minutes of faults, then up to 10 to see the end; nothing is installed")
    with tempfile.TemporaryDirectory() as folder:
        directory = given.keep or Path(folder)
        directory.mkdir(parents=True, exist_ok=True)
        run = Run(directory, given.seed, given.minutes, lambda line: print(line, flush=True), faults)
        result = asyncio.run(run.play())
    if given.picture is not None:
        title = f"seed {given.seed}, {len(result.faults)} faults (grey lines)"
        given.picture.write_text(picture(result.samples, result.faults, title))
    return report(result, given.seed)


def report(result: Result, seed: int) -> int:
    changes = ", ".join(f"{name} {count}" for name, count in sorted(result.changes.items()))
    print(f"{sum(result.changes.values())} changes ({changes}), {sum(result.refused.values())} refused meanwhile")
    print(f"{len(result.faults)} faults; the line: {dict(result.line)}; seen: {dict(result.seen)}")
    print(f"{result.sets} sets settled after {result.converged_s:.1f} s, gone after {result.gone_s:.1f} s")
    for line in result.broken:
        print(f"BROKEN {line}")
    print("every promise was kept" if not result.broken else f"play it again with --seed {seed}")
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
