"""Fixtures that every folder shares: real control planes, each started once a session, and clients to them."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

settings.register_profile("grove", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("grove")

# File by file: the folder also holds the schemas they are made from, which kubectl would take for objects.
CRDS = [f"--filename={file}" for file in sorted(Path(__file__).parents[1].glob("src/grove/crds/*.yaml"))]
SEEDED = Path(__file__).parent / "sim"
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that ask for a real control plane, wherever they stand, so that `-m "not real"` leaves them out.

    And keeps the tests of a file together on one worker, for what they share; seeded runs share nothing.
    """
    for item in items:
        if SEEDED not in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(SEEDED.parent))))
        if {"control_plane", "control_plane_135"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)


def _started(directory: Path, version: str) -> Iterator[ControlPlane]:
    with ControlPlane(directory, version, controller_manager=True, scheduler=True) as plane:
        # kubectl stands for any client here; our own installer has tests of its own.
        applied = subprocess.run(
            [plane.kubectl, "--kubeconfig", plane.kubeconfig, "apply", "--server-side", *CRDS],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert applied.returncode == 0, applied.stderr
        for attempt in range(10):
            # kubectl gives up at once on a CRD that has no conditions yet, hence more than one try.
            waited = subprocess.run(
                [plane.kubectl, "--kubeconfig", plane.kubeconfig, "wait", "--for=condition=Established", *CRDS],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if waited.returncode == 0:
                break
            time.sleep(0.2 * attempt)
        assert waited.returncode == 0, waited.stderr
        plane.restart_controller_manager()
        yield plane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes 1.36.3 with controllers, kube-scheduler and our CRDs; shared, so leave nothing behind that matters."""
    yield from _started(tmp_path_factory.mktemp("kube-1.36"), "1.36.3")


@pytest.fixture(scope="session")
def control_plane_135(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The same with Kubernetes 1.35.4."""
    yield from _started(tmp_path_factory.mktemp("kube-1.35"), "1.35.4")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[HttpClient]:
    """The administrator of `control_plane`."""
    async with HttpClient(load_config(control_plane.kubeconfig)) as admin:
        yield admin


@pytest.fixture
async def client_135(control_plane_135: ControlPlane) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(control_plane_135.kubeconfig)) as admin:
        yield admin


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that sets up logs does so for its process, and here that is also the process of the next test."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def fresh_name() -> str:
    """A name that no other test of this run uses."""
    return f"t{os.getpid()}-{next(_numbers)}"
