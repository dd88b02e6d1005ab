"""`usage`: GPU-hours by set, team and state, from the scheduler's own counters or from a Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.answers.answer import Answer
from grove.cli.access import Options, answer, cluster_command, prometheus_option

if TYPE_CHECKING:
    from grove.kube.client import Client


@click.command()
@click.option("--since", default="24h", show_default=True, help="The time to report on. It needs a Prometheus.")
@prometheus_option("Read from this Prometheus. Without it the figures begin with the scheduler's process.")
@click.option(
    "--scheduler",
    metavar="URL",
    default="",
    help="Read the scheduler's metrics at this address, not through the API server.",
)
@click.option(
    "--prices",
    "price_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file with gpuHour, and optionally currency and queues.",
)
@cluster_command(everywhere=True)
@click.pass_context
def usage(
    ctx: click.Context, options: Options, since: str, prometheus: str, scheduler: str, price_file: Path | None
) -> int:
    """Show GPU-hours by set and team (serving, starting, held, broken, waiting) and the share of idle GPUs."""
    from grove.answers.usage import PAGE_S, _asked, _counted, read_prices
    from grove.api import duration
    from grove.show.prometheus import Prometheus
    from grove.show.usage import painted
    from grove.show.usage import usage as summed

    try:
        seconds = int(duration.parse(since).total_seconds())
    except duration.InvalidDuration as error:
        raise click.UsageError(f"--since: {error}") from None
    if seconds <= 0:
        raise click.UsageError("--since must be more than zero")
    is_given = ctx.get_parameter_source("prometheus") is click.core.ParameterSource.COMMANDLINE
    if scheduler and not is_given:
        prometheus = ""
    if not prometheus and ctx.get_parameter_source("since") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--since needs --prometheus: the scheduler counts since its process started")
    prices = read_prices(price_file) if price_file is not None else None

    async def ask(client: Client, namespace: str) -> Answer:
        if prometheus:
            samples, words = await _asked(Prometheus(prometheus, PAGE_S), seconds), f"of the last {since}"
        else:
            samples, words = await _counted(client, scheduler)
        sums = summed(samples, words, prices, namespace)
        return Answer(sums, lambda width: painted(sums, width))

    return answer(options, ask)
