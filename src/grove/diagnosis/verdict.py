"""A set in one word and one sentence: `status`, `tree`, `explain`, `queue`, `top` and the console share it.

Pure. The state is decided in `states`; this adds the reason: from the outermost cause inwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from grove.api import labels
from grove.api.hashes import is_taken_up
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.undo import kept_for
from grove.api.words import many
from grove.diagnosis.gang_answer import Verdict, because
from grove.diagnosis.gangs import NOT_HONOURED, leaves_of, not_created, verdict_from
from grove.diagnosis.leaving import leaving_words, overdue_pods, step_for, why_deleting
from grove.diagnosis.processes import Process, Processes
from grove.diagnosis.rollouts import Rollout, is_of_update, rollout_of
from grove.diagnosis.seen import Seen
from grove.diagnosis.standing import cliques_of, gang_facts, refused_cliques, set_state
from grove.diagnosis.states import (
    CODES,
    DELETING,
    LINE,
    PAUSED,
    RUNNING,
    STOPPED,
    STUCK,
    UPDATING,
    WORST_FIRST,
    Facts,
    brief,
)
from grove.diagnosis.tree import State, TreeEntry, tree_of, with_reasons
from grove.diagnosis.unapplied import unapplied_topology
from grove.diagnosis.words import counted

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.explain.explanation import Diagnosis


@dataclass(frozen=True, slots=True)
class Judgement:
    """`level` is where the cause lies, `gangs` are judged one by one; `tree` is the set with all it is made of."""

    namespace: str
    name: str
    state: str
    reason: str = ""
    level: str = ""
    next: str = ""
    command: str = ""
    """Carries out `next` as it stands; empty where a person has to decide something first."""
    evidence: tuple[str, ...] = ()
    gangs: tuple[Verdict, ...] = ()
    tree: TreeEntry | None = None
    brief: str = ""
    """The reason in at most 80 characters, for lists."""
    cause: str = ""
    """The cause in the set itself, in at most 80 characters, for lists below a line about the operator."""
    unattended: bool = False
    """The operator or the scheduler does not run, which matters more than any gang."""
    headline: str = ""
    """The reason in at most 240 characters, for a line of its own."""

    @property
    def code(self) -> int:
        return CODES[self.state]


def judge_all(
    seen: Seen, now: datetime, processes: Processes = Processes(), diagnoses: Mapping[Key, Diagnosis] = {}
) -> tuple[Judgement, ...]:
    """Every set that was read. They share one index of the pods, however many sets there are."""
    seen = replace(seen, now=now)
    return tuple(judge(seen, pcs, now, processes, diagnoses) for pcs in seen.sets)


def judge(
    seen: Seen,
    pcs: PodCliqueSet,
    now: datetime,
    processes: Processes = Processes(),
    diagnoses: Mapping[Key, Diagnosis] = {},
) -> Judgement:
    """One set. `found` are the scheduler's diagnoses of waiting gangs, as far as the caller asked for them."""
    seen = seen if seen.now is not None else replace(seen, now=now)
    tree = tree_of(seen, pcs)
    gangs = sorted(seen.of_set(seen.gangs, pcs), key=lambda gang: counted(gang.metadata.name))
    leaves = {entry.name: entry for entry in leaves_of(tree)}
    rollout = rollout_of(seen, pcs, now)
    turning = rollout.state if rollout.state in (PAUSED, UPDATING) else ""
    facts: dict[str, Facts] = {}
    verdicts: list[Verdict] = []
    for gang in gangs:
        cliques = cliques_of(seen, gang)
        entries = [leaves[clique.metadata.name] for clique in cliques if clique.metadata.name in leaves]
        facts[gang.metadata.name] = gang_facts(seen, gang, cliques, entries)
        known = replace(facts[gang.metadata.name], rollout=turning)
        verdict = verdict_from(seen, gang, diagnoses.get(gang.metadata.key), entries, known)
        if turning == UPDATING and verdict.state in STUCK and _is_by_update(seen, pcs, gang, verdict):
            verdict = _or_undo(verdict, pcs)
        verdicts.append(verdict)
    tree = with_reasons(
        tree,
        {
            verdict.gang: verdict.reason
            for verdict in verdicts
            if Key(pcs.metadata.namespace, verdict.gang) in diagnoses
        },
    )
    down = _down(processes, gangs)
    state = set_state(seen, pcs, tree, facts, turning, unattended=down is not None)
    own = _first(state, seen, pcs, tree, verdicts, rollout)
    matters = down is not None and state != STOPPED and (state != DELETING or processes.operator.is_down)
    first = _unattended(down, tree) if down is not None and matters else own
    lead, own_lead = (
        f"{verdict.gang}: " if verdict.gang and len(gangs) > 1 and not verdict.reason.startswith(verdict.gang) else ""
        for verdict in (first, own)
    )
    return Judgement(
        pcs.metadata.namespace,
        pcs.metadata.name,
        state,
        f"{lead}{first.reason}",
        first.level,
        first.next,
        first.command,
        first.evidence,
        tuple(verdicts),
        tree,
        brief(first.reason, lead, first.fate),
        brief(own.reason, own_lead, own.fate),
        down is not None,
        brief(first.reason, lead, first.fate, LINE),
    )


BY_TEMPLATE = ("create", "reference", "pod")
"""Levels of a cause that another template may not have. A node that is lost has nothing to do with an update."""


def _is_by_update(seen: Seen, pcs: PodCliqueSet, gang: PodGang, verdict: Verdict) -> bool:
    """True if all pods of the gang that are not ready are from the new template, and an undo would last."""
    if verdict.level not in BY_TEMPLATE or not verdict.next:
        return False
    pods = seen.pods_of_gang.get(gang.metadata.key, ())
    unready = [pod for pod in pods if not pod.is_ready and not pod.metadata.is_deleting]
    if kept_for(pcs) or not (unready or verdict.level == "create"):  # pods that cannot be created do not exist
        return False
    return all(is_of_update(pcs, pod) for pod in unready)


def _or_undo(verdict: Verdict, pcs: PodCliqueSet) -> Verdict:
    """The same with the way back: the pods before the update ran."""
    undo = f"kubectl grove -n {pcs.metadata.namespace} rollout undo {pcs.metadata.name}"
    if verdict.command:
        return replace(verdict, next=f"{verdict.next}; or take the update back: {undo}")
    return replace(verdict, next=f"{verdict.next}; or take the update back", command=undo)


def _unattended(down: Process, tree: TreeEntry) -> Verdict:
    reason = f"{down.sentence}; {_ready(tree)}" if tree.count.wanted else down.sentence
    step = f"start {down.name}; kubectl grove doctor says how"
    return because("", down.name.removeprefix("grove-"), reason, next=step)


def _ready(tree: TreeEntry) -> str:
    return f"{tree.count.ready} of {many(tree.count.wanted, 'pod')} ready"


def _first(
    state: str, seen: Seen, pcs: PodCliqueSet, tree: TreeEntry, verdicts: Sequence[Verdict], rollout: Rollout
) -> Verdict:
    """The reason of a state that matters most; its `gang` is empty if it is about the set as a whole."""
    name, count = pcs.metadata.name, _ready(tree)
    if state == DELETING:
        return why_deleting(pcs, seen.of_set(seen.pods, pcs), seen.now)
    if state == STOPPED:
        return because("", "", "is scaled to zero", next="scale it up", command=_scaling_up(pcs))
    if not verdicts:
        return _without_gangs(seen, pcs)
    if state == UPDATING and rollout.state != UPDATING:
        return because("", "operator", "the operator has not taken up its last change yet")
    if state in (PAUSED, UPDATING):
        step, verb = ("let it go on", "resume") if state == PAUSED else ("follow it", "status")
        command = f"kubectl grove -n {pcs.metadata.namespace} rollout {verb} {name}"
        return because("", "update", rollout.sentence, next=step, command=command)
    worst = min(verdicts, key=lambda verdict: (WORST_FIRST.index(verdict.state), verdict.level == "topology"))
    if worst.level == "topology":
        return replace(worst, reason=f"{NOT_HONOURED}; {count}")
    if state != RUNNING and worst.state == RUNNING and (unapplied := unapplied_topology(pcs)) is not None:
        return replace(unapplied, reason=f"{unapplied.reason}; {count}")
    if state == RUNNING or worst.state == RUNNING:
        rest = f"; {rollout.sentence}" if rollout.outdated else ("; updates are paused" if rollout.paused else "")
        if tree.state is State.LEAVING and tree.why:  # some pods drain
            rest = f"; {tree.why}{rest}"
        if late := overdue_pods(seen.of_set(seen.pods, pcs), seen.now):
            rest = f"; {late[0].metadata.name} {leaving_words(late[0], seen.now)}{rest}"
        return because("", "", f"{count}{rest}", next=step_for(late[0]) if late else "")
    return worst


def _scaling_up(pcs: PodCliqueSet) -> str:
    """The commands that start a set at 0 replicas, or a set of which every clique and group is at 0."""
    scale, template = f"kubectl grove -n {pcs.metadata.namespace} scale {pcs.metadata.name}", pcs.spec.template
    if not pcs.spec.replicas:
        return f"{scale} 1"
    parts = [(group.name, max(1, group.min_available)) for group in template.pod_clique_scaling_groups]
    parts += [(clique.name, max(1, clique.spec.minimum)) for clique in template.standalone_cliques]
    return " && ".join(f"{scale}/{name} {minimum}" for name, minimum in parts)


def _down(processes: Processes, gangs: Sequence[PodGang]) -> Process | None:
    if processes.operator.is_down:
        return processes.operator
    ours = [gang for gang in gangs if is_ours(gang)]
    return processes.scheduler if processes.scheduler.is_down and (ours or not gangs) else None


def is_ours(gang: PodGang) -> bool:
    return gang.metadata.labels.get(labels.SCHEDULER_NAME, labels.GROVE_SCHEDULER) == labels.GROVE_SCHEDULER


def _without_gangs(seen: Seen, pcs: PodCliqueSet) -> Verdict:
    """The verdict on a set whose gangs do not exist yet."""
    if refused := refused_cliques(seen, pcs):  # a PodGang is written when its pods exist, or a moment later
        errors = [(clique, error.description) for clique in refused for error in clique.status.last_errors]
        return replace(not_created(pcs.metadata.name, errors), gang="")
    if pcs.status.last_errors:
        reasons = tuple(f"{error.code}: {error.description}" for error in pcs.status.last_errors)
        return because("", "operator", reasons[0], reasons, "correct the error that the operator reports")
    why = "it has no PodGangs yet" if is_taken_up(pcs) else "the operator has not seen it yet"
    return because("", "operator", why, next="kubectl grove doctor: is the operator running?")
