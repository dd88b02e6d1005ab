"""grove-scheduler: reads PodGangs itself, waits for whole gangs and for the base gang before scaled ones.

So it needs no object beside the PodGang, no gate on pods (one write a pod less), and no topology object: PodGangs carry
node label keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grove.api.labels import GROVE_SCHEDULER
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import Refusal, TopologySync

NAME = GROVE_SCHEDULER


class GroveBackend:
    name = NAME
    needs_gate = False
    reports_gang_status = True
    gang_annotations: Mapping[str, str] = {}
    gang_resources: Sequence[Resource] = ()
    topology_resource: Resource | None = None

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        return ()

    def prepare_pod(self, pod: Json) -> None:
        pod["spec"]["schedulerName"] = self.name

    def sync_pod_gang(self, gang: PodGang, pcs: PodCliqueSet) -> Sequence[Json]:
        return ()

    def topology_name(self, binding: ClusterTopologyBinding) -> str:
        return binding.metadata.name

    def wanted_topology(self, binding: ClusterTopologyBinding) -> Json | None:
        return None

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        if reference != binding.metadata.name:
            message = f"grove-scheduler reads the binding itself; topologyReference must be {binding.metadata.name}"
            return TopologySync(False, message)
        return TopologySync(True, observed_generation=binding.metadata.generation)
