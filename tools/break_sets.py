"""Breaks ten sets of a cluster with fake nodes (`grove up`) and does not say which fault is in which.

    python tools/break_sets.py --kubeconfig FILE --seed 7 --answers answers.json

It draws the faults by lot from `POOL`, applies the sets and three healthy ones in the namespace `default`, and writes
the faults to a file. docs/development/stranger-test.md says how the test goes. Fake nodes start every container, so the
script itself writes the container status and the event that a kubelet would write.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from grove.api import labels
from grove.api.core import Event, Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.config import load_config
from grove.kube.errors import NotFound
from grove.kube.http import HttpClient

NAMESPACE = "default"
NAMES = ("ash", "birch", "cedar", "dahlia", "elder", "fern", "fig", "hazel", "iris", "ivy", "kale", "laurel", "maple")
HEALTHY = 3

Edit = Callable[[Json], None]
After = Callable[[HttpClient, str], Awaitable[None]]


async def nothing(_client: HttpClient, _name: str) -> None:
    return


def manifest(name: str, gpus: int = 1, replicas: int = 2) -> Json:
    container = {"name": "main", "image": "example/engine:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    pod_spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    clique = {"name": "worker", "spec": {"roleName": "worker", "replicas": replicas, "podSpec": pod_spec}}
    return {
        "apiVersion": PodCliqueSet.RESOURCE.api_version,
        "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}},
    }


def pod(obj: Json) -> Json:
    spec: Json = obj["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    return spec


def edited(**fields: Any) -> Edit:
    return lambda obj: pod(obj).update(fields)


def in_container(**fields: Any) -> Edit:
    return lambda obj: pod(obj)["containers"][0].update(fields)


def sized(gpus: int, replicas: int, level: str = "") -> Edit:
    def edit(obj: Json) -> None:
        in_container(resources={"limits": {"nvidia.com/gpu": gpus}})(obj)
        template = obj["spec"]["template"]
        template["cliques"][0]["spec"]["replicas"] = replicas
        if level:
            template["topologyConstraint"] = {"topologyName": "fake-nodes", "pack": {"required": level}}

    return edit


def on_own_node(obj: Json) -> None:
    """The set selects a node that `closed` or `lost` then takes away."""
    sized(8, 1)(obj)
    edited(nodeSelector={"pool": obj["metadata"]["name"]})(obj)


async def pods_of(client: HttpClient, name: str) -> list[Pod]:
    for _ in range(120):
        pods = (await client.list(Pod, NAMESPACE, labels=f"app.kubernetes.io/part-of={name}")).items
        if pods and all(pod.is_ready for pod in pods):
            return list(pods)
        await asyncio.sleep(1)
    return []


def status_of(state: Json, last: Json | None = None, restarts: int = 0) -> After:
    """Every pod of the set reports this state of its only container, once it has started."""

    async def after(client: HttpClient, name: str) -> None:
        for pod in await pods_of(client, name):
            container = {"name": "main", "image": "example/engine:1", "imageID": "", "ready": False}
            status = {**container, "restartCount": restarts, "state": state, "lastState": last or {}, "started": False}
            conditions = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
            body = {"status": {"containerStatuses": [status], "conditions": conditions}}
            await patch_status(client, pod, body)

    return after


async def patch_status(client: HttpClient, pod: Pod, body: Json) -> None:
    """A merge patch replaces the list of conditions, so the others are kept by hand."""
    raw: Json = await client.get(Pod.RESOURCE, pod.metadata.name, NAMESPACE)
    changed = {c["type"] for c in body["status"]["conditions"]}
    kept = [c for c in raw["status"].get("conditions", []) if c["type"] not in changed]
    body["status"]["conditions"] = [*kept, *body["status"]["conditions"]]
    await client.patch(Pod, pod.metadata.name, body, NAMESPACE, subresource="status")


def waiting(reason: str, message: str = "") -> After:
    return status_of({"waiting": {"reason": reason, "message": message}})


def crashing(code: int, reason: str, message: str = "") -> After:
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return status_of({"waiting": {"reason": "CrashLoopBackOff"}}, ended, 4)


async def probe_fails(client: HttpClient, name: str) -> None:
    for pod in await pods_of(client, name):
        conditions = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        await patch_status(client, pod, {"status": {"conditions": conditions}})
        message = "Readiness probe failed: dial tcp 10.0.0.7:8000: connect: connection refused"
        await client.create(Event, warning_of(pod, "Unhealthy", message))


def warning_of(pod: Pod, reason: str, message: str) -> Json:
    """The event with which a kubelet warns about a pod."""
    return {
        "metadata": {"name": f"{pod.metadata.name}.{reason.lower()}", "namespace": NAMESPACE},
        "involvedObject": {
            "kind": "Pod",
            "name": pod.metadata.name,
            "namespace": NAMESPACE,
            "uid": pod.metadata.uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
    }


def own_node(patch: Json) -> After:
    """Before the set comes, one node gets its label and is changed."""

    async def before(client: HttpClient, name: str) -> None:
        nodes = [node for node in (await client.list(Node)).items if "pool" not in node.metadata.labels]
        await client.patch(Node, nodes[-1].metadata.name, {"metadata": {"labels": {"pool": name}}, **patch})

    return before


def unprepared(reason: str, message: str) -> After:
    """The node of every pod warns that it cannot prepare the pod, so no container runs."""

    async def after(client: HttpClient, name: str) -> None:
        await waiting("ContainerCreating")(client, name)
        for pod in (await client.list(Pod, NAMESPACE, labels=f"app.kubernetes.io/part-of={name}")).items:
            await client.create(Event, warning_of(pod, reason, message))

    return after


def init_fails(obj: Json) -> None:
    pod(obj)["initContainers"] = [{"name": "fetch", "image": "example/fetch:1"}]


async def init_ended(client: HttpClient, name: str) -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no space left on /models"}}
    status = {"name": "fetch", "image": "example/fetch:1", "imageID": "", "ready": False, "restartCount": 4}
    status |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended}
    main = {"name": "main", "image": "example/engine:1", "imageID": "", "ready": False, "restartCount": 0}
    main |= {"state": {"waiting": {"reason": "PodInitializing"}}, "started": False}
    for pod in await pods_of(client, name):
        conditions = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady", "Initialized")]
        body = {"initContainerStatuses": [status], "containerStatuses": [main], "conditions": conditions}
        await patch_status(client, pod, {"status": body})


def kept_by_a_finalizer(obj: Json) -> None:
    obj["metadata"]["finalizers"] = [FINALIZER]


async def deleted(client: HttpClient, name: str) -> None:
    await pods_of(client, name)
    await client.delete(PodCliqueSet, name, NAMESPACE)


def with_own_topology(obj: Json) -> None:
    sized(8, 2, "rack")(obj)
    obj["spec"]["template"]["topologyConstraint"]["topologyName"] = obj["metadata"]["name"]


async def topology(client: HttpClient, name: str) -> None:
    """A copy of the topology of the fake nodes, for this set alone."""
    raw: Json = await client.get(ClusterTopologyBinding.RESOURCE, "fake-nodes")
    await client.create(ClusterTopologyBinding, {"metadata": {"name": name}, "spec": {"levels": raw["spec"]["levels"]}})


async def level_lost(client: HttpClient, name: str) -> None:
    await pods_of(client, name)
    raw: Json = await client.get(ClusterTopologyBinding.RESOURCE, name)
    levels = [level for level in raw["spec"]["levels"] if level["domain"] != "rack"]
    await client.patch(ClusterTopologyBinding, name, {"spec": {"levels": levels}})


def with_own_priority(obj: Json) -> None:
    edited(priorityClassName=obj["metadata"]["name"])(obj)


async def quota(client: HttpClient, name: str) -> None:
    """A quota that counts only pods of this set: it is for their priority class."""
    await client.create(PriorityClass, {"metadata": {"name": name}, "value": 7})
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}}
    await client.create(RESOURCE_QUOTA, {"metadata": {"name": f"{name}-pods", "namespace": NAMESPACE}, "spec": spec})


def behind_a_budget(obj: Json) -> None:
    """The set selects the node of a set of lower priority."""
    on_own_node(obj)
    with_own_priority(obj)


async def budget(client: HttpClient, name: str) -> None:
    """A set without priority uses the node, and a budget protects its pod."""
    await own_node({})(client, name)
    await client.create(PriorityClass, {"metadata": {"name": name}, "value": 7})
    batch = f"{name}-batch"
    obj = manifest(batch, 8, 1)
    edited(nodeSelector={"pool": name})(obj)
    await client.create(PodCliqueSet, obj)
    await pods_of(client, batch)
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app.kubernetes.io/part-of": batch}}}
    await client.create(PodDisruptionBudget, {"metadata": {"name": batch, "namespace": NAMESPACE}, "spec": spec})


async def paused_update(client: HttpClient, name: str) -> None:
    await pods_of(client, name)
    raw: Json = await client.get(PodCliqueSet.RESOURCE, name, NAMESPACE)
    cliques = raw["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = "example/engine:2"
    paused = {"metadata": {"annotations": {labels.ROLLOUT_PAUSED: "true"}}}
    await client.patch(PodCliqueSet, name, paused, NAMESPACE)
    await client.patch(PodCliqueSet, name, {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)


def scaled(replicas: int) -> After:
    async def after(client: HttpClient, name: str) -> None:
        await pods_of(client, name)
        await client.patch(PodCliqueSet, name, {"spec": {"replicas": replicas}}, NAMESPACE)

    return after


def nodes_gone(obj: Json) -> None:
    edited(nodeSelector={"gpu-type": "b300"})(obj)


CLAIM = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
TOKEN = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}]
SETTINGS = [{"name": "S", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "s"}}}]
PROBE = {"tcpSocket": {"port": 8000}}
NO_IMAGE = 'Failed to pull image "example/engine:1": not found'
FINALIZER = "backup.example.com/snapshot"
RESOURCE_QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")
NO_COMMAND = 'OCI runtime create failed: unable to start process: exec: "vllm": executable file not found in $PATH'
NO_MOUNT = 'MountVolume.SetUp failed for volume "models" : rpc error: code = Internal desc = mount.nfs: timed out'
PORT_USED = "RuntimeError: port 29500 is in use"

POOL: dict[str, tuple[Edit, After, After]] = {
    "a claim that does not exist": (edited(volumes=CLAIM), nothing, nothing),
    "a Secret that does not exist": (
        in_container(env=TOKEN),
        nothing,
        waiting("CreateContainerConfigError", 'secret "hf-token" not found'),
    ),
    "a ConfigMap that does not exist": (
        in_container(env=SETTINGS),
        nothing,
        waiting("CreateContainerConfigError", 'configmap "settings" not found'),
    ),
    "a ServiceAccount that does not exist": (edited(serviceAccountName="model-reader"), nothing, nothing),
    "a PriorityClass that does not exist": (edited(priorityClassName="urgent"), nothing, nothing),
    "an image that does not exist": (edited(), nothing, waiting("ErrImagePull", NO_IMAGE)),
    "a registry that refuses the pull": (edited(), nothing, waiting("ImagePullBackOff", "pull access denied")),
    "a crash with a message": (edited(), nothing, crashing(1, "Error", PORT_USED)),
    "an init container that fails": (init_fails, nothing, init_ended),
    "a command that the image lacks": (edited(), nothing, waiting("RunContainerError", NO_COMMAND)),
    "a volume that the node cannot mount": (edited(), nothing, unprepared("FailedMount", NO_MOUNT)),
    "a finalizer of another program": (kept_by_a_finalizer, nothing, deleted),
    "a topology that lost a level": (with_own_topology, topology, level_lost),
    "a quota that is full": (with_own_priority, quota, nothing),
    "a budget that protects lower pods": (behind_a_budget, budget, nothing),
    "too little memory": (edited(), nothing, crashing(137, "OOMKilled")),
    "a probe of the wrong port": (
        in_container(readinessProbe=PROBE, ports=[{"containerPort": 8080}]),
        nothing,
        probe_fails,
    ),
    "pods larger than a node": (sized(16, 1), nothing, nothing),
    "a selector that no node has": (nodes_gone, nothing, nothing),
    "a gang larger than a rack": (sized(8, 5, "rack"), nothing, nothing),
    "its node is cordoned": (on_own_node, own_node({"spec": {"unschedulable": True}}), nothing),
    "its node has a taint": (
        on_own_node,
        own_node({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}}),
        nothing,
    ),
    "a paused update": (edited(), nothing, paused_update),
    "0 replicas": (edited(), nothing, scaled(0)),
    "more replicas than nodes": (sized(8, 4), nothing, scaled(12)),
    "another scheduler": (edited(schedulerName="fast-scheduler"), nothing, nothing),
}


def drawn(seed: int, count: int) -> tuple[list[str], dict[str, str]]:
    """The names of all sets, and the fault of each that is broken."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, count + HEALTHY)
    return names, dict(zip(names, rng.sample(sorted(POOL), count), strict=False))


async def broken(kubeconfig: Path, seed: int, count: int) -> dict[str, str]:
    names, answers = drawn(seed, count)
    async with HttpClient(load_config(kubeconfig, ""), user_agent="break-sets") as client:
        for name in names:
            obj = manifest(name)
            if name in answers:
                edit, before, _ = POOL[answers[name]]
                edit(obj)
                await before(client, name)
            try:
                await client.create(PodCliqueSet, obj)
            except Exception as error:
                answers[name] += f" (refused: {error})"
        late = [name for name in answers if "(refused" not in answers[name]]
        await asyncio.gather(*(POOL[answers[name]][2](client, name) for name in late))
    return answers


def left_by(name: str) -> tuple[tuple[Any, str, str], ...]:
    """What faults of a set may have created: kind, name and namespace."""
    return (
        (PodCliqueSet, name, NAMESPACE),
        (PodCliqueSet, f"{name}-batch", NAMESPACE),
        (PodDisruptionBudget, f"{name}-batch", NAMESPACE),
        (RESOURCE_QUOTA, f"{name}-pods", NAMESPACE),
        (PriorityClass, name, ""),
        (ClusterTopologyBinding, name, ""),
    )


async def removed(kubeconfig: Path) -> None:
    """Takes the sets and the changes of nodes back."""
    async with HttpClient(load_config(kubeconfig, ""), user_agent="break-sets") as client:
        for name in NAMES:
            for kind, left, where in left_by(name):
                try:
                    if kind is PodCliqueSet:
                        await client.patch(PodCliqueSet, left, {"metadata": {"finalizers": None}}, where)
                    await client.delete(kind, left, where)
                except NotFound:
                    continue
        for node in (await client.list(Node)).items:
            if "pool" in node.metadata.labels:
                back = {"metadata": {"labels": {"pool": None}}, "spec": {"unschedulable": None, "taints": None}}
                await client.patch(Node, node.metadata.name, back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=None, help="By default another one each time.")
    parser.add_argument("--count", type=int, default=10, choices=range(1, 11), metavar="1 to 10")
    parser.add_argument("--answers", type=Path, default=Path("answers.json"))
    parser.add_argument("--remove", action="store_true", help="Take the sets of an earlier run back.")
    given = parser.parse_args()
    if given.remove:
        asyncio.run(removed(given.kubeconfig))
        return
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    faults = asyncio.run(broken(given.kubeconfig, seed, given.count))
    given.answers.write_text(json.dumps({"seed": seed, "faults": faults}, indent=2) + "\n")
    print(f"{given.count} of {given.count + HEALTHY} sets are broken; the answers are in {given.answers}")


if __name__ == "__main__":
    main()
