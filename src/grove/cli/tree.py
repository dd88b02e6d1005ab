"""`tree` and `status`: what a set is made of and how it is, and all sets at a glance, worst first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import click

from grove.answers.answer import object_name
from grove.cli.access import Options, answer, cluster_command, complete_sets


@click.command()
@click.argument("pcs", shell_complete=complete_sets)
@click.option("-w", "--watch", is_flag=True, help="Draw it again after each change.")
@click.option("--no-pods", is_flag=True, help="Show one line for each clique, without its pods.")
@cluster_command()
def tree(options: Options, pcs: str, watch: bool, no_pods: bool) -> int:
    """Show a set as a tree: groups, cliques and pods with their counts, gangs, nodes and faults.

    PCS is a set, or a part of one: SET/GROUP, SET/GROUP/N, SET/CLIQUE, pg/NAME, pclq/NAME, pod/NAME.
    """
    from grove.answers.tree import tree_answer, tree_picture

    name = object_name(pcs)
    if watch:
        from grove.cli.following import watch_set

        return watch_set(options, name, lambda set_name, part: tree_picture(set_name, part, pods=not no_pods))
    return answer(options, lambda client, namespace: tree_answer(client, namespace, name, pods=not no_pods))


@click.command()
@click.argument("pcs", required=False, shell_complete=complete_sets)
@click.option(
    "--sort-by",
    "order",
    type=click.Choice(["state", "name", "age", "gpus", "pods", "restarts"]),
    default="state",
    help="The column to sort by. Default: the worst state first.",
)
@click.option("-l", "--selector", default="", help="Only sets with these labels, as in kubectl.")
@click.option("-w", "--watch", is_flag=True, help="Draw it again after each change.")
@cluster_command(everywhere=True, formats=("wide", "json", "yaml"))
def status(options: Options, pcs: str | None, order: str, selector: str, watch: bool) -> int:
    """List the sets, the worst state first: replicas, pods, GPUs held and requested, and the reason."""
    from grove.answers.tree import status_answer, status_picture

    name, wide = object_name(pcs) if pcs else "", options.output == "wide"
    options = replace(options, output="" if wide else options.output)
    if watch:
        from grove.cli.following import watch_set

        return watch_set(options, name, lambda set_name, _: status_picture(set_name, order, selector, wide=wide))
    return answer(
        options,
        lambda client, namespace: status_answer(
            client, namespace, name, datetime.now(UTC), order=order, selector=selector, wide=wide
        ),
    )
