"""What the operator's controllers work with, in one value: the cluster, its writers, and the queues to wake.

`wiring` builds it; a controller takes it whole. A queue holds a controller's keys: a controller that sees a change for
another kind puts the key there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from grove.api import labels
from grove.api.meta import Key, Object
from grove.api.podgang import PodGang
from grove.backends import Backends
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.events import Recorder
from grove.kube.wakes import Wake
from grove.kube.workqueue import Workqueue
from grove.operator.shared.cluster.children_writer import ChildrenWriter
from grove.operator.shared.cluster.claim_writer import ClaimWriter
from grove.operator.shared.cluster.former_templates import FormerTemplates
from grove.operator.shared.cluster.optional_kinds import OptionalKinds
from grove.operator.shared.cluster.sets import Sets, set_key
from grove.operator.shared.cluster.status_writer import EventBatches, StatusWriter
from grove.operator.shared.outcome import Notice, SetErrors
from grove.operator.shared.status_batching import StatusBatches
from grove.operator.shared.surge import DEFAULT_WAIT_S


class GangKey(NamedTuple):
    """A PodGang that is there or should be, and the set it is of."""

    namespace: str
    pcs: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def gang_key(gang: PodGang) -> GangKey | None:
    pcs_key = set_key(gang)
    return GangKey(pcs_key.namespace, pcs_key.name, gang.metadata.name) if pcs_key is not None else None


def gang_key_of(part: Object) -> GangKey | None:
    """The gang that a pod, a clique or a scheduler's object is part of, by its labels."""
    own = part.metadata.labels
    if labels.POD_GANG not in own or labels.PART_OF not in own:
        return None
    return GangKey(part.metadata.namespace, own[labels.PART_OF], own[labels.POD_GANG])


def base_gang_key_of(pod: Object) -> GangKey | None:
    """The base gang of a pod: that of its own gang, or its own gang itself."""
    key = gang_key_of(pod)
    return key and key._replace(name=pod.metadata.labels.get(labels.BASE_POD_GANG, key.name))


@dataclass(frozen=True, slots=True)
class Queues:
    """Keys that wait for a look, by what they name."""

    sets: Workqueue[Key] = field(default_factory=Workqueue)
    groups: Workqueue[Key] = field(default_factory=Workqueue)
    cliques: Workqueue[Key] = field(default_factory=Workqueue)
    blocked_pods: Workqueue[Key] = field(default_factory=Workqueue)
    kueue_pods: Workqueue[Key] = field(default_factory=Workqueue)
    gangs: Workqueue[GangKey] = field(default_factory=Workqueue)
    bindings: Workqueue[Key] = field(default_factory=Workqueue)


@dataclass(frozen=True, slots=True)
class Deps:
    """Collaborators of every controller. `startup_image` and `pod_name_salt` are for the pods of cliques."""

    cache: Cache
    client: Client
    clock: Clock
    backends: Backends
    events: Recorder
    event_batches: EventBatches
    optional: OptionalKinds
    sets: Sets
    former: FormerTemplates
    set_errors: SetErrors
    children: ChildrenWriter
    claims: ClaimWriter
    statuses: StatusWriter
    status_batches: StatusBatches
    queues: Queues
    namespace: str = ""
    startup_image: str = ""
    pod_name_salt: str = ""
    mnnvl_enabled: bool = False
    surge_wait_s: float = DEFAULT_WAIT_S

    def follow(self, wakes: Iterable[Wake[Any, Any]]) -> None:
        """Connects the rows of a controller's table to their sources."""
        for wake in wakes:
            (self.cache if wake.source in self.cache else self.optional).on_event(wake.source, wake)

    def tell(self, notices: Iterable[Notice]) -> None:
        """Records the events of a plan."""
        for notice in notices:
            say = self.events.warn if notice.warning else self.events.normal
            say(notice.about, notice.reason, notice.message)
