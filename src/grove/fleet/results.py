"""A run in numbers: one JSON document, the same bytes for the same file and seed."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from grove.api.conditions import EventReason
from grove.api.meta import Json
from grove.fleet.figures import DOWN, IDLE, SERVING, STARTING, Figures, GangSeen
from grove.fleet.file import Team
from grove.fleet.run import Run
from grove.fleet.serving import Service

VERSION = 2
"""Changes with the fields; results of two versions cannot be compared."""
SIZES = ((1, "1 pod"), (4, "2 to 4 pods"), (16, "5 to 16 pods"), (64, "17 to 64 pods"))
LARGEST = "over 64 pods"
_COUNTED = {
    "placements": EventReason.GANG_SCHEDULED,
    "preemptions": EventReason.GANG_PREEMPTED,
    "moved gangs": EventReason.GANG_MOVING,
    "warnings that a gang waits past its timeout": EventReason.GANG_TIMEOUT,
}


def results(run: Run) -> Json:
    """All figures of a run; numbers are rounded, so that the text is short."""
    fleet, figures = run.fleet, run.figures
    gangs = [*figures.ended_gangs, *figures.gangs.values()]
    teams = _team_of_set(run)
    return {
        "version": VERSION,
        "title": fleet.title,
        "seed": fleet.seed,
        "days": round(run.ended_s / 86400, 3),
        "gpus": fleet.gpus,
        "nodes": sum(kind.count for kind in fleet.cluster.nodes),
        "settings": msgspec.to_builtins(fleet.settings),
        "promises": [
            {"at": round(broken.at_s, 1), "promise": broken.promise, "text": broken.text} for broken in run.broken
        ],
        "utilisation": _utilisation(figures),
        "gpuHours": {state: round(value / 3600, 1) for state, value in sorted(figures.gpu_seconds.items())},
        "fragmentation": _mean(sample.fragmented for sample in figures.samples),
        "waiting": _waiting(gangs, teams, run.ended_s),
        "waitingAgain": _waiting_again(gangs, run.ended_s),
        "stillWaiting": _still_waiting(figures, teams, run.ended_s),
        "serving": {service.spec.name: _service(service, run) for service in run.services},
        "batch": _batch(run),
        "teams": {team.name: _team(team, figures, teams) for team in fleet.teams},
        "happenings": dict(sorted(figures.happenings.items())),
        "events": {name: figures.events[reason] for name, reason in _COUNTED.items()}
        | {"trimmed pods": run.trimmed, "restarts of gangs": figures.restarts.total()},
        "writes": {who: sum(by_kind.values()) for who, by_kind in run.writes.items()},
        "writesByKind": {who: dict(sorted(by_kind.items())) for who, by_kind in run.writes.items()},
        "series": _series(figures),
    }


def encode(tree: Json) -> bytes:
    return msgspec.json.format(msgspec.json.encode(tree), indent=1) + b"\n"


def _team_of_set(run: Run) -> dict[str, str]:
    team_of = {service.spec.name: service.spec.team for service in run.services}
    return team_of | {gang.name: gang.team for gang in (*run.finished, *run.unfinished)}


def _utilisation(figures: Figures) -> Json:
    """Shares of the GPU time of nodes that were up."""
    used = {state: figures.gpu_seconds[state] for state in (SERVING, STARTING, IDLE)}
    total = sum(used.values()) or 1.0
    return {state: round(value / total, 4) for state, value in used.items()}


def _waiting(gangs: Sequence[GangSeen], teams: dict[str, str], ended_s: float) -> Json:
    """Seconds from a gang's arrival to its first placement, by team, size and priority.

    A gang without a place counts with the time until it was deleted, or until the end of the run. Otherwise a scheduler
    that starves a gang would look better than one that places it late.
    """
    by: dict[str, dict[str, list[float]]] = {
        "all": defaultdict(list),
        "team": defaultdict(list),
        "size": defaultdict(list),
        "priority": defaultdict(list),
    }
    for gang in gangs:
        until_s = next(at for at in (gang.placed_s, gang.gone_s, ended_s) if at is not None)
        waited = until_s - gang.arrived_s
        by["all"]["all"].append(waited)
        by["team"][teams.get(gang.set_name, "?")].append(waited)
        by["size"][_size(gang.pods)].append(waited)
        by["priority"][str(gang.priority)].append(waited)
    return {what: {name: _spread(rows[name]) for name in sorted(rows, key=_order)} for what, rows in by.items()}


def _waiting_again(gangs: Sequence[GangSeen], ended_s: float) -> Json | None:
    """Seconds from the loss of a gang's minimum to its next placement; a gang that still lacks it counts until now."""
    waits = [wait for gang in gangs for wait in gang.again_s]
    waits += [ended_s - gang.lost_s for gang in gangs if gang.lost_s is not None and gang.gone_s is None]
    return _spread(waits) if waits else None


def _order(name: str) -> tuple[float, str]:
    """Names that begin with a number come in the order of their numbers, all others after them."""
    number = re.match(r"-?\d+", name)
    return float(number[0]) if number else math.inf, name


def _size(pods: int) -> str:
    return next((name for most, name in SIZES if pods <= most), LARGEST)


def _spread(values: list[float]) -> Json:
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "p50": round(_quantile(ordered, 0.5), 1),
        "p95": round(_quantile(ordered, 0.95), 1),
        "worst": round(ordered[-1], 1),
    }


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _still_waiting(figures: Figures, teams: dict[str, str], now_s: float) -> list[Json]:
    """Gangs without a place at the end, longest first, with the scheduler's own reason."""
    waiting = [(gang.waits_since_s, gang) for gang in figures.gangs.values() if gang.waits_since_s is not None]
    return [
        {
            "gang": gang.name,
            "team": teams.get(gang.set_name, "?"),
            "pods": gang.pods,
            "priority": gang.priority,
            "waited": round(now_s - since_s),
            "hadPlace": gang.placed_s is not None,
            "reason": gang.reason,
            "message": gang.message,
        }
        for since_s, gang in sorted(waiting, key=lambda entry: (entry[0], entry[1].name))
    ]


def _service(service: Service, run: Run) -> Json:
    figures = run.figures
    seen = figures.sets[service.spec.name]
    lost = sum(stage.lost for stage in service.stages.values())
    return {
        "team": service.spec.team,
        "firstAvailable": None if seen.first_s is None else round(seen.first_s, 1),
        "belowMinimum": round(seen.below_s, 1),
        "timesBelowMinimum": seen.times_below,
        "belowMinimumInUpdates": round(seen.below_in_updates_s, 1),
        "belowBudget": _rounded(run.below_budgets.get(service.spec.name)),
        "excused": round(run.excused.get(service.spec.name, 0.0), 6),
        "updating": round(seen.all_updates_s(run.ended_s) / run.ended_s, 6),
        "requests": round(service.requests),
        "notServed": round(lost),
        "servedShare": round(1 - lost / service.requests, 6) if service.requests else 1.0,
        "releases": service.releases - 1 + service.undone,
        "undone": service.undone,
        "updates": _spread(seen.updates_s) if seen.updates_s else None,
        "restarts": figures.restarts[service.spec.name],
        "scaled": service.scaled,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _batch(run: Run) -> Json:
    slowdowns = [(gang.ended_s - gang.arrived_s) / gang.lasts_s for gang in run.finished if gang.ended_s is not None]
    return {
        "finished": len(run.finished),
        "unfinished": len(run.unfinished),
        "gpuHours": round(sum(gang.all_gpus * gang.lasts_s for gang in run.finished) / 3600, 1),
        "slowdown": _spread(slowdowns) if slowdowns else None,
    }


def _team(team: Team, figures: Figures, teams: dict[str, str]) -> Json:
    """GPU-hours of a team. Due at a moment is what it asks for then, up to its quota; without a quota, all of it.

    Fairness is the part of it that the team used. So what it borrows at night does not hide what it lacks by day.
    """
    used = asked = 0.0
    for name, states in figures.gpu_seconds_by_set.items():
        if teams.get(name) == team.name:
            used += states[SERVING] + states[STARTING]
            asked += sum(states.values())
    due, got = (asked, used) if team.quota is None else (figures.due_seconds[team.name], figures.got_seconds[team.name])
    return {
        "used": round(used / 3600, 1),
        "asked": round(asked / 3600, 1),
        "share": round(used / asked, 4) if asked else None,
        "due": round(due / 3600, 1),
        "fairness": round(got / due, 4) if due else None,
        "borrowed": round((used - got) / 3600, 1),
        "quota": team.quota,
        "limit": team.limit,
    }


def _series(figures: Figures) -> Json:
    """The samples as columns."""
    states = ("serving", "starting", "waiting", "lost", IDLE, DOWN)
    columns: Json = {state: [sample.gpus[state] for sample in figures.samples] for state in states}
    columns["hours"] = [round(sample.at_s / 3600, 2) for sample in figures.samples]
    columns["waitingGangs"] = [sample.waiting_gangs for sample in figures.samples]
    columns["fragmented"] = [round(sample.fragmented, 3) for sample in figures.samples]
    return columns


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 4) if numbers else 0.0
