"""How many machine instructions a decision takes, in this checkout and in an earlier one. Valgrind counts them.

    python -m bench.instructions /path/to/earlier/checkout

CPU times of equal processes differ by several per cent on a busy machine. Instructions do not depend on the load, so
one run of each is enough. Each decision is repeated a few times and many times, each in a process of its own. The
difference leaves out the start of Python and the building of the cluster.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
PREAMBLE = """
import sys
try:
    from bench.scheduler_bench import *
except ImportError:
    from tests.bench.scheduler_bench import *
times = int(sys.argv[1])
"""
PLACE = "for _ in range(times): place(snapshot, wanted)"
HUNDRED = "wanted = gang('hundred', group('worker', 100, 1), required=BLOCK, preferred=RACK)"
EIGHTY = "wanted = gang('eighty', group('worker', 10, 8), required=RACK)"
ONE_BY_ONE = """
snapshot, one = cluster(nodes(500), (), TOPOLOGY), shape(1, 1_000)
made = [PodFacts(f"job-{i}", "bench", f"job-{i}", one) for i in range(4_000)]
jobs = [gang_of(job.name, [PodGroup("job", 1, (job,))]) for job in made]
for job in jobs[:times]:
    snapshot.assume(place(snapshot, job))
"""
VICTIMS = """
snapshot, running = full(100)
hero = gang("hero", group("worker", 50, 8), priority=10)
for _ in range(times): preempt(snapshot, hero, running)
"""


@dataclass(frozen=True, slots=True)
class Case:
    few: int
    many: int
    program: str


CASES = {
    "100-pod gang, 1,000 nodes": Case(10, 60, f"snapshot = half_used(1_000)\n{HUNDRED}\n{PLACE}"),
    "100-pod gang, 5,000 nodes": Case(10, 60, f"snapshot = half_used(5_000)\n{HUNDRED}\n{PLACE}"),
    "disaggregated gang of 8 groups, 1,000 nodes": Case(
        2, 12, f"snapshot = half_used(1_000)\nwanted = disaggregated()\n{PLACE}"
    ),
    "512 pods on 512 nodes": Case(
        5, 25, f"snapshot = cluster(nodes(512), (), TOPOLOGY)\nwanted = gang('w', group('w', 512, 8))\n{PLACE}"
    ),
    "one pod, 1,000 nodes": Case(
        20, 120, f"snapshot = half_used(1_000)\nwanted = gang('w', group('w', 1, 1))\n{PLACE}"
    ),
    "proven no, 500 full nodes": Case(20, 120, f"snapshot, _ = full(500)\n{EIGHTY}\n{PLACE}"),
    "proven no, 1,000 half-used nodes": Case(
        20, 120, f"snapshot = half_used(1_000)\nwanted = gang('t', group('b', 12, 8), required=RACK)\n{PLACE}"
    ),
    "one-GPU jobs one by one, 500 nodes": Case(100, 4_000, ONE_BY_ONE),
    "victims for 50 pods of 8 GPUs among 800 jobs": Case(2, 12, VICTIMS),
}


def instructions(checkout: Path, case: Case) -> float:
    """Instructions of one decision."""
    return (counted(checkout, case.program, case.many) - counted(checkout, case.program, case.few)) / (
        case.many - case.few
    )


def counted(checkout: Path, program: str, times: int) -> int:
    """Instructions of a whole process."""
    single = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    env = {**os.environ, **single, "PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*counter, sys.executable, "-c", PREAMBLE + program, str(times)]
    ended = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
    match = re.search(r"I +refs: +([\d,]+)", ended.stderr)
    if ended.returncode or match is None:
        raise SystemExit(f"{checkout}: {ended.stderr[-2_000:]}")
    return int(match[1].replace(",", ""))


def main(words: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    asked.add_argument("earlier", type=Path)
    asked.add_argument("words", nargs="*", help="only cases with one of these words in their names")
    given = asked.parse_args(words)
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed")
    table = Table("instructions of one decision", "before", "now", "ratio", box=None)
    for name, case in CASES.items():
        if given.words and not any(word in name for word in given.words):
            continue
        before, now = (instructions(checkout.resolve(), case) for checkout in (given.earlier, HERE))
        print(f"{name}: {before:,.0f} and {now:,.0f}", file=sys.stderr, flush=True)
        table.add_row(name, f"{before:,.0f}", f"{now:,.0f}", f"{now / before:.3f}")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
