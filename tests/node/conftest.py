"""Two real nodes for each file of tests, and Grove's own processes on them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml

from grove.api.core import Namespace, ServiceAccount
from grove.cli import local_ready
from grove.cli.local import operator_config
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster, real_nodes
from grove.local.ports import free_ports
from grove.local.process import Child, spawn
from tests.node.images import SERVE, program_image
from tests.node.seeing import Page, Terminal, eventually

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
    """The two nodes with `grove operator` and `grove scheduler`, started as `grove up` starts them: with admission."""
    access = ("--kubeconfig", str(bare_nodes.kubeconfig))
    asyncio.run(local_ready.prepare(bare_nodes.kubeconfig, False, lambda line: None))
    bare_nodes.import_image(IMAGES / "grove-initc.tar")
    config = operator_config(bare_nodes.directory, dialects=False)
    known = yaml.safe_load(config.path.read_text())
    # One operator, and no other that could take over. On a busy machine it would lose its lease, and admission with it.
    known["leaderElection"] |= {"leaseDuration": "120s", "renewDeadline": "100s"}
    config.path.write_text(yaml.safe_dump(known))
    served = ("--config", str(config.path), "--webhook-url", f"https://127.0.0.1:{config.webhooks}")
    operator = partial(grove, bare_nodes, "operator", *access, *served, GROVE_INIT_CONTAINER_IMAGE="grove-initc")
    scheduler = partial(grove, bare_nodes, "scheduler", *access, "--port", "0", "--leader-elect")
    with Kept(operator) as first, Kept(scheduler) as second:
        local_ready.await_probe(first.child, config.probe)
        for one in (first, second):
            asyncio.run(local_ready.await_leader(bare_nodes.kubeconfig, one.child))
        yield bare_nodes


class Kept:
    """A program that is started again when it ends, as in a Deployment.

    An operator or scheduler ends when it cannot renew its lease in time. That happens on a machine with too much work.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start, self.child = start, start()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Kept:
        self._keeper.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._keeper.join()
        self.child.stop(10)

    def _keep(self) -> None:
        while not self._over.wait(1.0):
            if not self.child.alive():
                print(f"\n{self.child.name} is started again; it ended with: {self.child.log_tail(1)}", flush=True)
                self.child = self._start()


def grove(cluster: RealCluster, name: str, *arguments: str, **variables: str) -> Child:
    """A program of ours, as its own process in the control plane's network."""
    environment = ["env", *(f"{key}={value}" for key, value in variables.items())]
    command = [*cluster.inside, *environment, sys.executable, "-m", "grove", name, *arguments]
    return spawn(f"grove-{name}", command, cluster.directory / "logs" / f"grove-{name}.log")


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


@pytest.fixture(scope="module")
def console(nodes: RealCluster) -> Iterator[tuple[str, str]]:
    """The address of `grove console`, and the session of a person who opened its link."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    child = grove(nodes, "console", "--no-open", "--port", str(port), "--kubeconfig", str(nodes.kubeconfig))
    try:
        link = asyncio.run(eventually(lambda: _link(child), 120.0))
        request = Request(f"{url}/api/session", json.dumps({"link": link}).encode())
        with urlopen(request, timeout=30) as answer:
            yield url, json.load(answer)["session"]
    finally:
        child.stop(10)


async def _link(console: Child) -> str:
    assert console.alive(), console.log_tail()
    return console.log.read_text().partition("/#link=")[2].strip()


@pytest.fixture
def page(console: tuple[str, str], namespace: str) -> Page:
    return Page(*console, namespace)
