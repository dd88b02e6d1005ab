"""The operator as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Running:
    """One operator process and where it answers."""

    process: asyncio.subprocess.Process
    health: str
    metrics: str
    pprof: str

    async def get(self, base: str, path: str) -> tuple[int, str]:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{base}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""


@asynccontextmanager
async def operator(plane: ControlPlane, directory: Path, lease: str, webhooks: int = 0) -> AsyncIterator[Running]:
    """With a port for `webhooks` it serves admission as inside a cluster: its clients come through a Service."""
    health, metrics, pprof = free_ports(3)
    config = directory / f"{health}.yaml"
    config.write_text(
        f"""
apiVersion: operator.config.grove.io/v1alpha1
kind: OperatorConfiguration
runtimeClientConnection: {{qps: 200, burst: 50}}
debugging: {{enableProfiling: true, pprofBindPort: {pprof}}}
leaderElection: {{enabled: true, resourceName: {lease}, resourceNamespace: default}}
server:
  healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}
  metrics: {{bindAddress: 127.0.0.1, port: {metrics}}}
  webhooks: {{bindAddress: 127.0.0.1, port: {webhooks or 9443}}}
"""
    )
    command = ["-m", "grove", "operator", "--kubeconfig", str(plane.kubeconfig), "--config", str(config)]
    command.append("--webhooks" if webhooks else "--no-webhooks")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Running(process, *(f"http://127.0.0.1:{port}" for port in (health, metrics, pprof)))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
