"""The status a PodGang should have, from what is known of the gang: pure, so that saying it twice changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from grove.api import conditions as words
from grove.api import labels
from grove.api.conditions import Standing, with_condition, without_condition
from grove.api.meta import Condition, Json, find_condition, rfc3339
from grove.api.patch import to_json
from grove.api.podgang import (
    MINIMUM_NOT_READY,
    MINIMUM_READY,
    PENDING,
    RUNNING,
    STARTING,
    HeldCapacity,
    PodGang,
    PodGangStatus,
    ReplacementAnswer,
    with_gang_standing,
)
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import Life
from grove.scheduler.policy.gang_state import INVALID, NO_PLACE, PLACED, PODS_LOST, GangState, Verdict
from grove.scheduler.policy.headroom import HeadroomState
from grove.scheduler.policy.hold_records import LONG_WAIT

PREEMPTED = "PreemptedByHigherPriority"
HEADROOM_IS_HELD, HEADROOM_IS_MISSING = "Held", "NotHeld"
MOST_HELD_NAMED = 40
"""Held nodes that the condition names; `status.capacityHolds` has all of them."""
LONGEST = 1024
REWORD_SHARE, MOST_REWORD_S = 0.1, 600.0
"""The reason why a gang waits is reworded after a tenth of the time it has waited, and after ten minutes at most."""


def wanted_status(
    gang: GangState,
    verdict: Verdict | None,
    before: PodGangStatus,
    standing: Mapping[str, int],
    ready: Mapping[str, int],
    now: datetime,
    say: Callable[[Reason], str],
    holds: tuple[HeldCapacity, ...] = (),
    answer: ReplacementAnswer | None = None,
    headroom: HeadroomState | None = None,
) -> PodGangStatus:
    """The PodGang's status as it should be; equal to what it has (`before`) when there is nothing new to say.

    `say` has the words for reasons; `holds` are what it says of held capacity. `answer` is that to `spec.replacement`,
    `headroom` what is held of `spec.headroom`.
    """
    now = now.replace(microsecond=0)
    stands = gang.has_minimum(standing)
    is_placed_now = verdict is not None and verdict.placed
    verdict = _verdict_to_write(gang, verdict, standing)
    conditions = before.conditions
    if verdict is not None:
        kept = "" if is_placed_now or not stands else _words_of_place(conditions)
        message = (kept or say(verdict.why))[:LONGEST]
        status = words.TRUE if verdict.placed else words.FALSE
        conditions = with_condition(conditions, words.SCHEDULED, status, verdict.reason, message, now)
    conditions = _with_readiness(conditions, gang, stands, ready, now)
    if gang.life.victim_of:
        cause = gang.life.victim_of[:LONGEST]
        conditions = with_condition(conditions, words.DISRUPTION_TARGET, words.TRUE, PREEMPTED, cause, now)
    elif stands or gang.life.spared:
        conditions = without_condition(conditions, words.DISRUPTION_TARGET)
    conditions = _with_plans(conditions, gang.life, holds, now, say)
    conditions = _with_headroom(conditions, gang, headroom, now, say)
    for older in (words.FORMER_PLACE, words.OLDER_REPLACEMENT):
        conditions = without_condition(conditions, older)
    stalled = None
    if verdict is not None and verdict.reason == INVALID:
        stalled = Standing("Stalled", INVALID, say(verdict.why)[:LONGEST])
    conditions = with_gang_standing(conditions, now, stalled)
    asked = gang.podgang.spec.replacement
    known = answer or before.replacement
    after = PodGangStatus(
        phase=_phase(gang, stands, ready),
        conditions=conditions,
        placement_score=gang.score if stands and gang.score is not None else before.placement_score,
        capacity_holds=holds,
        replacement=known if asked is not None and known is not None and known.id == asked.id else None,
    )
    return after if says_nothing(before, after) else _with_initialized(after, gang, now)


def _verdict_to_write(gang: GangState, verdict: Verdict | None, standing: Mapping[str, int]) -> Verdict | None:
    """The scheduler's verdict, corrected by the pods that stand on nodes; None if there is nothing to say yet."""
    if gang.has_minimum(standing):
        # Without a verdict it was not our doing, or from before we started: it is true all the same.
        return verdict if verdict is not None and verdict.placed else PLACED
    if gang.stood and any(standing.values()):
        lost = [
            Reason(kinds.GROUP_CAPACITY, name, {"room": standing[name], "pods": minimum})
            for name, minimum in gang.minima.items()
            if standing[name] < minimum
        ]
        why = (verdict.why,) if verdict is not None and verdict.reason in NO_PLACE else ()
        return Verdict(False, PODS_LOST, Reason(kinds.PODS_LOST, gang.name, parts=(*lost, *why)))
    if verdict is not None and verdict.placed:
        return None  # its pods have nodes and are not bound yet
    return verdict


def _words_of_place(conditions: tuple[Condition, ...]) -> str:
    """The words with which a gang got its place: they stay until it gets another."""
    scheduled = find_condition(conditions, words.SCHEDULED)
    return scheduled.message if scheduled is not None and scheduled.status == words.TRUE else ""


def _with_readiness(
    conditions: tuple[Condition, ...], gang: GangState, stands: bool, ready: Mapping[str, int], now: datetime
) -> tuple[Condition, ...]:
    """With Ready as the pods say; a gang that never had its minimum has no such condition."""
    if stands and not _unready(gang, ready):
        text = "every group has its minimum ready"
        return with_condition(conditions, words.READY, words.TRUE, MINIMUM_READY, text, now)
    if stands:
        text = "some groups have fewer ready pods than their minimum"
    elif find_condition(conditions, words.READY) is not None:
        text = "some groups have fewer pods than their minimum"
    else:
        return conditions
    return with_condition(conditions, words.READY, words.FALSE, MINIMUM_NOT_READY, text, now)


def _phase(gang: GangState, stands: bool, ready: Mapping[str, int]) -> str:
    if not stands:
        return PENDING
    return STARTING if _unready(gang, ready) else RUNNING


def _unready(gang: GangState, ready: Mapping[str, int]) -> bool:
    """True if a group has fewer ready pods than its minimum."""
    return any(ready[name] < minimum for name, minimum in gang.minima.items())


def _with_initialized(status: PodGangStatus, gang: GangState, now: datetime) -> PodGangStatus:
    """With the operator's word that all pods of the gang exist, which it leaves to the first status that is written.

    It makes a gang when its pods are there, and says at once if they are not; so one write a gang is saved.
    """
    by_operator = gang.podgang.metadata.labels.get(labels.MANAGED_BY) == labels.OPERATOR
    if not by_operator or gang.missing or not gang.group_of or find_condition(status.conditions, words.INITIALIZED):
        return status
    conditions = with_condition(
        status.conditions, words.INITIALIZED, words.TRUE, words.POD_GANG_PODS_CREATED, words.ALL_PODS_EXIST, now
    )
    return msgspec.structs.replace(status, conditions=conditions)


def _with_plans(
    conditions: tuple[Condition, ...],
    life: Life,
    holds: Sequence[HeldCapacity],
    now: datetime,
    say: Callable[[Reason], str],
) -> tuple[Condition, ...]:
    """With what the scheduler holds for the gang: whole nodes, or a placement that other pods have to leave first."""
    held = next((held_capacity for held_capacity in holds if held_capacity.reason in LONG_WAIT), None)
    if held is not None:
        some = " ".join(held.nodes[:MOST_HELD_NAMED])
        why = Reason(kinds.NODES_HELD, some, {"nodes": len(held.nodes)}, {"because": held.reason})
        conditions = with_condition(conditions, words.NODES_HELD, words.TRUE, held.reason, say(why)[:LONGEST], now)
    else:
        conditions = without_condition(conditions, words.NODES_HELD)
    if life.nominated is None:
        return without_condition(conditions, words.NOMINATED)
    reason = words.WAITING_FOR_VICTIMS if life.nominated.number("pods") else words.WAITING_FOR_TERMINATION
    text = say(life.nominated)[:LONGEST]
    return with_condition(conditions, words.NOMINATED, words.TRUE, reason, text, now)


def _with_headroom(
    conditions: tuple[Condition, ...],
    gang: GangState,
    headroom: HeadroomState | None,
    now: datetime,
    say: Callable[[Reason], str],
) -> tuple[Condition, ...]:
    """With the numbers of the headroom that the gang asks for. What was said stays until they are known."""
    if not gang.podgang.spec.headroom:
        return without_condition(conditions, words.HEADROOM_HELD)
    if headroom is None:
        return conditions
    is_held = headroom.held == headroom.wanted
    reason = HEADROOM_IS_HELD if is_held else headroom.why.kind if headroom.why is not None else HEADROOM_IS_MISSING
    status, text = words.TRUE if is_held else words.FALSE, say(headroom.reason)[:LONGEST]
    return with_condition(conditions, words.HEADROOM_HELD, status, reason, text, now)


def dated_after(status: PodGangStatus, bound: Mapping[str, Sequence[datetime]], gang: GangState) -> PodGangStatus:
    """The status of a gang that stands, Scheduled no earlier than its minimum was bound, as the cluster wrote it down.

    `says_placed` compares the two, and our clock may be behind the cluster's. Pods may also have been replaced since.
    """
    scheduled = find_condition(status.conditions, words.SCHEDULED)
    enough = (sorted(bound[name])[:minimum] for name, minimum in gang.minima.items())
    stood = max((moment for moments in enough for moment in moments), default=None)
    if scheduled is None or stood is None or (written := scheduled.last_transition_time) is None or stood <= written:
        return status
    dated = msgspec.structs.replace(scheduled, last_transition_time=stood)
    return msgspec.structs.replace(
        status, conditions=tuple(dated if condition is scheduled else condition for condition in status.conditions)
    )


def says_nothing(before: PodGangStatus, after: PodGangStatus) -> bool:
    """True if a write would change nothing. A new gang without a phase counts as pending."""
    return after == (before if before.phase else msgspec.structs.replace(before, phase=PENDING))


def only_rewords(before: PodGangStatus, after: PodGangStatus) -> bool:
    """True if a write would change only the text of the reason why the gang waits, such as its numbers."""
    old, new = (find_condition(status.conditions, words.SCHEDULED) for status in (before, after))
    if old is None or new is None or new.status != words.FALSE:
        return False
    kept = msgspec.structs.replace(new, message=old.message)
    conditions = tuple(kept if condition is new else condition for condition in after.conditions)
    return before == msgspec.structs.replace(after, conditions=conditions)


def reword_after_s(waited_s: float) -> float:
    """How long a text about a gang stays. A gang that waits for days is not rewritten each time a number changes."""
    return min(REWORD_SHARE * waited_s, MOST_REWORD_S)


def is_just_starting(before: PodGangStatus, after: PodGangStatus) -> bool:
    """True if the only change is that a gang without a condition has its place now."""
    return after.phase == STARTING and find_condition(before.conditions, words.SCHEDULED) is None


def status_patch(podgang: PodGang, wanted: PodGangStatus) -> Json:
    status: Json = {"phase": wanted.phase, "conditions": [condition_json(c) for c in wanted.conditions]}
    if wanted.placement_score is not None:
        status["placementScore"] = wanted.placement_score
    if wanted.capacity_holds or podgang.status.capacity_holds:
        status["capacityHolds"] = msgspec.to_builtins(wanted.capacity_holds) or None
    if wanted.replacement != podgang.status.replacement:
        answer = wanted.replacement
        status["replacement"] = {**to_json(answer), "message": answer.message or None} if answer is not None else None
    return {"metadata": {"resourceVersion": podgang.metadata.resource_version}, "status": status}


def condition_json(condition: Condition) -> Json:
    """A condition with all the fields that the API requires, empty ones too."""
    body: Json = {"type": condition.type, "status": condition.status}
    if condition.reason:
        body["reason"] = condition.reason
    body["message"] = condition.message
    if condition.last_transition_time is not None:
        body["lastTransitionTime"] = rfc3339(condition.last_transition_time)
    if condition.observed_generation is not None:
        body["observedGeneration"] = condition.observed_generation
    return body
