"""The tree of queues as rows of numbers: what `kubectl grove queue`, metrics and the console show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grove.scheduler.policy.queues import NO_LIMIT

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.policy.quota import Quota


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue; amounts by resource, in the units of `grove.api.quantity`."""

    kind: str
    name: str
    parent: str
    depth: int
    resources: tuple[str, ...]
    guaranteed: Mapping[str, int]
    used: Mapping[str, int]
    fair_share: Mapping[str, int]
    limit: Mapping[str, int]
    waiting: Mapping[str, int]
    fault: str = ""


def queue_rows(quota: Quota | None, snapshot: Snapshot) -> list[QueueRow]:
    """Every queue, parents before their children; empty where there are none."""
    if quota is None:
        return []
    tree, shares = quota.tree, quota.shares(snapshot)
    found = []
    for queue, depth in tree.walk():
        waiting: dict[str, int] = {}
        for leaf in tree.leaves.get(queue.name, ()):
            for resource, amount in quota.waiting.get(leaf, {}).items():
                waiting[resource] = waiting.get(resource, 0) + amount
        resources = tuple(sorted(queue.resources))
        used = quota.used(snapshot, queue.name)
        found.append(
            QueueRow(
                queue.kind,
                queue.short,
                queue.parent.partition("/")[2],
                depth,
                resources,
                {one: queue.guaranteed[one] for one in resources if queue.guaranteed.get(one, NO_LIMIT) < NO_LIMIT},
                {one: used.get(one, 0) for one in resources},
                {one: shares.get(queue.name, {}).get(one, 0) for one in resources},
                {one: queue.limit[one] for one in resources if one in queue.limit},
                {one: waiting.get(one, 0) for one in resources},
                tree.faults.get(queue.name, ""),
            )
        )
    return found
