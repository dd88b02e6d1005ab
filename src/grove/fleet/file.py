"""The fleet file: cluster, teams, work and settings as frozen values, read with every fault's line.

    lasts: 30d
    cluster:
      nodes: [{name: h100, zones: 2, racks: 5, nodes: 4, gpus: 8}]
      failures: {nodes: {every: 90d, repair: "lognormal(4h, 0.5)"}}
    teams: [{name: chat, priority: 1000, quota: 200, limit: 320}]
    work:
      serving: [...]
      batch: [...]
    settings: {scheduler: {holdAfter: 5m}}

docs/fleet-simulation.md describes every field. Files are read whole and refused with line and reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from grove.api.meta import Struct
from grove.config import ConfigError, OperatorConfiguration
from grove.config import load_configuration as load_operator
from grove.fleet import checks, lines
from grove.fleet.amounts import Amount, BadAmount, number, parse, seconds
from grove.fleet.checks import Found
from grove.fleet.trace import BadTrace, Job, load_trace
from grove.scheduler.model.config import InvalidConfig, SchedulerConfiguration
from grove.scheduler.model.config import load_configuration as load_scheduler

T = TypeVar("T")
READY = Path(__file__).parent / "ready"
"""The fleet files that come with Grove."""
Pack = Literal["", "zone", "block", "rack", "host"]
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


class BadFleet(ValueError):
    """The file cannot be used; `faults` has a line and a reason each."""

    def __init__(self, name: str, faults: list[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{name}: {fault}" for fault in faults))


class Time(str):
    """A fixed time: `30m`, `7d`."""

    @property
    def s(self) -> float:
        return seconds(self)


class Times(str):
    """A time that may be random."""

    @property
    def amount(self) -> Amount:
        return parse(self, seconds)


class Counts(str):
    """A number that may be random."""

    @property
    def amount(self) -> Amount:
        return parse(self, number)


class Section(Struct, forbid_unknown_fields=True):
    """A part of the file."""


class NodeType(Section):
    """Alike nodes: `nodes` in a rack, `racks` in a block, `blocks` in a zone."""

    name: str
    zones: int = 1
    blocks: int = 1
    racks: int = 1
    nodes: int = 1
    gpus: int = 8
    cpu: str = "128"
    memory: str = "1024Gi"
    spot: bool = False

    def nodes_in(self, domain: Pack) -> int:
        """Nodes in one domain; of the whole type if none is named."""
        in_rack = self.nodes
        in_block = self.racks * in_rack
        in_zone = self.blocks * in_block
        return {"host": 1, "rack": in_rack, "block": in_block, "zone": in_zone, "": self.count}[domain]

    @property
    def count(self) -> int:
        return self.zones * self.blocks * self.racks * self.nodes


class Failure(Section):
    """`every` is the mean time between failures of one node (or one rack)."""

    every: Time
    repair: Times = Times("4h")


class Failures(Section):
    nodes: Failure | None = None
    racks: Failure | None = None


class Maintenance(Section):
    """Every `every`, from `first` on, the next `racks` racks are drained for `lasts`."""

    every: Time
    first: Time = Time("1d")
    racks: int = 1
    lasts: Time = Time("2h")


class Spot(Section):
    """Each spot node is reclaimed after `every` on average, with `notice`, and returns after `returns`."""

    every: Time
    notice: Time = Time("2m")
    returns: Times = Times("exponential(2h)")


class Cluster(Section):
    nodes: list[NodeType]
    failures: Failures = Failures()
    maintenance: list[Maintenance] = []
    spot: Spot | None = None


class Team(Section):
    """`quota` GPUs are guaranteed to the team, `limit` is the most it may use; without a quota it has no queue."""

    name: str
    priority: int = 0
    quota: int | None = None
    limit: int | None = None
    termination_delay: Time | None = None
    """How long a gang of the team may be below its minimum before it is restarted; the default of Grove if absent."""


class Load(Section):
    """Requests a second: `low` at night, `peak` at `peakHour`, times `weekend` on Saturday and Sunday."""

    peak: float
    low: float = 0.0
    peak_hour: float = 15.0
    weekend: float = 1.0
    noise: float = 0.1
    patience: Time = Time("60s")
    """A request that has waited longer is not served."""


class Part(Section):
    """A scaling group whose instances are `pods` pods of `gpus` GPUs each."""

    name: str
    requests_per_second: float
    """What one instance serves."""
    pods: int = 1
    gpus: int = 8
    replicas: int = 1
    min_available: int = 1
    max_replicas: int = 0
    """0: the part is not autoscaled."""
    pack: Pack = ""
    starts_in: Times = Times("uniform(90s, 180s)")
    crash_every: Time | None = None
    """Mean time between crashes of one pod."""


class Releases(Section):
    """An update every `every`; a share `bad` never becomes ready and is undone after `undo`."""

    every: Time
    first: Time = Time("1d")
    bad: float = 0.0
    undo: Time = Time("30m")


class Serving(Section):
    name: str
    team: str
    parts: list[Part]
    load: Load
    replicas: int = 1
    pack: Pack = ""
    releases: Releases | None = None
    pods_available: int | None = None
    """With a number, a PodDisruptionBudget keeps this many pods of the set available."""


class Batch(Section):
    """Gangs that arrive every `every` on average and run for `lasts`."""

    name: str
    team: str
    every: Time
    pods: Counts
    lasts: Times
    gpus: Counts = Counts("8")
    pack: Pack = ""
    priority: int | None = None
    starts_in: Times = Times("uniform(30s, 90s)")
    checkpoint: Time = Time("1h")
    """Work since the last checkpoint is lost when a pod is lost."""


class Trace(Section):
    """A CSV beside the fleet file with the columns arrival, pods, gpus, duration, team and priority."""

    file: str
    pack: Pack = ""
    starts_in: Times = Times("uniform(30s, 90s)")
    checkpoint: Time = Time("1h")

    @property
    def stem(self) -> str:
        """How the names of its gangs begin."""
        return self.file.removesuffix(".csv").replace("_", "-").lower()


class Work(Section):
    serving: list[Serving] = []
    batch: list[Batch] = []
    traces: list[Trace] = []


class Settings(Section):
    """The contents of the operator's and the scheduler's configuration files; defaults where absent."""

    operator: dict[str, Any] = {}
    scheduler: dict[str, Any] = {}
    order: Literal["backfill", "strict"] = "backfill"
    """`strict` places the gangs of a team one by one; it exists to compare with, and only in simulated fleets."""


class Fleet(Section):
    cluster: Cluster
    title: str = ""
    lasts: Time = Time("30d")
    begins: Annotated[datetime, msgspec.Meta(tz=True)] = MONDAY
    seed: int = 1
    teams: list[Team] = []
    work: Work = Work()
    settings: Settings = Settings()
    jobs: dict[str, tuple[Job, ...]] = {}
    """The rows of the traces by file name; filled in by the reader."""

    @property
    def gpus(self) -> int:
        return sum(node.count * node.gpus for node in self.cluster.nodes)

    @property
    def priorities(self) -> set[int]:
        """Every priority that some work has."""
        priorities = {team.priority for team in self.teams}
        priorities |= {batch.priority for batch in self.work.batch if batch.priority is not None}
        return priorities | {job.priority for jobs in self.jobs.values() for job in jobs if job.priority is not None}

    def operator_settings(self) -> OperatorConfiguration:
        return load_operator(msgspec.json.encode(self.settings.operator).decode())

    def scheduler_settings(self) -> SchedulerConfiguration:
        return load_scheduler(msgspec.json.encode(self.settings.scheduler).decode())


def load(name: str) -> Fleet:
    """Reads a file, or one of the ready-made ones by name. Raises BadFleet or OSError."""
    return read(text_of(name), name, _path(name).parent)


def text_of(name: str) -> str:
    """The text of a file, or of a ready-made one. Raises BadFleet or OSError."""
    content = _path(name).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFleet(name, [f"line {line}: the file is not UTF-8"]) from error


def _path(name: str) -> Path:
    path, ready = Path(name), READY / f"{name}.yaml"
    return ready if not path.exists() and ready.exists() else path


def ready_made() -> dict[str, str]:
    """Name and title of the files that come with Grove."""
    return {path.stem: load(path.stem).title for path in sorted(READY.glob("*.yaml"))}


def read(text: str, name: str = "fleet", folder: Path = Path()) -> Fleet:
    """A fleet from YAML text; traces are looked for in `folder`."""
    try:
        tree, at = lines.read(text)
    except lines.NotYaml as error:
        raise BadFleet(name, [str(error)]) from error
    if not isinstance(tree, dict):
        raise BadFleet(name, ["line 1: a fleet file is a mapping with cluster, teams and work"])
    if "jobs" in tree:
        raise BadFleet(name, [f"line {lines.line_of(at, ('jobs',))}: jobs: there is no such field"])
    try:
        fleet = decode(tree, Fleet)
    except msgspec.ValidationError as error:
        raise BadFleet(name, [_placed(str(error), at)]) from error
    faults = list(_faults(fleet))
    fleet, more = _with_traces(fleet, folder)
    faults += more
    if faults:
        placed = [(lines.line_of(at, path), _dotted(path), why) for path, why in faults]
        raise BadFleet(
            name, [f"line {line}: {path}: {why}" for line, path, why in sorted(placed, key=lambda entry: entry[:2])]
        )
    return fleet


def decode(tree: Any, kind: type[T]) -> T:
    """A value of the file's types from plain JSON; raises msgspec.ValidationError."""
    return msgspec.convert(tree, kind, dec_hook=_word)


def _word(kind: type, value: Any) -> Any:
    if kind in (Time, Times, Counts) and isinstance(value, str | int | float) and not isinstance(value, bool):
        return kind(value)
    raise msgspec.ValidationError(f"Expected a value such as 30m, got {value!r}")


def _placed(message: str, at: dict[lines.Path, int]) -> str:
    """A fault of msgspec with its line."""
    what, _, where = message.rpartition(" - at ")
    where = where.rpartition(" in ")[2]  # a key that is no text: `key` in `$.settings`
    path = lines.parse_path(where.strip("`")) if what else ()
    what = what or message
    if "unknown field" in what:
        path = (*path, what.split("`")[1])
        what = "there is no such field"
    if path == ("begins",):
        what = "must be a time with its zone, such as 2026-01-05T00:00:00Z"
    return f"line {lines.line_of(at, path)}: {_dotted(path)}: {what}"


def _dotted(path: lines.Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "fleet"


def _faults(fleet: Fleet) -> Iterator[Found]:
    yield from _amount_faults(fleet, ())
    yield from checks.faults(fleet)
    yield from _settings_faults(fleet)


def _amount_faults(value: Any, path: lines.Path) -> Iterator[Found]:
    """Times and numbers anywhere in the file that cannot be read."""
    if isinstance(value, Time | Times | Counts):
        try:
            amount = value.s if isinstance(value, Time) else value.amount.mean
            if amount <= 0:
                yield path, f"{str(value)!r} must be above 0"
            elif isinstance(value, Counts) and value.amount.is_fixed and amount % 1:
                yield path, f"must be a whole number, not {value!s}"
        except BadAmount as error:
            yield path, str(error)
    elif isinstance(value, Section):
        names = {field.name: field.encode_name for field in msgspec.structs.fields(value)}
        for name, wire in names.items():
            yield from _amount_faults(getattr(value, name), (*path, wire))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _amount_faults(item, (*path, index))


def _settings_faults(fleet: Fleet) -> Iterator[Found]:
    checks: list[tuple[str, Callable[[], object]]] = [
        ("operator", fleet.operator_settings),
        ("scheduler", fleet.scheduler_settings),
    ]
    for name, check in checks:
        try:
            check()
        except (ConfigError, InvalidConfig) as error:
            yield ("settings", name), str(error)


def _is_time(text: Time) -> bool:
    try:
        return text.s > 0
    except BadAmount:
        return False


def _with_traces(fleet: Fleet, folder: Path) -> tuple[Fleet, list[Found]]:
    """The fleet with the rows of its traces, and what is wrong with them."""
    teams = {team.name for team in fleet.teams}
    jobs: dict[str, tuple[Job, ...]] = {}
    faults: list[Found] = []
    until_s = fleet.lasts.s if _is_time(fleet.lasts) else math.inf
    for index, trace in enumerate(fleet.work.traces):
        path: lines.Path = ("work", "traces", index, "file")
        try:
            jobs[trace.file] = load_trace(folder / trace.file, teams, until_s)
        except BadTrace as error:
            faults += [(path, fault) for fault in error.faults]
        except OSError as error:
            faults.append((path, f"{folder / trace.file}: {error.strerror}"))
    return msgspec.structs.replace(fleet, jobs=jobs), faults
