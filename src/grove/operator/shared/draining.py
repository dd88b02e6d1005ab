"""Draining of whole replicas, of a set or of a scaling group, after a scale-in.

The owner records in its status which of its replicas drain, and until when, before anything of them is deleted
(`status.draining`). While a replica is in that list all its objects stay, and its PodCliques mark their pods
(`podclique.draining`). The record ends at its time, or earlier if no pod of the replica serves any more. Scaling out
takes the record back. Draining of single pods is decided by their PodClique alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from grove.api.core import Pod
from grove.api.draining import draining_until, is_serving
from grove.api.status import DrainingReplica

Draining = tuple[DrainingReplica, ...]


def next_draining(recorded: Draining, leaving: Mapping[int, Iterable[Pod]], seconds: int, now: datetime) -> Draining:
    """The replicas that drain now. `leaving` are the pods of existing replicas that the owner no longer has."""
    if not seconds:
        return ()
    # Whole seconds, as the API server stores them: a status that is read back compares as equal.
    end = (now + timedelta(seconds=seconds)).replace(microsecond=0)
    # At most until then: the draining time may have been made shorter meanwhile.
    known = {
        replica.replica_index: min(replica.until, end) if replica.until is not None else None for replica in recorded
    }
    wanted = (DrainingReplica(replica_index=index, until=known.get(index, end)) for index in sorted(leaving))
    open_ = (
        draining_replica
        for draining_replica in wanted
        if draining_replica.until is not None and draining_replica.until > now
    )
    return tuple(
        draining_replica
        for draining_replica in open_
        if any(_has_time_left(pod, now) for pod in leaving[draining_replica.replica_index])
    )


def _has_time_left(pod: Pod, now: datetime) -> bool:
    end = draining_until(pod)
    return is_serving(pod) and (end is None or end > now)


def next_end_s(draining: Draining, now: datetime) -> float | None:
    """Seconds until the first of these replicas has drained."""
    return min(
        (
            (draining_replica.until - now).total_seconds()
            for draining_replica in draining
            if draining_replica.until is not None
        ),
        default=None,
    )
