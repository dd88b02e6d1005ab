"""Fixtures that every folder shares: control planes, each started once a session, and the cluster of behaviour tests.

A behaviour test takes `cluster` and gets a client, a namespace of its own, fake nodes on demand and `eventually`. It
runs twice with the same code: `[sim]` on the simulator's loop in virtual time, `[real]` on an ordinary loop against
Kubernetes 1.36; tests marked `older_too` a third time in `make soak`, against 1.35. Where Grove alone decides what is
seen, a file is marked `real_in("soak")`: `make test` asks Kubernetes about the few marked `real_in("test")`, and
`make soak` about all. Files named `test_real_*` start control planes of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from grove.api.core import Namespace, ServiceAccount
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.blueprint import Options
from grove.local.controlplane import ControlPlane
from grove.sim.cluster import SimCluster
from grove.sim.loop import VirtualLoop
from tests.support.cluster import Cluster
from tests.support.operating import Operating, World
from tests.support.planes import FEWER_CONTROLLERS, GrovePlane

settings.register_profile("grove", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("grove")

WHOLE: Options = {
    "controller_manager": True,
    "scheduler": True,
    "extra_controller_manager_args": [FEWER_CONTROLLERS],
}
_numbers = itertools.count()


Loop = Callable[[], asyncio.AbstractEventLoop]


def _loop_of_135() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop()


LOOPS: Mapping[str, Loop] = {"sim": VirtualLoop, "real": asyncio.SelectorEventLoop}
OLDER: Mapping[str, Loop] = {"real-1.35": _loop_of_135}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Loop]:
    """Simulated and real for a behaviour test; only simulated for a catalogue of which one case runs on both."""
    if item.get_closest_marker("simulated"):
        return {"sim": LOOPS["sim"]}
    if "real_plane" not in getattr(item, "fixturenames", ()):
        return {"asyncio": asyncio.new_event_loop}
    return {**LOOPS, **OLDER} if item.get_closest_marker("older_too") else LOOPS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that ask for a real control plane, wherever they stand, so that `-m "not real"` leaves them out."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        loop = callspec.params.get("_asyncio_loop_factory") if callspec else None
        asked = {"control_plane", "control_plane_135"} & set(getattr(item, "fixturenames", ()))
        if asked or loop in (LOOPS["real"], _loop_of_135):
            item.add_marker(pytest.mark.real)
        tier = item.get_closest_marker("real_in")
        if loop is _loop_of_135 or (loop is LOOPS["real"] and tier is not None and tier.args == ("soak",)):
            item.add_marker(pytest.mark.soak)
    # Begun last they would be waited for by workers that have nothing left to do.
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


# For the control planes of tests: memory is there, and a tenth of their time would go into collecting it.
os.environ.setdefault("GOGC", "400")


class ByControlPlane(LoadScopeScheduling):
    """Keeps tests that share something costly on one worker, so that it is made only once.

    Those are the tests of files named `test_real_*`, which share a control plane of their own: by the Kubernetes
    version they name, and else by file; and those of the demonstration, which share a story that was played.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if "/demo/" in file:
            return file
        if "/test_real_" not in file:
            return nodeid
        version = re.search(r"[\[-](1\.\d+)", test)
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


@pytest.fixture
def real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane when this run of the test is `[real]`; it is started on the first such test."""
    callspec = getattr(request.node, "callspec", None)
    loop = callspec.params.get("_asyncio_loop_factory", LOOPS["sim"]) if callspec is not None else LOOPS["sim"]
    if loop is LOOPS["sim"]:
        return None
    plane: ControlPlane = request.getfixturevalue("control_plane_135" if loop is _loop_of_135 else "control_plane")
    return plane


@pytest.fixture
async def cluster(real_plane: ControlPlane | None, fresh_name: str) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        if real_plane is None:
            random.seed(0)
            sim = await stack.enter_async_context(SimCluster())
            found = Cluster(sim.client(), sim.clock, sim, stack)
        else:
            client = await stack.enter_async_context(HttpClient(load_config(real_plane.kubeconfig)))
            found = Cluster(client, SYSTEM, None, stack)
        found.namespace = fresh_name
        await found.client.create(Namespace, {"metadata": {"name": fresh_name}})
        await _await_default_account(found)
        yield found
        await found.client.delete(Namespace, fresh_name)


@pytest.fixture
async def world(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[World]:
    """The operator at work on `cluster`. `OPERATING` of the module says how, if not as usual."""
    async with getattr(request.module, "OPERATING", Operating()).on(cluster) as found:
        yield found


async def _await_default_account(cluster: Cluster) -> None:
    await cluster.eventually(lambda: cluster.client.get(ServiceAccount, "default", cluster.namespace))
