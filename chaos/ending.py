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
    for pcs in (await client.list(PodCliqueSet, namespace)).items:
        await client.delete(PodCliqueSet, pcs.metadata.name, namespace)
    return await _until(lambda: leftovers(client, namespace))


async def _until(look: Callable[[], Awaitable[list[str]]]) -> tuple[float, list[str]]:
    began, trouble = time.monotonic(), ["never looked"]
    while time.monotonic() - began < GIVE_UP_S:
        try:
            trouble = await look()
        except KubeError as error:
            trouble = [str(error)]
        if not trouble:
            break
        await asyncio.sleep(0.5)
    return time.monotonic() - began, trouble


async def unsettled(client: Client, namespace: str) -> list[str]:
    trouble = []
    sets = (await client.list(PodCliqueSet, namespace)).items
    if not sets:
        return ["there is no set"]
    for pcs in sets:
        status, progress = pcs.status, pcs.status.update_progress
        if pcs.metadata.is_deleting:
            trouble.append(f"{pcs.metadata.name} is being deleted")
        elif status.observed_generation != pcs.metadata.generation:
            trouble.append(f"{pcs.metadata.name}: generation {pcs.metadata.generation} was not looked at")
        elif not status.available_replicas == status.updated_replicas == pcs.spec.replicas:
            counts = f"{status.available_replicas} available, {status.updated_replicas} updated"
            trouble.append(f"{pcs.metadata.name}: {counts} of {pcs.spec.replicas}")
        elif progress is not None and progress.update_ended_at is None:
            trouble.append(f"{pcs.metadata.name} is being updated")
        elif status.last_errors:
            trouble.append(f"{pcs.metadata.name}: {status.last_errors[0].description}")
    for clique in (await client.list(PodClique, namespace)).items:
        ready, wanted = clique.status.ready_replicas, clique.spec.replicas
        if not ready == clique.status.updated_replicas == wanted:
            trouble.append(
                f"{clique.metadata.name}: {ready} ready, {clique.status.updated_replicas} updated of {wanted}"
            )
        if is_true(clique.status.conditions, conditions.MIN_AVAILABLE_BREACHED):
            trouble.append(f"{clique.metadata.name} is below its minimum")
    return trouble


async def leftovers(client: Client, namespace: str) -> list[str]:
    """Every object with the operator's label, and every object of our kinds."""
    left = []
    for resource in OWNED:
        for obj in (await client.list(resource, namespace)).items:
            marks = obj["metadata"].get("labels") or {}
            if resource.group.endswith("grove.io") or marks.get(labels.MANAGED_BY) == labels.OPERATOR:
                left.append(f"{resource.kind} {obj['metadata']['name']}")
    return left


async def unlike_fresh(client: Client) -> list[str]:
    """How the sets that went through it all differ from the same ones applied again and scaled alike."""
    for pcs in (await client.list(PodCliqueSet.RESOURCE, NAMESPACE)).items:
        meta: Json = {"name": pcs["metadata"]["name"], "namespace": FRESH}
        if notes := pcs["metadata"].get("annotations"):
            meta["annotations"] = notes
        await client.create(PodCliqueSet, {"metadata": meta, "spec": pcs["spec"]})
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
        return [f"the fresh apply: {entry}" for entry in trouble]
    return differences(await read_graph(client, NAMESPACE), await read_graph(client, FRESH), statuses=False)


def leaks(samples: Sequence[Sample], before_s: float) -> list[str]:
    """What grew: the higher of two replicas at the end, with an empty cluster, against the beginning."""
    grown = []
    for component in sorted({sample.name.split("-")[0] for sample in samples}):
        mine = [sample for sample in samples if sample.name.startswith(component)]
        first = [sample for sample in mine if sample.at_s <= before_s]
        last = _last(mine)
        if not first or not last:
            grown.append(f"{component}: not seen at the beginning or at the end")
            continue
        for what, more in (("files", MORE_FILES), ("tasks", MORE_TASKS), ("memory_mb", MORE_MEMORY_MB)):
            was, now = max(getattr(sample, what) for sample in first), max(getattr(sample, what) for sample in last)
            if now > was + more:
                grown.append(f"{component}: {what} grew from {was:.0f} to {now:.0f}")
    return grown


def _last(samples: Iterable[Sample]) -> list[Sample]:
    newest: dict[str, Sample] = {}
    for sample in samples:
        newest[sample.name] = sample
    return list(newest.values())
