"""Grove on a real control plane as the chart would have it: accounts with the chart's rights, processes under them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from contextlib import AsyncExitStack

import yaml

from grove.api.meta import Json
from grove.config import load_configuration
from grove.diagnosis.reasons import sentence
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from tests.rbac.rights import accounts, documents

ACCESS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
RENAMED, SCHEDULER = "gang-scheduler", "grove-scheduler"
"""The scheduler's account in the rendering with every option, and its usual name."""


def give_accounts(plane: ControlPlane, *more: Json) -> None:
    """Applies the chart's accounts and roles, with every option on, and further objects."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "grove-system"}}
    access = [one for one in documents() if one["kind"] in ACCESS]
    text = yaml.safe_dump_all([namespace, *access, *more]).replace(RENAMED, SCHEDULER)
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    command = [plane.kubectl, "--kubeconfig", plane.kubeconfig, *apply]
    subprocess.run(command, input=text, text=True, capture_output=True, check=True)


class Grove:
    """Operator and scheduler as the chart would run them with these values."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.profiles, self.default, self.scheduler = ["grove-scheduler", "default-scheduler"], "grove-scheduler", True
        self.options: dict[str, Json] = {}
        """The `config` of profiles, by name."""
        self._stack: AsyncExitStack | None = None

    @property
    def runs(self) -> bool:
        return self._stack is not None

    async def start(self) -> None:
        await self.stop()
        self._stack = stack = AsyncExitStack()
        named = ", ".join(f"{{name: {one}, config: {json.dumps(self.options.get(one, {}))}}}" for one in self.profiles)
        config = load_configuration(
            f"scheduler: {{profiles: [{named}], defaultProfileName: {self.default}}}\n"
            "topologyAwareScheduling: {enabled: true}\n"
        )
        operator = Operator(await self._client(stack, "operator"), config, startup_image="grove-initc:test")
        await stack.enter_async_context(operator.running())
        if self.scheduler:
            running = asyncio.ensure_future(Scheduler(await self._client(stack, "scheduler"), say=sentence).run())
            stack.push_async_callback(stopped, running)

    async def stop(self) -> None:
        if self._stack is not None:
            await self._stack.aclose()
            self._stack = None

    async def obey(self, helm: str) -> None:
        """What the cluster's processes do after this command of Helm."""
        if re.search(r"helm uninstall grove(-operator)? ", helm):
            await self.stop()
            return
        if found := re.search(r"profiles=(\[.*?\])'", helm):
            self.profiles = [one["name"] for one in json.loads(found[1])]
        if found := re.search(r"defaultProfileName=([\w-]+)", helm):
            self.default = found[1]
        if found := re.search(r"--set scheduler\.enabled=(\w+)", helm):
            self.scheduler = found[1] == "true"
        await self.start()

    async def _client(self, stack: AsyncExitStack, component: str) -> HttpClient:
        user = accounts(documents())[component].replace(RENAMED, SCHEDULER)
        groups = ["system:serviceaccounts", "system:serviceaccounts:grove-system"]
        config = load_config(self._plane.client_kubeconfig(user, groups))
        return await stack.enter_async_context(HttpClient(config, user_agent=f"grove-{component}"))


async def stopped(task: asyncio.Future[None]) -> None:
    """Ends what was started beside a test."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
