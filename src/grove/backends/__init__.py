"""Schedulers that Grove can hand its gangs to, and the registry that picks one for a set.

Adding a backend is one module with a class like those here, its `NAME` and `build`, and a word in `_MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from grove.api.labels import SCHEDULER_ANNOTATION, SCHEDULER_NAME
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends import grove, kai, koord, kube, volcano
from grove.backends.base import Backend, TopologyBackend
from grove.backends.queues import QueueRule
from grove.config import ConfigError, ConfigFault, Scheduler

_MODULES = (grove, kube, kai, koord, volcano)

BUILDERS: Mapping[str, Callable[[Json, str], Backend]] = {module.NAME: module.build for module in _MODULES}
"""Profile name to a function of its options and their path in the file."""

KNOWN = frozenset(BUILDERS)

_CLASSES: tuple[type[Backend], ...] = (
    grove.GroveBackend,
    kube.KubeBackend,
    kai.KaiBackend,
    koord.KoordBackend,
    volcano.VolcanoBackend,
)
QUEUES: Mapping[str, QueueRule] = {
    name: kind.queue for kind in _CLASSES if kind.queue is not None for name in (kind.name, *sorted(kind.aliases))
}
"""How a set names its queue, by every name of a scheduler that has queues."""


class Backends:
    """The enabled schedulers, one of them the default."""

    def __init__(self, backends: Iterable[Backend], default: str) -> None:
        self._by_name = {backend.name: backend for backend in backends}
        self._aliases = {alias: backend.name for backend in self._by_name.values() for alias in backend.aliases}
        self.default = self._by_name[default]

    @property
    def all(self) -> tuple[Backend, ...]:
        """In name order, so that what is written from them is stable."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))

    @property
    def topology_aware(self) -> tuple[TopologyBackend, ...]:
        return tuple(backend for backend in self.all if isinstance(backend, TopologyBackend))

    def name_of(self, named: str) -> str:
        """The scheduler that a set means by this name, enabled or not; the default by an empty one."""
        return self._aliases.get(named, named) or self.default.name

    def find(self, named: str) -> Backend | None:
        """The backend that is meant by this name; None if it is not enabled."""
        return self._by_name.get(self.name_of(named))

    def for_set(self, pcs: PodCliqueSet, gangs: Iterable[PodGang] = ()) -> Backend | None:
        """The one scheduler of a set; None when it names one that is not enabled.

        A set that names none keeps the scheduler its existing PodGangs were labelled with: changing the default profile
        must not move a running workload. Only a set without gangs takes what its annotation says, or today's default.
        """
        for clique in pcs.spec.template.cliques:
            if named := clique.spec.pod_spec.get("schedulerName"):
                return self.find(named)
        for gang in sorted(gangs, key=lambda gang: gang.metadata.name):
            if recorded := self._by_name.get(gang.metadata.labels.get(SCHEDULER_NAME, "")):
                return recorded
        return self.find(pcs.metadata.annotations.get(SCHEDULER_ANNOTATION, ""))

    def for_gang(self, gang: PodGang) -> Backend:
        return self._by_name.get(gang.metadata.labels.get(SCHEDULER_NAME, ""), self.default)


def build_backends(scheduler: Scheduler) -> Backends:
    """The registry for a checked configuration; raises `ConfigError` for options a backend does not have."""
    faults: list[ConfigFault] = []
    built: list[Backend] = []
    for index, profile in enumerate(scheduler.profiles):
        path = f"scheduler.profiles[{index}]"
        if profile.name not in BUILDERS:
            faults.append(ConfigFault(f"{path}.name", f"no such scheduler backend: {profile.name!r}"))
            continue
        try:
            built.append(BUILDERS[profile.name](profile.config or {}, f"{path}.config"))
        except ConfigError as err:
            faults.extend(err.faults)
    if faults:
        raise ConfigError(faults)
    return Backends(built, scheduler.default_profile_name)
