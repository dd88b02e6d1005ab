"""Programs that wait for a set, as they are: `kubectl wait` on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating

from grove.api.core import Namespace
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

ENOUGH = "--timeout=300s"


@pytest.fixture
async def world(client: HttpClient, fresh_name: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(client, SYSTEM, None, stack)
        cluster.namespace = fresh_name
        await client.create(Namespace, {"metadata": {"name": fresh_name}})
        async with operating(cluster) as world:
            yield world
        await client.delete(Namespace, fresh_name)


async def ran(program: Path, plane: ControlPlane, world: World, *arguments: str) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        program,
        *("--kubeconfig", plane.kubeconfig, "-n", world.namespace, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await child.communicate()
    return child.returncode or 0, out.decode()


async def test_kubectl_wait(control_plane: ControlPlane, world: World) -> None:
    """It waits for the generation too: right after a change it does not take the Ready of before for an answer."""
    kubectl = control_plane.kubectl
    await world.apply(pcs("chat", clique("front"), clique("w", 2), groups=[group("g", "w")]))
    kinds = "pcs/chat", "podclique/chat-0-front", "pcsg/chat-0-g"
    for name in kinds:
        code, out = await ran(kubectl, control_plane, world, "wait", "--for=create", name, ENOUGH)
        assert code == 0, out
        code, out = await ran(kubectl, control_plane, world, "wait", "--for=condition=Ready", name, ENOUGH)
        assert (code, "condition met" in out) == (0, True), out

    front = clique("front")
    front["spec"]["podSpec"]["containers"][0]["image"] = "other:2"
    changed = {"spec": {"template": {"cliques": [front, clique("w", 2)]}}}
    await world.client.patch(PodCliqueSet, "chat", changed, world.namespace)
    code, out = await ran(kubectl, control_plane, world, "wait", "--for=condition=Ready", "pcs/chat", ENOUGH)
    found = await world.get(PodCliqueSet, "chat")
    assert (code, found.status.updated_replicas) == (0, 1), out
    assert {pod.spec.containers[0].image for pod in await world.pods("chat-0-front")} == {"other:2"}

    front["spec"]["podSpec"]["containers"][0]["image"] = ""
    await world.client.patch(PodCliqueSet, "chat", changed, world.namespace)
    code, out = await ran(kubectl, control_plane, world, "wait", "--for=condition=Stalled", "pcs/chat", ENOUGH)
    assert code == 0, out
