"""Leader election between processes, on a real API server, with client-go's default times."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.waiting import HANGS_S, eventually

from grove.api.core import ConfigMap, Lease, Namespace
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

SRC = Path(__file__).parents[2] / "src"

CONTENDER = """
import asyncio, sys
from grove.api.core import ConfigMap
from grove.kube.config import load_config
from grove.kube.errors import KubeError, NotLeader
from grove.kube.http import HttpClient
from grove.kube.lease import Leadership
from grove.kube.logs import configure_logs
from grove.kube.run import run_process

kubeconfig, namespace, identity = sys.argv[1:]
configure_logs("info", "text")

async def main():
    config = load_config(kubeconfig)
    async with HttpClient(config) as plain:
        leader = Leadership(plain, namespace, "contested", identity)
        async with HttpClient(config, write_guard=leader.may_write, max_writes=4) as guarded:
            async def work():
                print("leads", flush=True)
                n = 0
                while True:  # as fast as a busy leader would write
                    n += 1
                    try:
                        await guarded.patch(ConfigMap, "log", {"data": {identity: str(n)}}, namespace)
                    except NotLeader:
                        print("held back", flush=True)
                        raise
                    await asyncio.sleep(0.01)
            await leader.lead(work)

sys.exit(run_process(main))
"""


@pytest.fixture
async def ns(client: HttpClient, fresh_name: str) -> str:
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    await client.create(ConfigMap, {"metadata": {"name": "log", "namespace": fresh_name}})
    return fresh_name


@contextmanager
def contender(plane: ControlPlane, ns: str, identity: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CONTENDER, str(plane.kubeconfig), ns, identity]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PYTHONPATH": str(SRC)}
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.kill()
        child.communicate()


async def says(child: subprocess.Popen[str], words: str, timeout_s: float = 120) -> None:
    assert child.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := await asyncio.to_thread(child.stdout.readline):
            if words in line:
                return
    raise AssertionError(f"it ended without saying {words!r}")


async def holder(client: HttpClient, ns: str) -> str | None:
    return (await client.get(Lease, "contested", ns)).spec.holder_identity


async def written_by(client: HttpClient, ns: str, identity: str) -> dict[str, str] | None:
    """The log, once this one wrote in it."""
    log = (await client.get(ConfigMap, "log", ns)).data
    return log if identity in log else None


async def test_a_paused_leader_is_replaced_and_never_writes_again(
    control_plane: ControlPlane, client: HttpClient, ns: str
) -> None:
    with contender(control_plane, ns, "one") as one:
        await says(one, "leads")
        with contender(control_plane, ns, "two") as two:
            await says(two, "standing by")
            assert await holder(client, ns) == "one"

            one.send_signal(signal.SIGSTOP)
            renewed = (await client.get(Lease, "contested", ns)).spec.renew_time
            await says(two, "leads")
            taken = (await client.get(Lease, "contested", ns)).spec.acquire_time
            assert renewed is not None
            assert taken is not None
            assert (taken - renewed).total_seconds() >= 15, "not before the whole lease was over"

            last = (await client.get(ConfigMap, "log", ns)).data["one"]
            one.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(one.wait, HANGS_S) != 0
            log = await eventually(lambda: written_by(client, ns, "two"))
            assert log["one"] == last
            lease = await client.get(Lease, "contested", ns)
            assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("two", 1)

            two.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(two.wait, HANGS_S) == 0
            assert two.stdout is not None
            # It gives up after two seconds, and when a renewal of its own was still on the way.
            assert await holder(client, ns) in ("", None) or "lease not released" in two.stdout.read()


@pytest.mark.waits
async def test_a_killed_leader_is_replaced(control_plane: ControlPlane, client: HttpClient, ns: str) -> None:
    with contender(control_plane, ns, "one") as one:
        await says(one, "leads")
        with contender(control_plane, ns, "two") as two:
            await says(two, "standing by")
            one.kill()
            await says(two, "leads")
