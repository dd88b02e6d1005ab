"""A stand-in for Kueue with its pod integration, built from Kueue's public documentation and design (KEP 976).

It keeps the rules that a controller of pods meets. A Workload is made when the group has all its pods, one pod set for
each role. A pod of a role beyond the count is deleted, the newest first. A pod that terminates on its node counts.
Deleted pods keep the finalizer until a replacement exists or the Workload is deleted. Eviction writes the condition
TerminationTarget on each pod and deletes it. An evicted Workload joins the queue again when no pod is missing. A
Workload is owned by its pods, so it goes with the last of them.

Not kept: flavors beyond one for each queue, borrowing, priorities, preemption by itself (`evict` is called by a test),
and the webhook. The finalizer is put on a pod when the stand-in first sees it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from grove.api import kueue
from grove.api.core import CustomResourceDefinition, Pod
from grove.api.meta import Json, Resource
from grove.api.podrequest import pod_request
from grove.api.quantity import amount
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, KubeError, NotFound

VERSION = "v1beta2"
WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE = kueue.kinds(VERSION)
IN_USE = "kueue.x-k8s.io/resource-in-use"
FLAVOR = "default-flavor"
SETTLE_S = 0.2
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definitions() -> list[Json]:
    """The three kinds, without their schemas."""
    found = []
    for kind in (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE):
        names = {
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
        }
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}}
        version = {"name": VERSION, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
        metadata = {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        }
        scope = "Namespaced" if kind.namespaced else "Cluster"
        spec = {"group": kind.group, "names": names, "scope": scope, "versions": [version]}
        found.append(CustomResourceDefinition.RESOURCE.manifest(metadata, spec=spec))
    return found


async def install(client: Client) -> None:
    for one in definitions():
        with suppress(AlreadyExists):
            await client.create(CustomResourceDefinition.RESOURCE, one)


async def uninstall(client: Client) -> None:
    for one in definitions():
        with suppress(NotFound):
            await client.delete(CustomResourceDefinition, one["metadata"]["name"])


async def add_queue(client: Client, namespace: str, name: str, cluster_queue: str, **quota: str) -> None:
    """A LocalQueue and its ClusterQueue; `quota` by resource, with `_` for `.` and `/` in turn."""
    resources = [{"name": _resource(key), "nominalQuota": value} for key, value in quota.items()]
    covered = [one["name"] for one in resources]
    group = {"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": resources}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    await client.create(CLUSTER_QUEUE, CLUSTER_QUEUE.manifest({"name": cluster_queue}, spec=spec))
    place = {"name": name, "namespace": namespace}
    await client.create(LOCAL_QUEUE, LOCAL_QUEUE.manifest(place, spec={"clusterQueue": cluster_queue}))


def _resource(key: str) -> str:
    return "nvidia.com/gpu" if key == "gpu" else key


class Kueue:
    """Acts on the pods of one namespace. `excess` names the pods that it deleted as one too many.

    `node_labels` are those of the flavor: pods get them as a node selector when they are admitted.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self.node_labels: dict[str, str] = {}
        self.excess: list[str] = []
        self.refused: list[str] = []
        self.admitted: list[str] = []
        """Workloads in the order in which they were admitted, each as often as it was."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in (Pod.RESOURCE, WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE):
                group.create_task(self._follow(kind))
            group.create_task(self._act())

    async def _follow(self, kind: Resource) -> None:
        namespace = self._namespace if kind.namespaced else ""
        while True:
            with suppress(KubeError):
                async for _ in self._client.watch(kind, namespace, initial_events=True):
                    self._changed.set()
            await asyncio.sleep(1)

    async def _act(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except KubeError:  # what it read has changed: it looks again
                self._changed.set()
            await asyncio.sleep(SETTLE_S)

    async def workloads(self) -> dict[str, Json]:
        found = (await self._client.list(WORKLOAD, self._namespace)).items
        return {one["metadata"]["name"]: one for one in found}

    async def evict(self, workload: str) -> None:
        found = (await self.workloads())[workload]
        await self._say(found, "Evicted", "True", "Preempted", "Preempted to accommodate a workload of higher priority")

    async def _look(self) -> None:
        pods = [pod for pod in (await self._client.list(Pod, self._namespace)).items if kueue.is_managed(pod)]
        groups: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if kueue.MANAGED not in pod.metadata.finalizers and not pod.metadata.is_deleting:
                patch = {"metadata": {"finalizers": [*pod.metadata.finalizers, kueue.MANAGED]}}
                await self._client.patch(Pod, pod.metadata.name, patch, self._namespace)
            group = pod.metadata.labels.get(kueue.GROUP)
            groups[group or f"pod-{pod.metadata.name}"].append(pod)
        workloads = await self.workloads()
        for name, members in groups.items():
            try:
                await self._keep(name, members, workloads.get(name))
            except KubeError:
                self._changed.set()
        for name, workload in workloads.items():
            if workload["metadata"].get("deletionTimestamp"):
                await self._stop(groups.get(name, ()), "WorkloadDeleted", also_suspended=True)
                await self._client.patch(WORKLOAD, name, {"metadata": {"finalizers": None}}, self._namespace)
        await self._admit()

    async def _keep(self, name: str, pods: list[Pod], workload: Json | None) -> None:
        active = [pod for pod in pods if _is_runnable(pod)]
        if workload is None:
            await self._compose(name, pods, active)
            return
        if workload["metadata"].get("deletionTimestamp"):
            return
        kept, absent = [], 0
        for pod_set in workload["spec"]["podSets"]:
            mine = sorted((pod for pod in active if _role(pod) == pod_set["name"]), key=_oldest_first)
            absent += max(0, pod_set["count"] - len(mine))
            for pod in mine[pod_set["count"] :]:
                self.excess.append(pod.metadata.name)
                await self._finalize(pod)
                await self._client.delete(Pod, pod.metadata.name, self._namespace)
            kept += mine[: pod_set["count"]]
            inactive = [pod for pod in pods if _role(pod) == pod_set["name"] and not _is_runnable(pod)]
            for pod in inactive[: max(0, len(inactive) + len(mine) - pod_set["count"])]:
                await self._finalize(pod)
        owners = {one["uid"] for one in workload["metadata"].get("ownerReferences", ())}
        if any(pod.metadata.uid not in owners for pod in kept):
            refs = [
                *workload["metadata"]["ownerReferences"],
                *(_owner(p) for p in kept if p.metadata.uid not in owners),
            ]
            await self._client.patch(WORKLOAD, name, {"metadata": {"ownerReferences": refs}}, self._namespace)
        if _holds(workload, "Evicted"):
            await self._stop(kept, "WorkloadEvicted")
            if not any(pod.is_bound and not pod.is_finished for pod in kept):
                await self._say(workload, "QuotaReserved", "False", "Pending", "evicted", admission=None)
                if not absent and all(map(kueue.waits, kept)):
                    await self._say(workload, "Evicted", "False", "QuotaReserved", "back in the queue")
        elif _holds(workload, "Admitted"):
            for pod in kept:
                await self._ungate(pod)

    async def _compose(self, name: str, pods: list[Pod], active: list[Pod]) -> None:
        totals = {int(pod.metadata.annotations.get(kueue.TOTAL, "1")) for pod in active}
        queues = {pod.metadata.labels[kueue.QUEUE] for pod in active}
        if len(totals) > 1 or len(queues) > 1:
            self.refused.append(f"{name}: its pods differ: total {sorted(totals)}, queue {sorted(queues)}")
            return
        for pod in pods:
            if not _is_runnable(pod):
                await self._finalize(pod)
        if not active or len(active) < min(totals):
            return
        roles: dict[str, list[Pod]] = defaultdict(list)
        for pod in sorted(active, key=_oldest_first)[: min(totals)]:
            roles[_role(pod)].append(pod)
        if len(roles) > kueue.MOST_ROLES:
            self.refused.append(f"{name}: more than {kueue.MOST_ROLES} roles")
            return
        raw = {one["metadata"]["name"]: one for one in (await self._client.list(Pod.RESOURCE, self._namespace)).items}
        sets = [
            {"name": role, "count": len(of), "template": {"spec": raw[of[0].metadata.name]["spec"]}}
            for role, of in sorted(roles.items())
        ]
        owners = [_owner(pod) for of in roles.values() for pod in of]
        meta = {"name": name, "namespace": self._namespace, "finalizers": [IN_USE], "ownerReferences": owners}
        queue = next(iter(queues))
        await self._client.create(WORKLOAD, WORKLOAD.manifest(meta, spec={"queueName": queue, "podSets": sets}))

    async def _admit(self) -> None:
        """Oldest first; one that does not fit does not stop those behind it (BestEffortFIFO)."""
        workloads = await self.workloads()
        queues = {
            one["metadata"]["name"]: one["spec"]["clusterQueue"]
            for one in (await self._client.list(LOCAL_QUEUE, self._namespace)).items
        }
        used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for one in workloads.values():
            if reserved := one.get("status", {}).get("admission"):
                for resource, count in _requests(one).items():
                    used[reserved["clusterQueue"]][resource] += count
        for one in sorted(
            workloads.values(), key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
        ):
            if _holds(one, "QuotaReserved") or _holds(one, "Evicted") or one["metadata"].get("deletionTimestamp"):
                continue
            name = one["spec"]["queueName"]
            if name not in queues:
                await self._say(one, "QuotaReserved", "False", "Inadmissible", f"LocalQueue {name} doesn't exist")
                continue
            await self._try(one, queues[name], used[queues[name]])
        for name in set(queues.values()):
            await self._report(name, used[name])

    async def _try(self, workload: Json, queue: str, used: dict[str, int]) -> None:
        quota, asked = await self._quota(queue), _requests(workload)
        for resource, count in asked.items():
            if resource in quota and used[resource] + count > quota[resource]:
                lacks = used[resource] + count - quota[resource]
                first = workload["spec"]["podSets"][0]["name"]
                message = (
                    f"couldn't assign flavors to pod set {first}: insufficient unused quota for {resource} in flavor "
                    f"{FLAVOR}, {lacks} more needed"
                )
                await self._say(workload, "QuotaReserved", "False", "Pending", message)
                return
        for resource, count in asked.items():
            used[resource] += count
        name = workload["metadata"]["name"]
        self.admitted.append(name)
        admission = {"clusterQueue": queue}
        await self._say(workload, "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in {queue}", admission)
        await self._say(await self._client.get(WORKLOAD, name, self._namespace), "Admitted", "True", "Admitted", "")

    async def _quota(self, queue: str) -> dict[str, int]:
        found = await self._client.get(CLUSTER_QUEUE, queue)
        flavors = [flavor for group in found["spec"]["resourceGroups"] for flavor in group["flavors"]]
        return {
            one["name"]: amount(one["name"], one["nominalQuota"]) for flavor in flavors for one in flavor["resources"]
        }

    async def _report(self, queue: str, used: dict[str, int]) -> None:
        resources = [
            {"name": name, "total": f"{used[name]}m" if name == "cpu" else str(used[name])}
            for name in await self._quota(queue)
        ]
        status = {"flavorsReservation": [{"name": FLAVOR, "resources": resources}]}
        found = await self._client.get(CLUSTER_QUEUE, queue)
        if found.get("status") != status:
            await self._client.patch(CLUSTER_QUEUE, queue, {"status": status}, subresource="status")

    async def _say(
        self, workload: Json, kind: str, status: str, reason: str, message: str, admission: Any = "as it is"
    ) -> None:
        meta, before = workload["metadata"], workload.get("status", {})
        said = {"type": kind, "status": status, "reason": reason, "message": message}
        conditions = [one for one in before.get("conditions", ()) if one["type"] != kind]
        if kind == "QuotaReserved" and status == "False":
            conditions = [one for one in conditions if one["type"] != "Admitted"]
        after: Json = {"conditions": [*conditions, said]}
        if admission != "as it is":
            after["admission"] = admission
        if after["conditions"] == before.get("conditions") and admission == "as it is":
            return
        await self._client.patch(WORKLOAD, meta["name"], {"status": after}, self._namespace, subresource="status")
        workload.setdefault("status", {})["conditions"] = after["conditions"]

    async def _stop(self, pods: Sequence[Pod], reason: str, *, also_suspended: bool = False) -> None:
        for pod in pods:
            name = pod.metadata.name
            if not pod.metadata.is_deleting and (also_suspended or not (kueue.waits(pod) or pod.is_finished)):
                found = await self._client.get(Pod.RESOURCE, name, self._namespace)
                told = {"type": kueue.TERMINATION_TARGET, "status": "True", "reason": reason, "message": "stopped"}
                patch = {"status": {"conditions": [*found["status"].get("conditions", ()), told]}}
                await self._client.patch(Pod, name, patch, self._namespace, subresource="status")
                await self._client.delete(Pod, name, self._namespace)
            if also_suspended:
                await self._finalize(pod)

    async def _finalize(self, pod: Pod) -> None:
        with suppress(NotFound):
            found = await self._client.get(Pod, pod.metadata.name, self._namespace)
            left = [one for one in found.metadata.finalizers if one != kueue.MANAGED]
            if len(left) < len(found.metadata.finalizers):
                await self._client.patch(Pod, pod.metadata.name, {"metadata": {"finalizers": left}}, self._namespace)

    async def _ungate(self, pod: Pod) -> None:
        if pod.metadata.is_deleting or not kueue.waits(pod):
            return
        at = next(at for at, gate in enumerate(pod.spec.scheduling_gates) if gate.name == kueue.GATE)
        steps: list[Json] = [{"op": "remove", "path": f"/spec/schedulingGates/{at}"}]
        if self.node_labels:
            steps.append({"op": "add", "path": "/spec/nodeSelector", "value": self.node_labels})
        await self._client.patch(Pod, pod.metadata.name, steps, self._namespace)


def _is_runnable(pod: Pod) -> bool:
    return not (pod.metadata.is_deleting and not pod.is_bound) and pod.status.phase != "Failed"


def _role(pod: Pod) -> str:
    return pod.metadata.annotations.get(kueue.ROLE, "main")


def _oldest_first(pod: Pod) -> tuple[bool, bool, str, str]:
    meta = pod.metadata
    return kueue.MANAGED not in meta.finalizers, kueue.waits(pod), str(meta.creation_timestamp), meta.name


def _owner(pod: Pod) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}


def _holds(workload: Json, kind: str) -> bool:
    found = next((one for one in workload.get("status", {}).get("conditions", ()) if one["type"] == kind), None)
    return found is not None and found["status"] == "True"


def _requests(workload: Json) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for pod_set in workload["spec"]["podSets"]:
        for resource, count in pod_request(pod_set["template"]["spec"]).items():
            found[resource] += count * pod_set["count"]
    return found
