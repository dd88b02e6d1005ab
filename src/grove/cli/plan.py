"""`plan`: what would happen to a set, a change of scale, a drained node, on a copy of the live cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, cluster_command, complete_nodes, complete_sets, show
from grove.cli.settings import settings_option

if TYPE_CHECKING:
    from grove.plan.copying import Copy
    from grove.plan.given import KnownObjects
    from grove.scheduler.model.config import SchedulerConfiguration


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifests: PodCliqueSets and what they need; - is stdin. May be given several times.",
)
@click.option(
    "--scale",
    "scales",
    multiple=True,
    metavar="PCS[/PART]=N",
    shell_complete=complete_sets,
    help="Plan this change of replicas.",
)
@click.option(
    "--drain", "drains", multiple=True, metavar="NODE", shell_complete=complete_nodes, help="Plan without this node."
)
@click.option("--show-pods", is_flag=True, help="Show one line for each pod.")
@settings_option
@cluster_command()
def plan(
    options: Options,
    files: tuple[Path, ...],
    scales: tuple[str, ...],
    drains: tuple[str, ...],
    show_pods: bool,
    settings: Path | None,
) -> int:
    """Say whether a change fits now, where, what it evicts, and how many more fit. Writes nothing to the cluster.

    Other pods of a drained node, which are not Grove's, get the capacity that the gangs leave.
    Exit codes: 0 everything fits, 3 something waits for something else, 4 something cannot be placed.
    """
    import asyncio

    from grove.answers.plan import check_fields, plan_answer
    from grove.answers.settings import settings_in, settings_of
    from grove.cli.access import resolve
    from grove.demo.scenario import load_manifests, no_set
    from grove.kube.http import HttpClient
    from grove.kube.logs import configure_logs
    from grove.plan.copying import copy_cluster
    from grove.plan.given import given_in, read_known
    from grove.sim.loop import run

    if sum(map(bool, (files, scales, drains))) != 1:
        raise click.UsageError("give manifests (-f), or --scale, or --drain")
    configure_logs("error", "text")
    given = settings_in(settings) if settings is not None else None
    config, namespace = resolve(options)
    try:
        manifests = [manifest for path in files for manifest in load_manifests(path)]
    except ValueError as error:
        raise Unanswered(str(error)) from error
    given_files = given_in(manifests, namespace)
    if files and not given_files.sets:
        raise Unanswered(no_set(manifests))
    check_fields(given_files.sets)

    read: list[tuple[Copy, SchedulerConfiguration, KnownObjects]] = []

    async def copied() -> None:
        async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
            # Not returned: asyncio.run formats what its task returned, which takes half a second here.
            kept = await read_known(client, given_files.sets, namespace)
            read.append((await copy_cluster(client, None), given or await settings_of(client), kept))

    asyncio.run(copied())
    [(copy, known, referred)] = read
    reply = run(
        plan_answer(
            copy,
            namespace,
            given_files.sets,
            scales,
            drains,
            show_pods,
            settings=known,
            beside=given_files,
            referred=referred,
        )
    )
    return show(reply, options.output)
