"""Our own processes while everything breaks: two operators and two schedulers, each started again as a kubelet would.

Each has a kubeconfig with a token file, as in a pod, that leads through the bad line. `sample` reads memory, open files
and tasks of each. A process that died has a new life in the record, so growth is judged within one life.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml

from grove.local.ports import LOOPBACK, free_ports

NAMESPACE = "grove-system"
RESTART_S = 2.0
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    name: str
    life: int
    memory_mb: float
    files: int
    tasks: int


@dataclass
class Process:
    """One of ours: how it is started, and the child that runs now."""

    name: str
    command: list[str]
    metrics_port: int
    webhook_port: int = 0
    log: Path = Path()
    skew_s: float = 0.0
    life: int = 0
    child: asyncio.subprocess.Process | None = None
    exits: list[int] = field(default_factory=list)

    async def start(self) -> None:
        self.life += 1
        module = ["chaos.skewed", f"{self.skew_s:g}"] if self.skew_s else ["grove"]
        with self.log.open("ab") as out:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *module,
                *self.command,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "GROVE_INIT_CONTAINER_IMAGE": "grove-initc"},
            )

    def signal(self, number: signal.Signals) -> None:
        if self.child is not None and self.child.returncode is None:
            self.child.send_signal(number)


class Processes:
    """All of them; `keep_running` starts again what has ended, two seconds later."""

    def __init__(self, directory: Path, began: float) -> None:
        self._directory, self._began = directory, began
        self.all: list[Process] = []
        self.samples: list[Sample] = []

    def kubeconfig(self, name: str, server: str) -> Path:
        path = self._directory / f"{name}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "chaos",
            "clusters": [{"name": "chaos", "cluster": {"server": server}}],
            "users": [{"name": name, "user": {"tokenFile": str(self._directory / "token")}}],
            "contexts": [{"name": "chaos", "context": {"cluster": "chaos", "user": name, "namespace": NAMESPACE}}],
        }
        path.write_text(json.dumps(config))
        return path

    def add_operator(self, name: str, server: str, webhook_url: str) -> None:
        webhooks, health, metrics = free_ports(3)
        config = {
            "apiVersion": "operator.config.grove.io/v1alpha1",
            "kind": "OperatorConfiguration",
            "logFormat": "text",
            "leaderElection": {"enabled": True, "resourceNamespace": NAMESPACE},
            "topologyAwareScheduling": {"enabled": True},
            "server": {
                "webhooks": {"bindAddress": LOOPBACK, "port": webhooks},
                "healthProbes": {"bindAddress": LOOPBACK, "port": health},
                "metrics": {"bindAddress": LOOPBACK, "port": metrics},
            },
        }
        path = self._directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        command = ["operator", "--kubeconfig", str(self.kubeconfig(name, server)), "--config", str(path)]
        self._add(name, [*command, "--webhook-url", webhook_url], metrics, webhooks)

    def add_scheduler(self, name: str, server: str, gang_timeout_s: float) -> None:
        (port,) = free_ports(1)
        path = self._directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"gangTimeout": f"{gang_timeout_s:g}s", "server": {"bindAddress": LOOPBACK}}))
        command = ["scheduler", "--kubeconfig", str(self.kubeconfig(name, server)), "--config", str(path)]
        self._add(name, [*command, "--leader-elect", "--port", str(port)], port, 0)

    def _add(self, name: str, command: list[str], metrics: int, webhooks: int) -> None:
        self.all.append(Process(name, command, metrics, webhooks, self._directory / f"{name}.log"))

    def named(self, word: str) -> list[Process]:
        return [process for process in self.all if process.name.startswith(word)]

    async def keep_running(self) -> None:
        async with asyncio.TaskGroup() as group:
            for process in self.all:
                group.create_task(self._keep(process))

    async def _keep(self, process: Process) -> None:
        while True:
            await process.start()
            assert process.child is not None
            try:
                process.exits.append(await process.child.wait())
            except asyncio.CancelledError:
                process.signal(signal.SIGKILL)
                await process.child.wait()
                raise
            await asyncio.sleep(RESTART_S)

    async def sample_for_ever(self, every_s: float = 2.0) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                for process in self.all:
                    if (sample := await self._sample(session, process)) is not None:
                        self.samples.append(sample)
                await asyncio.sleep(every_s)

    async def _sample(self, session: aiohttp.ClientSession, process: Process) -> Sample | None:
        if process.child is None or process.child.returncode is not None:
            return None
        proc = Path(f"/proc/{process.child.pid}")
        try:
            async with session.get(f"http://{LOOPBACK}:{process.metrics_port}/metrics") as answer:
                page = await answer.text()
            match = re.search(r"^grove_asyncio_tasks (\S+)", page, re.MULTILINE)
            memory_kb = int(re.findall(r"VmRSS:\s+(\d+) kB", (proc / "status").read_text())[0])
            files = len(list((proc / "fd").iterdir()))
        except (aiohttp.ClientError, TimeoutError, OSError, IndexError):
            return None
        assert match is not None, "the metrics page has no count of tasks"
        tasks = int(float(match.group(1)))
        return Sample(time.monotonic() - self._began, process.name, process.life, memory_kb / 1024, files, tasks)
