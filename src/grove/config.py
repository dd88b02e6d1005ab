"""The OperatorConfiguration file: every setting of the operator, its default, and what is wrong with a given file.

The operator refuses a faulty file whole and names every fault with its path (`server.webhooks.port: …`). An operator
that started with half of its settings would be harder to notice than one that does not start. Unknown fields are
faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import UNSET, UnsetType

from grove.api import duration
from grove.api.labels import DEFAULT_SCHEDULER, GROVE_SCHEDULER
from grove.api.meta import Json, Struct

API_VERSION = "operator.config.grove.io/v1alpha1"
KIND = "OperatorConfiguration"


class ConfigFault(msgspec.Struct, frozen=True):
    """One thing wrong with a file; `path` is the dotted way to it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(ValueError):
    """The file cannot be used; `faults` says why, all of it."""

    def __init__(self, faults: list[ConfigFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, faults)))


class Duration(float):
    """Seconds; written in the file as a Go duration (`15s`, `1m30s`)."""


Strings = dict[str, str]


class Section(Struct, forbid_unknown_fields=True):
    """A part of the file."""


S = TypeVar("S", bound=Section)


class ClientConnection(Section):
    qps: float | None = None
    """Requests a second. Without it only `burst` limits requests, and the server's own fairness limits the rest."""
    burst: int = 120
    """Writes in flight at once, and, with `qps`, requests at once after a pause."""
    content_type: str = ""
    accept_content_types: str = ""
    """Both may only say JSON, the one thing we speak."""


class LeaderElection(Section):
    enabled: bool = False
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)
    resource_lock: str = "leases"
    resource_name: str = "grove-operator-leader-election"
    resource_namespace: str = ""
    """Empty means the namespace the operator runs in."""


class Webhooks(Section):
    bind_address: str = ""
    port: int = 2750
    server_cert_dir: str = "/etc/grove-operator/webhook-certs"
    secret_name: str = "grove-webhook-server-cert"
    cert_provision_mode: Literal["auto", "manual", "cert-manager"] = "auto"
    cert_manager_certificate: str = ""
    """`<namespace>/<name>` of the Certificate whose CA cert-manager injects; needed in mode cert-manager."""


class HealthProbes(Section):
    bind_address: str = ""
    port: int = 2751


class Metrics(Section):
    bind_address: str = ""
    port: int = 2752


class Server(Section):
    webhooks: Webhooks = Webhooks()
    health_probes: HealthProbes = HealthProbes()
    metrics: Metrics = Metrics()


class Debugging(Section):
    enable_profiling: bool = False
    pprof_bind_host: str = "127.0.0.1"
    pprof_bind_port: int = 2753


class Syncs10(Section):
    concurrent_syncs: int = 10


class Syncs5(Section):
    concurrent_syncs: int = 5


class Controllers(Section):
    pod_clique_set: Syncs10 = Syncs10()
    pod_clique: Syncs10 = Syncs10()
    pod_clique_scaling_group: Syncs5 = Syncs5()
    pod_gang: Syncs5 = Syncs5()


class Authorizer(Section):
    enabled: bool = False
    exempt_service_account_user_names: tuple[str, ...] = ()


class TopologyAwareScheduling(Section):
    enabled: bool = False


class Network(Section):
    auto_mnnvl_enabled: bool = msgspec.field(name="autoMNNVLEnabled", default=False)


class Dialects(Section):
    enabled: bool = False
    """Whether PodGangSets of grove.dynamo.ai and PodCliqueSets of grove.ai are translated; their CRDs must be there."""


class Updates(Section):
    surge_placement_timeout: Duration = Duration(60)
    """How long a scheduler has to place a surge unit; after that the update takes old units down first."""


class SchedulerProfile(Section):
    name: str = ""
    config: Json | None = None
    """Options of that backend, checked by the backend itself."""


class Scheduler(Section):
    profiles: tuple[SchedulerProfile, ...] = ()
    default_profile_name: str = ""


class OperatorConfiguration(Section):
    api_version: str = API_VERSION
    kind: str = KIND
    runtime_client_connection: ClientConnection = ClientConnection()
    leader_election: LeaderElection = LeaderElection()
    server: Server = Server()
    debugging: Debugging | None = None
    controllers: Controllers = Controllers()
    log_level: Literal["debug", "info", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    authorizer: Authorizer = Authorizer()
    topology_aware_scheduling: TopologyAwareScheduling = TopologyAwareScheduling()
    network: Network = Network()
    dialects: Dialects = Dialects()
    updates: Updates = Updates()
    scheduler: Scheduler = Scheduler()


def load_configuration(text: str, known_profiles: frozenset[str] = frozenset()) -> OperatorConfiguration:
    """Reads YAML or JSON text, fills defaults, checks everything; raises `ConfigError` with all faults.

    `known_profiles` are the schedulers that have a backend; empty means names are not checked here.
    """
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise ConfigError([ConfigFault("", f"not YAML: {err}")]) from err
    decoded = read_section(OperatorConfiguration, tree, "")
    config = msgspec.structs.replace(decoded, scheduler=_with_default_profiles(decoded.scheduler))
    if faults := list(_faults(config, known_profiles)):
        raise ConfigError(faults)
    return config


def read_section(kind: type[S], value: Any, path: str) -> S:
    """One part of a file, at `path`; raises `ConfigError` with all its faults."""
    faults: list[ConfigFault] = []
    decoded: S = _decode(kind, value, path, faults)
    if faults:
        raise ConfigError(faults)
    return decoded


def _with_default_profiles(scheduler: Scheduler) -> Scheduler:
    """Without profiles ours is the default; kube-scheduler's profile is always there, as the API says.

    A file that lists profiles but names no default gets ours if it lists ours, else kube-scheduler's.
    """
    profiles = scheduler.profiles or (SchedulerProfile(name=GROVE_SCHEDULER),)
    names = [profile.name for profile in profiles]
    if DEFAULT_SCHEDULER not in names:
        profiles = (*profiles, SchedulerProfile(name=DEFAULT_SCHEDULER))
    default = scheduler.default_profile_name or (GROVE_SCHEDULER if GROVE_SCHEDULER in names else DEFAULT_SCHEDULER)
    return Scheduler(profiles=profiles, default_profile_name=default)


def _faults(config: OperatorConfiguration, known_profiles: frozenset[str]) -> Iterator[ConfigFault]:
    if config.api_version != API_VERSION:
        yield ConfigFault("apiVersion", f"must be {API_VERSION}, got {config.api_version!r}")
    if config.kind != KIND:
        yield ConfigFault("kind", f"must be {KIND}, got {config.kind!r}")
    client = config.runtime_client_connection
    if client.qps is not None and client.qps <= 0:
        yield ConfigFault("runtimeClientConnection.qps", f"must be greater than 0, got {client.qps:g}")
    if client.burst < 0:
        yield ConfigFault("runtimeClientConnection.burst", f"must not be negative, got {client.burst}")
    for name, media in (("contentType", client.content_type), ("acceptContentTypes", client.accept_content_types)):
        if any(media_type.partition(";")[0].strip() not in ("", "application/json") for media_type in media.split(",")):
            yield ConfigFault(f"runtimeClientConnection.{name}", f"only application/json is spoken, got {media!r}")
    yield from _election_faults(config.leader_election)
    ports = {
        "server.webhooks.port": config.server.webhooks.port,
        "server.healthProbes.port": config.server.health_probes.port,
        "server.metrics.port": config.server.metrics.port,
    }
    if config.debugging is not None:
        ports["debugging.pprofBindPort"] = config.debugging.pprof_bind_port
    for path, port in ports.items():
        if not 0 <= port <= 65535:
            yield ConfigFault(path, f"must be a port between 0 and 65535, got {port}")
    for name, syncs in (
        ("podCliqueSet", config.controllers.pod_clique_set),
        ("podClique", config.controllers.pod_clique),
        ("podCliqueScalingGroup", config.controllers.pod_clique_scaling_group),
        ("podGang", config.controllers.pod_gang),
    ):
        if syncs.concurrent_syncs <= 0:
            path = f"controllers.{name}.concurrentSyncs"
            yield ConfigFault(path, f"must be greater than 0, got {syncs.concurrent_syncs}")
    if config.updates.surge_placement_timeout <= 0:
        wait_s = config.updates.surge_placement_timeout
        yield ConfigFault("updates.surgePlacementTimeout", f"must be greater than 0, got {wait_s:g}s")
    yield from _profile_faults(config.scheduler, known_profiles)


def _election_faults(election: LeaderElection) -> Iterator[ConfigFault]:
    if not election.enabled:
        return
    for name, value in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        if value <= 0:
            yield ConfigFault(f"leaderElection.{name}", f"must be greater than 0, got {value:g}s")
    if election.lease_duration <= election.renew_deadline:
        yield ConfigFault("leaderElection.leaseDuration", "must be greater than leaderElection.renewDeadline")
    if election.resource_lock != "leases":
        yield ConfigFault("leaderElection.resourceLock", f"must be leases, got {election.resource_lock!r}")
    if not election.resource_name:
        yield ConfigFault("leaderElection.resourceName", "must not be empty")


def _profile_faults(scheduler: Scheduler, known: frozenset[str]) -> Iterator[ConfigFault]:
    seen: set[str] = set()
    for index, profile in enumerate(scheduler.profiles):
        path = f"scheduler.profiles[{index}].name"
        if not profile.name.strip():
            yield ConfigFault(path, "must not be empty")
        elif profile.name in seen:
            yield ConfigFault(path, f"{profile.name} is listed twice")
        elif known and profile.name not in known:
            yield ConfigFault(path, f"no such scheduler backend: {profile.name!r} (one of {', '.join(sorted(known))})")
        seen.add(profile.name)
    if scheduler.default_profile_name not in seen:
        yield ConfigFault(
            "scheduler.defaultProfileName", f"{scheduler.default_profile_name!r} is not one of the profiles"
        )


def _decode(kind: Any, value: Any, path: str, faults: list[ConfigFault]) -> Any:
    """`value` as `kind`. A part that does not fit is added to `faults`, and the rest is still checked.

    The decoder of msgspec stops at the first fault. A person who corrects a file needs all of them.
    """
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        return _decode(next(arg for arg in get_args(kind) if arg is not type(None)), value, path, faults)
    if isinstance(kind, type) and issubclass(kind, Section):
        return _decode_section(kind, value, path, faults)
    if kind is Duration:
        return _decode_duration(value, path, faults)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            faults.append(ConfigFault(path, f"must be a list, got {_shown(value)}"))
            return ()
        return tuple(_decode(get_args(kind)[0], item, f"{path}[{index}]", faults) for index, item in enumerate(value))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            faults.append(ConfigFault(path, f"must be one of {', '.join(get_args(kind))}, got {_shown(value)}"))
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        faults.append(ConfigFault(path, f"must be {_NAMES.get(kind, 'an object')}, got {_shown(value)}"))
        return value


def _decode_section(kind: type[Section], value: Any, path: str, faults: list[ConfigFault]) -> Any:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        faults.append(ConfigFault(path, f"must be an object, got {_shown(value)}"))
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else str(key)
        if key not in fields:
            faults.append(ConfigFault(here, "unknown field"))
        else:
            given[fields[key].name] = _decode(hints[fields[key].name], item, here, faults)
    return None if faults else kind(**given)


def _decode_duration(value: Any, path: str, faults: list[ConfigFault]) -> Duration | UnsetType:
    if isinstance(value, str):
        try:
            return Duration(duration.parse(value).total_seconds())
        except duration.InvalidDuration:
            pass
    faults.append(ConfigFault(path, f"must be a duration like 15s or 1m30s, got {_shown(value)}"))
    return UNSET


_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", Strings: "a map of strings"}


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)
