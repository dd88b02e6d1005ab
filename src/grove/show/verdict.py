"""How a set is, in one word and one sentence: the judgement that `status`, `tree`, `explain`, `queue` and their exit
codes share, so that no two of them disagree.

Pure. From the outermost cause inwards: nobody looks after it (the operator or the scheduler does not run), it is going
away, scaled to zero, not taken up by the operator; else it is as its worst gang is, or being updated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from grove.api import labels
from grove.api.hashes import is_taken_up
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.words import many
from grove.show.gangs import (
    FAILING,
    NO_FIT,
    NOT_HONOURED,
    RUNNING,
    STARTING,
    WAITING,
    Verdict,
    gang_verdict,
    leaves_of,
    not_created,
)
from grove.show.processes import Process, Processes
from grove.show.rollouts import PAUSED, UPDATING, rollout_of
from grove.show.seen import Seen
from grove.show.tree import Twig, tree_of
from grove.show.words import counted

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.explain.explanation import Diagnosis

UNATTENDED, DELETING, ZERO = "unattended", "deleting", "scaled to zero"
WORST_FIRST = (UNATTENDED, NO_FIT, FAILING, WAITING, DELETING, PAUSED, UPDATING, STARTING, ZERO, RUNNING)
WELL, WAITS, CANNOT = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Judgement:
    """`level` is where the cause lies, `gangs` are judged one by one; `tree` is the set with all it is made of."""

    namespace: str
    name: str
    state: str
    reason: str = ""
    level: str = ""
    next: str = ""
    evidence: tuple[str, ...] = ()
    gangs: tuple[Verdict, ...] = ()
    tree: Twig | None = None

    @property
    def code(self) -> int:
        return code_of(self.state)


def code_of(state: str) -> int:
    """The exit code a state stands for: 0 all is well, 3 something waits, 4 something cannot be placed."""
    if state in (RUNNING, ZERO):
        return WELL
    return CANNOT if state == NO_FIT else WAITS


def judge(
    seen: Seen, pcs: PodCliqueSet, now: datetime, processes: Processes = Processes(),
    found: Mapping[Key, Diagnosis] = {},
) -> Judgement:  # fmt: skip
    """One set. `found` are the scheduler's diagnoses of gangs that wait, as far as somebody asked for them."""
    tree = tree_of(seen, pcs)
    gangs = sorted(seen.of_set(seen.gangs, pcs), key=lambda gang: counted(gang.metadata.name))
    leaves = leaves_of(tree)
    verdicts = tuple(gang_verdict(seen, gang, found.get(gang.metadata.key), leaves) for gang in gangs)
    meta = pcs.metadata

    def said(state: str, reason: str, level: str = "", step: str = "", evidence: Sequence[str] = ()) -> Judgement:
        return Judgement(meta.namespace, meta.name, state, reason, level, step, tuple(evidence), verdicts, tree)

    if (down := _down(processes, gangs)) is not None:
        ready = f"; {tree.count.ready} of {many(tree.count.wanted, 'pod')} ready" if tree.count.wanted else ""
        step = f"start {down.name}; kubectl grove doctor says how"
        return said(UNATTENDED, f"{down.sentence}{ready}", down.name.removeprefix("grove-"), step)
    if meta.is_deleting:
        return said(DELETING, "is being deleted", "operator", "wait until its pods are gone")
    if not pcs.spec.replicas and not tree.count.wanted:
        return said(ZERO, "is scaled to zero", step=f"kubectl grove scale {meta.name} 1 starts it")
    if not gangs:
        first = _without_gangs(seen, pcs)
        return said(first.state, first.reason, first.level, first.next, first.evidence)
    worst = min(verdicts, key=lambda one: WORST_FIRST.index(one.state))
    rollout = rollout_of(seen, pcs, now)
    if rollout.state in (PAUSED, UPDATING) and worst.state not in (NO_FIT, FAILING):
        step = f"kubectl grove rollout resume {meta.name}" if rollout.state == PAUSED else (
            f"kubectl grove rollout status {meta.name} says what it waits for"
        )  # fmt: skip
        return said(rollout.state, rollout.sentence, "update", step)
    if worst.state == RUNNING:
        if pcs.status.observed_generation is not None and not is_taken_up(pcs):
            return said(WAITING, "the operator has not taken up its last change yet", "operator")
        rest = f"; {rollout.sentence}" if rollout.outdated else ("; updates are paused" if rollout.paused else "")
        spread = next((one for one in verdicts if one.level == "topology"), None)
        rest += f"; {spread.gang}: {NOT_HONOURED}" if spread is not None else ""
        reason = f"{tree.count.ready} of {many(tree.count.wanted, 'pod')} ready{rest}"
        return said(RUNNING, reason, *((spread.level, spread.next, spread.evidence) if spread is not None else ()))
    which = f"{worst.gang}: " if len(gangs) > 1 and not worst.reason.startswith(worst.gang) else ""
    return said(worst.state, f"{which}{worst.reason}", worst.level, worst.next, worst.evidence)


def _down(processes: Processes, gangs: Sequence[PodGang]) -> Process | None:
    if processes.operator.is_down:
        return processes.operator
    ours = [one for one in gangs if is_ours(one)]
    return processes.scheduler if processes.scheduler.is_down and (ours or not gangs) else None


def is_ours(gang: PodGang) -> bool:
    return gang.metadata.labels.get(labels.SCHEDULER_NAME, labels.GROVE_SCHEDULER) == labels.GROVE_SCHEDULER


def _without_gangs(seen: Seen, pcs: PodCliqueSet) -> Verdict:
    """What is wrong with a set of which no gang can be asked about yet."""
    name = pcs.metadata.name
    refused = [one for one in seen.of_set(seen.cliques, pcs) if one.status.last_errors]
    if refused:  # a PodGang is written when its pods exist, or a moment later
        return not_created(name, refused[0], [e.description for one in refused for e in one.status.last_errors])
    if pcs.status.last_errors:
        errors = tuple(f"{one.code}: {one.description}" for one in pcs.status.last_errors)
        return Verdict(name, WAITING, "operator", errors[0], errors, "mend what the operator stumbles over")
    behind = not is_taken_up(pcs)
    why = "the operator has not seen it yet" if behind else "it has no PodGangs yet"
    return Verdict(name, WAITING, "operator", why, next="kubectl grove doctor: is the operator running?")
