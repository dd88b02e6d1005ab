"""Gang termination: which replicas have been in breach too long, and exactly when the next one will have been.

    since(part)   = later of: when its breach began, when it was last known whole
    due(replica)  = min over its breached parts of since(part) + terminationDelay

A replica of a scaling group is terminated alone while its group keeps its minimum. Otherwise its whole set replica is.

A part counts only if its minimum had nodes before. Its own status records that (`WasScheduled`, `WasHealthy`) until the
next restart. If it is scaled out from 0, or from below its minimum, the record ends too, because the larger part was
not whole yet. The reference operator guesses this from times. So it restarts for ever what never fitted.

If restarts are limited (`grove.io/max-gang-restarts`), earlier ones are forgotten once the part's minimum was ready
for ten minutes (`WasReady`); starting does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from grove.api import labels
from grove.api.conditions import (
    BELOW_MINIMUM,
    FALSE,
    GANG_RESTARTS_EXHAUSTED,
    GANG_TERMINATION_ACTIVE,
    GANG_TERMINATION_IN_PROGRESS,
    MAXIMUM_REACHED,
    MIN_AVAILABLE_BREACHED,
    MINIMUM_WAS_HEALTHY,
    MINIMUM_WAS_READY,
    MINIMUM_WAS_SCHEDULED,
    POD_CLIQUE_SCHEDULED,
    TRUE,
    UNKNOWN,
    WAS_HEALTHY,
    WAS_READY,
    WAS_SCHEDULED,
    with_condition,
    without_condition,
)
from grove.api.fields import natural
from grove.api.meta import Condition, Conditions, ObjectMeta, find_condition, is_true
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.termination import termination_delay
from grove.api.words import many
from grove.operator.shared.layout import (
    group_names,
    group_replica_of,
    is_group_available,
    is_group_scheduled,
    living,
    replica_of,
    standalone_names,
)
from grove.operator.shared.rollout import (
    Restarts,
    find_restart,
    group_replica_incarnation,
    replica_incarnation,
    units_in_flight,
    wanted_incarnation,
    with_restart,
)

Moment = Callable[[str, Condition], datetime | None]
"""When a condition of the object with this UID turned. The writer has the exact time; the wire has whole seconds."""


def as_written(uid: str, condition: Condition) -> datetime | None:
    return condition.last_transition_time


FIRST_BACKOFF = timedelta(seconds=10)
LONGEST_BACKOFF = timedelta(minutes=5)
FORGIVEN_AFTER = timedelta(minutes=10)
"""A gang whose minimum was ready for this long has its earlier restarts forgotten."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One replica that is to be restarted, for the `count`th time, because of the parts named in `blame`."""

    index: int
    count: int
    blame: str


@dataclass(frozen=True, slots=True)
class Terminations:
    """Replicas to restart now, those that may not be any more, and seconds until the next one is due."""

    now: tuple[Restart, ...] = ()
    exhausted: tuple[int, ...] = ()
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Breach:
    """One breached part: since when it is, since when it had been whole before, and whether it was ready for long."""

    part: str
    breached_at: datetime
    whole_at: datetime
    was_ready: bool

    @property
    def since(self) -> datetime:
        return max(self.breached_at, self.whole_at)


def max_gang_restarts(pcs: PodCliqueSet) -> int | None:
    """How often a gang may be restarted; None without the annotation, which means as often as it takes."""
    value = pcs.metadata.annotations.get(labels.MAX_GANG_RESTARTS, "").strip()
    return natural(value)


def group_replicas_to_restart(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    members: Iterable[PodClique],
    now: datetime,
    moment: Moment = as_written,
) -> Terminations:
    """Replicas of a group that are terminated by themselves; none while the group itself is in breach or not judged.

    `group` carries its status of now: whether the group keeps its minimum without the breached replicas. In a pause, a
    replica that the update is replacing is left alone.
    """
    breached = find_condition(group.status.conditions, MIN_AVAILABLE_BREACHED)
    if breached is None or breached.status != FALSE:
        return Terminations()
    breaches: dict[int, list[Breach]] = {}
    replacing = units_in_flight(group.status.update_progress)
    for clique in members:
        index = group_replica_of(clique.metadata)
        if index is None or index not in group.indexes or index in replacing:
            continue
        if (breach := _clique_breach(pcs, clique, group, moment)) is not None:
            breaches.setdefault(index, []).append(breach)
    return _due(pcs, breaches, group.status.replica_restarts, now)


def set_replicas_to_restart(
    pcs: PodCliqueSet,
    in_breach: Iterable[int],
    cliques: Iterable[PodClique],
    groups: Iterable[PodCliqueScalingGroup],
    now: datetime,
    moment: Moment = as_written,
) -> Terminations:
    """Replicas of a set that are terminated whole, because of a standalone clique or a whole scaling group.

    `in_breach` are the replicas with such a part in breach. A replica that lacks one of its standalone cliques is being
    built, and is left alone.
    """
    live, live_groups = living(cliques), living(groups)
    breaches: dict[int, list[Breach]] = {}
    names_of = standalone_names(pcs)
    for replica in in_breach:
        units = [fqn for fqn, _ in names_of(replica)]
        if not all(fqn in live for fqn in units):
            continue
        possible = [
            *(_clique_breach(pcs, live[fqn], None, moment) for fqn in units),
            *(
                _group_breach(pcs, replica, live_groups[fqn], moment)
                for fqn, _ in group_names(pcs, replica)
                if fqn in live_groups
            ),
        ]
        breaches[replica] = [breach for breach in possible if breach is not None]
    return _due(pcs, breaches, pcs.status.replica_restarts, now)


def with_group_restarts(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, replica: int, verdict: Terminations, now: datetime
) -> PodCliqueScalingGroupStatus:
    """The group's status with the verdict in it; writing it is what restarts the replicas."""
    incarnations = [group_replica_incarnation(pcs, replica, group, restart.index) for restart in verdict.now]
    return _with_restarts(group.status, pcs, verdict, incarnations, now)


def with_set_restarts(
    pcs: PodCliqueSet,
    cliques: Iterable[PodClique],
    groups: Iterable[PodCliqueScalingGroup],
    verdict: Terminations,
    now: datetime,
) -> PodCliqueSetStatus:
    """The set's status with the verdict in it; writing that is what restarts the replicas."""
    parts: list[PodClique | PodCliqueScalingGroup] = [*cliques, *groups]
    incarnations: list[int] = []
    for restart in verdict.now:
        known = [replica_incarnation(pcs, restart.index)]
        for part in (part for part in parts if replica_of(part.metadata) == restart.index):
            known.append(part.status.incarnation)
            if isinstance(part, PodCliqueScalingGroup):
                known += (entry.incarnation for entry in part.status.replica_restarts)
        incarnations.append(max(known))
    return _with_restarts(pcs.status, pcs, verdict, incarnations, now)


S = TypeVar("S", PodCliqueScalingGroupStatus, PodCliqueSetStatus)


def _with_restarts(status: S, pcs: PodCliqueSet, verdict: Terminations, known: Sequence[int], now: datetime) -> S:
    """The status with each restart of the verdict in it, above the incarnation that is known of its replica."""
    restarts: Restarts = status.replica_restarts
    for restart, incarnation in zip(verdict.now, known, strict=True):
        counts = {"incarnation": incarnation + 1, "gang_restarts": restart.count}
        restarts = with_restart(restarts, restart.index, **counts, last_gang_restart_time=now)
    return msgspec.structs.replace(
        status,
        replica_restarts=restarts,
        gang_restarts=status.gang_restarts + len(verdict.now),
        conditions=_with_exhausted(status.conditions, verdict, max_gang_restarts(pcs), now),
    )


def with_clique_memory(
    clique: PodClique, status: PodCliqueStatus, incarnation: int, now: datetime, *, is_limited: bool = False
) -> PodCliqueStatus:
    """A clique's new status, which remembers whether its minimum was ever on nodes since the last restart.

    `is_limited`: its set limits restarts, so it also remembers since when its minimum was ready.
    """
    conditions = status.conditions
    if status.incarnation != incarnation or _has_other_minimum(clique, conditions):
        conditions = without_condition(conditions, WAS_SCHEDULED)
    if clique.spec.replicas and is_true(conditions, POD_CLIQUE_SCHEDULED):
        message = "its minimum has had nodes since the last restart"
        conditions = with_condition(conditions, WAS_SCHEDULED, TRUE, MINIMUM_WAS_SCHEDULED, message, now)
    if is_limited or find_condition(conditions, WAS_READY) is not None:
        is_kept = is_limited and clique.spec.replicas > 0 and status.incarnation == incarnation
        is_ready = status.ready_replicas >= clique.spec.current_minimum
        conditions = _with_ready_memory(conditions, is_kept, is_ready, now)
    return msgspec.structs.replace(status, conditions=conditions, incarnation=incarnation)


def with_group_memory(
    group: PodCliqueScalingGroup,
    status: PodCliqueScalingGroupStatus,
    incarnation: int,
    now: datetime,
    *,
    is_limited: bool = False,
) -> PodCliqueScalingGroupStatus:
    """The same for a group, about the incarnation of its set replica; says so while the replica is being restarted."""
    conditions = status.conditions
    if _has_other_minimum(group, conditions):
        conditions = without_condition(conditions, WAS_HEALTHY)
    if status.incarnation != incarnation:
        conditions = without_condition(conditions, WAS_HEALTHY)
        message = "the whole replica of the set is being restarted"
        conditions = with_condition(
            conditions, GANG_TERMINATION_IN_PROGRESS, TRUE, GANG_TERMINATION_ACTIVE, message, now
        )
    if status.incarnation == incarnation and _has_had_its_minimum(group, status):
        conditions = without_condition(conditions, GANG_TERMINATION_IN_PROGRESS)
        if group.spec.replicas:
            message = "its minimum has had nodes since the last restart"
            conditions = with_condition(conditions, WAS_HEALTHY, TRUE, MINIMUM_WAS_HEALTHY, message, now)
    if is_limited or find_condition(conditions, WAS_READY) is not None:
        is_kept = is_limited and group.spec.replicas > 0 and status.incarnation == incarnation
        is_ready = is_group_available(msgspec.structs.replace(group, status=status))
        conditions = _with_ready_memory(conditions, is_kept, is_ready, now)
    return msgspec.structs.replace(status, conditions=conditions, incarnation=incarnation)


def _has_had_its_minimum(group: PodCliqueScalingGroup, status: PodCliqueScalingGroupStatus) -> bool:
    """True if the minimum of the group is whole, or is on nodes and in breach.

    A pod whose image is absent may be in breach from the moment it has a node. Its group is never seen whole.
    """
    breach = find_condition(status.conditions, MIN_AVAILABLE_BREACHED)
    if breach is None or breach.status == UNKNOWN:
        return False
    return breach.status == FALSE or is_group_scheduled(msgspec.structs.replace(group, status=status))


def _with_ready_memory(conditions: Conditions, is_kept: bool, is_ready: bool, now: datetime) -> Conditions:
    """The conditions with `WasReady`: True from when the minimum is ready. A short time of readiness is forgotten."""
    remembered = find_condition(conditions, WAS_READY)
    since = remembered.last_transition_time if remembered is not None else None
    is_long = since is not None and now - since >= FORGIVEN_AFTER
    if is_kept and is_ready:
        message = "its minimum has been ready since the last restart"
        return with_condition(conditions, WAS_READY, TRUE, MINIMUM_WAS_READY, message, now)
    return conditions if is_kept and is_long else without_condition(conditions, WAS_READY)


def _has_other_minimum(part: PodClique | PodCliqueScalingGroup, conditions: Conditions) -> bool:
    """True if the record of a part is about another minimum: none is required now, or the part ran below its minimum.

    That it did, and with how many, is in the part's status as it was; `conditions` say what is asked for now.
    """
    below = find_condition(part.status.conditions, BELOW_MINIMUM)
    return not part.spec.replicas or (below is not None and below not in conditions)


def _due(pcs: PodCliqueSet, breaches: dict[int, list[Breach]], restarts: Restarts, now: datetime) -> Terminations:
    delay, limit = termination_delay(pcs), max_gang_restarts(pcs)
    restarts_due: list[Restart] = []
    exhausted: list[int] = []
    waits: list[float] = []
    for index, parts in sorted(breaches.items()):
        if not parts:
            continue
        entry = find_restart(restarts, index)
        held = all(breach.was_ready for breach in parts)
        count = 0 if held and limit is not None else entry.gang_restarts
        if limit is not None and count >= limit:
            exhausted.append(index)
            continue
        due = min(breach.since for breach in parts) + delay
        if limit is not None and count and entry.last_gang_restart_time is not None:
            backoff = min(FIRST_BACKOFF * (1 << min(count - 1, 10)), LONGEST_BACKOFF)
            due = max(due, entry.last_gang_restart_time + backoff)
        if due <= now:
            restarts_due.append(Restart(index, count + 1, ", ".join(breach.part for breach in parts)))
        else:
            waits.append((due - now).total_seconds())
    return Terminations(tuple(restarts_due), tuple(exhausted), min(waits, default=None))


def _clique_breach(
    pcs: PodCliqueSet, clique: PodClique, group: PodCliqueScalingGroup | None, moment: Moment
) -> Breach | None:
    if clique.metadata.is_deleting:
        return None
    breach = _breach(clique.metadata, clique.status.conditions, WAS_SCHEDULED, moment)
    if breach is None or clique.status.incarnation < wanted_incarnation(pcs, clique, group):
        return None
    return breach


def _group_breach(pcs: PodCliqueSet, replica: int, group: PodCliqueScalingGroup, moment: Moment) -> Breach | None:
    """One restart for each breach: a group that is being restarted is not counted again."""
    conditions = group.status.conditions
    if group.status.incarnation < replica_incarnation(pcs, replica):
        return None
    if is_true(conditions, GANG_TERMINATION_IN_PROGRESS):
        return None
    return _breach(group.metadata, conditions, WAS_HEALTHY, moment)


def _breach(part: ObjectMeta, conditions: Conditions, memory: str, moment: Moment) -> Breach | None:
    breach = find_condition(conditions, MIN_AVAILABLE_BREACHED)
    if breach is None or breach.status != TRUE:
        return None
    whole = find_condition(conditions, memory)
    if whole is None or whole.status != TRUE:
        return None
    breached_at, whole_at = moment(part.uid, breach), moment(part.uid, whole)
    if breached_at is None or whole_at is None:
        return None
    ready = find_condition(conditions, WAS_READY)
    ready_at = moment(part.uid, ready) if ready is not None else None
    return Breach(part.name, breached_at, whole_at, ready_at is not None and breached_at - ready_at >= FORGIVEN_AFTER)


def _with_exhausted(conditions: Conditions, verdict: Terminations, limit: int | None, now: datetime) -> Conditions:
    if not verdict.exhausted:
        return without_condition(conditions, GANG_RESTARTS_EXHAUSTED)
    which = ", ".join(map(str, verdict.exhausted))
    all_of_them = f"{many(limit or 0, 'restart')}, all that {labels.MAX_GANG_RESTARTS} allows"
    message = f"replica {which} stays in breach after {all_of_them}"
    return with_condition(conditions, GANG_RESTARTS_EXHAUSTED, TRUE, MAXIMUM_REACHED, message, now)
