"""What the operator asks of a scheduler backend. All of it is pure: facts and observed objects in, wanted objects out.

A backend is one class over a few mappings. Four callers use it:

- The PodClique controller lets it complete each new pod and asks which gated pods may be scheduled.
- The PodGang controller makes the objects that it returns for a PodGang. The PodGang owns them.
- Admission asks which fields of a set it cannot express.
- The ClusterTopologyBinding controller keeps its topology object.

A backend asks about the cluster with `Question`s. A caller with a client finds the answers and passes them to `learn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.queues import QueueRule

# Reasons of the condition SchedulerObjectsReady
WRITTEN = "Told"
WRITTEN_IN_PART = "ToldInPart"
PODS_HELD = "PodsHeld"
NOT_OFFERED = "GangsNotOffered"
NOT_INSTALLED = "SchedulerNotInstalled"
NOT_REPRESENTABLE = "NotRepresentable"
NAME_CONFLICT = "NameConflict"
SPEC_DRIFT = "GangSpecDrift"
SHRUNK = "GangShrunk"
NOT_ENFORCED = "GangNotEnforced"
REPLACING = "Replacing"


class Refusal(NamedTuple):
    """Something in a set that a backend cannot do; becomes a field error at admission."""

    path: str
    message: str


class BackendError(ValueError):
    """This scheduler cannot express a pod or gang. The message says why, and what to change."""


class Question(NamedTuple):
    """Something about the cluster that a backend has to know.

    `served`: is this kind there (answer: bool). `get`, `list`: an object by its name, or all of a kind (Json, list of
    Json; None if there is none). `dry_run`: what the server would make of `body` (Json; None if it refuses).
    `only_if` names an earlier question whose answer must be true, or this one is not asked.
    """

    name: str
    ask: Literal["served", "get", "list", "dry_run"]
    resource: Resource
    body: Json | None = None
    object_name: str = ""
    only_if: str = ""
    namespace: str = ""


Answers = Mapping[str, Any]
"""By the name of the question; one that could not be asked is absent."""


@dataclass(frozen=True, slots=True)
class PodSite:
    """Where a new pod stands in its gang. `gang` is None while no PodGang has been written.

    `binding` is the topology of the set; None where it has none.
    """

    pcs: PodCliqueSet
    gang_name: str
    clique: str
    index: int
    min_replicas: int
    gang: PodGang | None = None
    clique_name: str = ""
    """Name of its clique within the set."""
    binding: ClusterTopologyBinding | None = None

    @property
    def is_core(self) -> bool:
        """True if the gang needs this pod.

        The scheduler places the other pods, the surplus, after the minimum of the gang.
        """
        return self.index < self.min_replicas


class GangObjects(NamedTuple):
    """The objects of a gang for its scheduler.

    `objects` are in the order in which to make them; an owner reference without uid names an earlier one of them.
    Without `create`, existing objects are corrected and none is made. If `ready` is false, the gang gets the reason
    and message as a condition. A backend that holds pods back until then says so in `may_ungate`.
    """

    objects: Sequence[Json] = ()
    ready: bool = True
    reason: str = WRITTEN
    message: str = ""
    create: bool = True


NO_OBJECTS = GangObjects()


class GangObjectsState(NamedTuple):
    """The state of a gang's objects for its scheduler, for the condition SchedulerObjectsReady.

    `retry` is set when the operator watches nothing that would show that another attempt helps.
    """

    ready: bool
    reason: str
    message: str = ""
    retry: bool = False


class Backend:
    """One scheduler. This base class makes no objects; a subclass does.

    `name` is the registry key, the pods' `schedulerName` and the PodGangs' scheduler label.
    """

    name: str
    aliases: frozenset[str] = frozenset()
    """Other names by which a set may call it."""
    queue: QueueRule | None = None
    """How a set names its queue; None if the scheduler has none."""
    needs_gate = True
    """Whether pods must be held back until their gang is complete; False if the scheduler waits by itself."""
    reports_gang_status = False
    """Whether the scheduler writes phase and conditions of PodGangs; if not, the operator derives them."""
    answers_replacements = False
    """Whether the scheduler answers `spec.replacement` of PodGangs: whether new pods fit once the old ones are gone."""
    core_by_index = False
    """Whether a pod's index decides if it is core or surplus. Scale-in then takes surplus pods first."""
    sets_pod_priority = True
    """Whether pods get the set's priorityClassName; False if the scheduler reads it from the gang's own object."""
    spreads: frozenset[str] = frozenset()
    """Whose `spreadConstraint` the scheduler honours: of the set, of a scaling group, of a clique."""
    tries_once = False
    """Whether it has pods that it does not try again when a node has capacity: see `late_pods`."""
    discovered = False
    """Whether `learn` was called. Before that, admission refuses nothing because of a feature that the cluster may
    lack.
    """
    frozen: frozenset[str] = frozenset()
    """Kinds among `gang_resources` whose spec cannot be changed once made."""
    fixed: tuple[tuple[str, ...], ...] = ()
    """Paths in those objects that the scheduler reads only once: a change of one replaces the object."""
    said_once: tuple[tuple[str, ...], ...] = ()
    """Paths in those objects that are said when they are made and not compared afterwards."""
    event_reasons: Mapping[str, str] = {}
    """Reasons of events that users of this scheduler know already, by reason of the condition."""

    @property
    def gang_resources(self) -> Sequence[Resource]:
        """Kinds that `gang_objects` may return, for the controller to watch; empty if the scheduler uses no objects."""
        return ()

    @property
    def questions(self) -> Sequence[Question]:
        return ()

    def learn(self, answers: Answers) -> None:
        """Gets what the cluster offers; called before the first pod is made, and again from time to time."""
        self.discovered = True

    @property
    def awaited(self) -> Sequence[Question]:
        """Questions whose answer keeps gangs waiting: their objects are watched, and a change asks everything again."""
        return ()

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        return ()

    def validate_change(self, pcs: PodCliqueSet, stored: PodCliqueSet) -> Sequence[Refusal]:
        """The changes of an existing set that only this scheduler refuses."""
        return ()

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        """Finishes a pod that is about to be created, in place; raises `BackendError` if it cannot."""
        pod["spec"]["schedulerName"] = self.name

    def gang_annotations(self, pcs: PodCliqueSet, gang: PodGang | None, pods: Sequence[Pod]) -> Mapping[str, str]:
        """Annotations for a PodGang. `gang` is the existing one, `pods` are those that exist."""
        return {}

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        """The objects wanted beside this PodGang, without the owner reference to it: the controller adds that."""
        return NO_OBJECTS

    def asks_for_more(self, wanted: Json, live: Json) -> bool:
        """True if an immutable object requests more pods than the gang has now."""
        return False

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        """True if this scheduler allows the operator to remove the gate of a pod in a complete gang."""
        return True

    def node_labels_to_keep(self, gang: PodGang, stands_on: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
        """Labels that the node of a pod must have that joins a gang later, for a scheduler that would forget it.

        `stands_on` are the labels of the nodes of the core pods that are placed already.
        """
        return {}

    def late_pods(self, gang: PodGang, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Pods without a node, in a gang that has nodes, which the scheduler does not try again by itself."""
        return ()

    def doubt_s(self, gang: PodGang, pods: Sequence[Pod], now: datetime) -> float | None:
        """Seconds until the operator reports that the scheduler ignores the gang's objects; None if there is no sign
        of that.
        """
        return None


class TopologySync(NamedTuple):
    """How a scheduler's own picture of the cluster compares with a binding."""

    in_sync: bool
    message: str = ""
    observed_generation: int = 0


class TopologyBackend(Backend):
    """A scheduler that takes part in topology-aware placement; `topology_resource` is None if it needs no object."""

    topology_resource: Resource | None = None
    topology_served = False
    """Whether the cluster is known to have that kind."""
    topology_frozen = False
    """Whether that object cannot be changed, only replaced."""

    def topology_name(self, binding: ClusterTopologyBinding) -> str:
        return binding.metadata.name

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None:
        return None

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        """Compares the topology object named `reference` (None: it does not exist) with the binding."""
        raise NotImplementedError
