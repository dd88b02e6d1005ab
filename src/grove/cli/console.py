"""`grove console`: the page for people who would rather look. What it answers, the other commands answer too."""

from __future__ import annotations

from pathlib import Path

import click

from grove.cli.access import Options, address, cluster_command, prometheus_option, resolve
from grove.cli.events import journal_option

PORT = 8321


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port. Default: a free port.")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in a browser.")
@click.option("--in-cluster", is_flag=True, help="Serve on all addresses. Each viewer signs in with a token.")
@click.option("--host", "hosts", multiple=True, help="A host name of the console, such as console.example.")
@click.option(
    "--token-header", default="", help="The header in which an authenticating proxy sends the viewer's token."
)
@prometheus_option("The address of a Prometheus, for figures from before the page was opened.")
@click.option(
    "--grafana", default="", callback=address, help="The address of a Grafana with Grove's dashboard, for links."
)
@journal_option
@click.option(
    "--logs-link",
    default="",
    callback=address,
    help="The address of a page of logs, with {namespace}, {name} and {pod}.",
)
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
    """Serve a page with the fleet, the sets, the queue and plans. It uses your rights and changes nothing."""
    import asyncio
    import gc

    from grove.cli.console_page import _serve_guests, _serve_owner, _trends
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
