"""What `doctor` asks about what runs: the operator, the scheduler, and the nodes with their labels."""

from __future__ import annotations

from datetime import datetime, timedelta

from grove.answers.findings import FAIL, OK, WARN, Finding
from grove.api import conditions as words
from grove.api import labels
from grove.api.core import Node
from grove.api.hashes import is_taken_up
from grove.api.meta import find_condition, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.api.words import many
from grove.config import LeaderElection as OperatorLease
from grove.diagnosis.processes import sign_of_life
from grove.diagnosis.seen import every
from grove.kube.client import Client
from grove.scheduler.model.config import LeaderElection as SchedulerLease
from grove.show.layout import accelerator

STALE = timedelta(minutes=1)


async def operator(client: Client, now: datetime) -> list[Finding]:
    """The operator: a process holds its lease or runs as its pod, and sets are being reconciled."""
    sets = await every(client, PodCliqueSet)
    behind = [pcs for pcs in sets if not is_taken_up(pcs) and _is_old(pcs.metadata.creation_timestamp, now)]
    state, sign = await sign_of_life(client, "grove-operator", OperatorLease().resource_name, now)
    fix = _remedy(client, "operator")
    if behind:
        names = ", ".join(str(pcs.metadata.key) for pcs in behind[:3])
        waiting = many(len(behind), "set waits", "sets wait")
        return [Finding("operator", FAIL, f"{waiting} to be looked at ({names}); {sign}", fix)]
    return [Finding("operator", state, sign, "" if state == OK else fix)]


async def scheduler(client: Client, now: datetime) -> list[Finding]:
    """The scheduler: the same, and gangs are being answered."""
    gangs = await every(client, PodGang)
    silent = [
        gang
        for gang in gangs
        if gang.metadata.labels.get(labels.SCHEDULER_NAME, labels.GROVE_SCHEDULER) == labels.GROVE_SCHEDULER
        and is_true(gang.status.conditions, words.INITIALIZED)
        and find_condition(gang.status.conditions, words.SCHEDULED) is None
        and _is_old(gang.metadata.creation_timestamp, now)
    ]
    state, sign = await sign_of_life(client, "grove-scheduler", SchedulerLease().resource_name, now)
    fix = _remedy(client, "scheduler")
    if silent:
        text = f"{many(len(silent), 'complete gang has', 'complete gangs have')} had no answer for a minute; {sign}"
        return [Finding("scheduler", FAIL, text, fix)]
    return [Finding("scheduler", state, sign, "" if state == OK else fix)]


def _remedy(client: Client, process: str) -> str:
    """On a cluster of this machine the way is `grove up`; elsewhere its pods say why."""
    config = getattr(client, "config", None)
    if config is not None and config.is_loopback:
        return f"grove up starts it again on this machine; or run grove {process}"
    return f"kubectl -n grove-system get pods -l app.kubernetes.io/name=grove-{process}; or run grove {process}"


def _is_old(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since > STALE


async def topology(client: Client) -> list[Finding]:
    """Every level's label on every node that has accelerators, and schedulers that agree about the levels."""
    bindings = await every(client, ClusterTopologyBinding)
    nodes = await every(client, Node)
    if not bindings:
        text = "no ClusterTopologyBinding: gangs cannot ask for racks or blocks"
        return [Finding("topology", WARN, text, "create one that names your node labels (docs, samples)")]
    resource = accelerator(nodes)
    loaded = [node for node in nodes if node.status.allocatable.get(resource) not in (None, "0", 0)] or nodes
    findings: list[Finding] = []
    for binding in bindings:
        for level in binding.spec.levels:
            lacking = [node.metadata.name for node in loaded if level.key not in node.metadata.labels]
            if lacking:
                names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
                share = f"{len(lacking)} of {many(len(loaded), 'node')}"
                text = f"{binding.metadata.name}: {level.key} is missing on {share} ({names})"
                fix = f"kubectl label node {lacking[0]} {level.key}=…"
                findings.append(Finding("topology", WARN, text, fix))
        if is_true(binding.status.conditions, words.SCHEDULER_TOPOLOGY_DRIFT):
            text = f"{binding.metadata.name} and a scheduler's own topology differ"
            findings.append(Finding("topology", WARN, text, f"kubectl describe ct {binding.metadata.name}"))
    return findings or [
        Finding("topology", OK, f"{many(len(bindings), 'binding')}, {many(len(loaded), 'node')} labelled")
    ]
