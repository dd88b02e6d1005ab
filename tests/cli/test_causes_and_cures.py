"""Faults that people make: every command names the cause, and the advice of `explain`, carried out here, ends it."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.asking import World, server
from tests.support.situations import (
    QUOTA,
    Situation,
    agreed,
    bound,
    healthy,
    new_image,
    node_lost,
    paused,
    scaled_to_zero,
    surplus_replica_waits,
    unready,
    waits_for_quota,
)

from grove.api.core import ConfigMap, Event, Node, Pod, PriorityClass, Secret, ServiceAccount
from grove.api.meta import Json
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.explain import explain_answer
from grove.cli.restart import asked_for, restart_answer
from grove.cli.rollout import pause_answer
from grove.cli.scale import scale_answer
from grove.cli.tree import status_answer

Act = Callable[[World], Awaitable[None]]


@dataclass(frozen=True)
class Broken:
    """`says` is how the reason begins, `advises` a part of the first advice, `cure` carries it out."""

    act: Act
    state: str
    code: int
    says: str
    advises: str
    cure: Act
    waits: bool = False
    over: str = "running"


# What goes wrong


def with_pods(**pod_spec: Any) -> Act:
    """A set of one pod with this in its pod spec; it stays unready as long as it is held."""

    async def act(world: World) -> None:
        await apply(world, **pod_spec)
        await pods_exist(world)

    return act


def starting_with(**pod_spec: Any) -> Act:
    async def act(world: World) -> None:
        world.nodes.hold = lambda pod: True
        await apply(world, **pod_spec)
        await bound(world, 1)

    return act


async def apply(world: World, gpus: int = 8, **pod_spec: Any) -> None:
    manifest = world.system("chat", cliques=[server("worker", 1, gpus)])
    spec = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    selector = {**spec["nodeSelector"], **pod_spec.pop("nodeSelector", {})}
    env = pod_spec.pop("env", [])
    spec["containers"][0] |= {"env": env, "ports": [{"containerPort": 8080}]}
    spec |= {**pod_spec, "nodeSelector": selector}
    await world.apply(manifest)


async def pods_exist(world: World) -> None:
    async def there() -> bool:
        return bool((await world.client.list(Pod, world.namespace)).items)

    await world.cluster.eventually(there)


async def refused_pods(world: World) -> None:
    async def said() -> bool:
        cliques = (await world.client.list(PodClique, world.namespace)).items
        return bool(cliques) and bool(cliques[0].status.last_errors)

    await world.cluster.eventually(said)


def container(state: Json, **more: Any) -> Act:
    """The only container of the only pod is in this state."""

    async def act(world: World) -> None:
        await starting_with()(world)
        await report(world, {"containerStatuses": [{**OF_CONTAINER, "state": state, **more}]})

    return act


OF_CONTAINER = {"name": "c", "image": "example/c:1", "imageID": "", "ready": False, "restartCount": 1}


async def report(world: World, status: Json) -> None:
    [pod] = (await world.client.list(Pod, world.namespace)).items
    await world.client.patch(Pod, pod.metadata.name, {"status": status}, world.namespace, subresource="status")


def pulling(message: str) -> Act:
    return container({"waiting": {"reason": "ErrImagePull", "message": message}})


def crashed(code: int, reason: str = "Error", message: str = "") -> Act:
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)


def warned(message: str) -> Act:
    """A kubelet warns about the only pod, whose container runs."""

    async def act(world: World) -> None:
        await starting_with()(world)
        [pod] = (await world.client.list(Pod, world.namespace)).items
        about = {"kind": "Pod", "name": pod.metadata.name, "namespace": world.namespace, "uid": pod.metadata.uid}
        meta = {"name": "warned", "namespace": world.namespace}
        event = {"metadata": meta, "involvedObject": about, "type": "Warning", "reason": "Unhealthy"}
        await world.client.create(Event, {**event, "message": message})

    return act


async def init_fails(world: World) -> None:
    init = [{"name": "fetch", "image": "example/c:1"}]
    await starting_with(initContainers=init)(world)
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no model"}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    await report(
        world, {"initContainerStatuses": [{**OF_CONTAINER, "name": "fetch", "state": state, "lastState": ended}]}
    )


def mounting(claim: Json | None) -> Act:
    """The pods of the set mount the claim `models`; None makes no claim."""

    async def act(world: World) -> None:
        if claim is not None:
            await world.client.create(PersistentVolumeClaim, of_claim(world, **claim))
        await apply(world, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "models"}}])
        await pods_exist(world)

    return act


def of_claim(world: World, **spec: Any) -> Json:
    asked = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "10Gi"}}, **spec}
    return {"metadata": {"name": "models", "namespace": world.namespace}, "spec": asked}


def on_nodes(patch: Json) -> Act:
    """All nodes are changed, then the set is applied."""

    async def act(world: World) -> None:
        for node in (await world.client.list(Node)).items:
            await world.client.patch(Node, node.metadata.name, patch)
        await world.apply(world.system("chat"))
        await world.refused("chat-0")

    return act


async def selects_nothing(world: World) -> None:
    await apply(world, nodeSelector={"pool": "h100"})
    await world.refused("chat-0")


async def too_large(world: World) -> None:
    await apply(world, gpus=16)
    await world.refused("chat-0")


async def no_account(world: World) -> None:
    await apply(world, serviceAccountName="model-reader")
    await refused_pods(world)


async def no_priority(world: World) -> None:
    await apply(world, priorityClassName="high")
    await refused_pods(world)


async def pod_hangs(world: World) -> None:
    await healthy(world)
    pod = next(p for p in (await world.client.list(Pod, world.namespace)).items if "leader" in p.metadata.name)
    await world.nodes.crash_pod(world.namespace, pod.metadata.name, restart_s=36000.0)
    await unready(world)


# What ends it


async def as_typed(world: World) -> None:
    """The command of the first advice, as far as it is one of kubectl or of ours that a test can carry out."""
    found = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    [advice] = [gang.advice[0] for gang in found.data["gangs"] if gang.advice][:1]
    if advice.patch:
        await world.client.patch(PodCliqueSet, "chat", list(advice.patch), world.namespace)
        return
    words = shlex.split(advice.command)
    match words:
        case ["kubectl", "uncordon", *nodes]:
            for node in nodes:
                await world.client.patch(Node, node, {"spec": {"unschedulable": None}})
        case ["kubectl", "taint", "node", *rest]:
            for node in (one for one in rest if not one.endswith("-")):
                await world.client.patch(Node, node, {"spec": {"taints": None}})
        case _:
            raise AssertionError(advice)


def creating(kind: Any, name: str, **fields: Any) -> Act:
    async def cure(world: World) -> None:
        meta = {"name": name} | ({"namespace": world.namespace} if kind.RESOURCE.namespaced else {})
        await world.client.create(kind, {"metadata": meta, **fields})
        world.nodes.hold = lambda pod: False
        if (await world.client.list(Pod, world.namespace)).items:
            await again(world)

    return cure


async def again(world: World) -> None:
    """Pods that were held start anew."""
    asked = await asked_for(world.client, world.namespace, "chat")
    await restart_answer(world.client, asked)


async def mended(world: World) -> None:
    """The template is mended: new pods are not held."""
    world.nodes.hold = lambda pod: False
    await new_image(world)


async def claim_bound(world: World) -> None:
    """The claim exists and is bound, as a provisioner does it."""
    name, namespace = "models", world.namespace
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadOnlyMany"]}
    ref = {"namespace": namespace, "name": name}
    if not any(one.metadata.name == name for one in (await world.client.list(PersistentVolumeClaim, namespace)).items):
        await world.client.create(PersistentVolumeClaim, of_claim(world))
    volume = f"{namespace}-made"
    await world.client.create(PersistentVolume, {"metadata": {"name": volume}, "spec": {**spec, "claimRef": ref}})
    for kind, one, where in ((PersistentVolume, volume, ""), (PersistentVolumeClaim, name, namespace)):
        await world.client.patch(kind, one, {"status": {"phase": "Bound"}}, where, subresource="status")
    await world.client.patch(PersistentVolumeClaim, name, {"spec": {"volumeName": volume}}, namespace)


async def class_exists(world: World) -> None:
    storage = {"metadata": {"name": "shared-nfs"}, "provisioner": "nfs.example.com"}
    await world.client.create(StorageClass, storage)
    await claim_bound(world)


async def quota_raised(world: World) -> None:
    await world.client.patch(QUOTA, "few", {"spec": {"hard": {"pods": "10"}}}, world.namespace)


async def labelled(world: World) -> None:
    for node in (await world.client.list(Node)).items:
        await world.client.patch(Node, node.metadata.name, {"metadata": {"labels": {"pool": "h100"}}})


async def resumed(world: World) -> None:
    await pause_answer(world.client, world.namespace, "chat", paused=False)


def scaled(target: str, replicas: int) -> Act:
    async def cure(world: World) -> None:
        await scale_answer(world.client, world.namespace, target, replicas)

    return cure


async def keys_added(world: World) -> None:
    await world.client.patch(Secret, "hf-token", {"data": {"token": "eA=="}}, world.namespace)
    world.nodes.hold = lambda pod: False
    await again(world)


async def secret_without_key(world: World) -> None:
    meta = {"name": "hf-token", "namespace": world.namespace}
    await world.client.create(Secret, {"metadata": meta, "data": {"other": "eA=="}})
    await starting_with(env=TOKEN)(world)


async def node_recovers(world: World) -> None:
    for node in (await world.client.list(Node)).items:
        if not node.is_ready:
            await world.nodes.start_node(node.metadata.name)


TOKEN = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}]
SETTINGS = [{"name": "S", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "s"}}}]
PROBE = "dial tcp 10.0.0.7:8000: connect: connection refused"
BROKEN = {
    "no claim": Broken(
        mounting(None), "waiting", 4, "PersistentVolumeClaim models does not exist", "create the", claim_bound, True
    ),
    "no storage class": Broken(
        mounting({"storageClassName": "shared-nfs"}),
        "waiting",
        4,
        "StorageClass shared-nfs does not exist",
        "create the StorageClass shared-nfs",
        class_exists,
        True,
    ),
    "no default class": Broken(
        mounting({}),
        "waiting",
        4,
        "PersistentVolumeClaim models names no StorageClass",
        "kubectl annotate",
        claim_bound,
        True,
    ),
    "no free volume": Broken(
        mounting({"storageClassName": ""}),
        "waiting",
        4,
        "no PersistentVolume is free",
        "create a PersistentVolume",
        claim_bound,
        True,
    ),
    "a volume that is not there": Broken(
        mounting({"storageClassName": "", "volumeName": "pv-9"}),
        "waiting",
        4,
        "PersistentVolume pv-9 does not exist",
        "create the PersistentVolume pv-9",
        claim_bound,
        True,
    ),
    "no Secret": Broken(
        starting_with(env=TOKEN),
        "starting",
        3,
        "Secret hf-token does not exist",
        "create the Secret hf-token",
        creating(Secret, "hf-token", data={"token": "eA=="}),
    ),
    "a Secret without the key": Broken(
        secret_without_key, "starting", 3, "Secret hf-token has no key token", "add the key token", keys_added
    ),
    "no ConfigMap": Broken(
        starting_with(env=SETTINGS),
        "starting",
        3,
        "ConfigMap settings does not exist",
        "create the ConfigMap",
        creating(ConfigMap, "settings", data={"s": "1"}),
    ),
    "image not found": Broken(
        pulling('Failed to pull image "example/c:1": not found'),
        "broken",
        4,
        r"image example/c:1 not found",
        "mend the image's name or tag",
        mended,
    ),
    "image refused": Broken(
        pulling("pull access denied"),
        "broken",
        4,
        "image example/c:1: the registry refuses the pull",
        "imagePullSecrets",
        mended,
    ),
    "registry silent": Broken(
        pulling("dial tcp: lookup registry: no such host"),
        "broken",
        4,
        "image example/c:1: the registry does not answer",
        "check the registry",
        mended,
    ),
    "bad image name": Broken(
        container({"waiting": {"reason": "InvalidImageName"}}),
        "broken",
        4,
        "image name example/c:1 is not valid",
        "mend the image",
        mended,
    ),
    "out of memory": Broken(
        crashed(137, "OOMKilled"), "broken", 4, "container c is out of memory", "raise resources.limits.memory", mended
    ),
    "no such command": Broken(
        crashed(127, message="vllm: not found"),
        "broken",
        4,
        "container c cannot start its command: vllm: not found",
        "mend command and args",
        mended,
    ),
    "exit message": Broken(
        crashed(1, message="CUDA out of memory"),
        "broken",
        4,
        ".*exit code 1.*CUDA out of memory",
        "kubectl logs",
        mended,
    ),
    "init container": Broken(
        init_fails, "broken", 4, "init container fetch ends with exit code 3: no model", "-c fetch --previous", mended
    ),
    "probe of another port": Broken(
        warned(f"Readiness probe failed: {PROBE}"),
        "starting",
        3,
        "readiness probe on port 8000 refused; the container declares port 8080",
        "set the port of the readinessProbe to 8080",
        mended,
    ),
    "cordoned nodes": Broken(
        on_nodes({"spec": {"unschedulable": True}}), "waiting", 4, ".*cordoned", "uncordon", as_typed, True
    ),
    "tainted nodes": Broken(
        on_nodes({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}}),
        "waiting",
        4,
        ".*maintenance",
        "remove or tolerate the taint maintenance",
        as_typed,
        True,
    ),
    "a label that no node has": Broken(
        selects_nothing, "waiting", 4, ".*0/8 nodes", "kubectl label node NODE pool=h100", labelled, True
    ),
    "pods too large": Broken(too_large, "waiting", 4, ".*0/8 nodes", "ask for 8 nvidia.com/gpu", as_typed, True),
    "no ServiceAccount": Broken(
        no_account,
        "waiting",
        4,
        ".*there is no ServiceAccount model-reader",
        "create serviceaccount model-reader",
        creating(ServiceAccount, "model-reader"),
    ),
    "no PriorityClass": Broken(
        no_priority,
        "waiting",
        4,
        ".*there is no PriorityClass high",
        "create it",
        creating(PriorityClass, "high", value=1),
    ),
    "quota": Broken(waits_for_quota, "waiting", 4, "a ResourceQuota does not let", "raise the quota", quota_raised),
    "scaled to zero": Broken(scaled_to_zero, "stopped", 0, "is scaled to zero", "scale chat 1", scaled("chat", 1)),
    "paused": Broken(paused, "paused", 3, "the update is paused", "rollout resume chat", resumed),
    "a surplus replica waits": Broken(
        surplus_replica_waits, "degraded", 5, "chat-2-worker: 0/8 nodes", "add", scaled("chat", 2), True
    ),
    "a node is lost": Broken(node_lost, "broken", 4, "node .* does not answer", "recover node", node_recovers),
    "a pod crashes": Broken(pod_hangs, "broken", 4, "c: CrashLoopBackOff", "kubectl logs", again),
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", list(BROKEN))
async def test_every_command_names_the_cause_and_the_advice_ends_it(world: World, name: str) -> None:
    await broken_and_mended(world, BROKEN[name])


async def broken_and_mended(world: World, one: Broken) -> None:
    await agreed(world, Situation(one.act, one.state, one.code, one.says, one.waits))
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert one.advises in explain.data["next"], explain.data["next"]
    await one.cure(world)

    async def over() -> bool:
        [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
        return bool(row.state == one.over)

    await world.cluster.eventually(over, 300)
