"""`takeover`: sets that change hands between the Go operator of Grove and this one."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from grove.cli.access import Options, answer, cluster_command
from grove.cli.examples import epilog


@click.command(epilog=epilog("takeover"))
@click.option(
    "--back", is_flag=True, help="Prepare sets for the Go operator, and finish after it has looked at them (writes)."
)
@click.option("--dry-run", is_flag=True, help="With --back: say what would be done; change nothing.")
@cluster_command()
def takeover(options: Options, back: bool, dry_run: bool) -> int:
    """Say what happens to sets that the Go operator made. With --back, return sets to that operator without restarts.

    The way back has two steps, and this command does the one that is next for each set. Run it before this operator is
    removed, and again after the Go operator has started. Without -n it reads the sets of all namespaces.
    Exit codes: 0 nothing is left to do, 3 a step is left.
    """
    from grove.answers.doctor import takeover_answer
    from grove.answers.takeover import back_answer

    if back:
        return answer(options, lambda client, _: back_answer(client, options.namespace, dry_run=dry_run))
    now = datetime.now(UTC)
    return answer(options, lambda client, _: takeover_answer(client, options.namespace, now))
