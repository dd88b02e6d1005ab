"""One measured figure, and how the CPU time of a piece of code is taken."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Figure(NamedTuple):
    """What was measured; `aim` is what we wanted, in words, or empty.

    `baseline` is what the unavoidable writes alone took, on the same control plane in the same run (see `baseline`).
    """

    value: float
    unit: str
    aim: str = ""
    baseline: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None


def medians(rounds: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """One table of several rounds: of each row the median of what was measured and of its baseline."""
    figures: dict[str, Figure] = {}
    for name in dict.fromkeys(name for figures_of_round in rounds for name in figures_of_round):
        rows = [figures_of_round[name] for figures_of_round in rounds if name in figures_of_round]
        baselines = [row.baseline for row in rows if row.baseline is not None]
        value, baseline = median(row.value for row in rows), median(baselines) if baselines else None
        figures[name] = rows[0]._replace(value=value, baseline=baseline)
    return figures


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Stopwatch:
    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Wall and CPU time of this process for the block."""
    watch = Stopwatch()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield watch
    finally:
        watch.wall_s, watch.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
