"""Fixtures that every folder shares: real control planes, each started once a session, and clients to them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.blueprint import Options
from grove.local.controlplane import ControlPlane
from tests.planes import FEWER_CONTROLLERS, GrovePlane

settings.register_profile("grove", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("grove")

WHOLE: Options = {
    "controller_manager": True, "scheduler": True, "extra_controller_manager_args": [FEWER_CONTROLLERS],
}  # fmt: skip
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that ask for a real control plane, wherever they stand, so that `-m "not real"` leaves them out."""
    for item in items:
        if {"control_plane", "control_plane_135"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)


class ByControlPlane(LoadScopeScheduling):
    """Keeps tests that share a control plane of their own on one worker, so that it is started only once.

    In `tests/real` those are the tests of a Kubernetes version, if they name one, and else of a file.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if "/real/" not in file:
            return nodeid
        version = re.search(r"\[(1\.\d+)", test)
        return version[1] if version else file


@pytest.hookimpl(optionalhook=True)  # there are runs without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByControlPlane:
    return ByControlPlane(config, log)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes 1.36.3 with controllers, kube-scheduler and our CRDs; shared, so leave nothing behind that matters."""
    with GrovePlane(tmp_path_factory.mktemp("kube-1.36"), "1.36.3", **WHOLE) as plane:
        yield plane


@pytest.fixture(scope="session")
def control_plane_135(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The same with Kubernetes 1.35.4."""
    with GrovePlane(tmp_path_factory.mktemp("kube-1.35"), "1.35.4", **WHOLE) as plane:
        yield plane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[HttpClient]:
    """The administrator of `control_plane`."""
    async with HttpClient(load_config(control_plane.kubeconfig)) as admin:
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
