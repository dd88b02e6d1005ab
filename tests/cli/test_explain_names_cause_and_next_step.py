"""The engineer on call asks `explain`: the first line names the cause, and the next step is the one to take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from grove.answers.explain import explain_answer, queue_answer
from grove.answers.tree import status_answer
from grove.api.core import Event, Lease, Namespace, Node, Pod
from grove.api.meta import Json, Resource
from grove.api.node import PersistentVolumeClaim
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.gang_answer import Verdict
from grove.plan.world import World, binding, shaped
from grove.sim.loop import run

QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")
Trouble = Callable[[World], Awaitable[None]]


def serving(pods: int = 1, gpus: int = 8, required: str = "", **pod: Any) -> Json:
    container = {"name": "c", "image": "example/engine:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    clique = {"roleName": "w", "replicas": pods, "podSpec": {"containers": [container], **pod}}
    template: Json = {"cliques": [{"name": "w", "spec": clique}]}
    if required:
        template["topologyConstraint"] = {"topologyName": "fake-nodes", "pack": {"required": required}}
    return {"metadata": {"name": "x"}, "spec": {"replicas": 1, "template": template}}


async def nothing(_world: World) -> None:
    return None


async def cordoned(world: World) -> None:
    for name in world.cluster.nodes.names[:-1]:
        await world.cluster.nodes.cordon(name)


async def unlabelled(world: World) -> None:
    for name in world.cluster.nodes.names:
        await world.client.patch(Node, name, {"metadata": {"labels": {"topology.kubernetes.io/rack": None}}})


async def tainted(world: World) -> None:
    for name in world.cluster.nodes.names:
        await world.client.patch(Node, name, {"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}})


async def limited(world: World) -> None:
    await world.client.create(
        QUOTA, {"metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
    )


async def without_scheduler(world: World) -> None:
    """Its lease was left to run out; `asked` has seen to it that nothing is decided."""
    await world.client.create(Namespace, {"metadata": {"name": "grove-system"}})
    spec = {"holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    meta = {"name": "grove-scheduler-leader-election", "namespace": "grove-system"}
    await world.client.create(Lease, {"metadata": meta, "spec": spec})


async def unclassed(world: World) -> None:
    """A claim asks for a storage class that the cluster does not have."""
    spec = {"storageClassName": "shared-nfs", "accessModes": ["ReadWriteMany"]}
    claim = {"metadata": {"name": "models", "namespace": "default"}, "spec": spec, "status": {"phase": "Pending"}}
    await world.client.create(PersistentVolumeClaim, claim)


async def unstarted(world: World) -> None:
    """As kubelets that cannot mount what a pod refers to: the pods are bound and nothing starts."""
    world.cluster.nodes.start_s = 3600.0


async def unmountable(world: World) -> None:
    world.cluster.nodes.start_s = 3600.0


async def complain(world: World) -> None:
    """As a kubelet that cannot mount a secret: the pod is bound, nothing starts, and an event says why."""
    pod = world.all(Pod)[0].metadata
    about = {"kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    said = 'MountVolume.SetUp failed for volume "v" : secret "token" not found'
    event = {
        "metadata": {"name": "e", "namespace": pod.namespace},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedMount",
        "message": said,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await world.client.create(Event, event)


def asked(manifest: Json, trouble: Trouble) -> tuple[Verdict, int, str, str]:
    """What `explain` says of the set's gang, its exit code, and the texts of `status` and `queue`."""

    async def play() -> tuple[Verdict, int, str, str]:
        world = World(shaped(4), seed=1, objects=[(ClusterTopologyBinding, binding())])
        if trouble is without_scheduler:
            world.scheduler.schedule = asyncio.Event().wait  # type: ignore[assignment,method-assign]
        async with world:
            await trouble(world)
            await world.apply(manifest)
            await asyncio.sleep(30.0)
            if trouble is unmountable:
                await complain(world)
            found = await explain_answer(world.client, "default", "x")
            status = await status_answer(world.client, "default", "", world.cluster.clock.now())
            queue = await queue_answer(world.client, "default", world.cluster.clock.now())
            line = queue.data[0].waits_for if queue.data else ""
            whole = found.data
            first = (
                whole["gangs"][0]
                if whole["gangs"] and trouble is not without_scheduler
                else Verdict("x", whole["state"], whole["level"], whole["reason"], next=whole["next"])
            )
            return first, found.code, status.data[0].why, line

    return run(play(), seed=1)


@pytest.mark.parametrize(
    ("manifest", "trouble", "code", "level", "reason", "step"),
    [
        pytest.param(
            serving(5),
            nothing,
            4,
            "gang",
            "needs 40 nvidia.com/gpu, 32 free in the cluster",
            "add 1 node like z0-b0-r0-n0",
            id="too few GPUs",
        ),
        pytest.param(
            serving(2),
            cordoned,
            4,
            "gang",
            "1/4 nodes can take one of its pods (3 cordoned)",
            "uncordon z0-b0-r0-n0",
            id="cordoned nodes",
        ),
        pytest.param(
            serving(),
            tainted,
            4,
            "node",
            "x-0-w: 0/4 nodes can take one of its pods (4 with taint repair)",
            "remove or tolerate the taint repair of z0-b0-r0-n0",
            id="tainted nodes",
        ),
        pytest.param(
            serving(required="rack"),
            unlabelled,
            4,
            "gang",
            "no node carries the label topology.kubernetes.io/rack",
            "kubectl label node NODE topology.kubernetes.io/rack=…",
            id="a level whose label no node has",
        ),
        pytest.param(
            serving(2),
            limited,
            4,
            "quota",
            "ResourceQuota few is full: pods",
            "raise the quota",
            id="a quota",
        ),
        pytest.param(
            serving(serviceAccountName="absent"),
            nothing,
            4,
            "create",
            "pods of x-0-w cannot be created: there is no ServiceAccount absent",
            "create it, or correct serviceAccountName",
            id="a missing service account",
        ),
        pytest.param(
            serving(priorityClassName="absent"),
            nothing,
            4,
            "create",
            "pods of x-0-w cannot be created: there is no PriorityClass absent",
            "create it",
            id="a missing priority class",
        ),
        pytest.param(
            serving(),
            unmountable,
            3,
            "pod",
            'FailedMount: MountVolume.SetUp failed for volume "v" : secret "token"',
            "create the secret token in its namespace",
            id="a missing secret",
        ),
        pytest.param(
            serving(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "models"}}]),
            nothing,
            4,
            "reference",
            "PersistentVolumeClaim models does not exist",
            "create the PersistentVolumeClaim models",
            id="a missing claim",
        ),
        pytest.param(
            serving(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "models"}}]),
            unclassed,
            4,
            "reference",
            "StorageClass shared-nfs does not exist; PersistentVolumeClaim models asks for it",
            "create the StorageClass shared-nfs",
            id="a missing storage class",
        ),
        pytest.param(
            serving(volumes=[{"name": "v", "secret": {"secretName": "hf-token"}}]),
            unstarted,
            3,
            "reference",
            "Secret hf-token does not exist",
            "create the Secret hf-token",
            id="a Secret that a volume needs",
        ),
        pytest.param(
            serving(volumes=[{"name": "v", "configMap": {"name": "engine"}}]),
            unstarted,
            3,
            "reference",
            "ConfigMap engine does not exist",
            "create the ConfigMap engine",
            id="a ConfigMap that a volume needs",
        ),
        pytest.param(
            serving(),
            without_scheduler,
            4,
            "scheduler",
            "grove-scheduler does not run (no process leads for ",
            "start grove-scheduler",
            id="no scheduler",
        ),
    ],
)
def test_the_cause_comes_first_and_the_next_step_with_it(
    manifest: Json, trouble: Trouble, code: int, level: str, reason: str, step: str
) -> None:
    found, exit_code, _, _ = asked(manifest, trouble)
    assert (exit_code, found.level) == (code, level)
    assert reason in found.reason
    assert found.next.startswith(step)


@pytest.mark.parametrize(
    ("manifest", "trouble", "words"),
    [
        pytest.param(serving(2), limited, "ResourceQuota few is full: pods 1 of 1 used", id="a quota"),
        pytest.param(
            serving(serviceAccountName="absent"), nothing, "there is no ServiceAccount absent", id="an account"
        ),
    ],
)
def test_status_and_queue_say_what_keeps_pods_from_being_made(manifest: Json, trouble: Trouble, words: str) -> None:
    _, _, status, queue = asked(manifest, trouble)
    assert words in status
    assert words in queue


def test_nodes_that_are_closed_are_named() -> None:
    found, *_ = asked(serving(2), cordoned)
    assert "node: 3 cordoned: z0-b0-r0-n0, z0-b0-r0-n1, z0-b0-r0-n3" in found.evidence
