"""`rollout`: how an update of a set goes, and its earlier templates; pause, resume, undo, promote and restart write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from grove.answers.answer import Answer, object_name
from grove.cli.access import Options, answer, asked_once, cluster_command, complete_sets
from grove.cli.examples import epilog
from grove.cli.main import help_alone

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(epilog=epilog("rollout"), invoke_without_command=True)
@click.pass_context
def rollout(ctx: click.Context) -> None:
    """Show an update of a PodCliqueSet, pause or resume it, list earlier templates, and return to one of them.

    The operator keeps the last five templates of a set as ControllerRevisions. The annotation
    grove.io/revision-history-limit on the set changes this number.
    """
    help_alone(ctx)


SHORT = {
    "status": "Show which pods are old and new, and which replica is down.",
    "history": "List the templates that the operator keeps.",
    "undo": "Return to an earlier template (writes).",
    "promote": "Lower a partition: held units get the new template (writes).",
    "pause": "Pause an update: it takes no further unit down (writes).",
    "resume": "Resume a paused update (writes).",
    "restart": "Replace every pod like an update (writes).",
}
"""One line each in the list of commands, where longer ones would be cut."""


def _command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    return rollout.command(name, epilog=epilog(f"rollout {name}"), short_help=SHORT[name])


_SET = click.argument("pcs", metavar="PCS", shell_complete=complete_sets)
_DRY = click.option("--dry-run", is_flag=True, help="Send a dry run to the API server and change nothing.")


@_command("status")
@_SET
@click.option("-w", "--watch", is_flag=True, help="Watch until the update is complete.")
@cluster_command()
def status(options: Options, pcs: str, watch: bool) -> int:
    """Show which pods are old and new, which replica is being updated or down, since when, and what it waits for.

    Also shows the share of each revision, partitions, budgets, the slices of a coherent update, and surge units.

    Exit codes: 0 every pod is up to date, 3 the update goes on or is paused.
    """
    from grove.answers.rollout import status_answer

    name = object_name(pcs)
    if watch:
        return _watch(options, name)
    return answer(options, lambda client, namespace: status_answer(client, namespace, name, datetime.now(UTC)))


def _watch(options: Options, name: str) -> int:
    from grove.answers.rollout import status_picture
    from grove.cli.following import watch_set

    ended: list[Answer] = []
    code = watch_set(options, name, lambda pcs, part: status_picture(pcs, ended, part))
    if not ended:
        return code
    from grove.cli.access import show

    return show(ended[0], options.output)


@_command("history")
@_SET
@click.option("--revision", type=click.IntRange(1), help="Print the whole template of this revision as YAML.")
@cluster_command()
def history(options: Options, pcs: str, revision: int | None) -> int:
    """List the templates that the operator keeps, the newest last, and which of them is in effect."""
    from grove.answers.rollout import history_answer

    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: history_answer(client, namespace, name, datetime.now(UTC), revision)
    )


@_command("undo")
@_SET
@click.option(
    "--to-revision", type=click.IntRange(1), help="The revision. Default: the revision before the present one."
)
@_DRY
@cluster_command()
def undo(options: Options, pcs: str, to_revision: int | None, dry_run: bool) -> int:
    """Return to an earlier template. The operator updates one unit after another. Replica counts stay. Writes."""
    from grove.answers.rollout import undo_answer

    name = object_name(pcs)
    return answer(options, lambda client, namespace: undo_answer(client, namespace, name, to_revision, dry_run=dry_run))


@_command("promote")
@click.argument("target", metavar="PCS[/GROUP]", shell_complete=complete_sets)
@click.option("--to", type=click.IntRange(0), default=0, show_default=True, help="The new partition.")
@_DRY
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_command()
def promote(options: Options, target: str, to: int, dry_run: bool, yes: bool) -> int:
    """Lower the partition of a set or of a scaling group: the units that it held back get the new template. Writes."""
    from grove.answers.promote import asked_for, promote_answer
    from grove.cli.promote import confirm_promotion

    promotion = asked_once(options, lambda client, namespace: asked_for(client, namespace, object_name(target), to))
    if not (yes or dry_run):
        confirm_promotion(promotion)
    return answer(options, lambda client, namespace: promote_answer(client, namespace, promotion, dry_run=dry_run))


@_command("pause")
@_SET
@_DRY
@cluster_command()
def pause(options: Options, pcs: str, dry_run: bool) -> int:
    """Pause an update: it takes no further unit down. Writes an annotation.

    A unit that is down already comes back with the new template.
    """
    from grove.answers.rollout import pause_answer

    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: pause_answer(client, namespace, name, paused=True, dry_run=dry_run)
    )


@_command("resume")
@_SET
@_DRY
@cluster_command()
def resume(options: Options, pcs: str, dry_run: bool) -> int:
    """Resume a paused update. Writes an annotation."""
    from grove.answers.rollout import pause_answer

    name = object_name(pcs)
    return answer(
        options, lambda client, namespace: pause_answer(client, namespace, name, paused=False, dry_run=dry_run)
    )


@_command("restart")
@_SET
@_DRY
@cluster_command()
def restart(options: Options, pcs: str, dry_run: bool) -> int:
    """Replace every pod of a set like an update, one unit after another. Writes an annotation on its cliques."""
    from grove.answers.rollout import restart_answer

    name = object_name(pcs)
    return answer(
        options,
        lambda client, namespace: restart_answer(client, namespace, name, datetime.now(UTC), dry_run=dry_run),
    )
