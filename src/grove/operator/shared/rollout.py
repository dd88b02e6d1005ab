"""What the three levels of an update share: which strategy holds, how many units at a time, whose turn it is.

A change of templates is recorded on the set (`rollout_set`), which chooses replicas; within a chosen replica each
scaling group chooses copies (`rollout_group`) and each standalone clique chooses pods (`rollout_clique`). Every level
writes its choice into its status before anything is replaced, and does nothing unless the level above chose it: a new
change in the middle takes the choice away and so stops what it overtakes.
"""

from __future__ import annotations

from datetime import datetime

from grove.api import labels
from grove.api.podcliqueset import ON_DELETE, PodCliqueSet, PodCliqueSetStatus, PodCliqueSetUpdateProgress


def is_rolling(pcs: PodCliqueSet) -> bool:
    """Whether Grove replaces outdated pods by itself; a set that says nothing means yes."""
    strategy = pcs.spec.update_strategy
    return strategy is None or strategy.type != ON_DELETE


def is_paused(pcs: PodCliqueSet) -> bool:
    """Whether an update may take nothing further down; what is down already comes back new."""
    return pcs.metadata.annotations.get(labels.ROLLOUT_PAUSED, "").lower() == "true"


def max_unavailable(pcs: PodCliqueSet) -> int:
    """Units of one level that an update may have down at a time; none while it is paused."""
    if is_paused(pcs):
        return 0
    strategy = pcs.spec.update_strategy
    rolling = strategy.rolling_recreate if strategy is not None else None
    return max(1, rolling.max_unavailable) if rolling is not None and rolling.max_unavailable is not None else 1


def is_chosen(pcs: PodCliqueSet, replica: int) -> bool:
    """Whether it is this replica's turn: an update is open and the set chose the replica."""
    return is_rolling(pcs) and replica in _chosen(pcs.status.update_progress)


def concerned_replicas(before: PodCliqueSetStatus, after: PodCliqueSetStatus) -> frozenset[int] | None:
    """Replicas for which a set's new status asks for something else than the one before; None is all of them.

    An update of a thousand replicas changes the status at every step: were each step looked at by every clique, the
    whole would cost a million looks.
    """
    if before.current_generation_hash != after.current_generation_hash:
        return None
    if _span(before.update_progress) != _span(after.update_progress):
        return None
    restarts = set(before.replica_restarts) ^ set(after.replica_restarts)
    turns = _chosen(before.update_progress) ^ _chosen(after.update_progress)
    return turns | {one.replica_index for one in restarts}


def _chosen(progress: PodCliqueSetUpdateProgress | None) -> frozenset[int]:
    if progress is None or progress.update_ended_at is not None:
        return frozenset()
    return frozenset(one.replica_index for one in progress.currently_updating if one.update_ended_at is None)


def _span(progress: PodCliqueSetUpdateProgress | None) -> tuple[datetime | None, datetime | None]:
    return (progress.update_started_at, progress.update_ended_at) if progress is not None else (None, None)
