"""Commands that advice gives, carried out: by a shell on a real API server, by our functions on the simulator."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

from grove.answers.restart import asked_for, restart_answer
from grove.answers.rollout import pause_answer, undo_answer
from grove.answers.scale import scale_answer
from grove.api.core import Node, ServiceAccount
from grove.api.meta import Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.local.controlplane import ControlPlane
from tests.support.asking import World

QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")


class Shell:
    """A person's shell: kubectl and its plugin on the PATH, and a directory of one's own."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._directory = directory
        programs = f"{plane.kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "PATH": programs}

    async def run(self, command: str) -> str:
        """What it prints; fails if the command does."""
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0, f"{command}\n{said.decode()}"
        return said.decode()


async def paste(world: World, shell: Shell | None, command: str) -> None:
    """Carries out a command of an advice; `shell` is that of a real API server."""
    for one in command.split(" && "):
        if shell is not None:
            await shell.run(f"{one} --yes" if " restart " in one else one)
        else:
            await _play(world, shlex.split(one))


async def _play(world: World, typed: list[str]) -> None:
    client, namespace = world.client, world.namespace
    words = [word for word in typed if word not in ("kubectl", "-n", namespace)]
    match words:
        case ["uncordon", *nodes]:
            for node in nodes:
                await client.patch(Node, node, {"spec": {"unschedulable": None}})
        case ["taint", "node", *rest]:
            for node in (one for one in rest if not one.endswith("-")):
                await client.patch(Node, node, {"spec": {"taints": None}})
        case ["delete", "node", node]:
            await client.delete(Node, node)
        case ["create", "serviceaccount", name]:
            await client.create(ServiceAccount, {"metadata": {"name": name, "namespace": namespace}})
        case ["patch", "resourcequota", name, "-p", patch]:
            await client.patch(QUOTA, name, json.loads(patch), namespace)
        case ["patch", "pcs", name, "--type=json", "-p", patch]:
            await client.patch(PodCliqueSet, name, json.loads(patch), namespace)
        case ["grove", "scale", target, replicas]:
            await scale_answer(client, namespace, target, int(replicas))
        case ["grove", "rollout", "resume", name]:
            await pause_answer(client, namespace, name, paused=False)
        case ["grove", "rollout", "undo", name]:
            await undo_answer(client, namespace, name)
        case ["grove", "restart", target]:
            await restart_answer(client, await asked_for(client, namespace, target))
        case _:
            raise AssertionError(f"no way to carry out {shlex.join(typed)}")
