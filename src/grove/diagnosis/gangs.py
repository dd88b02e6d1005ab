"""The one reason why a gang is not running, its evidence, and what to do next: from the outermost cause inwards.

create, quota → gate → gang → domain → node → dependency → pod. Pure: what was read goes in, with the scheduler's
diagnosis where there is one; a verdict comes out. Whether a set as a whole runs is said in `verdict`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from grove.api import conditions as words
from grove.api import kueue, labels
from grove.api.fields import natural
from grove.api.meta import Key, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.diagnosis.gang_answer import MOST_NAMED, Verdict, advice_to_place, because, has_minimum
from grove.diagnosis.held_capacity import held_sentence
from grove.diagnosis.kueue import kueue_reason
from grove.diagnosis.leaving import leaving_words, overdue_pods
from grove.diagnosis.not_ready import why_not_ready
from grove.diagnosis.pod_causes import waits_for_image
from grove.diagnosis.reasons import MISSING_SINCE, PROTECTED, level_of, sentence
from grove.diagnosis.refused import why_refused
from grove.diagnosis.seen import Seen
from grove.diagnosis.sizes import kept_apart, too_large_ever
from grove.diagnosis.standing import cliques_of, fate_of, gang_facts
from grove.diagnosis.states import BROKEN, Facts, state_of
from grove.diagnosis.tree import TreeEntry, tree_of
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reading import read_node
from grove.scheduler.model.reasons import Reason, named

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.explain.explanation import Diagnosis

PREEMPTING = "Preempting"
FITS = "it fits; the scheduler has not placed it yet"
NOT_HONOURED = "its pods span a required topology domain"


def gang_verdict(
    seen: Seen, gang: PodGang, diagnosis: Diagnosis | None, leaves: Sequence[TreeEntry] | None = None, rollout: str = ""
) -> Verdict:
    """State and dominant reason of one gang. Without a diagnosis the reason is what the scheduler wrote on the objects.

    `leaves` are the cliques of the gang's set with their pods, where the caller has them already.
    """
    cliques = cliques_of(seen, gang)
    own = own_cliques(seen, gang, cliques, leaves)
    return verdict_from(
        seen, gang, diagnosis, own, dataclasses.replace(gang_facts(seen, gang, cliques, own), rollout=rollout)
    )


def verdict_from(
    seen: Seen, gang: PodGang, diagnosis: Diagnosis | None, own: Sequence[TreeEntry], facts: Facts
) -> Verdict:
    """The verdict on a gang of which the facts are known."""
    state, cliques = state_of(facts), cliques_of(seen, gang)
    story = _without_state(seen, gang, diagnosis, own)
    pcs = seen.find_set(Key(gang.metadata.namespace, gang.metadata.labels.get(labels.PART_OF, "")))
    fate = fate_of(seen, pcs, cliques) if pcs is not None and state == BROKEN else ""
    evidence = (*story.evidence, *_nodes_asked(gang), *_overdue(seen, gang))
    return dataclasses.replace(story, state=state, fate=fate, evidence=evidence)


def _nodes_asked(gang: PodGang) -> Iterator[str]:
    """The answer of the cluster autoscaler to the gang's request for nodes."""
    condition = find_condition(gang.status.conditions, words.NODES_PROVISIONED)
    if condition is not None:
        yield f"node autoscaler: {condition.message}"


def _overdue(seen: Seen, gang: PodGang) -> Iterator[str]:
    """Pods of the gang that should be gone and still hold their capacity."""
    for pod in overdue_pods(seen.pods_of_gang.get(gang.metadata.key, ()), seen.now):
        yield f"pod: {pod.metadata.name} {leaving_words(pod, seen.now)}"


def own_cliques(
    seen: Seen, gang: PodGang, cliques: Sequence[PodClique], leaves: Sequence[TreeEntry] | None
) -> list[TreeEntry]:
    mine = {clique.metadata.name for clique in cliques}
    return [entry for entry in (leaves if leaves is not None else _cliques_of_set(seen, gang)) if entry.name in mine]


def _without_state(seen: Seen, gang: PodGang, diagnosis: Diagnosis | None, own: Sequence[TreeEntry]) -> Verdict:
    name, cliques = gang.metadata.name, cliques_of(seen, gang)
    levels = seen.levels(gang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""))
    refused = [(clique, error.description) for clique in cliques for error in clique.status.last_errors]
    missing = [clique for clique in cliques if clique.status.replicas < clique.spec.replicas]
    if refused and missing:
        return not_created(name, refused)
    mine = {clique.metadata.name for clique in cliques}
    placed = is_true(gang.status.conditions, words.SCHEDULED) or has_minimum(seen, gang)
    placed = placed or (diagnosis is not None and diagnosis.placed)
    unpulled = any(waits_for_image(pod) for pod in seen.pods_of_gang.get(gang.metadata.key, ()))
    wrong = [
        cause
        for cause in seen.causes
        if cause.concerns(gang.metadata.namespace, mine) and (unpulled or not cause.pulls)
    ]
    if first := next((cause for cause in wrong if placed or cause.keeps_from_nodes), None):
        rest = tuple(cause.reason for cause in wrong if cause is not first)
        return because(name, "reference", first.reason, rest, first.step, command=first.command)
    if wrong:
        waits = _without_state(dataclasses.replace(seen, causes=()), gang, diagnosis, own)
        return dataclasses.replace(
            waits, evidence=(*waits.evidence, *(f"reference: {cause.reason}" for cause in wrong))
        )
    if placed:
        return _as_placed(gang, why_not_ready(seen, gang, diagnosis, cliques, own))
    if (queued := _by_kueue(seen, gang)) is not None:
        return queued
    kept = _kept_waiting(gang)
    if kept is not None:
        return kept
    if diagnosis is None:
        return _as_written(seen, gang)
    return _not_placed(seen, gang, diagnosis, levels)


def _as_placed(gang: PodGang, verdict: Verdict) -> Verdict:
    """The verdict on a gang with nodes, and that its scheduler ignored a required topology if it did."""
    condition = find_condition(gang.status.conditions, words.TOPOLOGY_NOT_HONOURED)
    if condition is None or condition.status != words.TRUE:
        return verdict
    evidence = (*verdict.evidence, f"topology: {condition.message}")
    if verdict.level:
        return dataclasses.replace(verdict, evidence=evidence)
    scheduler = gang.metadata.labels.get(labels.SCHEDULER_NAME) or labels.GROVE_SCHEDULER
    step = f"kubectl grove doctor says what {scheduler} needs; then delete the pods that stand apart"
    return because(verdict.gang, "topology", f"{verdict.reason}; {NOT_HONOURED}", evidence, step)


def _by_kueue(seen: Seen, gang: PodGang) -> Verdict | None:
    """The reason why Kueue has not admitted a gang."""
    held = [pod for pod in seen.pods_of_gang.get(gang.metadata.key, ()) if kueue.waits(pod)]
    if not held:
        return None
    first = held[0].metadata
    total = natural(first.annotations.get(kueue.TOTAL, "")) or 1
    story = kueue_reason(seen.kueue.get(first.labels.get(kueue.GROUP, "")), len(held), total)
    return because(gang.metadata.name, "gate", story.reason, story.evidence, story.step)


def _kept_waiting(gang: PodGang) -> Verdict | None:
    """What only the scheduler can say of the gang: it evicts pods for it, or holds nodes that would do for other
    gangs.
    """
    name, conditions = gang.metadata.name, gang.status.conditions
    chosen = find_condition(conditions, words.NOMINATED)
    if chosen is not None and chosen.status == words.TRUE:
        step = "wait until they are gone; disruption budgets may hold them back"
        return because(name, "preemption", chosen.message or chosen.reason, (), step)
    condition = find_condition(conditions, words.SCHEDULED)
    if condition is None or condition.status == words.TRUE:
        return None
    if condition.reason == words.NODES_HELD_FOR_OTHERS:
        step = "wait for those before it (kubectl grove queue), or raise its priorityClassName"
        return because(name, "held", condition.message, (), step)
    if condition.reason == PREEMPTING:
        return because(name, "preemption", condition.message, (), "wait until they are gone")
    return None


def not_created(name: str, refused: Sequence[tuple[PodClique, str]]) -> Verdict:
    """The API server refuses pods: `refused` are cliques with the errors."""
    level, reason, step, command = why_refused(refused)
    return because(name, level, reason, tuple(dict.fromkeys(error for _, error in refused)), step, command=command)


def _without_pods(seen: Seen, gang: PodGang) -> str:
    """A node label that pods of the gang select and that no node has, as `key=value`; empty if there is none."""
    there = {pair for node in seen.nodes for pair in node.metadata.labels.items()}
    for pod in seen.pods_of_gang.get(gang.metadata.key, ()):
        for key, value in sorted(pod.spec.node_selector.items()):
            if seen.nodes and (key, value) not in there:
                return f"{key}={value}"
    return ""


def _shut_nodes(seen: Seen, gang: PodGang) -> dict[str, list[str]]:
    """Nodes that are closed to the gang's pods, by what closes them; without those that the pods do not select."""
    # It imports numpy, which a list of running sets does not need.
    from grove.scheduler.filters.node_filters import closed_by  # noqa: PLC0415

    pods = seen.pods_of_gang.get(gang.metadata.key, [])
    shut: dict[str, list[str]] = {}
    selected = pods[0].spec.node_selector if pods else {}
    for node in seen.nodes if pods else ():
        if not selected.items() <= node.metadata.labels.items():
            continue
        if word := closed_by(read_node(node).taints, pods[0].spec.tolerations):
            shut.setdefault(word, []).append(node.metadata.name)
    return shut


def _not_placed(seen: Seen, gang: PodGang, diagnosis: Diagnosis, levels: Sequence[tuple[str, str]]) -> Verdict:
    name, explanation = gang.metadata.name, diagnosis.explanation
    if diagnosis.gate is not None:
        return because(name, "gate", sentence(diagnosis.gate), next=_gate_step(diagnosis.gate), why=diagnosis.gate)
    assert explanation is not None
    unlabelled, shut = _without_pods(seen, gang), _shut_nodes(seen, gang)
    if explanation.fits:
        step = "if it stays so, kubectl grove doctor: is grove-scheduler running?"
        return because(name, "gang", FITS, next=step, why=explanation.why)
    spoken = {key: level for level, key in levels}
    why, *findings = (named(part, spoken) for part in (explanation.why, *explanation.findings))
    evidence, reason = tuple(f"{level_of(finding)}: {sentence(finding)}" for finding in findings), sentence(why)
    if lost := _lost(gang):
        reason = f"{reason}; {lost}"
    for what, names in shut.items():
        evidence = (*evidence, f"node: {len(names)} {what}: {', '.join(names[:MOST_NAMED])}" + _more(names))
    advice = advice_to_place(seen, gang, explanation.changes, levels)
    level = level_of(why)
    if not explanation.proven:
        evidence = (*evidence, "search: a place was not found within its budget; there may be one")
    step = advice[0].sentence if advice else "no small change helps: it needs more or larger nodes"
    if not advice and level == "node":
        step = "correct what excludes every node (the node lines above), or add nodes that can take it"
    if why.kind == kinds.UNKNOWN_LEVEL:
        step = f"kubectl label node NODE {why.subject}=…, for every node (kubectl grove doctor lists them)"
    if protected := _protected(gang):
        reason, evidence = f"{reason}; {protected}", (*evidence, f"preemption: {BUDGETS_HELP}")
    evidence = (*evidence, *kept_apart(seen, gang))
    if (large := too_large_ever(seen, gang, levels)) is not None:
        evidence, step = (large.words, *evidence), (step if advice else large.step or step)
    if unlabelled:
        evidence = (f"node: its pods select {unlabelled}, and no node has that label", *evidence)
        step = f"kubectl label node NODE {unlabelled}, or correct the nodeSelector of its pods"
    command = advice[0].command if advice and advice[0].sentence == step else ""
    return because(name, level, reason, (*evidence, *_held_for(gang)), step, advice, why, command)


def _lost(gang: PodGang) -> str:
    """Which pods the gang lost since it was placed, as its scheduler wrote; empty if it never was placed."""
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    if condition is None or condition.status == words.TRUE or condition.reason != kinds.PODS_LOST:
        return ""
    return next((clause for clause in condition.message.split("; ") if clause.startswith(MISSING_SINCE)), "")


BUDGETS_HELP = "the scheduler evicts them when their disruption budgets allow it"


def _protected(gang: PodGang) -> str:
    """Which disruption budgets keep pods of lower priority, as the gang's scheduler wrote; empty if none do."""
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    clauses = condition.message.split("; ") if condition is not None and condition.status != words.TRUE else []
    return next((clause for clause in clauses if clause.startswith(PROTECTED)), "")


def _held_for(gang: PodGang) -> Iterator[str]:
    """The capacity that the scheduler holds for a gang that waits."""
    if sentence := held_sentence(gang):
        yield sentence


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""


def _gate_step(gate: Reason) -> str:
    if gate.kind == kinds.BASE_WAITS and gate.names.get("state") == "absent":
        return "the operator makes its base gang again; if it stays so, kubectl grove doctor: does the operator run?"
    if gate.kind == kinds.BASE_WAITS:
        base = gate.subject.rpartition("/")[2]
        return f"kubectl grove explain pg/{base}: a scaled gang follows when its base gang is scheduled"
    if gate.kind in (kinds.PODS_COMING, kinds.PODS_MISSING):
        return "the operator is making its pods; if it stays so, kubectl grove doctor"
    return "the program that set the scheduling gate has to remove it" if gate.kind == kinds.GATED else ""


def _as_written(seen: Seen, gang: PodGang) -> Verdict:
    """The verdict from the objects alone, if the scheduler's view of the cluster is not available."""
    name = gang.metadata.name
    scheduler = gang.metadata.labels.get(labels.SCHEDULER_NAME) or labels.GROVE_SCHEDULER
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    objects_ready = find_condition(gang.status.conditions, words.SCHEDULER_OBJECTS_READY)
    if objects_ready is not None and objects_ready.status == words.FALSE:
        step = f"{scheduler} does not know the gang yet; docs/backends.md says what {objects_ready.reason} asks for"
        return because(
            name, "gate", objects_ready.message or objects_ready.reason, (f"{scheduler}: {objects_ready.reason}",), step
        )
    refusals = tuple(dict.fromkeys(_refusals(seen, gang)))
    if condition is None:
        complete = find_condition(gang.status.conditions, words.INITIALIZED)
        if complete is None or complete.status != words.TRUE:
            return because(name, "gate", "its pods are still being created")
        step = "kubectl grove doctor" if scheduler == labels.GROVE_SCHEDULER else f"is {scheduler} running?"
        reason = refusals[0] if refusals else f"{scheduler} has not said anything about it yet"
        return because(name, "gang", reason, refusals[1:], step)
    reason = condition.message or condition.reason
    evidence = (f"{scheduler}: {condition.reason}", *refusals, *_held_for(gang))
    return because(name, "gang", reason, evidence, _tried_once(seen, gang, scheduler))


def _tried_once(seen: Seen, gang: PodGang, scheduler: str) -> str:
    """The next step for a pod that joins a gang with topology: koord-scheduler does not try it again soon."""
    stands = any(pod.is_bound for pod in seen.pods_of_gang.get(gang.metadata.key, ()))
    if scheduler != labels.KOORDINATOR_SCHEDULER or not gang.requires_domain or not stands:
        return ""
    return f"{scheduler} tries it again after five minutes; once a node is free, delete the pod for a try at once"


def _refusals(seen: Seen, gang: PodGang) -> Iterator[str]:
    """The messages of a scheduler on the gang's pods that say why they have no node."""
    for pod in seen.pods_of_gang.get(gang.metadata.key, ()):
        condition = find_condition(pod.status.conditions, "PodScheduled")
        if condition is not None and condition.status == words.FALSE and condition.message:
            yield condition.message


def _cliques_of_set(seen: Seen, gang: PodGang) -> list[TreeEntry]:
    pcs = seen.find_set(Key(gang.metadata.namespace, gang.metadata.labels.get(labels.PART_OF, "")))
    return leaves_of(tree_of(seen, pcs)) if pcs is not None else []


def leaves_of(entry: TreeEntry) -> list[TreeEntry]:
    """The cliques of a tree, with their pods."""
    return [entry] if entry.kind == "PodClique" else [leaf for child in entry.children for leaf in leaves_of(child)]
