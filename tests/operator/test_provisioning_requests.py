"""ProvisioningRequests for the cluster autoscaler: made while a gang waits for nodes, followed, and removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import World, operating

from grove.api import labels as key
from grove.api.conditions import NODES_PROVISIONED
from grove.api.core import CustomResourceDefinition, Pod
from grove.api.meta import Condition, Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.provisioning import CLASS, CONSUMES, POD_TEMPLATE, ProvisioningRequest
from grove.diagnosis.gangs import gang_verdict
from grove.diagnosis.seen import read
from grove.kube.errors import AlreadyExists

pytestmark = pytest.mark.real_in("soak")

KIND = ProvisioningRequest.RESOURCE


async def install(cluster: Any) -> None:
    """The kind of the cluster autoscaler: as much of its definition as decides what may be written."""
    count = {"type": "integer", "minimum": 1}
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    entry = {"type": "object", "required": ["count", "podTemplateRef"]}
    pod_sets = {
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "items": {**entry, "properties": {"count": count, "podTemplateRef": named}},
    }
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {"podSets": pod_sets, "provisioningClassName": {"type": "string", "maxLength": 253}},
    }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": anything}}
    version = {
        "name": KIND.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": KIND.kind, "plural": KIND.plural, "singular": KIND.kind.lower()}
    body = {
        "metadata": {
            "name": f"{KIND.plural}.{KIND.group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/6651"},
        },
        "spec": {"group": KIND.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    try:
        await cluster.client.create(CustomResourceDefinition, body)
    except AlreadyExists:
        pass  # the tests share a control plane
    await cluster.eventually(lambda: cluster.client.serves(KIND))
    await cluster.eventually(lambda: cluster.client.list(KIND, cluster.namespace))


@pytest.fixture
async def world(cluster: Any) -> AsyncIterator[World]:
    await install(cluster)
    async with operating(cluster) as world:
        world.binder.allow(0)
        yield world


def asking(said: str = "true") -> Json:
    """Two cliques; one pod of `work` is above the minimum."""
    found = pcs("chat", clique("lead"), clique("work", 3, min_available=2))
    found["metadata"]["annotations"] = {key.PROVISIONING_REQUEST: said}
    return found


async def say(world: World, reason: str) -> None:
    """Writes why pods have no node, as a scheduler does."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/1 nodes"}
    for pod in await world.pods():
        patch = {"status": {"conditions": [condition]}}
        await world.client.patch(Pod, pod.metadata.name, patch, world.namespace, subresource="status")


async def waits(world: World, pods: int = 4) -> None:
    async def made() -> bool:
        gangs = await world.names(PodGang)
        return len(await world.pods()) == pods and gangs == ["chat-0"]

    await world.eventually(made)
    await say(world, "Unschedulable")


async def requested(world: World) -> ProvisioningRequest:
    async def found() -> ProvisioningRequest | None:
        there = [one for one in await world.list(ProvisioningRequest) if not one.metadata.is_deleting]
        return there[0] if there else None

    one: ProvisioningRequest = await world.eventually(found)
    return one


async def gone(world: World) -> None:
    async def none() -> bool:
        return not await world.list(ProvisioningRequest)

    await world.eventually(none)


async def answer(world: World, *conditions: tuple[str, str, str, str]) -> None:
    """What the cluster autoscaler writes."""
    now = world.cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    said = [
        {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        for type_, status, reason, message in conditions
    ]
    await world.client.patch(KIND, "chat-0", {"status": {"conditions": said}}, world.namespace, subresource="status")


async def repeated(world: World, message: str) -> Condition:
    """The condition of the gang, once it says this."""

    async def said() -> Condition | None:
        found = find_condition((await world.get(PodGang, "chat-0")).status.conditions, NODES_PROVISIONED)
        return found if found is not None and message in found.message else None

    one: Condition = await world.eventually(said)
    return one


@pytest.mark.real_in("test")
async def test_a_gang_that_waits_for_nodes_is_requested_whole_followed_and_removed(world: World) -> None:
    await world.apply(asking())
    await waits(world)
    request = await requested(world)
    assert request.metadata.name == "chat-0"
    assert request.spec.provisioning_class_name == "atomic-scale-up.kubernetes.io"
    assert [one.count for one in request.spec.pod_sets] == [1, 2], "without the pod above the minimum"

    async def templates() -> list[Json] | None:
        found = (await world.client.list(POD_TEMPLATE, world.namespace, labels=f"{key.POD_GANG}=chat-0")).items
        return sorted(found, key=lambda one: one["metadata"]["name"]) if len(found) == 2 else None

    made = await world.eventually(templates)
    assert [one["metadata"]["name"] for one in made] == [one.template for one in request.spec.pod_sets]
    for template, pod_clique in zip(made, ("chat-0-lead", "chat-0-work"), strict=True):
        spec, labels = template["template"]["spec"], template["template"]["metadata"]["labels"]
        assert labels[key.POD_CLIQUE] == pod_clique
        assert key.POD_INDEX not in labels
        assert spec["containers"][0]["image"]
        assert not {"nodeName", "schedulingGates", "hostname"} & spec.keys()
    consumers = {pod.spec.hostname: pod.metadata.annotations for pod in await world.pods()}
    assert sorted(name for name, said in consumers.items() if CONSUMES in said) == [
        "chat-0-lead-0",
        "chat-0-work-0",
        "chat-0-work-1",
    ]
    assert consumers["chat-0-lead-0"][CONSUMES] == "chat-0"
    assert consumers["chat-0-lead-0"][CLASS] == request.spec.provisioning_class_name

    assert (await repeated(world, "ProvisioningRequest chat-0")).status == "False"
    await answer(world, ("Accepted", "True", "Accepted", "taken"), ("Provisioned", "True", "CapacityFound", "4 nodes"))
    said = await repeated(world, "Provisioned")
    assert (said.status, said.reason) == ("True", "Provisioned")
    assert "Accepted=True (Accepted): taken" in said.message
    seen = await read(world.client, world.namespace)
    verdict = gang_verdict(seen, await world.get(PodGang, "chat-0"), None)
    assert any("Provisioned=True (CapacityFound): 4 nodes" in line for line in verdict.evidence), verdict

    world.binder.allow(None)
    await gone(world)
    await world.available("chat")

    async def without() -> bool:
        found = (await world.get(PodGang, "chat-0")).status.conditions
        left = (await world.client.list(POD_TEMPLATE, world.namespace, labels=f"{key.POD_GANG}=chat-0")).items
        return find_condition(found, NODES_PROVISIONED) is None and not left

    await world.eventually(without)


async def test_no_nodes_are_requested_while_the_gang_waits_for_its_quota(world: World) -> None:
    await world.apply(asking())
    await waits(world)
    await requested(world)
    await say(world, "QuotaExceeded")
    await gone(world)
    await say(world, "Unschedulable")
    await requested(world)


async def test_pods_of_another_template_are_requested_again(world: World) -> None:
    await world.apply(asking("best-effort-atomic-scale-up.autoscaling.x-k8s.io"))
    await waits(world)
    first = await requested(world)
    assert first.spec.provisioning_class_name == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    image = {"op": "replace", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/image", "value": "new"}
    await world.client.patch(PodCliqueSet, "chat", [image], world.namespace)

    async def is_new() -> bool:
        lead = await world.pods("chat-0-lead")
        if lead and not any(pod.is_unschedulable for pod in lead):
            await say(world, "Unschedulable")
        there = [one for one in await world.list(ProvisioningRequest) if not one.metadata.is_deleting]
        return bool(there) and there[0].metadata.uid != first.metadata.uid

    await world.eventually(is_new)
    second = await requested(world)
    assert second.spec.pod_sets[0].template != first.spec.pod_sets[0].template
    assert second.spec.pod_sets[1] == first.spec.pod_sets[1]


@pytest.mark.simulated
async def test_a_request_that_failed_is_shown_and_made_again_after_ten_minutes(world: World) -> None:
    await world.apply(asking())
    await waits(world)
    first = await requested(world)
    await answer(world, ("Failed", "True", "OutOfStock", "no such machines"))
    said = await repeated(world, "Failed=True (OutOfStock): no such machines")
    assert (said.status, said.reason) == ("False", "Failed")

    async def is_new() -> bool:
        there = await world.list(ProvisioningRequest)
        return bool(there) and there[0].metadata.uid != first.metadata.uid

    before = world.cluster.clock.now()
    await world.eventually(is_new, 1200)
    assert 500 < (world.cluster.clock.now() - before).total_seconds() < 700


@pytest.mark.simulated
async def test_the_request_goes_with_its_set(world: World) -> None:
    await world.apply(asking())
    await waits(world)
    await requested(world)
    await world.delete(PodCliqueSet, "chat")
    await gone(world)
    assert not (await world.client.list(POD_TEMPLATE, world.namespace)).items


@pytest.mark.simulated
async def test_an_operator_that_starts_again_makes_no_second_request_and_adds_missing_templates(world: World) -> None:
    await world.apply(asking())
    await waits(world)
    first = await requested(world)
    await world.quiet()
    await world.stop()
    for one in (await world.client.list(POD_TEMPLATE, world.namespace)).items[:1]:
        await world.client.delete(POD_TEMPLATE, one["metadata"]["name"], world.namespace)
    await world.start()

    async def complete() -> bool:
        return len((await world.client.list(POD_TEMPLATE, world.namespace)).items) == 2

    await world.eventually(complete)
    assert (await requested(world)).metadata.uid == first.metadata.uid


@pytest.mark.simulated
async def test_a_set_without_the_annotation_asks_for_nothing(world: World) -> None:
    plain = asking()
    del plain["metadata"]["annotations"]
    await world.apply(plain)
    await waits(world)
    await world.quiet()
    assert not await world.list(ProvisioningRequest)
    assert not any(CONSUMES in pod.metadata.annotations for pod in await world.pods())


@pytest.mark.simulated
async def test_a_cluster_without_the_kind_says_so_and_it_is_found_later(cluster: Any) -> None:
    async with operating(cluster) as world:
        world.binder.allow(0)
        await world.apply(asking())
        await waits(world)
        said = await repeated(world, "does not serve")
        assert (said.status, said.reason) == ("False", "APINotServed")
        await install(cluster)
        await say(world, "QuotaExceeded")
        await say(world, "Unschedulable")
        await requested(world)
