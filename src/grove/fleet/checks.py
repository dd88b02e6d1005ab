"""What no fleet can have although its file can be read: numbers out of range, names that Kubernetes refuses, doubles.

Each fault has the path of its field in the file and a reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from grove.api.names import MAX_COMBINED_LENGTH
from grove.api.quantity import InvalidQuantity, exact
from grove.fleet.lines import Path

if TYPE_CHECKING:
    from grove.fleet.file import Batch, Fleet, NodeType, Serving, Team

Found = tuple[Path, str]
LEAST_PRIORITY, MOST_PRIORITY = -(2**31), 10**9
"""What a PriorityClass of a user may have."""
LONGEST_NAME, LONGEST_SOURCE = 63, 30
"""Characters of a name. The gangs of a source (a batch or a trace) get a number behind it."""
MOST_NODES = 100_000
"""More nodes than a simulated cluster can hold in memory are a mistake in the file."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def faults(fleet: Fleet) -> Iterator[Found]:
    yield from _node_faults(fleet)
    yield from _team_faults(fleet.teams)
    for index, serving in enumerate(fleet.work.serving):
        yield from _serving_faults(serving, ("work", "serving", index))
    for index, batch in enumerate(fleet.work.batch):
        if batch.priority is not None and (why := priority_fault(batch.priority)):
            yield ("work", "batch", index, "priority"), why
    yield from _set_faults(fleet)


def no_team(name: str, teams: set[str]) -> str:
    return f"there is no team {name!r} (teams: {', '.join(sorted(teams)) or 'none'})"


def priority_fault(value: int) -> str:
    if LEAST_PRIORITY <= value <= MOST_PRIORITY:
        return ""
    return f"must be between {LEAST_PRIORITY} and {MOST_PRIORITY}, not {value}"


def name_fault(name: str, longest: int = LONGEST_NAME) -> str:
    if len(name) > longest:
        return f"{name!r} has {len(name)} characters; at most {longest} are allowed"
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a name: write small letters, digits and '-', and begin and end without '-'"
    return ""


def _names(names: Iterable[str], path: Path) -> Iterator[Found]:
    """Faults of the names of a list in which each name may occur once."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if why := name_fault(name):
            yield (*path, index, "name"), why
        elif name in seen:
            yield (*path, index, "name"), f"{name!r} is used twice"
        seen.add(name)


def _node_faults(fleet: Fleet) -> Iterator[Found]:
    path: Path = ("cluster", "nodes")
    for index, kind in enumerate(fleet.cluster.nodes):
        yield from _kind_faults(kind, (*path, index))
        if kind.spot and fleet.cluster.spot is None:
            yield (*path, index, "spot"), "spot nodes need cluster.spot, which says how often they go"
    if not fleet.cluster.nodes:
        yield path, "a cluster needs at least one node type"
    if (count := sum(kind.count for kind in fleet.cluster.nodes)) > MOST_NODES:
        yield path, f"the cluster has {count:,} nodes; at most {MOST_NODES:,} are allowed"
    yield from _names((kind.name for kind in fleet.cluster.nodes), path)
    for index, maintenance in enumerate(fleet.cluster.maintenance):
        if maintenance.racks < 1:
            yield ("cluster", "maintenance", index, "racks"), f"must be at least 1, not {maintenance.racks}"


def _kind_faults(kind: NodeType, path: Path) -> Iterator[Found]:
    for name in ("zones", "blocks", "racks", "nodes"):
        if getattr(kind, name) < 1:
            yield (*path, name), f"must be at least 1, not {getattr(kind, name)}"
    if kind.gpus < 0:
        yield (*path, "gpus"), f"must not be negative, not {kind.gpus}"
    for name, text in (("cpu", kind.cpu), ("memory", kind.memory)):
        try:
            if exact(text) <= 0:
                yield (*path, name), f"must be above 0, not {text}"
        except InvalidQuantity:
            yield (*path, name), f"{text!r} is not a quantity: write it like 128, 500m or 1024Gi"


def _team_faults(teams: Sequence[Team]) -> Iterator[Found]:
    for index, team in enumerate(teams):
        if team.quota is not None and team.limit is not None and team.quota > team.limit:
            yield ("teams", index, "limit"), f"the limit {team.limit} is below the quota {team.quota}"
        for name in ("quota", "limit"):
            if (getattr(team, name) or 0) < 0:
                yield ("teams", index, name), "must not be negative"
        if why := priority_fault(team.priority):
            yield ("teams", index, "priority"), why
    yield from _names((team.name for team in teams), ("teams",))


def _serving_faults(serving: Serving, path: Path) -> Iterator[Found]:
    load = serving.load
    rates = {
        "peak": load.peak,
        "low": load.low,
        "weekend": load.weekend,
        "noise": load.noise,
        "peakHour": load.peak_hour,
    }
    for name, value in rates.items():
        if not math.isfinite(value) or value < 0:
            yield (*path, "load", name), f"must be a number that is not negative, not {value:g}"
    if load.peak_hour > 24:
        yield (*path, "load", "peakHour"), f"must be an hour of the day, not {load.peak_hour:g}"
    if load.low > load.peak:
        yield (*path, "load", "low"), f"{load.low:g} is above the peak {load.peak:g}"
    if serving.releases is not None and not 0 <= serving.releases.bad <= 1:
        yield (*path, "releases", "bad"), f"must be a share between 0 and 1, not {serving.releases.bad:g}"
    if serving.replicas < 1:
        yield (*path, "replicas"), f"must be at least 1, not {serving.replicas}"
    if (serving.pods_available or 0) < 0:
        yield (*path, "podsAvailable"), "must not be negative"
    yield from _names((part.name for part in serving.parts), (*path, "parts"))
    for index, part in enumerate(serving.parts):
        here = (*path, "parts", index)
        if not math.isfinite(part.requests_per_second) or part.requests_per_second <= 0:
            yield (*here, "requestsPerSecond"), f"must be a number above 0, not {part.requests_per_second:g}"
        clique = part.name if part.pods == 1 else f"{part.name}-worker"
        if (length := len(serving.name + part.name + clique)) > MAX_COMBINED_LENGTH:
            what = f"the names of set, part and clique ({serving.name}, {part.name}, {clique}) have {length} characters"
            yield (*here, "name"), f"{what}; at most {MAX_COMBINED_LENGTH} are allowed"
        if part.pods < 1:
            yield (*here, "pods"), "must be at least 1"
        if part.gpus < 0:
            yield (*here, "gpus"), f"must not be negative, not {part.gpus}"
        if part.replicas < 1:
            yield (*here, "replicas"), f"must be at least 1, not {part.replicas}"
        elif not 1 <= part.min_available <= part.replicas:
            yield (*here, "minAvailable"), f"must be between 1 and replicas ({part.replicas})"
        if part.max_replicas < 0:
            yield (*here, "maxReplicas"), "must not be negative; 0 means no autoscaling"
        elif part.max_replicas and part.max_replicas < part.replicas:
            yield (*here, "maxReplicas"), f"is below replicas ({part.replicas})"
    if not serving.parts:
        yield (*path, "parts"), "a serving set needs at least one part"


def _set_faults(fleet: Fleet) -> Iterator[Found]:
    """Teams that do not exist, names of sets that cannot be, and names that two pieces of work share."""
    teams = {team.name for team in fleet.teams}
    kinds: list[tuple[str, Sequence[Serving | Batch]]] = [
        ("serving", fleet.work.serving),
        ("batch", fleet.work.batch),
    ]
    seen: set[str] = set()
    for kind, rows in kinds:
        for index, row in enumerate(rows):
            path: Path = ("work", kind, index)
            if row.team not in teams:
                yield (*path, "team"), no_team(row.team, teams)
            if why := name_fault(row.name, LONGEST_SOURCE if kind == "batch" else LONGEST_NAME):
                yield (*path, "name"), why
            elif row.name in seen:
                yield (*path, "name"), f"{row.name!r} is used twice"
            seen.add(row.name)
    for index, trace in enumerate(fleet.work.traces):
        path = ("work", "traces", index, "file")
        if why := name_fault(trace.stem, LONGEST_SOURCE):
            yield path, f"the name of the file becomes the name of its gangs: {why}"
        elif trace.stem in seen:
            yield path, f"gangs of {trace.stem!r} exist already"
        seen.add(trace.stem)
    gangs = {batch.name for batch in fleet.work.batch} | {trace.stem for trace in fleet.work.traces}
    for index, serving in enumerate(fleet.work.serving):
        stem, _, number = serving.name.rpartition("-")
        if stem in gangs and number.isdecimal():
            yield ("work", "serving", index, "name"), f"{serving.name!r} is the name of a gang of {stem!r}, too"
