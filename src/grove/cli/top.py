"""`top`: the live screen in a terminal."""

from __future__ import annotations

import sys

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, cluster_command, prometheus_option


@click.command()
@prometheus_option("The address of a Prometheus, for figures from before the start.")
@cluster_command(everywhere=True, formats=())
def top(options: Options, prometheus: str) -> int:
    """Show a live screen of sets, gangs, the fleet and figures over time. The key ? lists the keys."""
    from grove.cli.following import follow
    from grove.cli.top_screen import Top

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Unanswered("top needs a terminal; kubectl grove status -w draws into a pipe")
    return follow(options, lambda source: Top(source, prometheus).run())
