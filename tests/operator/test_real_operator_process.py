"""`grove operator` as a process: serves probes and metrics, does its work, hands over, ends with 0 on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operator_process import ROOT, operator
from tests.support.waiting import HANGS_S, eventually

from grove.api.core import Lease, Namespace
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane


async def test_a_leader_works_and_a_standby_takes_over_after_its_sigterm(
    control_plane: ControlPlane, client: HttpClient, fresh_name: str, tmp_path: Path
) -> None:
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    async with (
        operator(control_plane, tmp_path, f"lease-{fresh_name}") as first,
        operator(control_plane, tmp_path, f"lease-{fresh_name}") as second,
    ):

        async def both_ready() -> bool:
            answers = [await one.get(one.health, path) for one in (first, second) for path in ("/healthz", "/readyz")]
            return [status for status, _ in answers] == [200] * 4

        await eventually(both_ready)
        await client.create(PodCliqueSet, pcs("one", clique("w"), namespace=fresh_name))
        await eventually(lambda: client.get(PodClique, "one-0-w", fresh_name))
        _, text = await first.get(first.metrics, "/metrics")
        assert 'controller_runtime_reconcile_total{controller="podclique-controller"' in text
        status, text = await first.get(first.pprof, "/debug/pprof/tasks")
        assert (status, "podclique-controller" in text or "lead" in text) == (200, True)

        async def holder() -> str:
            lease = await client.get(Lease, f"lease-{fresh_name}", "default")
            return lease.spec.holder_identity or ""

        was = await holder()
        leader, standby = (first, second) if f"_{first.process.pid}_" in was else (second, first)
        answered: set[int] = set()

        async def watch_probe() -> None:
            while True:
                answered.add((await standby.get(standby.health, "/readyz"))[0])
                await asyncio.sleep(0.01)

        watching = asyncio.get_running_loop().create_task(watch_probe())
        leader.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HANGS_S):
            assert await leader.process.wait() == 0

        async def handed_over() -> bool:
            return await holder() not in ("", was)

        await eventually(handed_over)
        await client.create(PodCliqueSet, pcs("two", clique("w"), namespace=fresh_name))
        await eventually(lambda: client.get(PodClique, "two-0-w", fresh_name))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert answered == {200}, "its webhooks keep their endpoint while it takes over"

        for name in ("one", "two"):
            await client.delete(PodCliqueSet, name, fresh_name)

        async def gone() -> bool:
            return not (await client.list(PodClique, fresh_name)).items

        await eventually(gone)
        standby.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HANGS_S):
            assert await standby.process.wait() == 0
    await client.delete(Namespace, fresh_name)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "server: {webhooks: {port: 99999}}\ncontrollers: {podClique: {concurrentSyncs: 0}}\n",
            ["server.webhooks.port", "controllers.podClique.concurrentSyncs"],
            id="wrong values, all of them at once",
        ),
        pytest.param("leaderElektion: {enabled: true}\n", ["leaderElektion"], id="an unknown field"),
        pytest.param("scheduler: {profiles: [{name: nobody}]}\n", ["scheduler.profiles[0].name"], id="no such backend"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_paths(tmp_path: Path, text: str, faults: list[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)

    ended = subprocess.run(
        [sys.executable, "-m", "grove", "operator", "--config", config],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
        timeout=HANGS_S,
    )

    assert ended.returncode == 2
    for path in faults:
        assert f"{path}: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_cluster_that_cannot_be_reached_is_one_line_and_exit_2(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "grove", "operator", "--kubeconfig", tmp_path / "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
