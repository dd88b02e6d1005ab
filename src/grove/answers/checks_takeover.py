"""What `doctor --takeover` answers: for each set that another operator of Grove made, what will happen to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from grove.answers.checks_installed import kinds
from grove.answers.findings import FAIL, OK, WARN, Finding
from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.config import LeaderElection
from grove.diagnosis.processes import sign_of_life
from grove.diagnosis.seen import Seen, every
from grove.kube.client import Client
from grove.kube.errors import NotFound
from grove.plan.takeover import Forecast, forecast

T = TypeVar("T", bound=Object)


async def takeovers(client: Client, namespace: str) -> list[Finding]:
    """Every set of the namespace, or of all when none is named; a dry run by the operator's own rule."""

    async def listed(kind: type[T], selector: str = "") -> list[T]:
        try:
            return await every(client, kind, namespace, labels=selector)
        except NotFound:
            return []  # an older version of the other operator has fewer kinds

    managed = f"{labels.MANAGED_BY}={labels.OPERATOR}"
    seen = Seen(
        await listed(PodCliqueSet),
        await listed(PodCliqueScalingGroup),
        await listed(PodClique),
        await listed(PodGang),
        await listed(Pod, managed),
    )
    findings: list[Finding] = []
    schedulers: dict[str, int] = {}
    others = 0
    for pcs in sorted(seen.sets, key=lambda pcs: pcs.metadata.key):
        predicted = forecast(
            pcs,
            seen.of_set(seen.cliques, pcs),
            seen.of_set(seen.groups, pcs),
            seen.of_set(seen.gangs, pcs),
            seen.of_set(seen.pods, pcs),
        )
        if predicted is None:
            others += 1
            continue
        for name in predicted.schedulers:
            schedulers[name] = schedulers.get(name, 0) + 1
        findings.append(_finding(str(pcs.metadata.key), predicted))
    if others:
        text = f"{many(others, 'set')} that no other operator made, or that Grove has already taken over"
        findings.append(Finding("sets", OK, text))
    for name, count in sorted(schedulers.items()):
        text = f"{name} places {many(count, 'set')} and goes on doing so, if it is in config.scheduler.profiles"
        findings.append(Finding("scheduler", OK, text))
    return findings or [Finding("takeover", OK, "there is no set here")]


async def definitions(client: Client) -> list[Finding]:
    """The CRDs: those of the other operator lack fields and perhaps kinds, which is no fault before ours come."""
    return [replace(kind, state=WARN) if kind.state == FAIL else kind for kind in await kinds(client)]


async def rivals(client: Client, now: datetime) -> list[Finding]:
    """Finds an operator that leads now. A user must remove it before installing another one."""
    state, sign = await sign_of_life(client, "grove-operator", LeaderElection().resource_name, now)
    if state != OK:
        return [Finding("operator", OK, "no operator leads now")]
    return [Finding("operator", WARN, f"an operator runs ({sign})", "uninstall it before installing this one")]


def _finding(name: str, predicted: Forecast) -> Finding:
    stays = "1 pod stays as it is" if predicted.stays == 1 else f"{many(predicted.stays, 'pod')} stay as they are"
    access = (
        "; its unused ServiceAccount, Role, RoleBinding and token Secret are removed" if predicted.drops_access else ""
    )
    if not predicted.replaced:
        return Finding(name, OK, f"{stays}{access}")
    of = ", ".join(f"{count} of {clique}" for clique, count in sorted(predicted.replaced.items()))
    why = (
        "the update that is under way goes on"
        if predicted.continues
        else "the set was changed after its operator looked"
    )
    if predicted.held:
        return Finding(name, OK, f"{stays}; outdated pods stay too ({of}): {predicted.held}{access}")
    namespace, _, of_set = name.rpartition("/")
    fix = f"to keep them for now: kubectl -n {namespace} annotate podcliqueset {of_set} {labels.ROLLOUT_PAUSED}=true"
    return Finding(name, WARN, f"{stays}; replaced one after another: {of} ({why}){access}", fix)
