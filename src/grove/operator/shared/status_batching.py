"""Status writes that only report progress wait a little for more progress; urgent news does not wait.

Two pods that turn ready in the same moment then cost one status write instead of two. A clique that goes from created
to ready costs one or two instead of six. Urgent news is: a failure, a recovery, a minimum that was crossed, a step of
an update. Pods that an update takes down return soon, so that is progress too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from grove.api import conditions
from grove.api.conditions import FALSE, TRUE
from grove.api.meta import Conditions, find_condition, is_true
from grove.api.podclique import PodCliqueSpec, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSetStatus
from grove.api.podgang import RUNNING, PodGangStatus
from grove.api.scalinggroup import PodCliqueScalingGroupSpec, PodCliqueScalingGroupStatus
from grove.operator.shared.layout import group_minimum
from grove.operator.shared.rollout import is_open

SETTLE_S = 0.02
"""How long an event waits for the next one of the same object before we look."""
PROGRESS_S = 1.0
"""How long a status may lag behind while things are on their way and nothing is wrong."""
TURN_S = 120.0
"""The same for a clique that waits for its turn in an update, if only its count of new pods changed. Its turn often
comes before that, and then one write reports both."""
FIRST_S = 5.0
"""The same as `PROGRESS_S`, for the first status of a new object: its creator expects no pods yet."""
SCHEDULER_FIRST_S, BUSY_SCHEDULER_S = 2.0, 15.0
"""The same for the first status of a gang whose scheduler reports on it: its own first status says what ours would.
The scheduler is busy when it has said something of any gang within the second time."""
SCHEDULER_QUEUE_S = 60.0
"""The same while the scheduler is busy.

If hundreds of gangs start at once, the last one is scheduled late. Every status written before makes it later.
"""
FIRST_PODS_S, ALL_PODS_S = 300.0, 30.0
"""How long a new gang waits for its first pod, and then for its last, while its cliques have no trouble.

In a set of 1,000 replicas the last one is scheduled late. A gang that was written before would have to be written
again.
"""
FLAPS, FLAP_WINDOW_S, FLAP_S = 6, 60.0, 10.0
"""How often within the window a set may report at once that replicas became unavailable or available.

After that it reports every `FLAP_S` seconds until the window has passed, so a pod that flaps costs few writes.
"""
CROWD_S, LONGEST_CROWD_S = 0.05, 30.0
"""What each waiting status adds to the wait of all, and the longest wait.

Together they limit reports of progress to twenty a second, and leave the API server to the pods.
"""


class StatusBatches:
    """Remembers since when each key has had something to write. `now` is the event loop's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[Hashable, tuple[float, float]] = {}
        self._crowd: set[Hashable] = set()
        self._flaps: dict[Hashable, list[float]] = {}

    @property
    def waiting(self) -> int:
        """Statuses that wait for more to report."""
        return len(self._crowd)

    def wait_s(self, key: Hashable, at_most_s: float, *, yields: bool = False) -> float:
        """Seconds the write of `key` may still wait, counted from the first time this was asked; 0.0 is now.

        Asked with a shorter limit than before, the count starts again: it is another thing that is waited for. What
        `yields` waits longer while many others wait.
        """
        since, limit_s = self._since.get(key, (self._now(), at_most_s))
        if at_most_s < limit_s:
            since = self._now()
        self._since[key] = (since, at_most_s)
        if yields:
            self._crowd.add(key)
            at_most_s = max(at_most_s, min(CROWD_S * len(self._crowd), LONGEST_CROWD_S))
        else:
            self._crowd.discard(key)
        left = since + at_most_s - self._now()
        return left if left > 1e-6 else 0.0

    def flap_wait_s(self, key: Hashable) -> float:
        """Seconds for which `key` may not report its availability again; 0.0 unless it did so often of late."""
        flaps = [at for at in self._flaps.get(key, ()) if self._now() - at < FLAP_WINDOW_S]
        self._flaps[key] = flaps
        return max(0.0, flaps[-1] + FLAP_S - self._now()) if len(flaps) >= FLAPS else 0.0

    def flapped(self, key: Hashable) -> None:
        """`key` reports its availability now."""
        self._flaps.setdefault(key, []).append(self._now())

    def done(self, key: Hashable) -> None:
        """Written, or nothing to write any more."""
        self._since.pop(key, None)
        self._crowd.discard(key)

    def forget(self, key: Hashable) -> None:
        self.done(key)
        self._flaps.pop(key, None)


_SLOW_TO_JUDGE = frozenset(
    {
        conditions.MIN_AVAILABLE_BREACHED,
        conditions.POD_CLIQUE_SCHEDULED,
        conditions.WAS_SCHEDULED,
        conditions.WAS_HEALTHY,
        conditions.WAS_READY,
    }
)
"""Conditions that come while things start, and say no more than that they do: their first appearance is no news."""


_FOLLOW = frozenset({conditions.READY, conditions.RECONCILING, conditions.STALLED})
"""Conditions that are decided from the rest of the status: what makes them turn is news itself, or can wait."""


def clique_news(spec: PodCliqueSpec, before: PodCliqueStatus, after: PodCliqueStatus) -> bool:
    need, wanted = spec.current_minimum, spec.replicas
    was_enough, is_enough = before.ready_replicas >= need, after.ready_replicas >= need
    was_whole, is_whole = (status.ready_replicas == status.replicas == wanted for status in (before, after))
    return (
        before.last_errors != after.last_errors
        or before.update_progress != after.update_progress
        or is_enough > was_enough
        or (was_enough > is_enough and not is_open(after.update_progress))
        or is_whole > was_whole
        or (is_whole and _made_from(before) != _made_from(after))
        or _turned(before.conditions, after.conditions)
    )


def _made_from(status: PodCliqueStatus) -> tuple[int, str]:
    """The facts for which an update of the clique's scaling group waits: the restart and the template of its pods."""
    return status.incarnation, status.current_pod_template_hash


def group_news(
    spec: PodCliqueScalingGroupSpec, before: PodCliqueScalingGroupStatus, after: PodCliqueScalingGroupStatus
) -> bool:
    wanted, need = spec.replicas, group_minimum(spec.replicas, spec.min_available)
    return (
        before.last_errors != after.last_errors
        or before.draining != after.draining
        or _group_step(before) != _group_step(after)
        or (before.available_replicas >= need) != (after.available_replicas >= need)
        or (after.available_replicas == wanted and _whole_of(before) != _whole_of(after))
        or _is_mixed(before, after)
        or _turned(before.conditions, after.conditions)
    )


def _is_mixed(before: PodCliqueScalingGroupStatus, after: PodCliqueScalingGroupStatus) -> bool:
    """True if a group was scaled that waits for its update.

    If the change is undone, the set needs this to find the parts that already have the change.
    """
    was, is_now = before.current_pod_clique_set_generation_hash, after.current_pod_clique_set_generation_hash
    return bool(was) and not is_now and before.observed_generation != after.observed_generation


def set_news(replicas: int, before: PodCliqueSetStatus, after: PodCliqueSetStatus) -> bool:
    return set_turned(before, after) or (
        (after.available_replicas < before.available_replicas and not is_open(after.update_progress))
        or (after.available_replicas == replicas and _whole_of(before) != _whole_of(after))
    )


def set_turned(before: PodCliqueSetStatus, after: PodCliqueSetStatus) -> bool:
    """News of a set other than how many of its replicas are available, which may go back and forth."""
    return (
        before.last_errors != after.last_errors
        or before.draining != after.draining
        or _set_step(before) != _set_step(after)
        or before.current_generation_hash != after.current_generation_hash
        or _turned(before.conditions, after.conditions)
    )


def _whole_of(status: PodCliqueSetStatus | PodCliqueScalingGroupStatus) -> tuple[int, int | None]:
    """The fields whose change is news: the available replicas, or a newly observed generation."""
    return status.available_replicas, status.observed_generation


def _set_step(status: PodCliqueSetStatus) -> tuple[object, ...]:
    """The urgent part of an update's status: begin, end, the unit being updated, its last progress; not its counts."""
    update_progress = status.update_progress
    if update_progress is None:
        return ()
    return (
        update_progress.update_started_at,
        update_progress.update_ended_at,
        update_progress.currently_updating,
        update_progress.last_progress_time,
    )


def _group_step(status: PodCliqueScalingGroupStatus) -> tuple[object, ...]:
    update_progress = status.update_progress
    if update_progress is None:
        return ()
    selected = update_progress.ready_replica_indices_selected_to_update
    counts = update_progress.outdated_replicas_count, update_progress.in_flight_replicas_count
    begun = (
        update_progress.update_started_at,
        update_progress.update_ended_at,
        update_progress.pod_clique_set_generation_hash,
    )
    return *begun, selected, counts, update_progress.surge


def gang_news(before: PodGangStatus, after: PodGangStatus, *, scheduler_reports: bool = False) -> bool:
    """Schedulers and gates wait for Initialized; a gang that runs, or stopped running, is worth a word too.

    A scheduler that reports on gangs says with its first status that one is initialized: only that it is not is news.
    """

    def status_of(status: PodGangStatus, type_: str) -> str:
        condition = find_condition(status.conditions, type_)
        return f"{condition.status} {condition.reason}" if condition is not None else ""

    if scheduler_reports and not status_of(before, conditions.INITIALIZED):
        return not is_true(after.conditions, conditions.INITIALIZED)
    gates = (conditions.INITIALIZED, conditions.SCHEDULER_OBJECTS_READY, conditions.TOPOLOGY_NOT_HONOURED)
    return any(status_of(before, type_) != status_of(after, type_) for type_ in gates) or (before.phase == RUNNING) != (
        after.phase == RUNNING
    )


def _turned(before: Conditions, after: Conditions) -> bool:
    """True if a condition changed, appeared or disappeared.

    Conditions of a new object that only starts do not count.
    """
    before, after = (
        tuple(condition for condition in listed if condition.type not in _FOLLOW) for listed in (before, after)
    )
    for condition in after:
        old = find_condition(before, condition.type)
        if old is None:
            if condition.type not in _SLOW_TO_JUDGE:
                return True
        elif {old.status, condition.status} == {TRUE, FALSE} and condition.type == conditions.MIN_AVAILABLE_BREACHED:
            if condition.status == TRUE:
                return True
        elif old.status != condition.status and condition.type not in _SLOW_TO_JUDGE:
            return True
    kept = {condition.type for condition in after}
    return any(condition.type not in kept for condition in before)
