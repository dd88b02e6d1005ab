"""`helm install --wait` of Helm 4 waits for a PodCliqueSet: `make test-helm`.

Helm 4 reads an object by the rules of kstatus. The operator is stopped in between, so that Helm has to wait for it.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from grove.api.core import Namespace, Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from tests.helm.build import HELM
from tests.support.cluster import Cluster
from tests.support.operating import World, condition, operating

pytestmark = pytest.mark.soak

CHART = Path(__file__).parents[2] / "charts/inference"
SETTLE_S = 5.0
"""Time in which Helm would return if it took the set for ready."""
Helm = Callable[..., Awaitable[Process]]


@pytest.fixture
async def world(control_plane: ControlPlane, fresh_name: str) -> AsyncIterator[World]:
    if not HELM.is_built:
        pytest.skip(f"Helm 4 is not in {HELM.directory}; `make test-helm` builds it")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(control_plane.kubeconfig)))
        cluster = Cluster(client, SYSTEM, None, stack)
        cluster.namespace = fresh_name
        await client.create(Namespace, {"metadata": {"name": fresh_name}})
        async with operating(cluster) as found:
            yield found
        await client.delete(Namespace, fresh_name)


@pytest.fixture
def helm(world: World, control_plane: ControlPlane, tmp_path: Path) -> Helm:
    """Starts a command of Helm on the chart, with the values of llama.cpp over three pods."""

    async def start(command: str, *arguments: str) -> Process:
        values = ("-f", str(CHART / "values/llamacpp-rpc.yaml"))
        access = ("--kubeconfig", str(control_plane.kubeconfig), "--namespace", world.namespace)
        files = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        return await asyncio.create_subprocess_exec(
            str(HELM.directory / "helm"),
            command,
            "chat",
            str(CHART),
            *values,
            *access,
            *arguments,
            stdout=PIPE,
            stderr=STDOUT,
            env={**os.environ, **files},
        )

    return start


async def ended(process: Process) -> tuple[int | None, str]:
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def generation(world: World) -> int:
    return (await world.get(PodCliqueSet, "chat")).metadata.generation


async def waits(world: World, process: Process, since: int) -> None:
    """Helm has written the set, and does not return while the operator is stopped."""

    async def is_written() -> bool:
        return process.returncode is not None or await generation(world) > since

    await world.eventually(is_written)
    await world.cluster.settle(SETTLE_S)
    assert process.returncode is None, await ended(process)


async def test_install_and_upgrade_return_when_every_pod_is_ready(world: World, helm: Helm) -> None:
    await world.stop()
    install = await helm("install", "--wait", "--timeout", "10m")
    await waits(world, install, 0)
    await world.start()
    code, said = await ended(install)
    assert code == 0, said
    assert "STATUS: deployed" in said
    found = await world.get(PodCliqueSet, "chat")
    assert condition(found.status.conditions, "Ready") == ("True", "AllReplicasAvailable")
    old = {pod.metadata.uid for pod in await world.pods()}
    assert len(old) == 3

    await world.stop()
    upgrade = await helm("upgrade", "--wait", "--timeout", "10m", "--set", "image=engine:v2")
    await waits(world, upgrade, found.metadata.generation)
    await world.start()
    code, said = await ended(upgrade)
    assert code == 0, said
    pods: list[Pod] = [pod for pod in await world.pods() if not pod.metadata.is_deleting]
    assert {pod.spec.containers[0].image for pod in pods} == {"engine:v2"}
    assert not old & {pod.metadata.uid for pod in pods}


async def test_a_time_out_names_the_set(world: World, helm: Helm) -> None:
    await world.stop()
    code, said = await ended(await helm("install", "--wait", "--timeout", "5s"))
    assert code == 1
    assert f"resource PodCliqueSet/{world.namespace}/chat not ready. status: InProgress" in said
    await world.start()


async def test_a_set_that_stalls_ends_the_wait_with_its_message(world: World, helm: Helm) -> None:
    code, said = await ended(await helm("install", "--wait", "--timeout", "20m", "--set", "priorityClassName=absent"))
    assert code == 1
    assert f"resource PodCliqueSet/{world.namespace}/chat not ready. status: Failed" in said
    assert "no PriorityClass with name absent was found" in said
    assert "context deadline exceeded" not in said
