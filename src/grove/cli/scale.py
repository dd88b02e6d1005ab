"""`scale` and `scaleref`: by the names people know (`chat`, `chat/prefill`), not by those Grove makes of them."""

from __future__ import annotations

from typing import Any

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, answer, cluster_command, complete_sets


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.argument("replicas", metavar="REPLICAS")
@click.option("--replica", type=click.IntRange(0), help="Only in this replica of the set. Default: in all replicas.")
@click.option("--dry-run", is_flag=True, help="Send a dry run to the API server, print the effect, and change nothing.")
@click.option("--check/--no-check", default=True, help="Say whether new gangs fit now. Takes a second or two.")
@cluster_command()
def scale(options: Options, target: str, replicas: str, replica: int | None, dry_run: bool, check: bool) -> int:
    """Scale a PodCliqueSet, one of its scaling groups, or a clique outside every group. Writes the scale subresource.

    Says which gangs are created and deleted, which part falls below its minimum, and whether new gangs fit now.
    """
    from grove.answers.scale import scale_answer

    if not replicas.isascii() or not replicas.isdecimal():
        raise Unanswered(f"replicas must be a whole number, 0 or more, not {replicas}")
    fits = _would_fit(options, target, int(replicas), replica) if check else ()
    return answer(
        options,
        lambda client, namespace: scale_answer(client, namespace, target, int(replicas), replica, dry_run, fits),
    )


def _would_fit(options: Options, target: str, replicas: int, replica: int | None) -> tuple[str, ...]:
    """Lines that say if the new gangs would fit now. The change is tried on a copy of the cluster.

    If that is not known, a line says so, and the command scales all the same.
    """
    import asyncio

    from grove.answers.errors import explained
    from grove.answers.plan import plan_answer
    from grove.answers.scale import fit_lines, targets
    from grove.answers.settings import settings_of
    from grove.cli.access import resolve
    from grove.kube.errors import Forbidden, KubeError
    from grove.kube.http import HttpClient
    from grove.kube.logs import configure_logs
    from grove.plan.copying import copy_cluster
    from grove.sim.loop import run

    configure_logs("error", "text")
    config, namespace = resolve(options)
    read: list[Any] = []
    unknown = "no answer whether the new pods fit"

    async def copied() -> str:
        """Why the cluster could not be copied; what is wrong with the target itself is wrong with the command."""
        async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
            _, objects = await explained(client, targets(client, namespace, target, replica))
            if all(obj.spec.replicas >= replicas for obj in objects):  # type: ignore[attr-defined]
                return ""
            try:
                read.append((await copy_cluster(client, None), await settings_of(client)))
            except Forbidden:
                return "you may not see the nodes and pods"
            except (KubeError, Unanswered) as error:
                return str(error)
            return ""

    if why := asyncio.run(copied()):
        return (f"{unknown}: {why}",)
    if not read:
        return ()
    copy, known = read[0]
    change = [f"{target}={replicas}"]
    try:
        return fit_lines(run(plan_answer(copy, namespace, scales=change, settings=known, replica=replica)).data)
    except Unanswered as error:
        return (f"{unknown}: {error}",)


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE]", shell_complete=complete_sets)
@click.option("--replica", type=click.IntRange(0), help="Only of this replica of the set. Default: of all replicas.")
@cluster_command()
def scaleref(options: Options, target: str, replica: int | None) -> int:
    """Print the scaleTargetRef with which an HPA or a KEDA ScaledObject scales a set, a group or a clique."""
    from grove.answers.scale import scaleref_answer

    return answer(options, lambda client, namespace: scaleref_answer(client, namespace, target, replica))
