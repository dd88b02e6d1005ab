"""Describes the changes of a cluster in sentences: a listener on its store that selects what people look for.

It reads only what was written to the cluster. A sentence appears after the change that it describes.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from grove.api import conditions as words
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.draining import draining_until, is_draining
from grove.api.meta import Condition, Key, Resource, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.words import many
from grove.plan.world import World
from grove.sim.store import Change

T = TypeVar("T")

_BURST_S = 0.003
"""Pods that are deleted, or begin to drain, within this time share one sentence. It is longer than a call to the API
server and shorter than the creation of a pod.
"""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened. `at_s` is virtual time since the story began; `about` names the object."""

    at_s: float
    kind: str
    about: str
    text: str


@dataclass(slots=True)
class GangRecord:
    """The life of one gang in virtual time."""

    name: str
    created_s: float
    placed_s: float | None = None
    ready_s: float | None = None
    ended: bool = False


class Chronicle:
    """Follows a world from now on and calls `tell` for every note; keeps all notes and the record of every gang."""

    def __init__(self, world: World, tell: Callable[[Note], None]) -> None:
        self._world, self._tell = world, tell
        self.notes: list[Note] = []
        self.gangs: dict[str, GangRecord] = {}
        self._begun_s = world.time_s
        self._leaving: Counter[str] = Counter()
        self._draining: Counter[tuple[str, int]] = Counter()
        self._settled: set[str] = set()
        """Cliques that had all their pods ready at last sight."""
        world.cluster.server.store.listeners.append(self._note_change)

    def close(self) -> None:
        self._world.cluster.server.store.listeners.remove(self._note_change)

    @property
    def now_s(self) -> float:
        return self._world.time_s - self._begun_s

    def note(self, kind: str, about: str, text: str) -> None:
        note = Note(round(self.now_s, 3), kind, about, text)
        self.notes.append(note)
        self._tell(note)

    def _note_change(self, resource: Resource, change: Change) -> None:
        hear = _HEARERS.get(resource.plural)
        if hear is None:
            return
        kind, method = hear
        old = change.previous.view(kind) if change.previous is not None else None
        new = None if change.type == "DELETED" else change.version.view(kind)
        getattr(self, method)(old, new)

    # Gangs

    def _gang(self, old: PodGang | None, new: PodGang | None) -> None:
        if new is None:
            if old is not None and old.metadata.name in self.gangs:
                self.gangs[old.metadata.name].ended = True
            return
        name = new.metadata.name
        record = self.gangs.get(name)
        if record is None or record.ended:
            record = self.gangs[name] = GangRecord(name, self.now_s)
        if _turned(old, new, words.INITIALIZED, words.TRUE):
            pods = sum(len(group.pod_references) for group in new.spec.podgroups)
            least = sum(group.min_replicas for group in new.spec.podgroups)
            self.note(
                "complete",
                name,
                f"gang {name} is complete: {many(pods, 'pod')}, {least} of them together or not at all",
            )
        condition = _turned(old, new, words.SCHEDULED, words.TRUE)
        if condition:
            if record.placed_s is None:
                record.placed_s = self.now_s
            self.note("placed", name, self._placed_text(new))
        refused = _turned(old, new, words.SCHEDULED, words.FALSE)
        if refused and refused.message and not _differs_in_numbers(old, refused):
            waits = refused.message if refused.message.startswith("waits ") else f"waits: {refused.message}"
            self.note("waiting", name, f"gang {name} {waits}")
        if _turned(old, new, words.READY, words.TRUE):
            if record.ready_s is None:
                record.ready_s = self.now_s
            self.note("running", name, f"gang {name} is running")
        before = find_condition(old.status.conditions, words.READY) if old else None
        if before is not None and before.status == words.TRUE and _turned(old, new, words.READY, words.FALSE):
            self.note("below", name, f"gang {name} has fewer ready pods than its minimum")
        if target := _turned(old, new, words.DISRUPTION_TARGET, words.TRUE):
            self.note("preempted", name, f"gang {name} is {target.message}")

    def _placed_text(self, gang: PodGang) -> str:
        name = gang.metadata.name
        pods = [pod for pod in self._world.pods_of(name) if pod.is_bound]
        nodes = {pod.spec.node_name for pod in pods}
        where = self._common_domain(nodes)
        score = gang.status.placement_score
        score_text = f", score {score:.2f}" if score is not None else ""
        return f"gang {name} is placed whole: {many(len(pods), 'pod')} on {many(len(nodes), 'node')}{where}{score_text}"

    def _common_domain(self, nodes: set[str]) -> str:
        seen = self._world.seen()
        levels = seen.levels()
        for depth in reversed(range(len(levels))):
            values = {seen.path(node, levels)[depth] for node in nodes}
            if len(values) == 1 and "" not in values:
                return f" in {levels[depth][0]} {values.pop()}"
        return ""

    # Pods and cliques

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        clique = pod.metadata.labels.get(labels.POD_CLIQUE, "")
        if not clique:
            return
        if new is not None and new.metadata.is_deleting and (old is None or not old.metadata.is_deleting):
            self._together(self._leaving, clique, self._tell_leaving)
        if new is not None and (end := draining_until(new)) and (old is None or not is_draining(old)):
            seconds = round((end - self._world.cluster.clock.now()).total_seconds())
            self._together(self._draining, (clique, seconds), self._tell_draining)
        if old is not None and new is not None and new.is_bound and not old.is_bound:
            self._bound(new)
        self._clique_stands(Key(pod.metadata.namespace, clique))

    def _bound(self, pod: Pod) -> None:
        """A pod that follows a gang which stands already: surplus, or one that was lost."""
        name = pod.metadata.labels.get(labels.POD_GANG, "")
        gang = self._world.find(PodGang, name, pod.metadata.namespace)
        condition = find_condition(gang.status.conditions, words.SCHEDULED) if gang else None
        if condition is not None and condition.status == words.TRUE:
            clique = pod.metadata.labels[labels.POD_CLIQUE]
            self.note("joined", clique, f"a pod of {clique} joins gang {name} on {pod.spec.node_name}")

    def _together(self, pods: Counter[T], which: T, tell: Callable[[], None]) -> None:
        """Pods to which the same happens share one sentence, which appears after the last of them."""
        if not pods:
            asyncio.get_running_loop().call_later(_BURST_S, tell)
        pods[which] += 1

    def _tell_leaving(self) -> None:
        for clique, count in sorted(self._leaving.items()):
            self.note("leaving", clique, f"{many(count, 'pod')} of {clique} {'leave' if count > 1 else 'leaves'}")
        self._leaving.clear()

    def _tell_draining(self) -> None:
        for (clique, seconds), count in sorted(self._draining.items()):
            verb = "drain" if count > 1 else "drains"
            self.note("draining", clique, f"{many(count, 'pod')} of {clique} {verb} for {seconds} s")
        self._draining.clear()

    def _clique_stands(self, key: Key) -> None:
        clique = self._world.find(PodClique, key.name, key.namespace)
        if clique is None or not clique.spec.replicas:
            return
        ready = sum(
            pod.is_ready and not pod.metadata.is_deleting
            for pod in self._world.all(Pod)
            if pod.metadata.labels.get(labels.POD_CLIQUE) == key.name and pod.metadata.namespace == key.namespace
        )
        if ready >= clique.spec.replicas and key.name not in self._settled:
            self._settled.add(key.name)
            after = ", ".join(clique.spec.starts_after)
            order = f" (it starts after {after})" if after else ""
            self.note("ready", key.name, f"{key.name} is ready, {ready}/{clique.spec.replicas}{order}")
        elif ready < clique.spec.replicas:
            self._settled.discard(key.name)

    # Sets and nodes

    def _set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if new is None:
            if old is not None:
                self.note("deleted", old.metadata.name, f"{old.metadata.name} is gone")
            return
        name = new.metadata.name
        before = old.status.available_replicas if old else 0
        now = new.status.available_replicas
        if now != before:
            self.note("available", name, f"{name}: {now} of {many(new.spec.replicas, 'replica')} available")
        was, is_ = old.status.update_progress if old else None, new.status.update_progress
        if is_ is not None and is_.update_ended_at is None and (was is None or was.update_ended_at is not None):
            self.note("updating", name, f"the update of {name} begins")
        if is_ is not None and is_.update_ended_at is not None and was is not None and was.update_ended_at is None:
            self.note("updated", name, f"the update of {name} is complete")

    def _node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            if old is not None:
                self.note("node", old.metadata.name, f"node {old.metadata.name} is removed from the cluster")
            return
        name = new.metadata.name
        if old is None:
            return
        if old.is_ready != new.is_ready:
            word = "is back" if new.is_ready else "does not answer any more"
            self.note("node", name, f"node {name} {word}")
        if old.spec.unschedulable != new.spec.unschedulable:
            self.note("node", name, f"node {name} is {'cordoned' if new.spec.unschedulable else 'open again'}")


_HEARERS: dict[str, tuple[type, str]] = {
    "podgangs": (PodGang, "_gang"),
    "pods": (Pod, "_pod"),
    "podcliquesets": (PodCliqueSet, "_set"),
    "nodes": (Node, "_node"),
}


def _turned(old: PodGang | None, new: PodGang, type_: str, status: str) -> Condition | None:
    """The condition, if this write made it say so (or say so with other words)."""
    now = find_condition(new.status.conditions, type_)
    before = find_condition(old.status.conditions, type_) if old is not None else None
    if now is None or now.status != status:
        return None
    changed = before is None or before.status != status or (status == words.FALSE and before.message != now.message)
    return now if changed else None


def _differs_in_numbers(old: PodGang | None, now: Condition) -> bool:
    """True if a gang waits for the same reason as before, and only the amounts are different."""
    before = find_condition(old.status.conditions, now.type) if old is not None else None
    return before is not None and before.status == now.status and _without_amounts(before) == _without_amounts(now)


def _without_amounts(condition: Condition) -> str:
    return re.sub(r"( \([^)]*\))|\b\d+\b", "", condition.message.partition(";")[0])
