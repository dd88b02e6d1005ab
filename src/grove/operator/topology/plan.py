"""What is to be done about a scheduler's topology object: it is made like its binding where it is ours to make."""

from __future__ import annotations

from typing import NamedTuple

from grove.api.meta import Json
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import TopologyBackend
from grove.operator.shared.diff import owned_by, refers_to


class TopologyPlan(NamedTuple):
    """What to do about the object, in this order; `refused` says why it cannot be ours."""

    refused: str = ""
    delete: bool = False
    patch: Json | None = None
    create: Json | None = None


LEAVE = TopologyPlan()


def plan_topology(
    binding: ClusterTopologyBinding, backend: TopologyBackend, reference: str | None, observed: Json | None
) -> TopologyPlan:
    """The plan for the object as it was read (None: there is none). An object that a binding names (`reference`)
    belongs to another owner: it is compared and left alone.
    """
    wanted = backend.wanted_topology(binding) if reference is None else None
    if wanted is None:
        return LEAVE
    name = backend.topology_name(binding)
    made = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": owned_by(binding)}}
    if observed is None:
        return TopologyPlan(create=made)
    if not refers_to(observed, binding):
        return TopologyPlan(refused=f"{wanted['kind']} {name} exists and does not belong to this binding")
    if backend.topology_drift(binding, name, observed).in_sync or observed.get("spec") == made["spec"]:
        return LEAVE  # a lasting difference becomes a drift report, without repeated writes
    return (
        TopologyPlan(delete=True, create=made)
        if backend.topology_frozen
        else TopologyPlan(patch={"spec": made["spec"]})
    )
