"""`restart`: deletes the pods of a set or of a part of it, so that the operator creates them again and together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from grove.api.words import many
from grove.cli.access import Options, asked_once, cluster_command, complete_sets, confirm, show

if TYPE_CHECKING:
    from grove.answers.subjects import Subject


@click.command()
@click.argument("target", metavar="SET[/GROUP|/CLIQUE[/N]]", shell_complete=complete_sets)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print what the command would delete, and change nothing.")
@click.option("--follow/--no-follow", default=True, help="Wait until the new pods are ready, and show their state.")
@cluster_command()
def restart(options: Options, target: str, yes: bool, dry_run: bool, follow: bool) -> int:
    """Delete all pods of a set or of a part of it together. The operator creates them again.

    SET/GROUP/N is one instance of a scaling group, SET/CLIQUE/N one pod. pg/NAME is one gang, pod/NAME one pod.
    """
    from grove.answers.restart import asked_for, restart_answer, until_ready

    asked = asked_once(options, lambda client, namespace: asked_for(client, namespace, target))
    if not (yes or dry_run):
        _confirm(asked)
    reply = asked_once(options, lambda client, namespace: restart_answer(client, asked, dry_run=dry_run))
    code = show(reply, options.output)
    if dry_run or not follow or options.output:
        return code
    from grove.cli.following import watch

    return watch(options, until_ready(asked), in_place=False)


def _confirm(asked: Subject) -> None:
    serving = sum(pod.is_ready for pod in asked.pods)
    confirm(
        f"restart of {asked.name} deletes {many(len(asked.pods), 'pod')}, {serving} of them ready",
        "delete them, so that the operator creates new ones?",
    )
