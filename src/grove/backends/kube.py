"""default-scheduler: kube-scheduler as every cluster has it. Pods are placed one by one, so gangs are only gated.

The gate still gives what can be given without gangs in the scheduler: no pod of a gang is tried before all of them
exist, and scaled gangs come after their base gang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grove.api.labels import DEFAULT_SCHEDULER
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.base import Refusal

NAME = DEFAULT_SCHEDULER


class KubeBackend:
    name = NAME
    needs_gate = True
    reports_gang_status = False
    gang_annotations: Mapping[str, str] = {}
    gang_resources: Sequence[Resource] = ()

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        return ()

    def prepare_pod(self, pod: Json) -> None:
        pod["spec"]["schedulerName"] = self.name

    def sync_pod_gang(self, gang: PodGang, pcs: PodCliqueSet) -> Sequence[Json]:
        return ()
