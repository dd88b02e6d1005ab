"""Two real nodes for each file of tests, and Grove's own processes on them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from grove.api.core import Namespace, ServiceAccount
from grove.crds.install import install
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster, real_nodes
from grove.local.ports import free_ports
from grove.local.process import Child, spawn
from tests.node.images import SERVE, program_image
from tests.node.seeing import Terminal, eventually

IMAGES = Path(os.environ.get("GROVE_IMAGES", "dist"))
# A kubelet needs root and changes kernel settings, so these tests run only when they are asked for.
collect_ignore_glob = [] if os.environ.get("GROVE_NODE") else ["test_*.py"]


@pytest.fixture(scope="session")
def serve_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_image("serve.go", SERVE, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def bare_nodes(serve_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two Ready nodes without Grove. The tests run in the control plane's network, where pods answer."""
    directory = tmp_path_factory.mktemp("nodes")
    with real_nodes(2, directory=directory, images=[serve_image]) as found, found.entered():
        yield found


@pytest.fixture(scope="module")
def nodes(bare_nodes: RealCluster) -> Iterator[RealCluster]:
    """The two nodes, with `grove operator` and `grove scheduler` as processes of their own."""
    access = ("--kubeconfig", str(bare_nodes.kubeconfig))
    asyncio.run(_install(bare_nodes.kubeconfig))
    bare_nodes.import_image(IMAGES / "grove-initc.tar")
    health, metrics = free_ports(2)
    config = bare_nodes.directory / "operator.yaml"
    config.write_text(
        "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n"
        "leaderElection: {enabled: false}\n"
        f"server: {{healthProbes: {{port: {health}}}, metrics: {{port: {metrics}}}}}\n"
    )
    ours = []
    try:
        operator = ("operator", *access, "--config", str(config))
        ours.append(grove(bare_nodes, *operator, GROVE_INIT_CONTAINER_IMAGE="grove-initc"))
        ours.append(grove(bare_nodes, "scheduler", *access, "--port", "0"))
        yield bare_nodes
    finally:
        for child in ours:
            child.stop(10)


def grove(cluster: RealCluster, name: str, *arguments: str, **variables: str) -> Child:
    """A program of ours, as its own process in the control plane's network."""
    environment = ["env", *(f"{key}={value}" for key, value in variables.items())]
    command = [*cluster.inside, *environment, sys.executable, "-m", "grove", name, *arguments]
    return spawn(f"grove-{name}", command, cluster.directory / "logs" / f"grove-{name}.log")


async def _install(kubeconfig: Path) -> None:
    async with HttpClient(load_config(kubeconfig)) as client:
        await install(client, lambda line: None)


@pytest.fixture
async def client(bare_nodes: RealCluster) -> AsyncIterator[HttpClient]:
    """The administrator of the cluster."""
    async with HttpClient(load_config(bare_nodes.kubeconfig)) as admin:
        yield admin


@pytest.fixture
async def namespace(client: HttpClient, fresh_name: str) -> AsyncIterator[str]:
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    await eventually(lambda: client.get(ServiceAccount, "default", fresh_name))
    yield fresh_name
    await client.delete(Namespace, fresh_name)


@pytest.fixture
def terminal(nodes: RealCluster, namespace: str) -> Terminal:
    return Terminal(nodes, namespace)
