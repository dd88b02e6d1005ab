"""Why a gang that has its nodes is not ready: a pod failed, waits for another clique, or says nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from grove.api import labels
from grove.api.meta import Key
from grove.api.pod import Pod
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.api.startorder import READY
from grove.api.words import many
from grove.diagnosis.advice import restarting
from grove.diagnosis.gang_answer import MOST_NAMED, Verdict, advice_to_place, because, has_minimum
from grove.diagnosis.pod_causes import create_absent, pod_cause
from grove.diagnosis.reasons import level_of, sentence
from grove.diagnosis.seen import Seen
from grove.diagnosis.served import (
    INIT_RUNS,
    hangs,
    init_at_work,
    init_words,
    is_silent_for_long,
    may_recover,
    runs_something,
)
from grove.diagnosis.tree import STARTING as SILENT
from grove.diagnosis.tree import State, TreeEntry
from grove.diagnosis.units import smallest_unit
from grove.scheduler.model.reasons import named

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.explain.explanation import Diagnosis


def why_not_ready(
    seen: Seen, gang: PodGang, diagnosis: Diagnosis | None, cliques: Sequence[PodClique], own: Sequence[TreeEntry]
) -> Verdict:
    name = gang.metadata.name
    entries = [pod for entry in own for pod in entry.children if pod.state is not State.LEAVING]
    sick = [entry for entry in entries if entry.state is not State.READY]
    short = [entry for entry in own if entry.state is State.MISSING]
    if short and not any(entry.state is State.FAILED for entry in sick):
        evidence = tuple(f"{entry.name}: {entry.why}" for entry in short)
        step = "the operator is making them; if it stays so, kubectl grove doctor"
        return because(name, "operator", f"{short[0].name}: {short[0].why}", evidence, step)
    draining = [entry for entry in own if entry.state is State.LEAVING]
    if not sick and draining:
        evidence = tuple(f"{entry.name}: {entry.why}" for entry in draining)
        return because(name, "operator", draining[0].why, evidence, "wait: the operator then deletes these pods")
    if not sick:
        ready = sum(entry.count.ready for entry in own)
        return because(name, "", f"{many(ready, 'pod')} ready")
    worst = min(sick, key=lambda entry: (entry.state, entry.name))
    evidence = tuple(_together(sick))
    if worst.state is State.FAILED:
        node = seen.node_of.get(worst.node)
        lost = bool(seen.nodes) and bool(worst.node) and (node is None or not node.is_ready)
        if lost:
            step = f"recover node {worst.node}; if it is gone for good, delete it"
            return because(name, "node", worst.why, evidence, step, command=f"kubectl delete node {worst.node}")
        return _failed(seen, gang, worst, sick, evidence)
    if worst.state is State.PENDING:
        return _surplus_waits(
            seen, gang, diagnosis, [entry for entry in sick if entry.state is State.PENDING], evidence
        )
    blocked = [clique for clique in cliques if clique.spec.starts_after and _is_waiting(seen, clique)]
    if blocked:
        clique = blocked[0]
        after = ", ".join(clique.spec.starts_after)
        is_ready = clique.spec.start_condition == READY
        step = f"look at {after} first: kubectl grove tree"
        if is_ready and any(_runs(seen, gang, parent) for parent in clique.spec.starts_after):
            step += f"; if it is ready only after {clique.spec.role_name} has joined, set startsAfterCondition: Started"
        why = f"{clique.metadata.name} starts after {after}" + (
            "" if is_ready else f" is {clique.spec.start_condition}"
        )
        return because(name, "dependency", why, evidence, step)
    if all(entry.why == SILENT or entry.why.startswith(INIT_RUNS) for entry in sick):
        return _complaints(seen, gang, worst.name, evidence)
    return because(name, "pod", worst.why or "its pods are starting", evidence, "wait, or read their logs")


def _surplus_waits(
    seen: Seen, gang: PodGang, diagnosis: Diagnosis | None, pending: Sequence[TreeEntry], evidence: tuple[str, ...]
) -> Verdict:
    """Pods of a gang that is placed have no node: how many, and the smallest change that places all of them."""
    which = "above the minimum " if has_minimum(seen, gang) else ""
    verb = "waits" if len(pending) == 1 else "wait"
    reason = f"{many(len(pending), 'pod')} {which}{verb}: {pending[0].why}"
    explanation = diagnosis.explanation if diagnosis is not None else None
    if explanation is None:
        return because(gang.metadata.name, "node", reason, evidence, "the minimum runs: wait for a node")
    if explanation.fits:
        step = "wait: there is capacity, and the scheduler has not placed them yet"
        return because(gang.metadata.name, "node", reason, evidence, step, why=explanation.why)
    levels = seen.levels(gang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""))
    advice = advice_to_place(seen, gang, explanation.changes, levels)
    spoken = {key: level for level, key in levels}
    findings = tuple(f"{level_of(finding)}: {sentence(named(finding, spoken))}" for finding in explanation.findings)
    step = advice[0].sentence if advice else "no small change helps: they need more or larger nodes"
    command = advice[0].command if advice else ""
    why = named(explanation.why, spoken)
    return because(gang.metadata.name, "node", reason, (*evidence, *findings), step, advice, why, command)


def _failed(
    seen: Seen, gang: PodGang, worst: TreeEntry, sick: Sequence[TreeEntry], evidence: tuple[str, ...]
) -> Verdict:
    """A pod whose container ended, cannot start or hangs, as exactly as it is known.

    A restart of the smallest unit comes first if the pod served before and nothing known keeps a new one from serving.
    """
    name, pods = gang.metadata.name, {pod.metadata.name: pod for pod in seen.pods_of_gang.get(gang.metadata.key, ())}
    pod = pods.get(worst.name)
    cause = pod_cause(pod, seen.events) if pod is not None else None
    if pod is not None and pod.status.phase == "Failed":
        step = f"wait: the operator replaces the pod; kubectl describe pod {worst.name} says what its node did"
        return because(name, "pod", worst.why, evidence, step)
    reason, step = cause if cause is not None else (worst.why, _remedy(worst))
    if pod is not None and may_recover(pod) and (cause is None or hangs(pod)):
        broken = {entry.name for entry in sick if entry.name in pods and may_recover(pods[entry.name])}
        return _restarting(seen, gang, broken, reason, evidence, f"{_log_of(pod)} may say why")
    return because(name, "pod", reason, evidence, step)


def _restarting(
    seen: Seen, gang: PodGang, pods: Collection[str], reason: str, evidence: tuple[str, ...], after: str
) -> Verdict:
    """Advises to restart the smallest unit that holds these pods."""
    pcs = seen.find_set(Key(gang.metadata.namespace, gang.metadata.labels.get(labels.PART_OF, "")))
    target = smallest_unit(seen, gang, pcs, pods) if pcs is not None else f"pg/{gang.metadata.name}"
    step = f"restart {target}; {after}"
    return because(gang.metadata.name, "pod", reason, evidence, step, command=restarting(gang, target))


def _log_of(pod: Pod) -> str:
    return f"kubectl logs {pod.metadata.name}" + ("" if hangs(pod) else " --previous")


def _complaints(seen: Seen, gang: PodGang, pod: str, evidence: tuple[str, ...]) -> Verdict:
    """Pods that are bound and whose containers say nothing: what their kubelets warn of, the latest first."""
    pods = {bound_pod.metadata.name: bound_pod for bound_pod in seen.pods_of_gang.get(gang.metadata.key, ())}
    name, mine = gang.metadata.name, {key for key, bound_pod in pods.items() if not bound_pod.is_ready}
    events = [event for event in seen.events if event.involved_object.name in mine and event.type == "Warning"]
    events.sort(key=lambda event: str(event.last_timestamp or event.event_time or ""), reverse=True)
    hung = {
        key
        for key, bound_pod in pods.items()
        if key in mine
        and (may_recover(bound_pod) or (is_silent_for_long(bound_pod, seen.now) and not _is_timed(seen, bound_pod)))
    }
    if not events and hung:
        return _restarting(
            seen, gang, hung, "its pods are starting", evidence, f"kubectl describe pod {pod} may say why"
        )
    if not events:
        return _at_work(seen, name, [bound_pod for key, bound_pod in sorted(pods.items()) if key in mine], evidence)
    latest = events[0]
    if (cause := pod_cause(pods[latest.involved_object.name], events)) is not None:
        return because(name, "pod", cause[0], evidence, cause[1])
    warnings = dict.fromkeys(f"{event.involved_object.name}: {event.reason}: {event.message}" for event in events)
    step = create_absent(latest.message) or f"kubectl describe pod {latest.involved_object.name}"
    reason = f"{latest.reason}: {latest.message}"
    return because(name, "pod", reason, tuple(warnings)[:MOST_NAMED], step)


def _is_timed(seen: Seen, pod: Pod) -> bool:
    """True if a container runs and has a startup probe: the kubelet itself restarts one that takes too long."""
    clique = seen.clique_of.get(Key(pod.metadata.namespace, pod.metadata.labels.get(labels.POD_CLIQUE, "")))
    containers = clique.spec.pod_spec.get("containers") or () if clique is not None else ()
    return runs_something(pod) and any(container.get("startupProbe") for container in containers)


def _at_work(seen: Seen, gang: str, pods: Sequence[Pod], evidence: tuple[str, ...]) -> Verdict:
    """Pods that start, and nothing speaks against them. Their logs say how far they are."""
    for pod in pods:
        if (init := init_at_work(pod)) is not None:
            step = f"wait, or kubectl logs {pod.metadata.name} -c {init.name}"
            return because(gang, "pod", init_words(init, seen.now), evidence, step)
    name = pods[0].metadata.name
    step = f"wait, or kubectl {'logs' if runs_something(pods[0]) else 'describe pod'} {name}"
    return because(gang, "pod", "its pods are starting", evidence, step)


def _remedy(pod: TreeEntry) -> str:
    """The next step for a pod whose container ended or cannot start."""
    if _IMAGE.search(pod.why):
        return "check the image's name, and that its node has it or can pull it (registry, imagePullSecrets)"
    return create_absent(pod.why) or f"kubectl logs {pod.name} --previous"


_IMAGE = re.compile(r": (ErrImage\w*|ImagePullBackOff|InvalidImageName)\b")


def _together(sick: Sequence[TreeEntry]) -> Iterator[str]:
    """One line a reason, with the pods that have it."""
    by_reason: dict[str, list[str]] = {}
    for entry in sick:
        by_reason.setdefault(entry.why, []).append(entry.name)
    for why, names in by_reason.items():
        more = f" and {many(len(names) - 1, 'other pod')}" if len(names) > 1 else ""
        yield f"{names[0]}{more}: {why}"


def _runs(seen: Seen, gang: PodGang, clique: str) -> bool:
    """True if all containers of a pod of this clique run and the pod is not ready."""
    pods = seen.pods_of_clique.get(Key(gang.metadata.namespace, clique), ())
    running = (pod for pod in pods if pod.status.container_statuses and not pod.is_ready)
    return any(all(status.state.running for status in pod.status.container_statuses) for pod in running)


def _is_waiting(seen: Seen, clique: PodClique) -> bool:
    return any(
        status.name == labels.STARTUP_CONTAINER and status.state.running
        for pod in seen.pods_of_clique.get(clique.metadata.key, ())
        for status in pod.status.init_container_statuses
    )
