"""The scheduler's settings: the SchedulerConfiguration file, its defaults, and what is wrong with a given file.

    apiVersion: scheduler.config.grove.io/v1alpha1
    kind: SchedulerConfiguration
    holdAfter: 2m
    featureGates: {GroveIntegration: true}

Durations are Go durations. A file with a fault is refused as a whole; flags of `grove scheduler` win over the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import yaml

from grove.api import duration
from grove.api.fields import natural
from grove.api.labels import GROVE_SCHEDULER
from grove.api.meta import Struct
from grove.scheduler.model.seams import SCORES

API_VERSION = "scheduler.config.grove.io/v1alpha1"
KIND = "SchedulerConfiguration"

GROVE_INTEGRATION = "GroveIntegration"
FEATURE_GATES = {GROVE_INTEGRATION: True}
"""Feature gates of this program, with their defaults."""


class InvalidConfig(ValueError):
    """The file cannot be used; the message has every fault with its path, separated by `; `."""


class Seconds(float):
    """A time span; a Go duration (`90s`, `1m30s`) in the file."""


class _Section(Struct, forbid_unknown_fields=True):
    """A part of the file."""


class LeaderElection(_Section):
    enabled: bool = False
    lease_duration: Seconds = Seconds(15)
    renew_deadline: Seconds = Seconds(10)
    retry_period: Seconds = Seconds(2)
    resource_name: str = "grove-scheduler-leader-election"
    resource_namespace: str = "grove-system"


class Server(_Section):
    bind_address: str = ""
    port: int = 8080
    """Metrics and probes share it; 0 takes a free port, -1 serves nothing."""


class BackoffSettings(_Section):
    """Between two attempts for one gang; doubles with each failure."""

    initial: Seconds = Seconds(0.05)
    max: Seconds = Seconds(5)


class Preemption(_Section):
    enabled: bool = True


ALLOW = "allow"


class Repacking(_Section):
    """Moving gangs that run, so that a waiting gang fits."""

    disruption: Literal["allow", "never"] = "never"
    """Whether gangs may be moved whose set has no annotation `grove.io/disruption`."""
    automatic: bool = False
    """Whether the scheduler moves gangs of its own accord."""
    restarts_per_hour: int = 20
    """Pods that it may restart for this in any hour."""


class SchedulerConfiguration(_Section):
    api_version: str = API_VERSION
    kind: str = KIND
    scheduler_name: str = GROVE_SCHEDULER
    leader_election: LeaderElection = LeaderElection()
    server: Server = Server()
    bind_concurrency: int = 48
    gang_timeout: Seconds = Seconds(600)
    """Deadline of one attempt for a gang that does not name its own."""
    hold_after: Seconds = Seconds(120)
    """A gang that waited this long has its best domain held for it, one that was overtaken at once; 0 never holds."""
    patience: Seconds = Seconds(2)
    """How long capacity must be unchanged before scaled gangs and surplus may take what a minimum waits for."""
    settle: Seconds = Seconds(0.5)
    """How long a refusal must stand before it is written: most gangs are placed before a person could read it."""
    backoff: BackoffSettings = BackoffSettings()
    preemption: Preemption = Preemption()
    repack: Repacking = Repacking()
    node_policy: Literal["pack", "spread"] = "pack"
    scores: dict[str, int] = {}
    """Weights of scores by name, where they are not to be the usual ones; 0 leaves a score out."""
    network_bandwidth_label: str = ""
    """Label of nodes that says how much network bandwidth they have, where nothing publishes it as a resource."""
    search_budget: int = 0
    """Steps a search may take; 0 is the core's own default."""
    exact_solver: bool = False
    """Asks a constraint solver where the search ends undecided; needs the extra `grove-k8s[exact]`."""
    feature_gates: dict[str, bool] = {}
    log_level: Literal["debug", "info", "error"] = "info"
    log_format: Literal["json", "text"] = "json"

    @property
    def takes_gangs(self) -> bool:
        return self.feature_gates.get(GROVE_INTEGRATION, FEATURE_GATES[GROVE_INTEGRATION])


def load_configuration(text: str) -> SchedulerConfiguration:
    """Reads YAML or JSON; raises InvalidConfig."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise InvalidConfig(f"not YAML: {' '.join(str(err).split())}") from err
    try:
        config = msgspec.convert(tree or {}, SchedulerConfiguration, dec_hook=_seconds)
    except msgspec.ValidationError as err:
        what, _, where = str(err).rpartition(" - at ")
        path = where.strip("`").removeprefix("$").removeprefix(".")
        raise InvalidConfig(f"{path}: {what}" if what and path else str(err)) from err
    return checked(config)


def checked(config: SchedulerConfiguration) -> SchedulerConfiguration:
    """The configuration itself, or InvalidConfig with all its faults."""
    if faults := list(_faults(config)):
        raise InvalidConfig("; ".join(faults))
    return config


def parse_gates(text: str) -> dict[str, bool]:
    """`A=true,B=false`, as Kubernetes components take it."""
    gates: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or value.lower() not in ("true", "false"):
            raise InvalidConfig(f"feature gate {part!r}: write it like {GROVE_INTEGRATION}=true")
        gates[name.strip()] = value.lower() == "true"
    return gates


def gang_timeout_s(annotation: str | None, default_s: float) -> float:
    """A gang's deadline from its annotation: a Go duration or whole seconds; what cannot be read counts as absent."""
    if not annotation:
        return default_s
    try:
        plain = natural(annotation)
        seconds = float(plain) if plain is not None else duration.parse(annotation).total_seconds()
    except duration.InvalidDuration:
        return default_s
    return seconds if seconds >= 1 else default_s


def _seconds(kind: type, value: Any) -> Any:
    if kind is not Seconds:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise msgspec.ValidationError(f"must be a duration like 15s or 1m30s, got {value!r}")
    try:
        return Seconds(duration.parse(value).total_seconds())
    except duration.InvalidDuration as err:
        raise msgspec.ValidationError(str(err)) from err


def _faults(config: SchedulerConfiguration) -> Iterator[str]:
    if config.api_version != API_VERSION:
        yield f"apiVersion: must be {API_VERSION}, got {config.api_version!r}"
    if config.kind != KIND:
        yield f"kind: must be {KIND}, got {config.kind!r}"
    if not config.scheduler_name:
        yield "schedulerName: must not be empty"
    if config.bind_concurrency < 1:
        yield f"bindConcurrency: must be at least 1, got {config.bind_concurrency}"
    if config.gang_timeout < 1:
        yield "gangTimeout: must be at least 1s"
    if config.hold_after < 0:
        yield "holdAfter: must not be negative"
    if config.settle < 0:
        yield "settle: must not be negative"
    if config.patience < 0:
        yield "patience: must not be negative"
    if config.repack.restarts_per_hour < 1:
        yield f"repack.restartsPerHour: must be at least 1, got {config.repack.restarts_per_hour}"
    if not 0 < config.backoff.initial <= config.backoff.max:
        yield "backoff: 0 < initial <= max does not hold"
    for name in sorted(config.scores.keys() - SCORES.keys()):
        yield f"scores: there is no score {name} (known: {', '.join(sorted(SCORES))})"
    if config.search_budget < 0:
        yield "searchBudget: must not be negative"
    if not -1 <= config.server.port <= 65535:
        yield f"server.port: must be a port, 0 or -1, got {config.server.port}"
    election = config.leader_election
    if election.enabled and not 0 < election.retry_period < election.renew_deadline < election.lease_duration:
        yield "leaderElection: 0 < retryPeriod < renewDeadline < leaseDuration does not hold"
    for name in sorted(config.feature_gates.keys() - FEATURE_GATES.keys()):
        yield f"featureGates: there is no gate {name} (known: {', '.join(sorted(FEATURE_GATES))})"
