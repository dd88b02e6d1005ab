"""`events`: what happened to a set, a gang or one of their parts, as one timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.cli.access import Options, answer, cluster_command, complete_sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grove.answers.subjects import Subject
    from grove.api.core import ControllerRevision
    from grove.kube.client import Client

journal_option = click.option(
    "--journal",
    type=click.Path(exists=True, path_type=Path),
    help="The folder that `grove scheduler --record` writes, for past decisions.",
)


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_sets)
@click.option("-w", "--watch", is_flag=True, help="Also print what happens from now on.")
@journal_option
@cluster_command()
def events(options: Options, name: str, watch: bool, journal: Path | None) -> int:
    """Show what happened to a set, a gang, a group, a clique or a pod, and to its parts, in order of time.

    An event that repeats is one line with a count. Warnings are red. With --journal, also what the scheduler decided
    about each gang: its nodes, or why it got no place.
    """
    from grove.answers.events import events_answer

    if watch:
        return _watch(options, name)
    return answer(options, lambda client, namespace: events_answer(client, namespace, name, journal))


def _watch(options: Options, name: str) -> int:
    from grove.answers.events import events_picture, templates_of
    from grove.answers.subjects import subject
    from grove.cli.access import asked_once
    from grove.cli.following import watch

    async def read(client: Client, namespace: str) -> tuple[Subject, Sequence[ControllerRevision]]:
        asked = await subject(client, namespace, name)
        return asked, await templates_of(client, asked.seen.sets[0]) if asked.is_set else ()

    return watch(options, events_picture(*asked_once(options, read)), events=True, in_place=False)
