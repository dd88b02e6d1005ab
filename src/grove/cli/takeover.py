"""`takeover`: sets that change hands between the Go operator of Grove and this one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from grove.cli.access import RUNNING, WAITING, Answer, Options, answer, cluster_command
from grove.cli.examples import epilog

if TYPE_CHECKING:
    from grove.api.podcliqueset import PodCliqueSet
    from grove.cli.findings import Finding
    from grove.kube.client import Client
    from grove.plan.way_back import BackStep


@click.command(epilog=epilog("takeover"))
@click.option(
    "--back", is_flag=True, help="Prepare sets for the Go operator, and finish after it has looked at them (writes)."
)
@click.option("--dry-run", is_flag=True, help="With --back: say what would be done; change nothing.")
@cluster_command()
def takeover(options: Options, back: bool, dry_run: bool) -> int:
    """What happens to sets that the Go operator made; with --back, the way back to that operator without restarts.

    The way back has two steps, and this command does the one that is next for each set. Run it before this operator is
    removed, and again after the Go operator has started. Without -n it is about the sets of all namespaces.
    Exit codes: 0 nothing is left to do, 3 something is.
    """
    from grove.cli.doctor import takeover_answer

    if back:
        return answer(options, lambda client, _: back_answer(client, options.namespace, dry_run=dry_run))
    now = datetime.now(UTC)
    return answer(options, lambda client, _: takeover_answer(client, options.namespace, now))


async def back_answer(client: Client, namespace: str, *, dry_run: bool = False) -> Answer:
    """The next step of every set of the namespace, or of all when none is named."""
    from grove.api import labels
    from grove.api.core import Pod
    from grove.api.podclique import PodClique
    from grove.api.podcliqueset import PodCliqueSet
    from grove.cli.findings import painted
    from grove.diagnosis.seen import Seen, every
    from grove.plan.way_back import next_step

    managed = f"{labels.MANAGED_BY}={labels.OPERATOR}"
    seen = Seen(
        await every(client, PodCliqueSet, namespace),
        cliques=await every(client, PodClique, namespace),
        pods=await every(client, Pod, namespace, labels=managed),
    )
    found: list[Finding] = []
    left = False
    for pcs in sorted(seen.sets, key=lambda one: one.metadata.key):
        step = next_step(pcs, seen.of_set(seen.cliques, pcs), seen.of_set(seen.pods, pcs))
        if not dry_run:
            await _carry_out(client, pcs, step)
        left = left or step.act in ("busy", "prepare", "wait") or (dry_run and step.act == "finish")
        found.append(_finding(pcs, step))
    return Answer(found, lambda width: painted(found, width), WAITING if left else RUNNING)


async def _carry_out(client: Client, pcs: PodCliqueSet, step: BackStep) -> None:
    """In an order that is safe to stop after: the pods, the strategy, then what only tidies up."""
    from contextlib import suppress

    from grove.api import labels
    from grove.api.core import Pod
    from grove.api.podclique import PodClique
    from grove.api.podcliqueset import PodCliqueSet
    from grove.kube.errors import NotFound

    name, namespace = pcs.metadata.name, pcs.metadata.namespace
    for pod, hash_ in step.pods.items():
        with suppress(NotFound):  # it ended meanwhile; its replacement has the hash already
            await client.patch(Pod, pod, {"metadata": {"labels": {labels.POD_TEMPLATE_HASH: hash_}}}, namespace)
    if step.patch:
        await client.patch(PodCliqueSet, name, step.patch, namespace)
    for clique in step.cliques:
        with suppress(NotFound):
            forget = {"status": {"updateProgress": None}}
            await client.patch(PodClique, clique, forget, namespace, subresource="status")


_FIX = {
    "prepare": "next: remove this operator, install the other one, then run this command again",
    "wait": "next: install the other operator, then run this command again",
    "finish": "next: restart the other operator once, so that it counts its pods anew",
}


def _finding(pcs: PodCliqueSet, step: BackStep) -> Finding:
    from grove.cli.findings import OK, WARN, Finding

    state = OK if step.act in ("none", "finish") else WARN
    return Finding(str(pcs.metadata.key), state, step.text, _FIX.get(step.act, ""))
