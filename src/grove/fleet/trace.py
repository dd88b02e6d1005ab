"""A trace of batch gangs as CSV: `arrival,pods,gpus,duration,team,priority`, one row a gang.

`arrival` is seconds since the beginning, `gpus` is for one pod, `duration` is in seconds. A row with a hole is a fault.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec

COLUMNS = ("arrival", "pods", "gpus", "duration", "team", "priority")


class BadTrace(ValueError):
    """The file cannot be used; the message has line and reason."""


class Job(msgspec.Struct, frozen=True):
    """One batch gang."""

    arrival_s: float
    pods: int
    gpus: int
    lasts_s: float
    team: str
    priority: int | None


def load_trace(path: Path) -> tuple[Job, ...]:
    """The gangs of a file in order of arrival."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise BadTrace(f"{path.name}: line 1: there is no column {missing[0]} (a trace has {', '.join(COLUMNS)})")
        jobs = [
            _job(path.name, rows.line_num, dict(zip(header, row, strict=False)), len(header) - len(row)) for row in rows
        ]
    return tuple(sorted(jobs, key=lambda job: job.arrival_s))


def write_trace(path: Path, jobs: Iterable[Job]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in jobs:
            priority = "" if job.priority is None else job.priority
            writer.writerow((f"{job.arrival_s:g}", job.pods, job.gpus, f"{job.lasts_s:g}", job.team, priority))


def _job(name: str, line: int, row: dict[str, str], missing: int) -> Job:
    where = f"{name}: line {line}"
    if missing > 0:
        raise BadTrace(f"{where}: the row has {missing} columns fewer than the header")
    for column in COLUMNS[:5]:
        if not row[column].strip():
            raise BadTrace(f"{where}: {column} is empty")
    priority = row["priority"].strip()
    return Job(
        arrival_s=_number(where, "arrival", row["arrival"], 0),
        pods=int(_number(where, "pods", row["pods"], 1)),
        gpus=int(_number(where, "gpus", row["gpus"], 0)),
        lasts_s=_number(where, "duration", row["duration"], 1),
        team=row["team"].strip(),
        priority=int(_number(where, "priority", priority, -(2**31))) if priority else None,
    )


def _number(where: str, column: str, text: str, least: float) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise BadTrace(f"{where}: {column} is not a number: {text!r}") from error
    if not math.isfinite(value) or value < least:
        raise BadTrace(f"{where}: {column} must be at least {least:g}, not {text}")
    return value
