"""A store in front of the figures and the judges of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grove.api import labels
from grove.api.conditions import DISRUPTION_TARGET, SCHEDULED
from grove.api.core import Node, Pod
from grove.api.meta import Json, Key, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.figures import Figures
from grove.fleet.manifests import GPU, QUEUE
from grove.fleet.promises import Promises
from grove.sim.store import Change, Store

READY = [{"type": "Ready", "status": "True"}]
GROUP = "web-0-decode"


class Watched:
    """A store in front of the judges; the test writes to it what a cluster would contain."""

    def __init__(self, budget: int = 0) -> None:
        """`budget` is the number of pods that the set `web` keeps available."""
        self.figures, self.now_s, self.stops = Figures({"high": 10}, {"chat": 8}), 0.0, 0
        self.promises = Promises(
            self.figures,
            limits={"chat": 16},
            deadline_s=600.0,
            patience_s=86400.0,
            budgets={"web": budget} if budget else {},
            stop=self._stop,
        )
        self._store = Store()
        self._store.listeners.append(self._see)

    def _stop(self) -> None:
        self.stops += 1

    def _see(self, resource: Resource, change: Change) -> None:
        self.figures.see(resource, change, self.now_s)
        self.promises.see(resource, change)

    @property
    def broken(self) -> list[str]:
        return [one.promise for one in self.promises.broken]

    def crash(self, uid: str) -> None:
        """The engine of a pod crashes now."""
        self.promises.hits.crash(uid, self.now_s)

    def put(self, resource: Resource, name: str, marks: Json | None = None, **rest: Any) -> None:
        meta = {"name": name, "namespace": "default", "uid": name, "labels": marks or {}, **rest.pop("meta", {})}
        self._store.put(resource, {"metadata": meta, **rest})

    def node(self, name: str, *, is_up: bool = True, is_cordoned: bool = False) -> None:
        ready = [{"type": "Ready", "status": str(is_up)}]
        status = {"allocatable": {GPU: "8"}, "conditions": ready}
        self.put(Node.RESOURCE, name, meta={"namespace": ""}, spec={"unschedulable": is_cordoned}, status=status)

    def pod(
        self,
        name: str,
        of: str = "web",
        node: str = "",
        gang: str = "",
        gpus: int = 8,
        *,
        instance: int | None = None,
        is_ready: bool = True,
        **meta: Any,
    ) -> None:
        """With `instance`, a pod of that instance of the group `web-0-decode`, else of a standalone clique."""
        clique, index = ("worker", name) if instance is None else (f"decode-{instance}", "0")
        marks = {labels.PART_OF: of, labels.REPLICA_INDEX: "0", labels.POD_CLIQUE: clique, labels.POD_INDEX: index}
        if instance is not None:
            marks |= {labels.SCALING_GROUP: GROUP, labels.SCALING_GROUP_REPLICA_INDEX: str(instance)}
        if gang:
            marks[labels.POD_GANG] = gang
        box = {"name": "engine", "resources": {"limits": {GPU: gpus}}}
        status = {"conditions": READY if node and is_ready else []}
        self.put(Pod.RESOURCE, name, marks, meta=meta, spec={"containers": [box], "nodeName": node}, status=status)

    def gang(
        self,
        name: str,
        pods: int,
        *,
        is_placed: bool = False,
        reason: str = "Unschedulable",
        is_evicted: bool = False,
    ) -> None:
        said = [{"type": SCHEDULED, "status": str(is_placed), "reason": "" if is_placed else reason, "message": "full"}]
        if is_evicted:
            said.append({"type": DISRUPTION_TARGET, "status": "True"})
        spec = {"podgroups": [{"name": "worker", "minReplicas": pods}]}
        self.put(PodGang.RESOURCE, name, {labels.PART_OF: name}, spec=spec, status={"conditions": said})

    def set(
        self,
        name: str,
        available: int = 1,
        queue: str = "",
        *,
        is_updating: bool = False,
        restarts: int = 0,
        replicas: int = 1,
        **meta: Any,
    ) -> None:
        marks = {QUEUE: queue} if queue else {}
        ended = {} if is_updating else {"updateEndedAt": "then"}
        progress = {"updateStartedAt": "then", **ended}
        status = {"availableReplicas": available, "updateProgress": progress, "gangRestarts": restarts}
        self.put(PodCliqueSet.RESOURCE, name, marks, meta=meta, spec={"replicas": replicas}, status=status)

    def group(
        self, available: int, *, replicas: int = 3, minimum: int = 2, restarts: int = 0, restarted: Sequence[int] = ()
    ) -> None:
        """`restarted` are the instances that the operator restarted once."""
        spec = {"replicas": replicas, "minAvailable": minimum}
        entries = [{"replicaIndex": index, "incarnation": 1, "gangRestarts": 1} for index in restarted]
        status = {"availableReplicas": available, "gangRestarts": restarts, "replicaRestarts": entries}
        self.put(PodCliqueScalingGroup.RESOURCE, GROUP, {labels.PART_OF: "web"}, spec=spec, status=status)

    def delete(self, resource: Resource, name: str) -> None:
        self._store.remove(resource, Key("default", name))
