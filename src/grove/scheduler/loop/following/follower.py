"""Follows the cluster: turns events into changes of the view. Decides nothing.

Handlers keep the snapshot exact, note which units changed and which nodes have more free capacity, and wake the cycle.
Thousands run in a second, so each does as little as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from grove.api.core import Namespace, Node, Pod, PriorityClass
from grove.api.labels import MOVE_TO
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.state.view import View
from grove.scheduler.policy.cluster_changes import asks_of, fate_of, gang_fate_of, is_other_load, is_our_bind
from grove.scheduler.policy.gang_state import GangState, base_of, gang_of_one

SOON_S = 0.05


class ClusterFollower:
    """`readiness_changed` runs when a gang has something to report and nothing to decide."""

    def __init__(self, view: View, replacements: Replacements, readiness_changed: Callable[[str], None]) -> None:
        self._view, self._replacements, self._readiness_changed = view, replacements, readiness_changed
        self._soon: set[str] = set()
        self._rivals: set[str] = set()
        """Gangs that refer to pods of others."""

    def follow(self) -> None:
        cache = self._view.cache
        cache.on_event(Node, self._node_changed)
        cache.on_event(Namespace, self._namespace_changed)
        cache.on_event(PriorityClass, self._priority_changed)
        cache.on_event(Pod, self._pod_changed)
        if self._view.takes_gangs:  # else Grove's own kinds need not even be installed
            cache.on_event(ClusterTopologyBinding, self._topology_changed)
            cache.on_event(PodGang, self._gang_changed)

    # Pods

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.is_finished):
            self._pod_left(old)
            old = None
        if new is None or new.is_finished:
            return
        key, uid, node = new.metadata.key, new.metadata.uid, new.spec.node_name
        if new.metadata.is_deleting and old is not None and not old.metadata.is_deleting:
            self._note_leaving(new)
        was_planned = asks_else = False
        if node:
            was_planned = self._view.counted.reserved.get(uid) == node and old is not None and is_our_bind(old, new)
            if was_planned and old is not None:
                if old.metadata.labels != new.metadata.labels:  # from 1.35 on its node's zone is among them
                    self._view.counted.put(self._view.reader.read(new))
            elif old is None or is_other_load(old, new):
                self._view.counted.put(self._view.reader.read(new))
                if old is None or old.spec.node_name != node:
                    self._pod_arrived(new, node)
                else:
                    self._view.changes.relief.add(node)  # it may take less than before
                    self._view.changes.wake()
            self._view.counted.end_reservation(uid)
            self._view.counted.confirmed.pop(uid, None)
            self._view.reader.forget_waiting(key)
        elif old is not None and asks_of(old) != asks_of(new):
            asks_else = self._view.reader.asks_else(new, is_reserved=uid in self._view.counted.reserved)
        if (gang := self._gang_for(new)) is not None:
            self._member_changed(gang, old, new, ours=was_planned, asks_else=asks_else)

    def _pod_arrived(self, pod: Pod, node: str) -> None:
        planned = self._view.counted.reserved.get(pod.metadata.uid)
        if planned is not None and planned != node:
            self._view.changes.relief.add(planned)

    def _pod_left(self, pod: Pod) -> None:
        key, uid = pod.metadata.key, pod.metadata.uid
        self._view.sources.give_back(uid)
        node = self._view.counted.end_reservation(uid) or pod.spec.node_name
        self._view.counted.confirmed.pop(uid, None)
        self._view.reader.forget_waiting(key)
        if node:
            facts = self._view.snapshot.find_pod(uid)
            if not pod.metadata.is_deleting:
                self._note_leaving(pod)
            self._view.counted.drop(uid)
            if facts is not None:
                self._replacements.note_gone(facts)
            else:
                self._replacements.forget(uid)
            self._view.changes.relief.add(node)
            self._view.changes.wake()
        gang = self._view.units.gang_with(key)
        if gang is not None and gang.has_object:
            gang.lost(key)
            self._mark_soon(gang.name)
        elif gang is not None:
            self._end_gang_of_one(gang)

    def _note_leaving(self, pod: Pod) -> None:
        facts = self._view.snapshot.find_pod(pod.metadata.uid)
        if facts is not None:
            self._replacements.note_leaving(facts, pod)

    def _mark_soon(self, gang: str) -> None:
        """A gang that loses pods often loses many, and no look helps it before new ones come."""
        if gang not in self._soon:
            self._soon.add(gang)
            asyncio.get_running_loop().call_later(SOON_S, self._mark_now, gang)

    def _mark_now(self, gang: str) -> None:
        self._soon.discard(gang)
        self._view.changes.mark(gang)

    def _member_changed(self, gang: GangState, old: Pod | None, new: Pod, *, ours: bool, asks_else: bool) -> None:
        key = new.metadata.key
        if old is None:
            gang.met(key, ours=self._view.is_ours(new))
            self._note_met_leaving(gang, gang.group_of[key], new)
            self._learn_base(gang, new)
            if (new.spec.priority or 0) > gang.priority and not gang.podgang.spec.priority_class_name:
                self._set_priority(gang)
            if not new.spec.node_name and self._view.is_ours(new):
                self._view.reader.facts(new)  # read now, while the rest is being created, and not when time matters
            if gang.missing and not gang.stood and gang.verdict is not None:
                return  # no decision is possible before the last of them exists
        if ours and gang.life.attempts:
            return  # the end of the attempt that did it marks the gang
        if old is not None and new.metadata.is_deleting and not old.metadata.is_deleting:
            self._mark_soon(gang.name)
        elif old is None or asks_else or fate_of(old) != fate_of(new):
            self._view.changes.mark(gang.name, fresh=not ours)
        elif old.is_ready != new.is_ready:
            self._readiness_changed(gang.name)

    def _gang_for(self, pod: Pod) -> GangState | None:
        """The gang of a pod. One of ours that no PodGang refers to is a gang of one while it waits."""
        known, meta = self._view.units.gang_with(pod.metadata.key), pod.metadata
        if known is not None and known.has_object:
            return known
        if not self._view.is_ours(pod) or pod.spec.node_name or pod.metadata.is_deleting:
            gang = None
        elif known is not None and (known.uid, known.podgang.metadata.labels) == (meta.uid, meta.labels):
            return known
        else:
            gang = gang_of_one(pod, takes_gangs=self._view.takes_gangs)
        if known is not None and gang is not None and (known.uid, known.named) == (gang.uid, gang.named):
            known.adopt(gang.podgang)
            return known
        if known is not None:
            self._end_gang_of_one(known)
        if gang is not None:
            self._view.units.gangs[gang.name] = gang
            self._view.units.gang_of[pod.metadata.key] = gang.name
            self._view.changes.mark(gang.name, fresh=True)
        return gang

    def _end_gang_of_one(self, gang: GangState) -> None:
        """Its pod has a node or is gone, or a PodGang refers to it."""
        del self._view.units.gangs[gang.name]
        for key in gang.group_of:
            del self._view.units.gang_of[key]
        self._view.changes.forget(gang)

    def _note_met_leaving(self, gang: GangState, group: str, pod: Pod) -> None:
        """Notes a pod that is met when it is leaving already, unless the PodGang's status names its node."""
        node = pod.spec.node_name
        if (
            node
            and pod.metadata.is_deleting
            and all(replaced.node != node for replaced in gang.replaced.get(group, ()))
        ):
            facts = self._view.reader.read(pod)
            gang.note_replaced(group, self._replacements.replaced(facts, pod))

    # Gangs

    def _gang_changed(self, old: PodGang | None, new: PodGang | None) -> None:
        if new is None:
            if old is not None:
                self._gang_left(old)
            return
        name = str(new.metadata.key)
        gang = self._view.units.gangs.get(name)
        is_new = gang is None
        if gang is None:
            gang = self._view.units.gangs[name] = GangState(name, new)
            self._mark_scaled(name)
        if new.metadata.annotations.get(MOVE_TO, "") != (old.metadata.annotations.get(MOVE_TO, "") if old else ""):
            self._view.units.asked_to_move.add(name)
            self._view.changes.wake()
        before = gang.group_of
        gang.adopt(new)
        if old is None or old.spec != new.spec:
            self._refer(gang, before)
        for pod, group in self._view.members(gang) if is_new else ():
            self._note_met_leaving(gang, group, pod)
        if old is None or gang_fate_of(old) != gang_fate_of(new):
            self._view.changes.mark(name, fresh=True)
        else:
            self._readiness_changed(name)

    def _gang_left(self, podgang: PodGang) -> None:
        gang = self._view.units.gangs.pop(str(podgang.metadata.key), None)
        if gang is None:
            return
        self._view.units.join(gang, "")
        self._replacements.end(gang.name)
        self._rivals.discard(gang.name)
        for key in gang.group_of:
            self._unrefer(gang, key)
        self._refer_rivals(gang)
        self._view.changes.forget(gang)
        self._mark_scaled(gang.name)

    def _mark_scaled(self, base: str) -> None:
        """A base gang came or went: the gangs that wait for it get another look."""
        for name in sorted(self._view.units.scaled_of.get(base, ())):
            self._view.changes.mark(name)

    def _refer(self, gang: GangState, before: Mapping[Key, str]) -> None:
        gone = before.keys() - gang.group_of.keys()
        for key in gone:
            self._unrefer(gang, key)
        if gone:
            self._refer_rivals(gang)
        for key in gang.group_of:
            if (alone := self._view.units.gang_with(key)) is not None and not alone.has_object:
                self._end_gang_of_one(alone)
        owners = {key: self._view.units.gang_of.setdefault(key, gang.name) for key in gang.group_of}
        mine = [key for key, owner in owners.items() if owner == gang.name]
        gang.refer(set(mine), {key: owner for key, owner in owners.items() if owner != gang.name})
        if gang.claimed:
            self._rivals.add(gang.name)
        else:
            self._rivals.discard(gang.name)
        for key in mine:
            pod = self._view.pods.get(key)
            if pod is not None:
                gang.met(key, ours=self._view.is_ours(pod))
                self._learn_base(gang, pod)
        self._set_priority(gang)

    def _refer_rivals(self, gang: GangState) -> None:
        """Gangs that refer to pods which were this one's may have them now; the oldest first."""
        rivals = [
            other for name in self._rivals if gang.name in (other := self._view.units.gangs[name]).claimed.values()
        ]
        for rival in sorted(rivals, key=lambda rival: (str(rival.podgang.metadata.creation_timestamp), rival.name)):
            self._refer(rival, rival.group_of)
            self._view.changes.mark(rival.name, fresh=True)

    def _unrefer(self, gang: GangState, key: Key) -> None:
        if self._view.units.gang_of.get(key) == gang.name:
            del self._view.units.gang_of[key]
            self._view.reader.forget(key)
            pod = self._view.pods.get(key)
            if pod is None:
                return
            if pod.spec.node_name:
                self._count_again(pod)
            self._gang_for(pod)

    def _learn_base(self, gang: GangState, pod: Pod) -> None:
        base = base_of(pod) if gang.has_object else ""
        if base and base != gang.base:
            self._view.units.join(gang, base)

    def _set_priority(self, gang: GangState) -> None:
        """The gang's class if it names one, else the highest of its pods; the pods are counted with it."""
        named = self._view.priorities.get(Key("", gang.podgang.spec.priority_class_name))
        priorities = [pod.spec.priority or 0 for pod, _ in self._view.members(gang)]
        gang.rank(named.value if named is not None else max(priorities, default=0))
        for pod, _ in self._view.members(gang):
            self._view.reader.forget(pod.metadata.key)
            if pod.spec.node_name:
                self._count_again(pod)

    def _count_again(self, pod: Pod) -> None:
        """Makes the snapshot's idea of a bound pod's gang and priority ours, when it was read before we knew."""
        known = self._view.snapshot.find_pod(pod.metadata.uid)
        if known is None:
            return
        now = self._view.reader.read(pod)
        if (known.gang, known.group, known.priority) != (now.gang, now.group, now.priority):
            self._view.counted.drop(known.uid)
            self._view.counted.put(now)
            if now.priority < known.priority:  # others may put it out now
                self._view.changes.relief.add(now.node)
                self._view.changes.wake()

    # The rest

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._view.counted.lose_node(old.metadata.name)
        else:
            snapshot = self._view.snapshot
            version, labels_version = snapshot.version, snapshot.nodes.labels_version
            snapshot.add_node(self._view.counted.read_node(new))
            if snapshot.version == version:
                return  # a heartbeat: nothing that placement looks at
            self._view.changes.relief.add(new.metadata.name)
            self._view.changes.neighbours_changed()  # a tainted node may not count for a spread
            self._replacements.note_node_changed(new.metadata.name)
            if snapshot.nodes.labels_version != labels_version:
                self._view.changes.wide_relief = True  # domains changed, and with them what other nodes are good for
        self._view.changes.wake()

    def _topology_changed(self, old: ClusterTopologyBinding | None, new: ClusterTopologyBinding | None) -> None:
        if new is not None:
            self._view.snapshot.set_topology(new.metadata.name, tuple(level.key for level in new.spec.levels))
            self._view.levels[new.metadata.name] = {level.domain: level.key for level in new.spec.levels}
        elif old is not None:
            self._view.levels.pop(old.metadata.name, None)
            self._view.snapshot.set_topology(old.metadata.name, None)
        self._view.changes.help_all()

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is None:
            assert old is not None
            self._view.snapshot.set_namespace(old.metadata.name, None)
        elif old is None or old.metadata.labels != new.metadata.labels:
            self._view.snapshot.set_namespace(new.metadata.name, new.metadata.labels)
            if old is not None:
                self._view.changes.help_all()
            else:
                self._view.changes.neighbours_changed()  # the events of its pods may have come before its own

    def _priority_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]
        for gang in self._view.units.gangs.values():
            if gang.podgang.spec.priority_class_name == name:
                self._set_priority(gang)
                self._view.changes.mark(gang.name, fresh=True)
