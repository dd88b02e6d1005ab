"""Faults that people make in a set, and what they do about them."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from grove.answers.explain import explain_answer
from grove.answers.restart import asked_for, restart_answer
from grove.api.conditions import TOPOLOGY_LEVELS_UNAVAILABLE
from grove.api.core import Event, Lease, Node, Pod, PodDisruptionBudget, PriorityClass, Secret
from grove.api.labels import PART_OF
from grove.api.meta import Json, find_condition, is_true
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.causes import DEFAULT_CLASS, DOCKER_CONFIG
from grove.sim.topology import LEVELS, RACK
from tests.support.asking import World, server
from tests.support.situations import SERVED_S, Act, bound, breached, healthy, new_image

TOKEN = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}]
SETTINGS = [{"name": "S", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "s"}}}]
PROBE = "dial tcp 10.0.0.7:8000: connect: connection refused"


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
        gangs = (await world.client.list(PodGang, world.namespace)).items  # written a second after the error
        return bool(cliques) and bool(cliques[0].status.last_errors) and bool(gangs)

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


async def updated_to_no_image(world: World) -> None:
    """The new template names an image that does not exist, so its only pod cannot start."""
    await apply(world)
    await world.available("chat")
    await asyncio.sleep(SERVED_S)  # the operator keeps the first template
    old = {pod.metadata.uid for pod in (await world.client.list(Pod, world.namespace)).items}
    world.nodes.hold = lambda pod: pod.metadata.uid not in old
    await new_image(world)

    async def is_replaced() -> Any:
        pods = (await world.client.list(Pod, world.namespace)).items
        runs = len(pods) == 1 and pods[0].metadata.uid not in old and pods[0].status.phase == "Running"
        return pods[0] if runs else None

    new = (await world.cluster.eventually(is_replaced)).metadata.uid
    world.nodes.hold = lambda pod: pod.metadata.uid == new
    waiting = {"reason": "ErrImagePull", "message": 'Failed to pull image "example/c:2": not found'}
    state = {**OF_CONTAINER, "image": "example/c:2", "state": {"waiting": waiting}}
    await report(world, {"containerStatuses": [state]})


def pulling(message: str) -> Act:
    return container({"waiting": {"reason": "ErrImagePull", "message": message}})


def crashed(code: int, reason: str = "Error", message: str = "") -> Act:
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)


def warned(message: str) -> Act:
    """A kubelet warns about the only pod, whose container runs."""

    async def act(world: World) -> None:
        await starting_with()(world)
        await warn(world, "Unhealthy", message)

    return act


async def warn(world: World, reason: str, message: str) -> None:
    [pod] = (await world.client.list(Pod, world.namespace)).items
    about = {"kind": "Pod", "name": pod.metadata.name, "namespace": world.namespace, "uid": pod.metadata.uid}
    event = {"metadata": {"name": "warned", "namespace": world.namespace}, "involvedObject": about, "type": "Warning"}
    await world.client.create(Event, {**event, "reason": reason, "message": message})


RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
NO_COMMAND = 'exec: "vllm": executable file not found in $PATH'
AS_ROOT = "container has runAsNonRoot and image will run as root"


def ends_well(world: World) -> Awaitable[None]:
    """The command of the only container ends again and again, and not with an error."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    return container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)(world)


def unprepared(reason: str, message: str) -> Act:
    """The node of the only pod warns that it cannot prepare the pod, so no container runs."""

    async def act(world: World) -> None:
        await container({"waiting": {"reason": "ContainerCreating"}}, restartCount=0)(world)
        await warn(world, reason, message)

    return act


async def init_at_work(world: World) -> None:
    """An init container fetches a model."""
    await starting_with(initContainers=[{"name": "fetch", "image": "example/c:1"}])(world)
    init = {**OF_CONTAINER, "name": "fetch", "restartCount": 0}
    running = {"running": {"startedAt": f"{world.now:%Y-%m-%dT%H:%M:%SZ}"}}
    waits = {**OF_CONTAINER, "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
    await report(world, {"initContainerStatuses": [{**init, "state": running}], "containerStatuses": [waits]})


async def node_repaired(world: World) -> None:
    world.nodes.hold = lambda pod: False
    await pods_restarted(world)


async def unpulled_without_secret(world: World) -> None:
    await starting_with(imagePullSecrets=[{"name": "regcred"}])(world)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "pull access denied"}}
    await report(world, {"containerStatuses": [{**OF_CONTAINER, "state": waiting}]})


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
        for node in world.nodes.names:
            await world.client.patch(Node, node, patch)
        await world.apply(world.system("chat"))
        await world.refused("chat-0")

    return act


async def selected_node_is_cordoned(world: World) -> None:
    """The pods select one node, which is cordoned; a node that they do not select has a taint."""
    chosen, other = world.nodes.names[:2]
    await world.client.patch(Node, chosen, {"metadata": {"labels": {"pool": "h100"}}, "spec": {"unschedulable": True}})
    await world.client.patch(Node, other, {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
    await apply(world, nodeSelector={"pool": "h100"})
    await world.refused("chat-0")


async def selects_nothing(world: World) -> None:
    await apply(world, nodeSelector={"pool": "h100"})
    await world.refused("chat-0")


async def large_without_secret(world: World) -> None:
    world.nodes.hold = lambda pod: True
    await apply(world, gpus=16, env=TOKEN)
    await world.refused("chat-0")


async def too_large(world: World) -> None:
    await apply(world, gpus=16)
    await world.refused("chat-0")


async def no_account(world: World) -> None:
    await apply(world, serviceAccountName="model-reader")
    await refused_pods(world)


async def no_priority(world: World) -> None:
    await apply(world, priorityClassName=f"{world.namespace}-high")
    await refused_pods(world)


async def pod_hangs(world: World) -> None:
    await healthy(world)
    await asyncio.sleep(SERVED_S)
    pod = next(p for p in (await world.client.list(Pod, world.namespace)).items if "leader" in p.metadata.name)
    await world.nodes.crash_pod(world.namespace, pod.metadata.name, restart_s=36000.0)
    await breached(world)


async def cleaned(world: World) -> None:
    """Deletes what other tests on the same API server would see."""
    for lease in (await world.client.list(Lease, world.namespace)).items:
        await world.client.delete(Lease, lease.metadata.name, world.namespace)
    for kind in (PersistentVolume, StorageClass, PriorityClass):
        for one in (await world.client.list(kind)).items:
            if one.metadata.labels.get(OF_TEST) == world.namespace:
                await world.client.delete(kind, one.metadata.name)


OF_TEST = "of-test"


def creating(kind: Any, name: str, **fields: Any) -> Act:
    async def cure(world: World) -> None:
        meta = {"name": name} | ({"namespace": world.namespace} if kind.RESOURCE.namespaced else {})
        await world.client.create(kind, {"metadata": meta, **fields})
        world.nodes.hold = lambda pod: False
        if (await world.client.list(Pod, world.namespace)).items:
            await pods_restarted(world)

    return cure


async def pods_restarted(world: World) -> None:
    """Pods that were held start again."""
    asked = await asked_for(world.client, world.namespace, "chat")
    await restart_answer(world.client, asked)


def template(change: Callable[[Json], None]) -> Act:
    """The pod template is changed as the advice says, and new pods are not held. Every pod gets the change."""

    async def cure(world: World) -> None:
        world.nodes.hold = lambda pod: False
        raw: Json = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
        cliques = raw["spec"]["template"]["cliques"]
        for clique in cliques:
            change(clique["spec"]["podSpec"])
        await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": {"cliques": cliques}}}, world.namespace)

        async def all_have_it() -> bool:
            specs = [one["spec"] for one in (await world.client.list(Pod.RESOURCE, world.namespace)).items]
            wanted = copy.deepcopy(specs)
            for spec in wanted:
                change(spec)
            return bool(specs) and specs == wanted

        await world.cluster.eventually(all_have_it, 120)

    return cure


def other_image(spec: Json) -> None:
    spec["containers"][0]["image"] = "example/c:2"


def other_init_image(spec: Json) -> None:
    next(one for one in spec["initContainers"] if one["name"] == "fetch")["image"] = "example/c:2"


def other_user(spec: Json) -> None:
    spec["containers"][0]["securityContext"] = {"runAsUser": 1000}


def more_memory(spec: Json) -> None:
    spec["containers"][0].setdefault("resources", {}).setdefault("limits", {})["memory"] = "2Gi"


def other_command(spec: Json) -> None:
    spec["containers"][0]["command"] = ["/bin/vllm"]


def other_arguments(spec: Json) -> None:
    """What the log of the container asks for."""
    spec["containers"][0]["args"] = ["--max-model-len", "8192"]


def registry_secret(spec: Json) -> None:
    spec["imagePullSecrets"] = [{"name": "regcred"}]


async def registry_secret_made(world: World) -> None:
    meta = {"name": "regcred", "namespace": world.namespace}
    data = {".dockerconfigjson": "e30="}
    await world.client.create(Secret, {"metadata": meta, "type": DOCKER_CONFIG, "data": data})
    await template(registry_secret)(world)


async def probe_of_the_port(world: World) -> None:
    """The probe asks the port that the advice names."""
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    found = re.search(r"set the port of the (\w+Probe) to (\d+)", explain.data["next"])
    assert found is not None, explain.data["next"]

    def change(spec: Json) -> None:
        spec["containers"][0].setdefault(found[1], {}).setdefault("httpGet", {"path": "/"})["port"] = int(found[2])

    await template(change)(world)


async def claim_bound(world: World, storage_class: str = "") -> None:
    """The claim exists and is bound, as a provisioner and the volume controller do it."""
    client, name, namespace, labels = world.client, "models", world.namespace, {OF_TEST: world.namespace}
    claims = {one.metadata.name: one for one in (await client.list(PersistentVolumeClaim, namespace)).items}
    if name not in claims:
        await client.create(PersistentVolumeClaim, of_claim(world, storageClassName=""))
    volume = (claims[name].spec.volume_name if name in claims else "") or f"{namespace}-made"
    spec: Json = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": storage_class}
    spec |= {"claimRef": {"namespace": namespace, "name": name}, "hostPath": {"path": "/models"}}
    await client.create(PersistentVolume, {"metadata": {"name": volume, "labels": labels}, "spec": spec})
    if world.cluster.is_sim:
        for kind, one, where in ((PersistentVolume, volume, ""), (PersistentVolumeClaim, name, namespace)):
            await client.patch(kind, one, {"status": {"phase": "Bound"}}, where, subresource="status")
        await client.patch(PersistentVolumeClaim, name, {"spec": {"volumeName": volume}}, namespace)


async def class_exists(world: World) -> None:
    meta = {"name": "shared-nfs", "labels": {OF_TEST: world.namespace}}
    await world.client.create(StorageClass, {"metadata": meta, "provisioner": "nfs.example.com"})
    await claim_bound(world, "shared-nfs")


async def default_class(world: World) -> None:
    """A class becomes the default one, and its provisioner makes a volume."""
    meta = {"name": "standard", "labels": {OF_TEST: world.namespace}, "annotations": {DEFAULT_CLASS: "true"}}
    await world.client.create(StorageClass, {"metadata": meta, "provisioner": "nfs.example.com"})
    await claim_bound(world, "standard")


async def priority_made(world: World) -> None:
    meta = {"name": f"{world.namespace}-high", "labels": {OF_TEST: world.namespace}}
    await world.client.create(PriorityClass, {"metadata": meta, "value": 1})


async def nodes_added(world: World) -> None:
    """As many nodes as the first advice says, like the one that it names."""
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    found = re.match(r"add (\d+) nodes? like (\S+)", explain.data["next"])
    assert found is not None, explain.data["next"]
    raw: Json = await world.client.get(Node.RESOURCE, found[2])
    kept = {"labels": raw["metadata"]["labels"]}
    status = {field: raw["status"][field] for field in ("capacity", "allocatable")}
    names = [f"{world.namespace}-new-{n}" for n in range(int(found[1]))]
    await world.nodes.add([{"metadata": {**kept, "name": name}, "status": status} for name in names])


async def level_removed(world: World) -> None:
    """The binding of a set that runs loses the level that the set requires."""
    await healthy(world)
    await with_levels(world, [level for level in LEVELS if level[1] != RACK])

    async def is_reported() -> bool:
        pcs = await world.client.get(PodCliqueSet, "chat", world.namespace)
        return is_true(pcs.status.conditions, TOPOLOGY_LEVELS_UNAVAILABLE)

    await world.cluster.eventually(is_reported)


async def level_added(world: World) -> None:
    await with_levels(world, LEVELS)


async def with_levels(world: World, levels: Sequence[tuple[str, str]]) -> None:
    spec = {"levels": [{"domain": domain, "key": key} for domain, key in levels]}
    await world.client.patch(ClusterTopologyBinding, world.namespace, {"spec": spec})


async def protected_by_a_budget(world: World) -> None:
    """A set of lower priority uses every node, and a budget allows no disruption of it."""
    classes = {name: f"{world.namespace}-{name}" for name in ("low", "high")}
    for value, name in enumerate(classes.values(), 1):
        meta = {"name": name, "labels": {OF_TEST: world.namespace}}
        await world.client.create(PriorityClass, {"metadata": meta, "value": value})
    cheap = [server("worker", 8, 8)]
    await world.apply(world.system("idle-gpus", required="block", cliques=cheap, priorityClassName=classes["low"]))
    await world.available("idle-gpus")
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {PART_OF: "idle-gpus"}}}
    meta = {"name": "keep", "namespace": world.namespace}
    await world.client.create(PodDisruptionBudget, {"metadata": meta, "spec": spec})
    await world.apply(world.system("chat", cliques=[server("worker", 2, 8)], priorityClassName=classes["high"]))

    async def is_said() -> bool:
        gang = await world.client.get(PodGang, "chat-0", world.namespace)
        said = find_condition(gang.status.conditions, "Scheduled")
        return said is not None and "budgets" in said.message

    await world.cluster.eventually(is_said)


async def pods_apart_deleted(world: World) -> None:
    apart = {
        node.metadata.name
        for node in (await world.client.list(Node)).items
        if node.metadata.labels.get(RACK) == f"{world.namespace}-elsewhere"
    }
    for pod in (await world.client.list(Pod, world.namespace)).items:
        if pod.spec.node_name in apart:
            await world.client.delete(Pod, pod.metadata.name, world.namespace)


async def started(world: World) -> None:
    """The process that died runs again; these tests elect no leader, so the old Lease goes."""
    for lease in (await world.client.list(Lease, world.namespace)).items:
        await world.client.delete(Lease, lease.metadata.name, world.namespace)
    for process, task in list(world.tasks.items()):
        if task.done():
            world.start(process)


async def labelled(world: World) -> None:
    for node in world.nodes.names:
        await world.client.patch(Node, node, {"metadata": {"labels": {"pool": "h100"}}})


async def keys_added(world: World) -> None:
    await world.client.patch(Secret, "hf-token", {"data": {"token": "eA=="}}, world.namespace)
    world.nodes.hold = lambda pod: False
    await pods_restarted(world)


async def secret_without_key(world: World) -> None:
    meta = {"name": "hf-token", "namespace": world.namespace}
    await world.client.create(Secret, {"metadata": meta, "data": {"other": "eA=="}})
    await starting_with(env=TOKEN)(world)
