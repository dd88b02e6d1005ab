"""What the operator asks of a scheduler backend. All of it is pure: wanted objects out, no client in.

A backend is one class with a few mappings. The PodClique controller lets it finish each new pod, the PodGang controller
creates and patches the objects it wants beside a PodGang (they are owned by the PodGang and go with it), admission asks
it what it cannot do, and the ClusterTopologyBinding controller keeps its topology object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeGuard

from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding


class Refusal(NamedTuple):
    """Something in a set that a backend cannot do; becomes a field error at admission."""

    path: str
    message: str


class BackendError(ValueError):
    """A pod or gang cannot be told to this scheduler; the message says why and what to change."""


class Backend(Protocol):
    """One scheduler. `name` is the registry key, the pods' `schedulerName` and the PodGangs' scheduler label."""

    @property
    def name(self) -> str: ...

    @property
    def needs_gate(self) -> bool:
        """Whether pods must be held back until their gang is complete; False if the scheduler waits by itself."""
        ...

    @property
    def reports_gang_status(self) -> bool:
        """Whether the scheduler writes phase and conditions of PodGangs; if not, the operator derives them."""
        ...

    @property
    def gang_annotations(self) -> Mapping[str, str]:
        """Annotations it wants on every PodGang of its own."""
        ...

    @property
    def gang_resources(self) -> Sequence[Resource]:
        """Kinds that `sync_pod_gang` may return, for the controller to watch."""
        ...

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]: ...

    def prepare_pod(self, pod: Json) -> None:
        """Finishes a pod that is about to be created, in place; raises `BackendError` if it cannot."""
        ...

    def sync_pod_gang(self, gang: PodGang, pcs: PodCliqueSet) -> Sequence[Json]:
        """The objects wanted beside this PodGang, without owner references: the controller adds those."""
        ...


class TopologySync(NamedTuple):
    """How a scheduler's own picture of the cluster compares with a binding."""

    in_sync: bool
    message: str = ""
    observed_generation: int = 0


class TopologyBackend(Backend, Protocol):
    """A scheduler that takes part in topology-aware placement."""

    @property
    def topology_resource(self) -> Resource | None:
        """Kind of its topology object; None if it reads node labels and needs no object."""
        ...

    def topology_name(self, binding: ClusterTopologyBinding) -> str: ...

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None: ...

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        """Compares the topology object named `reference` (None: it does not exist) with the binding."""
        ...


def is_topology_aware(backend: Backend) -> TypeGuard[TopologyBackend]:
    return hasattr(backend, "topology_drift")
