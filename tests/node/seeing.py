"""What a test of real nodes sees of its pods, and how it talks to the server inside them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.images import PORT, SERVE

ROOT = Path(__file__).parents[2]

PATIENCE_S = 600.0
"""Two nodes share the cores of this machine with everything else that runs there."""


async def eventually(look: Callable[[], Awaitable[Any]], timeout_s: float = PATIENCE_S) -> Any:
    """The first truthy answer of `look`. An error of the API, or a server that does not listen, counts as not yet."""
    last: Any = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    if last := await look():
                        return last
                except (KubeError, aiohttp.ClientConnectionError) as error:
                    last = error
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s; the last answer was {last!r}") from None


def served() -> Json:
    """Fields of a pod spec: one container that runs the tests' server, with a real readiness probe every second."""
    probe = {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1}
    container = {
        "name": "main",
        "image": SERVE,
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "50m"}},
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 1}


@dataclass(frozen=True)
class Seen:
    """One pod as the API server tells it."""

    pod: Json

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name

    @property
    def node(self) -> str:
        name: str = self.pod["spec"].get("nodeName", "")
        return name

    def condition(self, type_: str) -> tuple[str, str] | None:
        """Status and message."""
        found = (one for one in self.pod["status"].get("conditions", ()) if one["type"] == type_)
        return next(((one["status"], one.get("message", "")) for one in found), None)

    @property
    def is_ready(self) -> bool:
        return (self.condition("Ready") or ("", ""))[0] == "True"

    def since(self, type_: str) -> datetime:
        """When a condition last changed, to the second."""
        (found,) = (one for one in self.pod["status"]["conditions"] if one["type"] == type_)
        return datetime.fromisoformat(found["lastTransitionTime"])

    def state(self, container: str) -> Json:
        """`running`, `waiting` or `terminated` with its facts; empty while the kubelet has not reported any."""
        status = self.pod["status"]
        every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((dict(one["state"]) for one in every if one["name"] == container), {})

    @property
    def waits(self) -> bool:
        """Its start-order container runs, so its own container does not."""
        return "running" in self.state(key.STARTUP_CONTAINER) and "waiting" in self.state("main")

    @property
    def runs(self) -> bool:
        return "running" in self.state("main")

    async def say(self, word: str) -> None:
        """`ready` or `unready`: what its probe will hear from now on."""
        await self._ask("POST", word)

    async def began(self) -> float:
        """When its own container's program began, by its own clock, which is the machine's."""
        return float(await self._ask("GET", "began"))

    async def fetch(self, url: str) -> tuple[int, str]:
        """Status and body of what its container gets from a URL."""
        return await self._answer("GET", f"fetch?url={quote(url)}")

    async def lookup(self, name: str) -> tuple[int, list[str]]:
        """Status and addresses (or the words of an error) of a name, as its container resolves it."""
        status, said = await self._answer("GET", f"lookup?name={quote(name)}")
        return status, said.split()

    @property
    def address(self) -> str:
        found: str = self.pod["status"]["podIP"]
        return found

    async def _ask(self, verb: str, path: str) -> str:
        return (await self._answer(verb, path))[1]

    async def _answer(self, verb: str, path: str) -> tuple[int, str]:
        async def answered() -> tuple[int, str]:
            url = f"http://{self.address}:{PORT}/{path}"
            async with aiohttp.ClientSession() as session, session.request(verb, url) as answer:
                return answer.status, await answer.text()

        said: tuple[int, str] = await eventually(answered, 20.0)  # a container runs before its program listens
        return said


async def pods_of(client: HttpClient, namespace: str, clique: str) -> list[Seen]:
    """The pods of a PodClique in the order of their host names."""
    page = await client.list(Pod.RESOURCE, namespace, labels=f"{key.POD_CLIQUE}={clique}")
    return [Seen(pod) for pod in sorted(page.items, key=lambda one: str(one["spec"]["hostname"]))]


class Terminal:
    """`kubectl grove` as a person calls it, in one namespace."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self._where = ("-n", namespace, "--kubeconfig", str(cluster.kubeconfig))
        self._environment = os.environ | {"PATH": f"{cluster.kubectl_program.parent}:{os.environ['PATH']}"}

    async def start(self, command: str, *words: str) -> asyncio.subprocess.Process:
        name, _, rest = command.partition(" ")
        argv = [name, *self._where, *rest.split(), *words]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grove.cli.kubectl",
            *argv,
            cwd=ROOT,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, command: str, *words: str, said: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors."""
        process = await self.start(command, *words)
        try:
            out, err = await asyncio.wait_for(process.communicate(said.encode()), PATIENCE_S)
        finally:
            await ended(process)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


async def ended(process: asyncio.subprocess.Process) -> None:
    """Ends a process that still runs, and reads its pipes to their end: a transport must close before its loop does."""
    if process.returncode is None:
        process.kill()
        await process.communicate()


class Page:
    """The console of a cluster as its page asks it, for one namespace."""

    def __init__(self, url: str, session: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._headers = {"Authorization": f"Bearer {session}"}

    async def ask(self, question: str, name: str) -> str:
        """The console's answer about a set, as text; empty if it has none."""
        asked = json.dumps({"namespace": self._namespace, "name": name})
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self._url}/api/ask/{question}", data=asked, headers=self._headers) as answer,
        ):
            return await answer.text() if answer.status == 200 else ""
