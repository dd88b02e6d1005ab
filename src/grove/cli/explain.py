"""`explain` and `queue`: why gangs wait. The scheduler's own core runs here, on the cluster as this user may see it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from grove.cli.access import Options, answer, cluster_command, complete_sets
from grove.cli.settings import settings_option


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_sets)
@click.option("-w", "--watch", is_flag=True, help="Print the answer again after each change.")
@click.option("--scores", is_flag=True, help="Show the score of each gang's nodes and of the next best nodes.")
@settings_option
@cluster_command()
def explain(options: Options, name: str, watch: bool, scores: bool, settings: Path | None) -> int:
    """Say why a set or a gang does not run: the main reason, its evidence, the next step, and what would help.

    NAME is that of a PodCliqueSet, a PodGang, a PodCliqueScalingGroup, a PodClique or a Pod. Grove tries each
    proposed change on a copy of the cluster first. Exit codes: 0 running or stopped, 3 starting, updating, paused or
    being deleted, 4 waiting or broken, 5 degraded.
    """
    from grove.answers.explain import explain_answer, scores_answer
    from grove.answers.settings import settings_in

    given = settings_in(settings) if settings is not None else None
    if scores:
        return answer(options, lambda client, namespace: scores_answer(client, namespace, name, given))
    if watch:
        return _watch(options, name)
    return answer(options, lambda client, namespace: explain_answer(client, namespace, name, given))


def _watch(options: Options, name: str) -> int:
    from grove.answers.explain import explanation_picture
    from grove.answers.subjects import subject
    from grove.cli.access import asked_once
    from grove.cli.following import watch

    return watch(options, explanation_picture(asked_once(options, lambda client, at: subject(client, at, name))))


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Draw it again after each change.")
@click.option("--tree", is_flag=True, help="Only the queues and quotas, with guaranteed, used, fair share and limit.")
@cluster_command(everywhere=True)
def queue(options: Options, watch: bool, tree: bool) -> int:
    """List waiting gangs in the order of the scheduler, and what each waits for.

    If the cluster has queues (ElasticQuota, or Queue of KAI), their tree comes first. Exit codes: those of `status`.
    """
    from grove.answers.explain import queue_answer, queue_picture, queues_answer

    if tree:
        return answer(options, lambda client, namespace: queues_answer(client))
    if watch:
        from grove.cli.following import watch as follow

        return follow(options, queue_picture)
    return answer(options, lambda client, namespace: queue_answer(client, namespace, datetime.now(UTC)))
