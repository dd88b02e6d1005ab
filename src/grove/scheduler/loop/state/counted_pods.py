"""Pods as the snapshot counts them on nodes: from the moment a node is reserved for a pod until the pod is gone.

A bind that was answered counts as bound, although the watch may show it later. `refresh` brings what sources
count on nodes up to date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.kube.store import Store
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import RunningIndex
from grove.scheduler.model.facts import NodeFacts, PodFacts, Requests, Shape
from grove.scheduler.model.reading import read_node
from grove.scheduler.model.seams import Refusal
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.sources.node_sources import NodeSources

NODES_A_SLICE, SLICE_S = 8, 0.003
"""Nodes that are recounted, and seconds of CPU that this takes, before the event loop goes on.

What one node has is counted in up to 6.3 ms, so no slice takes 10 ms. Most nodes have what another one had, which takes
microseconds.
"""
HELD = "held:"
"""Before the uid of a replaced pod: what the snapshot counts for the pod that will replace it."""


class CountedPods:
    def __init__(
        self,
        snapshot: Snapshot,
        sources: NodeSources,
        changes: Changes,
        pods: Store[Pod],
        nodes: Store[Node],
        gangs: dict[str, GangState],
        *,
        bandwidth_label: str,
    ) -> None:
        self._snapshot, self._sources, self._changes = snapshot, sources, changes
        self._pods, self._nodes, self._gangs = pods, nodes, gangs
        self._bandwidth_label = bandwidth_label
        self.reserved: dict[str, str] = {}
        """Node by uid of pods that have a placement and no binding yet."""
        self.confirmed: dict[str, str] = {}
        """The same, for bindings that were answered and not seen yet."""
        self.running = RunningIndex()
        self.on_given_back: Callable[[GangState], None] = lambda _: None
        """Called when a pod is not bound on the node of a pod that it replaces: the node is held for the gang again."""
        self.cpu_s: Callable[[], float] = lambda: 0.0
        """CPU seconds of this thread. Always 0 on the simulator, where a run must not depend on the machine."""

    def node_of(self, pod: Pod) -> str:
        """The node where a pod is, or the node of its reservation."""
        uid = pod.metadata.uid
        return pod.spec.node_name or self.reserved.get(uid, "") or self.confirmed.get(uid, "")

    def bound_node(self, pod: Pod) -> str:
        """The node of a bound pod, by the cache or by the answer to our own bind."""
        return pod.spec.node_name or self.confirmed.get(pod.metadata.uid, "")

    # Pods

    def take(self, pods: Sequence[PodFacts], going: Iterable[PodFacts] = ()) -> Refusal | None:
        """Has every source set aside what pods need on the nodes chosen for them, or none: then says which node.

        What pods in `going` use counts as free.
        """
        with self._sources.without(going):
            refused = self._sources.take(pods)
            if refused is None:
                self.refresh()
            return refused

    def reserve(self, pods: Collection[PodFacts]) -> None:
        """Counts pods on their chosen nodes, before a request to the API server binds them."""
        for pod in pods:
            self.reserved[pod.uid] = pod.node
            if (gang := self._gangs.get(pod.gang)) is not None:
                taken = gang.take_replaced(pod.group, pod.node, pod.uid)
                if taken is not None and self.end_hold(f"{HELD}{taken.uid}") and _asks_less(pod.shape, taken.shape):
                    self._changes.relief.add(pod.node)
                    self._changes.wake()
            self.put(self._sources.without_counted(pod))

    def hold(
        self, uid: str, node: str, requests: Requests, namespace: str = "", charged_to: Mapping[str, str] | None = None
    ) -> PodFacts:
        """Counts amounts on a node that no pod uses; in a namespace and with labels, for the queue that they name."""
        pod = PodFacts(uid, namespace, uid.removeprefix(HELD), Shape(requests), charged_to or {}, node=node)
        self._sources.ask_for(Key("", uid), requests)
        self._snapshot.add_pod(pod)
        return pod

    def end_hold(self, uid: str) -> bool:
        """Ends the count of these pods; True if it had them."""
        self._sources.forget_pod(Key("", uid))
        is_counted = self._snapshot.find_pod(uid) is not None
        if is_counted:
            self._snapshot.remove_pod(uid)
        return is_counted

    def end_reservation(self, uid: str) -> str | None:
        """The pod is bound, or gone. The node that was reserved for it."""
        node = self.reserved.pop(uid, None)
        if (gang := self._gang_with(uid)) is not None:
            gang.forget_replaced(uid)
        return node

    def _gang_with(self, uid: str) -> GangState | None:
        pod = self._snapshot.find_pod(uid)
        return self._gangs.get(pod.gang) if pod is not None else None

    def release(self, uid: str) -> None:
        """Ends the reservation of a node, unless the pod runs there."""
        if uid in self.confirmed:
            self.end_reservation(uid)
            return
        self._sources.give_back(uid)
        node = self.reserved.pop(uid, None)
        if node is not None:
            gang = self._gang_with(uid)
            self.drop(uid)
            if gang is not None and gang.give_back_replaced(uid):
                self.on_given_back(gang)
            self._changes.relief.add(node)
            self._changes.wake()

    def confirm(self, key: Key, uid: str, node: str) -> None:
        """A bind was answered with success. The watch may have shown more already."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            self.release(uid)
        elif not pod.spec.node_name:
            self.confirmed[uid] = node

    def put(self, pod: PodFacts) -> None:
        """Counts a pod on its node, instead of what was known of it."""
        before = self._snapshot.find_pod(pod.uid)
        self._snapshot.add_pod(pod)
        self.running.add(pod)
        self._changes.pod_moved(before, pod)

    def drop(self, uid: str) -> None:
        """Counts a pod no more."""
        before = self._snapshot.find_pod(uid)
        self.running.remove(uid)
        self._snapshot.remove_pod(uid)
        self._changes.pod_moved(before, None)

    # Nodes

    def read_node(self, node: Node) -> NodeFacts:
        """The facts of a node, what the sources count on it among what it has."""
        facts = read_node(node, self._bandwidth_label)
        more = self._sources.amounts(facts.name)
        return replace(facts, allocatable={**facts.allocatable, **more}) if more else facts

    def lose_node(self, name: str) -> None:
        """A node is gone, and with it whatever its pods stood in the way of elsewhere."""
        row = self._snapshot.nodes.row_of.get(name)
        for pod in self._snapshot.pods_on(row) if row is not None else ():
            self._changes.pod_moved(pod, None)
        self._snapshot.remove_node(name)
        self._changes.relief.add(name)  # no pod fits there, but what its pods had of a quota is free
        self._changes.neighbours_changed()  # fewer domains to be spread over

    def refresh(self) -> None:
        """Brings what sources count on nodes up to date."""
        for name in self._sources.refresh():
            self._recount(name)

    async def refresh_in_slices(self) -> bool:
        """The same, a few nodes at a time, for a new kind of request is counted on all nodes. Whether events may have
        come meanwhile."""
        self._sources.forget_kinds()
        gave_way, number, began_s = False, 0, self.cpu_s()
        for name in self._sources.refresh():
            self._recount(name)
            number += 1
            if number == NODES_A_SLICE or self.cpu_s() - began_s >= SLICE_S:
                await asyncio.sleep(0)
                gave_way, number, began_s = True, 0, self.cpu_s()
        return gave_way

    async def refresh_until_current(self) -> bool:
        """The same again until no events came meanwhile; after it `refresh` counts few nodes."""
        gave_way = False
        while await self.refresh_in_slices():
            gave_way = True
        return gave_way

    def _recount(self, name: str) -> None:
        node = self._nodes.get(Key("", name))
        if node is not None and name in self._snapshot.nodes.row_of:
            self._snapshot.add_node(self.read_node(node))


def _asks_less(new: Shape, old: Shape) -> bool:
    """True if a pod leaves free some of what the pod that it replaces had."""
    asked = dict(new.requests)
    return any(amount > asked.get(name, 0) for name, amount in old.requests)
