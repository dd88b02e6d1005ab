"""`takeover`: sets that change hands between the Go operator of Grove and this one."""

from __future__ import annotations

from contextlib import suppress

from grove.answers.answer import RUNNING, WAITING, Answer
from grove.answers.findings import OK, WARN, Finding, painted
from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.seen import Seen, every
from grove.kube.client import Client
from grove.kube.errors import NotFound
from grove.plan.way_back import BackStep, next_step


async def back_answer(client: Client, namespace: str, *, dry_run: bool = False) -> Answer:
    """The next step of every set of the namespace, or of all when none is named."""
    managed = f"{labels.MANAGED_BY}={labels.OPERATOR}"
    seen = Seen(
        await every(client, PodCliqueSet, namespace),
        cliques=await every(client, PodClique, namespace),
        pods=await every(client, Pod, namespace, labels=managed),
    )
    findings: list[Finding] = []
    left = False
    for pcs in sorted(seen.sets, key=lambda pcs: pcs.metadata.key):
        step = next_step(pcs, seen.of_set(seen.cliques, pcs), seen.of_set(seen.pods, pcs))
        if not dry_run:
            await _carry_out(client, pcs, step)
        left = left or step.act in ("busy", "prepare", "wait") or (dry_run and step.act == "finish")
        findings.append(_finding(pcs, step))
    return Answer(findings, lambda width: painted(findings, width), WAITING if left else RUNNING)


async def _carry_out(client: Client, pcs: PodCliqueSet, step: BackStep) -> None:
    """In an order that is safe to stop after: the pods, the strategy, then what only tidies up."""
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
    "finish": "next: restart the other operator once, so that it counts its pods again",
}


def _finding(pcs: PodCliqueSet, step: BackStep) -> Finding:
    state = OK if step.act in ("none", "finish") else WARN
    return Finding(str(pcs.metadata.key), state, step.text, _FIX.get(step.act, ""))
