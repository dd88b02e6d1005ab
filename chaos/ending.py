"""What must hold when the last fault is over: everything converges, equals a fresh apply, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tests.support.golden import differences
from tests.support.graphs import read_graph

from chaos.load import FRESH, NAMESPACE
from chaos.processes import Sample
from grove.api import conditions, labels
from grove.api.core import Pod, Secret, Service, ServiceAccount
from grove.api.meta import Json, Resource, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client
from grove.kube.errors import KubeError

CONVERGES_S = 60.0
GIVE_UP_S = 300.0
MORE_FILES, MORE_TASKS, MORE_MEMORY_MB = 10, 10, 80.0
"""What a process may have more at the end, with an empty cluster, than at the beginning."""
OWNED: tuple[Resource, ...] = (
    Pod.RESOURCE,
    PodClique.RESOURCE,
    PodCliqueScalingGroup.RESOURCE,
    PodGang.RESOURCE,
    Service.RESOURCE,
    Secret.RESOURCE,
    ServiceAccount.RESOURCE,
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Resource("apps", "v1", "ControllerRevision", "controllerrevisions"),
)


async def until_settled(client: Client, namespace: str = NAMESPACE) -> tuple[float, list[str]]:
    """Seconds until every set stands as it should; and what does not after five minutes."""
    return await _until(lambda: unsettled(client, namespace))


async def until_gone(client: Client, namespace: str = NAMESPACE) -> tuple[float, list[str]]:
    """Deletes every set; seconds until nothing is left that was made of them, and what is left after five minutes."""
    for one in (await client.list(PodCliqueSet, namespace)).items:
        await client.delete(PodCliqueSet, one.metadata.name, namespace)
    return await _until(lambda: leftovers(client, namespace))


async def _until(look: Callable[[], Awaitable[list[str]]]) -> tuple[float, list[str]]:
    began, found = time.monotonic(), ["never looked"]
    while time.monotonic() - began < GIVE_UP_S:
        try:
            found = await look()
        except KubeError as error:
            found = [str(error)]
        if not found:
            break
        await asyncio.sleep(0.5)
    return time.monotonic() - began, found


async def unsettled(client: Client, namespace: str) -> list[str]:
    found = []
    sets = (await client.list(PodCliqueSet, namespace)).items
    if not sets:
        return ["there is no set"]
    for one in sets:
        status, progress = one.status, one.status.update_progress
        if one.metadata.is_deleting:
            found.append(f"{one.metadata.name} is being deleted")
        elif status.observed_generation != one.metadata.generation:
            found.append(f"{one.metadata.name}: generation {one.metadata.generation} was not looked at")
        elif not status.available_replicas == status.updated_replicas == one.spec.replicas:
            counts = f"{status.available_replicas} available, {status.updated_replicas} updated"
            found.append(f"{one.metadata.name}: {counts} of {one.spec.replicas}")
        elif progress is not None and progress.update_ended_at is None:
            found.append(f"{one.metadata.name} is being updated")
        elif status.last_errors:
            found.append(f"{one.metadata.name}: {status.last_errors[0].description}")
    for clique in (await client.list(PodClique, namespace)).items:
        ready, wanted = clique.status.ready_replicas, clique.spec.replicas
        if not ready == clique.status.updated_replicas == wanted:
            found.append(f"{clique.metadata.name}: {ready} ready, {clique.status.updated_replicas} updated of {wanted}")
        if is_true(clique.status.conditions, conditions.MIN_AVAILABLE_BREACHED):
            found.append(f"{clique.metadata.name} is below its minimum")
    return found


async def leftovers(client: Client, namespace: str) -> list[str]:
    """Everything that says it was made by the operator for a set, and every object of our kinds."""
    found = []
    for resource in OWNED:
        for one in (await client.list(resource, namespace)).items:
            marks = one["metadata"].get("labels") or {}
            if resource.group.endswith("grove.io") or marks.get(labels.MANAGED_BY) == labels.OPERATOR:
                found.append(f"{resource.kind} {one['metadata']['name']}")
    return found


async def unlike_fresh(client: Client) -> list[str]:
    """How the sets that went through it all differ from the same ones applied again and scaled alike."""
    for one in (await client.list(PodCliqueSet.RESOURCE, NAMESPACE)).items:
        meta: Json = {"name": one["metadata"]["name"], "namespace": FRESH}
        if notes := one["metadata"].get("annotations"):
            meta["annotations"] = notes
        await client.create(PodCliqueSet, {"metadata": meta, "spec": one["spec"]})
    await until_settled(client, FRESH)
    for kind in (PodCliqueScalingGroup, PodClique):
        for child in (await client.list(kind, NAMESPACE)).items:
            patch = {"spec": {"replicas": child.spec.replicas}}
            try:
                await client.patch(kind, child.metadata.name, patch, FRESH)
            except KubeError:
                continue  # it comes with the scaling of its group, or is missing: the comparison will say so
        await until_settled(client, FRESH)
    _, trouble = await until_settled(client, FRESH)
    if trouble:
        return [f"the fresh apply: {one}" for one in trouble]
    return differences(await read_graph(client, NAMESPACE), await read_graph(client, FRESH), statuses=False)


def leaks(samples: Sequence[Sample], before_s: float) -> list[str]:
    """What grew: the higher of two replicas at the end, with an empty cluster, against the beginning."""
    found = []
    for component in sorted({one.name.split("-")[0] for one in samples}):
        mine = [one for one in samples if one.name.startswith(component)]
        first = [one for one in mine if one.at_s <= before_s]
        last = _last(mine)
        if not first or not last:
            found.append(f"{component}: not seen at the beginning or at the end")
            continue
        for what, more in (("files", MORE_FILES), ("tasks", MORE_TASKS), ("memory_mb", MORE_MEMORY_MB)):
            was, now = max(getattr(one, what) for one in first), max(getattr(one, what) for one in last)
            if now > was + more:
                found.append(f"{component}: {what} grew from {was:.0f} to {now:.0f}")
    return found


def _last(samples: Iterable[Sample]) -> list[Sample]:
    newest: dict[str, Sample] = {}
    for one in samples:
        newest[one.name] = one
    return list(newest.values())
