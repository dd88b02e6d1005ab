"""One PodGang of a set by its name, without unfolding the others.

A set of a thousand replicas has a thousand gangs, and each is looked at when its own pods change: finding it must not
cost a walk over all of them.
"""

from __future__ import annotations

from grove.api.podcliqueset import PodCliqueSet
from grove.operator.shared.layout import GangLayout, GroupReplicas, replica_layouts


def find_gang_layout(pcs: PodCliqueSet, name: str, group_replicas: GroupReplicas) -> GangLayout | None:
    """The layout of the gang of this name; None when the set does not want it (any more)."""
    replica = find_replica(pcs.metadata.name, name)
    if replica is None or replica >= pcs.spec.replicas:
        return None
    return next((one for one in replica_layouts(pcs, replica, group_replicas) if one.name == name), None)


def find_replica(pcs_name: str, gang: str) -> int | None:
    """The replica of a set a gang belongs to, by the gang's name; None if it is not named after the set."""
    prefix = f"{pcs_name}-"
    if not gang.startswith(prefix):
        return None
    number = gang[len(prefix) :].partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else None
