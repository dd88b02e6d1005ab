"""What the three levels of an update share: which strategy holds, how many units at a time, whose turn it is.

A change of templates is recorded on the set (`rollout_set`), which chooses replicas; within a chosen replica each
scaling group chooses copies (`rollout_group`) and each standalone clique chooses pods (`rollout_clique`). Every level
writes its choice into its status before anything is replaced, and does nothing unless the level above chose it: a new
change in the middle takes the choice away and so stops what it overtakes.
"""

from __future__ import annotations

from grove.api.podcliqueset import ON_DELETE, PodCliqueSet


def is_rolling(pcs: PodCliqueSet) -> bool:
    """Whether Grove replaces outdated pods by itself; a set that says nothing means yes."""
    strategy = pcs.spec.update_strategy
    return strategy is None or strategy.type != ON_DELETE


def max_unavailable(pcs: PodCliqueSet) -> int:
    """Units of one level that an update may have down at a time."""
    strategy = pcs.spec.update_strategy
    rolling = strategy.rolling_recreate if strategy is not None else None
    return max(1, rolling.max_unavailable) if rolling is not None and rolling.max_unavailable is not None else 1


def is_chosen(pcs: PodCliqueSet, replica: int) -> bool:
    """Whether it is this replica's turn: an update is open and the set chose the replica."""
    progress = pcs.status.update_progress
    return (
        is_rolling(pcs)
        and progress is not None
        and progress.update_ended_at is None
        and any(one.replica_index == replica and one.update_ended_at is None for one in progress.currently_updating)
    )
