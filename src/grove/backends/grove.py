"""grove-scheduler: reads PodGangs itself, waits for whole gangs and for the base gang before scaled ones.

So it needs no object beside the PodGang, no gate on pods (one write a pod less), and no topology object: PodGangs carry
node label keys.
"""

from __future__ import annotations

from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.labels import GROVE_SCHEDULER
from grove.api.meta import Json, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import PlainBackend, TopologySync
from grove.backends.options import Options
from grove.backends.rights import reads

NAME = GROVE_SCHEDULER
RULES: tuple[Json, ...] = (reads(ElasticQuota.RESOURCE), reads(Reservation.RESOURCE))


class GroveBackend(PlainBackend):
    name = NAME
    needs_gate = False
    reports_gang_status = True
    topology_resource: Resource | None = None
    topology_served = topology_frozen = False

    def topology_name(self, binding: ClusterTopologyBinding) -> str:
        return binding.metadata.name

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None:
        return None

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        if reference != binding.metadata.name:
            message = f"grove-scheduler reads the binding itself; topologyReference must be {binding.metadata.name}"
            return TopologySync(False, message)
        return TopologySync(True, observed_generation=binding.metadata.generation)


def build(options: Json, path: str) -> GroveBackend:
    Options(options, path).finish()
    return GroveBackend()
