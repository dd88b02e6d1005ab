"""Serves the console: for one person on this machine, or in a cluster for everybody with a token."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from aiohttp import web

from grove.api.podcliqueset import PodCliqueSet
from grove.console.questions import questions
from grove.console.server import Console
from grove.console.tour import Tour
from grove.console.trends import Trends
from grove.console.viewers import ClusterViewer, Followings, Owner, TokenViewers
from grove.demo.scenario import Scenario
from grove.kube.connection import ClusterConfig
from grove.show.prometheus import Prometheus


def _trends(prometheus: str, grafana: str, logs: str) -> Trends:
    return Trends(Prometheus(prometheus) if prometheus else None, grafana.rstrip("/"), logs)


async def _serve_owner(
    config: ClusterConfig, port: int, opens: bool, trends: Trends, journal: Path | None = None
) -> None:
    followings = Followings(config)
    viewer = ClusterViewer(config, followings)
    try:
        if not await viewer.client.serves(PodCliqueSet):
            raise click.ClickException(
                "Grove is not installed on this cluster; `grove crds --apply` installs its kinds"
            )
        await serve_page(Owner(viewer, "local"), port, opens=opens, trends=trends, journal=journal)
    finally:
        await followings.close()
        await viewer.close()


async def _serve_guests(
    config: ClusterConfig, port: int, hosts: tuple[str, ...], token_header: str, trends: Trends
) -> None:
    # The console's own account is for finding the API server only; every request is made with a viewer's token.
    followings = Followings(config)
    guests = TokenViewers(config, followings)
    asked = questions(prometheus=trends.prometheus)
    app = Console(guests, asked, hosts=hosts, token_header=token_header, trends=trends).application()
    try:
        # In a pod, behind a Service; a caller still needs a token.
        await _serve(app, "0.0.0.0", port, lambda bound: click.echo(f"serving on port {bound}", err=True))  # noqa: S104
    finally:
        await followings.close()
        await guests.close()


async def serve_page(
    owner: Owner,
    port: int,
    *,
    opens: bool,
    act: Any = None,
    trends: Trends | None = None,
    journal: Path | None = None,
) -> None:
    """Serves one person on this machine until interrupted, behind a link that opens once."""
    bound_port = port

    def say(link: str) -> None:
        click.echo(f"http://127.0.0.1:{bound_port}/#link={link}", err=False)

    def listening(bound: int) -> None:
        nonlocal bound_port
        bound_port = bound
        link = owner.new_link()
        click.echo("open this in a browser; it works once, and a new one is printed when it was used (Ctrl-C ends it):")
        say(link)
        if opens:
            _open(f"http://127.0.0.1:{bound}/#link={link}")

    owner.said = say
    asked = questions(journal, trends.prometheus if trends is not None else None)
    app = Console(owner, asked, act=act, trends=trends).application()
    await _serve(app, "127.0.0.1", port, listening)


def _open(url: str) -> None:
    """Opens a browser where there is one to open; a terminal over SSH has the link."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


async def _serve(app: web.Application, host: str, port: int, listening: Callable[[int], None]) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        listening(runner.addresses[0][1])
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
    finally:
        await runner.cleanup()


def tour_in_browser(plot: Scenario, *, nodes: int | None, seed: int, speed: float, port: int, opens: bool) -> None:
    """`grove demo --web`: the guided tour on a page."""

    async def show() -> None:
        tour = Tour(plot, nodes=nodes, seed=seed, speed=speed)
        try:
            await serve_page(Owner(tour, "tour"), port, opens=opens, act=tour.act)
        finally:
            await tour.stop()

    asyncio.run(show())
