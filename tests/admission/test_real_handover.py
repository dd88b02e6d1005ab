"""An operator whose pod is replaced: it answers reviews until the API server uses another replica."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.support.operator_process import Running, operator
from tests.support.reviews import plain, review_of
from tests.support.waiting import HANGS_S, eventually

from grove.admission.rules.review import VALIDATE_SET
from grove.api.core import Lease
from grove.crds.install import install
from grove.kube.config import load_config
from grove.kube.handover import HAND_OVER_S
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports

LEASE = "grove-operator"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Its webhook configurations name a Service that has no endpoints, so no other test may use it."""
    with ControlPlane(tmp_path_factory.mktemp("handover")) as plane:
        yield plane


async def test_a_leader_gives_its_lease_back_and_answers_on(plane: ControlPlane, tmp_path: Path) -> None:
    """As after `helm upgrade`: SIGTERM comes before every node has the new endpoints of the Service."""
    (port,) = free_ports(1)
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        await install(client, lambda said: None)

        async def holder() -> str:
            return (await client.get(Lease, LEASE, "default")).spec.holder_identity or ""

        async with operator(plane, tmp_path, LEASE, webhooks=port) as running:
            await eventually(lambda: is_ready(running))
            await eventually(holder)
            url = f"https://127.0.0.1:{port}{VALIDATE_SET}"
            assert await ask(url) == (200, "")
            running.process.send_signal(signal.SIGTERM)
            clock = asyncio.get_running_loop().time
            began = last = clock()

            async def is_free() -> bool:
                return not await holder()

            await eventually(is_free)
            assert running.process.returncode is None, "the lease is free for another replica, and this one answers on"
            async with asyncio.timeout(HANGS_S):
                while running.process.returncode is None:
                    was_ready = await is_ready(running)
                    status, connection = await ask(url)
                    if not status:
                        break
                    last = clock()
                    assert (status, connection) == (200, "close"), "the API server opens its next connection elsewhere"
                    assert was_ready, "a kube-proxy without another endpoint still uses this one"
                    await asyncio.sleep(0.05)
                assert await running.process.wait() == 0
            assert last - began > HAND_OVER_S / 2


async def is_ready(running: Running) -> bool:
    return (await running.get(running.health, "/readyz"))[0] == 200


async def ask(url: str) -> tuple[int, str]:
    """Status and the header `Connection` of an answer on a new connection; 0 if the connection is refused."""
    trusting = aiohttp.TCPConnector(ssl=_any_certificate())
    try:
        async with (
            aiohttp.ClientSession(connector=trusting) as session,
            session.post(url, json=review_of(plain())) as answer,
        ):
            await answer.read()
            return answer.status, answer.headers.get("Connection", "")
    except aiohttp.ClientConnectionError:
        return 0, ""


def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
