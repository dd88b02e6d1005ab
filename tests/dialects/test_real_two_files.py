"""The installation in two files, applied as its readers do: its accounts translate, place and report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from tests.support.dialects import SEEDS
from tests.support.installed_chart import OPERATOR, SCHEDULER, Installed, process
from tests.support.rights import await_right

from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports

pytestmark = pytest.mark.real

CHARTS = Path(__file__).parents[2] / "charts"
TWO_FILES = CHARTS / "grove-crds.yaml", CHARTS / "grove-scheduler.yaml"
WAIT_S = 240.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    directory = tmp_path_factory.mktemp("two-files")
    with ControlPlane(directory / "kube", "1.36.3", controller_manager=True) as plane:
        world = Installed(plane, directory)
        for file in TWO_FILES:
            world.kubectl("apply", "-f", str(file))
        for user in (OPERATOR, SCHEDULER):
            await_right(plane, user, "list", "podgangs")
        yield world


def configuration(installed: Installed, name: str, *ports: tuple[str, ...]) -> tuple[Path, list[int]]:
    """The file of a rendered ConfigMap with ports of this machine at these paths."""
    one = next(
        one
        for one in yaml.safe_load_all(TWO_FILES[1].read_text())
        if one and one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith(f"grove-{name}-cm")
    )
    config = yaml.safe_load(one["data"]["config.yaml"])
    chosen = free_ports(len(ports))
    for path, port in zip(ports, chosen, strict=True):
        at = config
        for part in path:
            at = at.setdefault(part, {})
        at |= {"port": port} | ({"bindAddress": "127.0.0.1"} if name == "operator" else {})
    file = installed.directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file, chosen


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if found := look():
                return found
        except (AssertionError, URLError, OSError):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline
        time.sleep(0.3)


def page(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        found: str = answer.read().decode()
        return found


def test_the_operators_account_translates_and_is_refused_nothing(installed: Installed) -> None:
    file, (webhooks, health, _) = configuration(
        installed, "operator", ("server", "webhooks"), ("server", "healthProbes"), ("server", "metrics")
    )
    url = f"https://127.0.0.1:{webhooks}"
    arguments = ["operator", *installed.access_of(OPERATOR), "--config", str(file), "--webhook-url", url]
    with process(installed, "operator", *arguments, GROVE_INIT_CONTAINER_IMAGE="x"):
        eventually(lambda: page(health, "/readyz"))
        before = installed.refused_requests()
        for name in ("podgangset", "podclique", "multinode-serving", "mpi", "disaggregated-inference"):
            installed.kubectl("apply", "-f", str(SEEDS / f"{name}.yaml"))
        for what in ("dynamopodgangsets/llm-inference-gang", "koordpodcliquesets/llama-inference"):
            installed.kubectl("wait", what, "--for=condition=Translated", f"--timeout={WAIT_S:.0f}s")
        eventually(lambda: len(installed.kubectl("get", "pods", "-o", "name").splitlines()) == 8 + 16 + 24 + 9)
        installed.kubectl("delete", "koordpodcliquesets/mpi-inference", f"--timeout={WAIT_S:.0f}s")
        assert installed.refused_requests() == before


def test_the_schedulers_numbers_are_where_the_service_points(installed: Installed) -> None:
    file, (port,) = configuration(installed, "scheduler", ("server",))
    with process(installed, "scheduler", "scheduler", *installed.access_of(SCHEDULER), "--config", str(file)):
        told = eventually(lambda: page(port, "/metrics"))
    assert [line for line in told.splitlines() if line.startswith("grove_")]
    ports = installed.kubectl(
        "get", "service", "grove-scheduler-metrics", "-n", "grove-system", "-o", "jsonpath={.spec.ports[*].port}"
    )
    assert ports == "8080"
    labels = "app.kubernetes.io/name=grove-scheduler"
    assert installed.kubectl("get", "deployment", "-n", "grove-system", "-l", labels, "-o", "name") == (
        "deployment.apps/grove-scheduler\n"
    )
