"""Connects to the cluster of a command and asks it one question. Imported when a command runs, not for its help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from grove.answers.errors import explained
from grove.cli.access import Options, resolve
from grove.kube.client import Client
from grove.kube.http import HttpClient
from grove.kube.logs import configure_logs

T = TypeVar("T")


async def asked(options: Options, ask: Callable[[Client, str], Awaitable[T]]) -> T:
    configure_logs("error", "text")  # the scheduler's core and the caches log as for a service
    config, namespace = resolve(options)
    async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
        return await explained(client, ask(client, namespace))
