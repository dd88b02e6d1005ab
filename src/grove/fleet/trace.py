"""A trace of batch gangs as CSV: `arrival,pods,gpus,duration,team,priority`, one row a gang.

`arrival` is seconds since the beginning, `gpus` is for one pod, `duration` is in seconds. A row with a hole is a fault.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from grove.fleet.checks import LEAST_PRIORITY, MOST_PRIORITY, no_team

COLUMNS = ("arrival", "pods", "gpus", "duration", "team", "priority")


SHOWN = 20
"""Faults of a file that are named; the rest are counted."""


class BadTrace(ValueError):
    """The file cannot be used; `faults` have a line and a reason each."""

    def __init__(self, name: str, faults: list[str]) -> None:
        more = [f"{len(faults) - SHOWN} more faults"] if len(faults) > SHOWN else []
        self.faults = tuple(f"{name}: {fault}" for fault in [*faults[:SHOWN], *more])
        super().__init__("; ".join(self.faults))


class Job(msgspec.Struct, frozen=True):
    """One batch gang."""

    arrival_s: float
    pods: int
    gpus: int
    lasts_s: float
    team: str
    priority: int | None


def load_trace(path: Path, teams: Collection[str], until_s: float) -> tuple[Job, ...]:
    """The gangs of a file in order of arrival. Raises BadTrace with every fault, or OSError."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")  # spreadsheets begin the file with a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadTrace(path.name, [f"line {line}: the file is not UTF-8"]) from error
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(rows, [])]
        if faults := list(_header_faults(header)):
            raise BadTrace(path.name, faults)
        jobs, faults = _jobs(rows, header, set(teams), until_s)
    except csv.Error as error:
        raise BadTrace(path.name, [f"line {rows.line_num}: {error}"]) from error
    if faults:
        raise BadTrace(path.name, faults)
    return tuple(sorted(jobs, key=lambda job: job.arrival_s))


def _header_faults(header: list[str]) -> Iterator[str]:
    for name in COLUMNS:
        if name not in header:
            yield f"line 1: there is no column {name} (a trace has {', '.join(COLUMNS)})"
        elif header.count(name) > 1:
            yield f"line 1: there are two columns {name}"


def _jobs(rows: Any, header: list[str], teams: set[str], until_s: float) -> tuple[list[Job], list[str]]:
    jobs: list[Job] = []
    faults: list[str] = []
    for row in rows:
        line = rows.line_num
        if not row:
            continue  # an empty line, as many files have at their end
        if len(row) != len(header):
            what = "fewer" if len(row) < len(header) else "more"
            faults.append(f"line {line}: the row has {abs(len(row) - len(header))} columns {what} than the header")
            continue
        cells = _Row({name: cell.strip() for name, cell in zip(header, row, strict=True)}, teams, until_s)
        if (job := cells.job()) is not None:
            jobs.append(job)
        faults += [f"line {line}: {why}" for why in cells.faults]
    return jobs, faults


def write_trace(path: Path, jobs: Iterable[Job]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in jobs:
            priority = "" if job.priority is None else job.priority
            writer.writerow((_plain(job.arrival_s), job.pods, job.gpus, _plain(job.lasts_s), job.team, priority))


def _plain(seconds: float) -> str:
    """With three digits after the point at most, and never as a power of ten."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


class _Row:
    """The cells of a row, and what is wrong with them."""

    def __init__(self, cells: dict[str, str], teams: set[str], until_s: float) -> None:
        self._cells, self._teams, self._until_s = cells, teams, until_s
        self.faults: list[str] = []

    def job(self) -> Job | None:
        """None if a cell has a fault."""
        arrival_s, lasts_s = self._number("arrival", 0), self._number("duration", 1)
        pods, gpus = self._whole("pods", 1), self._whole("gpus", 0)
        priority = self._whole("priority", LEAST_PRIORITY) if self._cells["priority"] else None
        if priority is not None and priority > MOST_PRIORITY:
            self.faults.append(f"priority must be at most {MOST_PRIORITY}, not {priority:.0f}")
        if arrival_s >= self._until_s:
            self.faults.append(f"arrival {arrival_s:g} is after the end of the fleet at {self._until_s:g}")
        team = self._cells["team"]
        if not team:
            self.faults.append("team is empty")
        elif team not in self._teams:
            self.faults.append(no_team(team, self._teams))
        return None if self.faults else Job(arrival_s, pods, gpus, lasts_s, team, priority)

    def _whole(self, column: str, least: float) -> int:
        value = self._number(column, least)
        if value != int(value):
            self.faults.append(f"{column} must be a whole number, not {self._cells[column]}")
        return int(value)

    def _number(self, column: str, least: float) -> float:
        text = self._cells[column]
        if not text:
            self.faults.append(f"{column} is empty")
            return least
        try:
            value = float(text)
        except ValueError:
            self.faults.append(f"{column} is not a number: {text!r}")
            return least
        if not math.isfinite(value) or value < least:
            self.faults.append(f"{column} must be at least {least:g}, not {text}")
            return least
        return value
