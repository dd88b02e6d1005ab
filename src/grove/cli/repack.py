"""`repack`: which running gangs to move, so that a waiting gang fits, or so that less of the fleet is fragmented."""

from __future__ import annotations

from pathlib import Path

import click

from grove.answers.answer import RUNNING
from grove.api.words import many
from grove.cli.access import Options, answer, asked_once, cluster_command, complete_sets, confirm, show
from grove.cli.settings import settings_option


@click.command()
@click.option(
    "--for", "name", default="", metavar="NAME", shell_complete=complete_sets, help="The set or gang that waits."
)
@click.option("--fleet", is_flag=True, help="Plan for the whole cluster: less fragmentation, the cheapest moves first.")
@click.option("--level", default="", metavar="NAME", help="With --fleet: the level of the topology, such as rack.")
@click.option("--resource", default="", help="With --fleet: the resource; the accelerator the cluster has most of.")
@click.option("--apply", "apply_it", is_flag=True, help="Move the gangs, one after the other.")
@click.option("-y", "--yes", is_flag=True, help="With --apply: do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="With --apply: print the plan; change nothing.")
@settings_option
@cluster_command()
def repack(
    options: Options,
    name: str,
    fleet: bool,
    level: str,
    resource: str,
    apply_it: bool,
    yes: bool,
    dry_run: bool,
    settings: Path | None,
) -> int:
    """Say which gangs to move so that a waiting gang fits. The plan restarts as few pods as possible.

    It moves only gangs of sets that allow it (annotation grove.io/disruption). Grove tries the plan on a copy of the
    cluster first. --apply makes a new plan before each move, and stops if the cluster changed. --fleet shows how
    fragmented the cluster is now, and the moves after which more gangs fit. Exit codes: 0 there is a plan, or no move
    is needed; 4 there is none, or it was not carried out.
    """
    from grove.answers.repack import fleet_answer, repack_answer
    from grove.answers.settings import settings_in

    if fleet == bool(name):
        raise click.UsageError("give either --for NAME or --fleet")
    if fleet and apply_it:
        raise click.UsageError("--apply needs --for NAME: a plan for the fleet is only shown")
    if not fleet and (level or resource):
        raise click.UsageError("--level and --resource need --fleet")
    given = settings_in(settings) if settings is not None else None
    if fleet:
        return answer(options, lambda client, _: fleet_answer(client, level, resource, given))
    if not apply_it or dry_run:
        return answer(options, lambda client, namespace: repack_answer(client, namespace, name, given))
    from grove.answers.repack_apply import apply_answer

    reply = asked_once(options, lambda client, namespace: repack_answer(client, namespace, name, given))
    if reply.code != RUNNING or not getattr(reply.data, "moves", ()):
        return show(reply, options.output)
    if not yes:
        if not options.output:
            show(reply)
        confirm(f"this restarts {many(reply.data.restarts, 'pod')}", "move these gangs?")
    ask = reply.data
    done = asked_once(options, lambda client, namespace: apply_answer(client, namespace, name, ask, given, say=_said))
    return show(done, options.output)


def _said(line: str) -> None:
    click.echo(line, err=True)
