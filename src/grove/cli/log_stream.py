"""Prints the logs of several pods at once, each line with its role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from grove.answers.logs import NO_ADDRESS
from grove.api.words import many
from grove.cli.access import Options, resolve
from grove.cli.terminal import terminal
from grove.diagnosis.roles import Player
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.kube.logs import configure_logs

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")


async def _stream(options: Options, players: Sequence[Player], query: dict[str, str], *, follow: bool) -> int:
    configure_logs("error", "text")
    console = terminal()
    labels = labels_of(players)
    wide = max(len(label) for label in labels)
    config, _ = resolve(options)
    failed: dict[str, list[str]] = {}

    async def print_lines(client: HttpClient, at: int, player: Player) -> None:
        pod = player.pod
        style = COLOURS[at % len(COLOURS)]
        container = query.get("container") or (pod.spec.containers[0].name if pod.spec.containers else "")
        asked = {**query, "container": container} | ({"follow": "true"} if follow else {})
        try:
            async for line in client.log_lines(pod.metadata.namespace, pod.metadata.name, asked):
                say(console, labels[at].ljust(wide) if len(players) > 1 else "", line, style)
        except KubeError as error:
            failed.setdefault(" ".join(str(error).split()), []).append(pod.metadata.name)

    async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
        if follow:
            await asyncio.gather(*(print_lines(client, at, player) for at, player in enumerate(players)))
        else:  # in order, so that a pipe gets the same twice
            for at, player in enumerate(players):
                await print_lines(client, at, player)
    for line in failure_lines(failed):
        click.echo(f"error: {line}", err=True)
    return 2 if sum(map(len, failed.values())) == len(players) else 0


def failure_lines(failed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One line a reason, with the pods that have it."""
    for why, pods in failed.items():
        more = f" and {many(len(pods) - 1, 'other pod')}" if len(pods) > 1 else ""
        hint = "; its node has no kubelet that could be asked, as fake nodes have none" if NO_ADDRESS in why else ""
        yield f"{pods[0]}{more}: {why}{hint}"


def labels_of(players: Sequence[Player]) -> list[str]:
    several = len({player.replica for player in players}) > 1
    return [player.label(many_replicas=several) for player in players]


def say(console: Any, label: str, line: str, style: str) -> None:
    text = Text(no_wrap=True, overflow="ignore")
    if label:
        text.append(f"{label} │ ", style=style)
    text.append(line)
    console.print(text, soft_wrap=True)
