"""Replacements that their scheduler tries only once: they are made anew when a node of their domain has room again.

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
from grove.operator.podgang.gangs import ObservedGang
from grove.operator.shared.cluster.children_writer import delete
from grove.operator.shared.cluster.deps import Deps, GangKey

TRY_S = 10.0
"""How long a pod may wait before it counts as not placed, and so the least time between two tries."""


class Retries:
    """Remembers which gangs wait for room in which domain, and when a node there had room again."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._waiting: dict[GangKey, Mapping[str, str]] = {}
        self._room_at: dict[GangKey, datetime] = {}
        deps.cache.on_event(Node, self.on_node)
        deps.cache.on_event(Pod, self.on_pod)

    async def carry_out(self, key_: GangKey, gang: PodGang, seen: ObservedGang, pods: Sequence[Pod]) -> float | None:
        """Deletes the pods of a gang that are to be tried again; answers when to look the next time."""
        late = seen.backend.late_pods(gang, pods)
        if not late:
            self.forget(key_)
            return None
        bound = (seen.labels_of(pod.spec.node_name) for pod in pods if pod.is_bound)
        self._waiting[key_] = seen.backend.node_labels_to_keep(gang, [labels for labels in bound if labels is not None])
        due, look_s = pods_to_try_again(late, self._room_at.get(key_), self._deps.clock.now())
        for pod in due:
            await delete(self._deps.client, self._deps.cache, pod)
            message = f"made Pod {pod.metadata.name} anew: a node has room, and {seen.backend.name} tries a pod once"
            self._deps.events.normal(seen.pcs, EventReason.POD_TRIED_AGAIN, message)
        if look_s is None:
            self._room_at.pop(key_, None)
        return look_s

    def forget(self, key_: GangKey) -> None:
        self._waiting.pop(key_, None)
        self._room_at.pop(key_, None)

    def on_node(self, old: Node | None, new: Node | None) -> None:
        if self._waiting and new is not None and has_more_room(old, new):
            self._note(new.metadata.labels)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod that ends, or goes, leaves room on its node."""
        if not self._waiting or old is None or not old.is_bound or old.is_finished:
            return
        if new is None or new.is_finished:
            node = self._deps.cache.get(Node, Key("", old.spec.node_name))
            if node is not None:
                self._note(node.metadata.labels)

    def _note(self, labels: Mapping[str, str]) -> None:
        for key_, domain in self._waiting.items():
            if domain.items() <= labels.items():
                self._room_at[key_] = self._deps.clock.now()
                self._deps.queues.gangs.add(key_)


def pods_to_try_again(late: Sequence[Pod], room_at: datetime | None, now: datetime) -> tuple[list[Pod], float | None]:
    """Pods that waited before a node had room, and seconds until those are due that were made a moment ago."""
    if room_at is None:
        return [], None
    ages = [(pod, now - (pod.metadata.creation_timestamp or now)) for pod in late]
    due = [pod for pod, age in ages if age >= timedelta(seconds=TRY_S)]
    young = [TRY_S - age.total_seconds() for _, age in ages if age < timedelta(seconds=TRY_S)]
    return due, min(young, default=None)


def has_more_room(old: Node | None, new: Node) -> bool:
    """Whether a node came, opened or grew; labels count, because they decide in which domain it is."""
    if new.spec.unschedulable or not new.is_ready:
        return False
    return (
        old is None
        or not old.is_ready
        or old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )
