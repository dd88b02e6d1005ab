"""A control plane with one real node, and Grove's own processes on it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from grove.api.core import Namespace, ServiceAccount
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports
from tests.node.runtime import RealNode, api_service, grove, lay_network, startup_image
from tests.node.seeing import eventually

# Only in the namespaces that `python -m tests.node` makes; elsewhere a kubelet would be let loose on the machine.
IMAGES = Path(os.environ.get("GROVE_IMAGES", "dist"))
collect_ignore_glob = [] if os.environ.get("GROVE_NODE") else ["test_*.py"]


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A Ready node, with `grove operator` and `grove scheduler` as processes of their own."""
    directory = tmp_path_factory.mktemp("node")
    access = ("--kubeconfig", str(control_plane.kubeconfig))
    health, metrics = free_ports(2)
    config = directory / "operator.yaml"
    config.write_text(
        "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n"
        "leaderElection: {enabled: false}\n"
        f"server: {{healthProbes: {{port: {health}}}, metrics: {{port: {metrics}}}}}\n"
    )
    found, image = RealNode(directory, control_plane), startup_image()[0]
    lay_network()
    with api_service(urlsplit(control_plane.server).port or 443):
        ours = []
        try:
            found.start(IMAGES / "grove-initc.tar")
            operator = ("operator", directory, *access, "--config", str(config))
            ours.append(grove(*operator, GROVE_INIT_CONTAINER_IMAGE=image))
            ours.append(grove("scheduler", directory, *access, "--port", "0"))
            yield found
        finally:
            for child in ours:
                child.stop(10)
            found.stop()


@pytest.fixture
async def namespace(client: HttpClient, fresh_name: str) -> AsyncIterator[str]:
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    await eventually(lambda: client.get(ServiceAccount, "default", fresh_name))
    yield fresh_name
    await client.delete(Namespace, fresh_name)
