"""The status of a dialect's object: what its PodCliqueSet, cliques, groups and gangs say, in the dialect's words.

Conditions of the set are repeated word for word; `Scheduled` and `Ready` hold when they hold of every gang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from grove.api import conditions, labels
from grove.api.conditions import FALSE, TRUE, with_condition
from grove.api.dynamo import GangSummary, PodGangSetStatus
from grove.api.koordset import CliqueReport, GangReport, GroupReport, KoordPodCliqueSetStatus
from grove.api.meta import Condition, Json, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PENDING, RUNNING, STARTING, PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.dialects.koord import Member, members_of, starts_after

TRANSLATED, STARTUP_BLOCKED = "Translated", "StartupBlocked"
NAME_CONFLICT, INVALID_SPEC, SET_IS_GOING, NOT_ALLOWED = "NameConflict", "InvalidSpec", "SetIsGoing", "NotAllowed"

Conditions = tuple[Condition, ...]


def waiting_gang(gangs: Sequence[PodGang]) -> Condition | None:
    """Why the first gang that is not placed, or not ready, is so."""
    for type_ in (conditions.SCHEDULED, conditions.READY):
        for gang in gangs:
            condition = find_condition(gang.status.conditions, type_)
            if condition is not None and condition.status != TRUE:
                return condition
    return None


def mirrored_conditions(
    before: Conditions, pcs: PodCliqueSet, gangs: Sequence[PodGang], now: datetime, *more: Condition
) -> Conditions:
    """`Translated` as it was, `Scheduled` and `Ready` of all gangs, then what the set and `more` say, word for word."""
    translated = find_condition(before, TRANSLATED)
    own: Conditions = (translated,) if translated is not None else ()
    for type_ in (conditions.SCHEDULED, conditions.READY):
        kept = find_condition(before, type_)
        earlier: Conditions = (kept,) if kept is not None else ()
        own += with_condition(earlier, type_, *_of_gangs(type_, gangs), now)
    mirrored = {condition.type: condition for condition in (*more, *pcs.status.conditions)}
    return own + tuple(condition for type_, condition in mirrored.items() if find_condition(own, type_) is None)


def _of_gangs(type_: str, gangs: Sequence[PodGang]) -> tuple[str, str, str]:
    """Status, reason and message: True when it is so of every gang, and there is one."""
    missing = [gang for gang in gangs if not is_true(gang.status.conditions, type_)]
    if gangs and not missing:
        return TRUE, f"AllGangs{type_}", f"{len(gangs)} of {many(len(gangs), 'gang')}"
    condition = find_condition(missing[0].status.conditions, type_) if missing else None
    count = f"{len(gangs) - len(missing)} of {many(len(gangs), 'gang')}"
    if condition is None:
        return FALSE, f"GangsNot{type_}", count
    return FALSE, condition.reason or f"GangsNot{type_}", f"{count}; {missing[0].metadata.name}: {condition.message}"


# grove.dynamo.ai

_PHASES = (PENDING, STARTING, RUNNING)


def gang_set_status(
    before: PodGangSetStatus, pcs: PodCliqueSet, cliques: Sequence[PodClique], gangs: Sequence[PodGang], now: datetime
) -> PodGangSetStatus:
    """The status of a PodGangSet, from its set and the set's parts. The controller adds generation and `Translated`."""
    clique = next((part.status for part in cliques), PodClique().status)
    phases = [gang.phase for gang in gangs]
    waiting = waiting_gang(gangs)
    breached = next(
        (find_condition(part.status.conditions, conditions.MIN_AVAILABLE_BREACHED) for part in cliques), None
    )
    cause: dict[str, Any] = {"reason": waiting.reason, "message": waiting.message} if waiting is not None else {}
    return PodGangSetStatus(
        observed_generation=before.observed_generation,
        pod_clique_set_name=pcs.metadata.name,
        phase=min(phases, key=_PHASES.index, default=PENDING),
        replicas=clique.replicas,
        ready_replicas=clique.ready_replicas,
        scheduled_replicas=clique.scheduled_replicas,
        updated_replicas=clique.updated_replicas,
        gated_replicas=clique.schedule_gated_replicas,
        selector=clique.hpa_pod_selector,
        pod_gangs=tuple(
            GangSummary(name=gang.metadata.name, phase=gang.phase, placement_score=gang.status.placement_score)
            for gang in gangs
        ),
        conditions=mirrored_conditions(before.conditions, pcs, gangs, now, *([breached] if breached else [])),
        **cause,
    )


# grove.ai


def koord_set_status(
    before: KoordPodCliqueSetStatus,
    obj: Json,
    pcs: PodCliqueSet,
    cliques: Sequence[PodClique],
    groups: Sequence[PodCliqueScalingGroup],
    gangs: Sequence[PodGang],
    now: datetime,
) -> KoordPodCliqueSetStatus:
    """The status of a KoordPodCliqueSet, from its set and the set's parts.

    The controller adds generation and `Translated`.
    """
    members = members_of(obj)
    reports = tuple(_clique_reports({member.set_name: member for member in members}, cliques))
    ordered = any(starts_after(member, members) for member in members)
    blocked = _blocked(before.conditions, reports, now) if ordered else ()
    status = pcs.status
    return KoordPodCliqueSetStatus(
        observed_generation=before.observed_generation,
        pod_clique_set_name=pcs.metadata.name,
        replicas=status.replicas,
        available_replicas=status.available_replicas,
        updated_replicas=status.updated_replicas,
        selector=status.hpa_pod_selector,
        current_generation_hash=status.current_generation_hash,
        last_errors=status.last_errors,
        last_operation=status.last_operation,
        pod_gangs=tuple(_gang_report(gang) for gang in gangs),
        pod_clique_scaling_groups=tuple(_group_report(pcs, group) for group in groups),
        pod_cliques=reports,
        conditions=mirrored_conditions(before.conditions, pcs, gangs, now, *blocked),
    )


def _gang_report(gang: PodGang) -> GangReport:
    waiting = waiting_gang([gang])
    return GangReport(
        name=gang.metadata.name,
        phase=gang.phase,
        scheduled=is_true(gang.status.conditions, conditions.SCHEDULED),
        ready=is_true(gang.status.conditions, conditions.READY),
        placement_score=gang.status.placement_score,
        reason=waiting.reason if waiting is not None else "",
    )


def _group_report(pcs: PodCliqueSet, group: PodCliqueScalingGroup) -> GroupReport:
    index = _index(group.metadata.labels.get(labels.REPLICA_INDEX))
    name = group.metadata.name.removeprefix(f"{pcs.metadata.name}-{index}-")
    return GroupReport(
        name=name,
        index=index,
        replicas=group.spec.replicas,
        min_available=group.spec.min_available,
        scheduled_replicas=group.status.scheduled_replicas,
        available_replicas=group.status.available_replicas,
        updated_replicas=group.status.updated_replicas,
    )


def _clique_reports(members: dict[str, Member], cliques: Sequence[PodClique]) -> Iterator[CliqueReport]:
    by_name = {clique.metadata.name: clique for clique in cliques}
    for clique in cliques:
        member = members.get(clique.spec.role_name)
        parents = [by_name[name] for name in clique.spec.starts_after if name in by_name]
        waits = clique.status.ready_replicas < clique.spec.minimum
        yield CliqueReport(
            group=member.group if member else "",
            name=member.name if member else clique.spec.role_name,
            pod_clique=clique.metadata.name,
            index=_index(clique.metadata.labels.get(labels.REPLICA_INDEX)),
            replicas=clique.spec.replicas,
            ready=clique.status.ready_replicas,
            scheduled=clique.status.scheduled_replicas,
            gated=clique.status.schedule_gated_replicas,
            start_order=member.order if member else None,
            blocked_on=tuple(
                parent.metadata.name
                for parent in parents
                if waits and parent.status.ready_replicas < parent.spec.minimum
            ),
        )


def _blocked(before: tuple[Condition, ...], reports: Sequence[CliqueReport], now: datetime) -> tuple[Condition, ...]:
    waiting = [report for report in reports if report.blocked_on]
    kept = find_condition(before, STARTUP_BLOCKED)
    old = (kept,) if kept is not None else ()
    if not waiting:
        return with_condition(
            old, STARTUP_BLOCKED, FALSE, conditions.PREREQUISITES_READY, "no clique waits for another", now
        )
    message = "; ".join(
        f"{clique_report.pod_clique} waits for {', '.join(clique_report.blocked_on)}" for clique_report in waiting
    )
    return with_condition(old, STARTUP_BLOCKED, TRUE, conditions.PREREQUISITES_NOT_READY, message, now)


def _index(label: str | None) -> int:
    return int(label) if label and label.isdecimal() else 0
