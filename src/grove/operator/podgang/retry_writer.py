"""Deletes replacement pods that their scheduler tries only once, when a node of their domain has capacity again.

koord-scheduler tries a pod that joins a gang with topology once, and then waits for its own flush after five minutes.
A pod that is created is tried at once, so a pod without a node is deleted and its clique makes another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from grove.api.conditions import EventReason
from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.kube.wakes import Wake, latest
from grove.operator.podgang.gangs import ObservedGang
from grove.operator.shared.cluster.children_writer import delete
from grove.operator.shared.cluster.deps import Deps, GangKey

TRY_S = 10.0
"""How long a pod may wait before it counts as not placed, and so the least time between two tries."""


class Retries:
    """Remembers which gangs wait for capacity in which domain, and when a node there had capacity again."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._waiting: dict[GangKey, Mapping[str, str]] = {}
        self._capacity_at: dict[GangKey, datetime] = {}
        deps.follow(
            (
                Wake(Node, latest(self._waiting_for), self._try_again, has_more_capacity),
                Wake(Pod, latest(self._waiting_beside), self._try_again, leaves_node),
            )
        )

    async def carry_out(self, key_: GangKey, gang: PodGang, seen: ObservedGang, pods: Sequence[Pod]) -> float | None:
        """Deletes the pods of a gang that are to be tried again; answers when to look the next time."""
        late = seen.backend.late_pods(gang, pods)
        if not late:
            self.forget(key_)
            return None
        bound = (seen.labels_of(pod.spec.node_name) for pod in pods if pod.is_bound)
        self._waiting[key_] = seen.backend.node_labels_to_keep(gang, [labels for labels in bound if labels is not None])
        due, look_s = pods_to_try_again(late, self._capacity_at.get(key_), self._deps.clock.now())
        for pod in due:
            await delete(self._deps.client, self._deps.cache, pod)
            message = f"made Pod {pod.metadata.name} again: a node is free, and {seen.backend.name} tries a pod once"
            self._deps.events.normal(seen.pcs, EventReason.POD_TRIED_AGAIN, message)
        if look_s is None:
            self._capacity_at.pop(key_, None)
        return look_s

    def forget(self, key_: GangKey) -> None:
        self._waiting.pop(key_, None)
        self._capacity_at.pop(key_, None)

    def _try_again(self, key_: GangKey) -> None:
        self._capacity_at[key_] = self._deps.clock.now()
        self._deps.queues.gangs.add(key_)

    def _waiting_for(self, node: Node | None) -> list[GangKey]:
        """Gangs that wait for capacity in a domain that a node is part of."""
        if node is None:
            return []
        node_labels = node.metadata.labels
        return [key_ for key_, domain in self._waiting.items() if domain.items() <= node_labels.items()]

    def _waiting_beside(self, pod: Pod) -> list[GangKey]:
        return self._waiting_for(self._deps.cache.get(Node, Key("", pod.spec.node_name))) if self._waiting else []


def leaves_node(old: Pod | None, new: Pod | None) -> bool:
    """True if a pod ended or was deleted, so its node has capacity for another one."""
    was_running = old is not None and old.is_bound and not old.is_finished
    return was_running and (new is None or new.is_finished)


def pods_to_try_again(
    late: Sequence[Pod], capacity_at: datetime | None, now: datetime
) -> tuple[list[Pod], float | None]:
    """Pods that waited before a node had capacity, and seconds until those are due that were made a moment ago."""
    if capacity_at is None:
        return [], None
    ages = [(pod, now - (pod.metadata.creation_timestamp or now)) for pod in late]
    due = [pod for pod, age in ages if age >= timedelta(seconds=TRY_S)]
    young = [TRY_S - age.total_seconds() for _, age in ages if age < timedelta(seconds=TRY_S)]
    return due, min(young, default=None)


def has_more_capacity(old: Node | None, new: Node | None) -> bool:
    """True if a node is new, was opened or grew. Labels count, because they decide its domain."""
    if new is None or new.spec.unschedulable or not new.is_ready:
        return False
    return (
        old is None
        or not old.is_ready
        or old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )
