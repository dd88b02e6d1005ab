"""`grove scheduler` as a process on a real control plane: it schedules, shows numbers, stops in order, hands over."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.gangs import Gang, gang, gang_json, group, member_json
from tests.support.scheduler_process import nodes, scheduler
from tests.support.waiting import HANGS_S, eventually

from grove.api.core import Lease, Namespace, Pod, ServiceAccount
from grove.api.podgang import PodGang
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import RACK

METRICS = (
    "grove_gang_attempts_total",
    "grove_gang_schedule_seconds",
    "grove_gang_pending",
    "grove_placement_score",
    "grove_topology_domain_selected_total",
    "grove_preempted_gangs_total",
    "grove_largest_placeable_gang",
    "grove_fragmentation_ratio",
)


@asynccontextmanager
async def namespace(client: HttpClient, name: str) -> AsyncIterator[None]:
    await client.create(Namespace, {"metadata": {"name": name}})
    await eventually(lambda: client.get(ServiceAccount, "default", name))
    try:
        yield
    finally:
        for pod in (await client.list(Pod, name)).items:
            await client.delete(Pod, pod.metadata.name, name, grace_period_s=0)
        await client.delete(Namespace, name)


async def apply(client: HttpClient, made: Gang, where: str) -> None:
    await client.create(PodGang, gang_json(made, where))
    for part in made.groups:
        for number in range(part.pods):
            await client.create(Pod, member_json(made, part, number, where))


async def bound(client: HttpClient, where: str) -> int:
    return sum(bool(pod.spec.node_name) for pod in (await client.list(Pod, where)).items)


async def test_a_run_from_start_to_sigterm_and_its_replay(
    control_plane: ControlPlane, client: HttpClient, fresh_name: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    async with (
        namespace(client, fresh_name),
        nodes(client, fresh_name, 3),
        scheduler(control_plane, tmp_path, "--record", str(record)) as running,
    ):
        await running.ready()
        await apply(client, gang("work", group("w", 3), required=RACK), fresh_name)

        async def all_bound() -> bool:
            return await bound(client, fresh_name) == 3

        await eventually(all_bound)
        # Only now: of two that were created within a second and are seen together either may be first.
        await apply(client, gang("more", group("w", 1)), fresh_name)

        async def told() -> bool:
            status = (await client.get(PodGang, "more", fresh_name)).status
            return any(c.reason == "Unschedulable" for c in status.conditions)

        await eventually(told)
        status, text = await running.get("/metrics")
        assert status == 200
        assert [name for name in METRICS if f"# TYPE {name}" not in text and f"# HELP {name}" not in text] == []
        assert (await running.get("/healthz"))[0] == 200
        running.child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.child.wait(), HANGS_S) == 0
    replay = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grove", "replay", str(record), "-q", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await replay.communicate()
    assert replay.returncode == 0
    assert said.decode().endswith("decisions, all the same\n")
    assert not said.decode().startswith("0 ")


ELECTION = """
apiVersion: scheduler.config.grove.io/v1alpha1
kind: SchedulerConfiguration
leaderElection:
  enabled: true
  leaseDuration: 5s
  renewDeadline: 4s
  retryPeriod: 500ms
  resourceName: {name}
  resourceNamespace: {name}
"""


async def test_a_standby_takes_over_from_a_leader_that_is_gone(
    control_plane: ControlPlane, client: HttpClient, fresh_name: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(ELECTION.format(name=fresh_name))
    async with (
        namespace(client, fresh_name),
        nodes(client, fresh_name, 2),
        scheduler(control_plane, tmp_path, "--config", str(config)) as first,
        scheduler(control_plane, tmp_path, "--config", str(config)) as second,
    ):
        await first.ready()
        await second.ready()
        holder = await eventually(lambda: _holder(client, fresh_name))
        leader, standby = (first, second) if f"_{first.child.pid}_" in holder else (second, first)
        await apply(client, gang("one", group("w", 1)), fresh_name)
        await eventually(lambda: _is(bound(client, fresh_name), 1))
        with suppress(ProcessLookupError):  # on a busy machine it may have lost the lease, and ended, by itself
            leader.child.kill()
        await leader.child.wait()
        await apply(client, gang("two", group("w", 1)), fresh_name)
        await eventually(lambda: _is(bound(client, fresh_name), 2))
        assert f"_{standby.child.pid}_" in await _holder(client, fresh_name)


async def _holder(client: HttpClient, name: str) -> str:
    return (await client.get(Lease, name, name)).spec.holder_identity or ""


async def _is(count: Awaitable[int], wanted: int) -> bool:
    return await count == wanted


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(["--kubeconfig", "/nowhere/kubeconfig"], "/nowhere/kubeconfig", id="no kubeconfig"),
        pytest.param(["--feature-gates", "Magic=true"], "there is no gate Magic", id="unknown gate"),
        pytest.param(["--feature-gates", "GroveIntegration"], "GroveIntegration=true", id="gate without a value"),
    ],
)
async def test_what_cannot_work_ends_with_one_line_and_code_two(args: list[str], says: str) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grove", "scheduler", "--port", "-1", *args, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(child.communicate(), HANGS_S)
    assert child.returncode == 2
    assert says in err.decode()
    assert "Traceback" not in err.decode()
