"""Reads waiting pods as the core's facts, and reads them again when something they depend on has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from grove.api.core import Pod
from grove.api.meta import Key
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.sources.node_sources import NodeSources, depends_on_objects


class PodReader:
    """`node_of` says which node a pod has, or which one is reserved for it."""

    def __init__(
        self,
        snapshot: Snapshot,
        sources: NodeSources,
        changes: Changes,
        gangs: Mapping[str, GangState],
        gang_of: Mapping[Key, str],
        *,
        node_of: Callable[[Pod], str],
        takes_gangs: bool,
    ) -> None:
        self._snapshot, self._sources, self._changes = snapshot, sources, changes
        self._gangs, self._gang_of = gangs, gang_of
        self._node_of, self._takes_gangs = node_of, takes_gangs
        self._facts: dict[Key, PodFacts] = {}
        self._dependent: set[Key] = set()
        """Pods with facts from other objects."""

    def facts(self, pod: Pod) -> PodFacts:
        """A pod as the core sees it, on the node that is reserved for it if there is one."""
        key, uid = pod.metadata.key, pod.metadata.uid
        node = self._node_of(pod)
        if node and (known := self._snapshot.find_pod(uid)) is not None and known.node == node:
            return known
        facts = self._facts.get(key)
        if facts is None or facts.uid != uid or facts.terminating != pod.metadata.is_deleting:
            facts = self.read(pod)
            if not pod.spec.node_name:
                self._facts[key] = facts
                if depends_on_objects(pod, facts):
                    self._dependent.add(key)
        return facts.on(node) if node != facts.node else facts

    def read(self, pod: Pod) -> PodFacts:
        """The facts of a pod as the objects around it make them now."""
        facts = self._sources.read(pod)
        gang = self._gangs.get(self._gang_of.get(pod.metadata.key, ""))
        if gang is None or not gang.has_object:
            return facts if self._takes_gangs or not facts.gang else msgspec.structs.replace(facts, gang="", group="")
        group = gang.group_of[pod.metadata.key]
        priority = max(gang.priority, facts.priority)
        if (facts.gang, facts.group, facts.priority) == (gang.name, group, priority):
            return facts
        return msgspec.structs.replace(facts, gang=gang.name, group=group, priority=priority)

    def asks_else(self, pod: Pod, *, is_reserved: bool) -> bool:
        """Whether a pod that was read while it waited asks for something else now; it is read again in any case."""
        before = self._facts.get(pod.metadata.key)
        self.forget(pod.metadata.key)
        return before is not None and not is_reserved and self.read(pod).shape != before.shape

    # What changes

    def read_again(self, key: Key) -> None:
        """What a waiting pod depends on may have changed; a later change of that helps it as before."""
        self._facts.pop(key, None)

    def read_all_again(self) -> None:
        """What every waiting pod asks for may have changed."""
        self._facts.clear()
        self._dependent.clear()
        self._changes.help_all()

    def help_dependents(self) -> None:
        """Volumes or devices changed, or who has them: pods that ask for any are read again, and their units tried."""
        for key in self._dependent:
            self._facts.pop(key, None)
            if (gang := self._gang_of.get(key)) is not None:
                self._changes.helped.add(gang)
        self._dependent.clear()
        self._changes.wake()

    def forget(self, key: Key) -> None:
        """The facts of a waiting pod are outdated."""
        self._facts.pop(key, None)
        self._dependent.discard(key)

    def forget_waiting(self, key: Key) -> None:
        """The pod has a node or is gone."""
        self.forget(key)
        self._sources.forget_pod(key)
