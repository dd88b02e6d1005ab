"""`grove console`: the page for people who would rather look. What it answers, the other commands answer too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import Options, address, cluster_command, resolve
from grove.cli.events import journal_option

if TYPE_CHECKING:
    from aiohttp import web

    from grove.console.trends import Trends
    from grove.console.viewers import Owner
    from grove.demo.scenario import Scenario
    from grove.kube.connection import ClusterConfig

PORT = 8321


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; a free one if absent.")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in a browser.")
@click.option("--in-cluster", is_flag=True, help="Serve everyone who brings a token of their own, on all addresses.")
@click.option("--host", "hosts", multiple=True, help="A name that the console is called by, such as console.example.")
@click.option("--token-header", default="", help="Where an authenticating proxy in front puts the viewer's token.")
@click.option("--prometheus", default="", callback=address, help="A Prometheus, for figures from before the page.")
@click.option("--grafana", default="", callback=address, help="A Grafana with Grove's dashboard, for links to it.")
@journal_option
@click.option("--logs-link", default="", callback=address, help="A page of logs: {namespace}, {name}, {pod} in it.")
@cluster_command(formats=())
def console(
    options: Options,
    port: int,
    opens: bool,
    in_cluster: bool,
    hosts: tuple[str, ...],
    token_header: str,
    prometheus: str,
    grafana: str,
    logs_link: str,
    journal: Path | None,
) -> int:
    """A page with the fleet, the sets, why gangs wait, the queue and plans. It has your rights, and changes nothing.

    \b
    Examples:
      grove console                     # prints a link to this machine and opens it
      grove console --context prod --no-open --port 8321
      grove console --prometheus http://127.0.0.1:9090 --grafana https://grafana.example.com
    """
    import asyncio
    import gc

    from grove.kube.logs import configure_logs

    configure_logs("error" if not in_cluster else "info", "text" if not in_cluster else "json")
    gc.enable()
    config, _ = resolve(options)
    trends = _trends(prometheus, grafana, logs_link)
    if in_cluster and journal is not None:
        raise click.UsageError("--journal shows the decisions about every namespace: not with --in-cluster")
    if in_cluster:
        asyncio.run(_serve_guests(config, port or PORT, hosts, token_header, trends))
    else:
        asyncio.run(_serve_owner(config, port, opens, trends, journal))
    return 0


def _trends(prometheus: str, grafana: str, logs: str) -> Trends:
    from grove.console.trends import Trends
    from grove.show.prometheus import Prometheus

    return Trends(Prometheus(prometheus) if prometheus else None, grafana.rstrip("/"), logs)


async def _serve_owner(
    config: ClusterConfig, port: int, opens: bool, trends: Trends, journal: Path | None = None
) -> None:
    from grove.api.podcliqueset import PodCliqueSet
    from grove.console.viewers import ClusterViewer, Followings, Owner

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
    from grove.console.questions import questions
    from grove.console.server import Console
    from grove.console.viewers import Followings, Guests

    # The console's own account is for finding the API server only; every request is made with a viewer's token.
    followings = Followings(config)
    guests = Guests(config, followings)
    app = Console(guests, questions(), hosts=hosts, token_header=token_header, trends=trends).application()
    try:
        # In a pod, behind a Service; whoever reaches it still needs a token of their own.
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
    from grove.console.questions import questions
    from grove.console.server import Console

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
    app = Console(owner, questions(journal), act=act, trends=trends).application()
    await _serve(app, "127.0.0.1", port, listening)


def _open(url: str) -> None:
    """Opens a browser where there is one to open; a terminal over SSH has the link."""
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


async def _serve(app: web.Application, host: str, port: int, listening: Callable[[int], None]) -> None:
    import asyncio

    from aiohttp import web

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        listening(runner.addresses[0][1])
        ended = asyncio.Event()
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, ended.set)
        await ended.wait()
    finally:
        await runner.cleanup()


def tour_in_browser(plot: Scenario, *, nodes: int | None, seed: int, speed: float, port: int, opens: bool) -> None:
    """`grove demo --web`: the guided tour on a page."""
    import asyncio

    from grove.console.tour import Tour
    from grove.console.viewers import Owner

    async def show() -> None:
        tour = Tour(plot, nodes=nodes, seed=seed, speed=speed)
        try:
            await serve_page(Owner(tour, "tour"), port, opens=opens, act=tour.act)
        finally:
            await tour.stop()

    asyncio.run(show())
