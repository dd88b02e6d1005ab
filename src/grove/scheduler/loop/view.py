"""The cluster as the scheduler knows it: one snapshot, the gangs, the single pods, and what changed lately.

Events come in through `follow`. A reserved pod counts on its node from the moment it is reserved; a bind that was
answered counts as bound, although the watch may show it later; that a pod we deleted is going the cache shows at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from grove.api import labels
from grove.api.core import Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.meta import Key, find_condition
from grove.kube.cache import Cache
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import POD, RunningIndex
from grove.scheduler.filters.node_filters import meets
from grove.scheduler.loop.unit import Units
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import NodeFacts, NodeTerms, PodFacts
from grove.scheduler.model.reading import read_node
from grove.scheduler.model.seams import Refusal
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.policy.gang_state import GangState, Look, says_placed
from grove.scheduler.policy.hold_ledger import Ledger
from grove.scheduler.sources.node_sources import NodeSources, depends_on_objects

if TYPE_CHECKING:
    from grove.scheduler.loop.pending_reservations import PendingReservation

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
MOST_PLACES = 4096
NODES_A_SLICE = 8
"""Nodes that are recounted before the event loop goes on."""
HELD = "held:"
"""Before the uid of a replaced pod: what the snapshot counts for the pod that will replace it."""


class View:
    """Everything a cycle reads and reserves in. `wake` is called when there is something new to decide."""

    def __init__(
        self, cache: Cache, snapshot: Snapshot, config: SchedulerConfiguration, *, wake: Callable[[], None]
    ) -> None:
        self.cache, self.snapshot, self.changes = cache, snapshot, Changes(wake)
        self.scheduler_name, self.takes_gangs = config.scheduler_name, config.takes_gangs
        self._bandwidth_label = config.network_bandwidth_label
        self.units = Units()
        self.gangs: dict[str, GangState] = {}
        self.singles: dict[str, Pod] = {}
        self.reservations: dict[str, PendingReservation] = {}
        """Reservations that wait for a place, by the name of their unit."""
        self.scaled_of: dict[str, set[str]] = {}
        """Scaled gangs by the name of their base."""
        self.reserved: dict[str, str] = {}
        """Node by uid of pods that have a place and no binding yet."""
        self.confirmed: dict[str, str] = {}
        """The same, for bindings that were answered and not seen yet."""
        self.places: dict[str, frozenset[str]] = {}
        """Nodes of gangs that stood, by name, after they are gone too; the oldest are forgotten."""
        self.levels: dict[str, dict[str, str]] = {}
        """Node label keys by the names of the levels, of every topology."""
        self.gang_of: dict[Key, str] = {}
        """The gang that refers to a pod; the first one, if there are several."""
        self.pods = cache.add(Pod, fields=UNFINISHED)
        self.nodes = cache.add(Node)
        self.budgets = cache.add(PodDisruptionBudget)
        self.priorities = cache.add(PriorityClass)
        self.sources = NodeSources(snapshot)
        self.before_turn: list[Callable[[], None]] = []
        """Called before anything is decided, when everything is up to date."""
        self.tell_queues: Callable[[Iterable[str]], None] = lambda units: None
        """Tells the policy of queues, if there is one, which units wait."""
        self.running = RunningIndex()
        self.ledger = Ledger()
        self._facts: dict[Key, PodFacts] = {}
        self._dependent: set[Key] = set()
        """Pods whose facts were read from objects beside them too."""

    # Reading

    def is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name == self.scheduler_name

    def members(self, gang: GangState) -> Iterator[tuple[Pod, str]]:
        """Existing pods of a gang with their groups, in the order of the references."""
        get, owner = self.pods.get, self.gang_of.get
        for key, group in gang.group_of.items():
            pod = get(key)
            if pod is not None and owner(key) == gang.name:
                yield pod, group

    def concerns_us(self, gang: GangState) -> bool:
        """Whether the gang is this scheduler's: its label says so, or a pod it names, or those it had did."""
        named = gang.podgang.metadata.labels.get(labels.SCHEDULER_NAME)
        if named:
            return named == self.scheduler_name
        pods = [self.is_ours(pod) for key in gang.group_of if (pod := self.pods.get(key)) is not None]
        return any(pods) if pods else gang.was_ours

    def is_current(self, gang: GangState) -> bool:
        """Whether the gang still exists: not another one of its name."""
        return self.gangs.get(gang.name) is gang

    def node_of(self, pod: Pod) -> str:
        """Where a pod is, or will be as far as we are concerned."""
        uid = pod.metadata.uid
        return pod.spec.node_name or self.reserved.get(uid, "") or self.confirmed.get(uid, "")

    def bound_node(self, pod: Pod) -> str:
        """Where a pod is bound, by the cache or by the answer to our own bind."""
        return pod.spec.node_name or self.confirmed.get(pod.metadata.uid, "")

    def grace_end(self, uid: str) -> datetime | None:
        """When a terminating pod has to be gone by its own grace period; None if that is not known."""
        known = self.snapshot.find_pod(uid)
        pod = self.pods.get(Key(known.namespace, known.name)) if known is not None else None
        if pod is None or pod.metadata.uid != uid:
            return None
        end = pod.metadata.deletion_timestamp
        return end if end is not None and end.timestamp() > 0 else None  # the cache marks what we deleted ourselves

    def is_pending(self, pod: Pod) -> bool:
        """Whether it is ours to find a place for."""
        return self.is_ours(pod) and not self.node_of(pod) and not pod.metadata.is_deleting

    def look(self, gang: GangState) -> Look:
        """What there is of a gang's pods, in one pass over them."""
        bound = dict.fromkeys(gang.minima, 0)
        reserved, usable = dict(bound), dict(bound)
        pending: list[Pod] = []
        since: list[datetime] = []
        is_leaving = False
        for pod, group in self.members(gang):
            if pod.metadata.is_deleting:
                is_leaving = True
            elif self.node_of(pod):
                reserved[group] += 1
                usable[group] += 1
                bound[group] += bool(self.bound_node(pod))
            elif self.is_ours(pod):
                pending.append(pod)
                usable[group] += not pod.is_gated
            if not gang.stood and pod.spec.node_name and (moment := self.bound_since(pod)) is not None:
                since.append(moment)
        has_stood = any(reserved.values()) and (gang.stood or says_placed(gang.podgang, since))
        return Look(bound, reserved, pending, usable, is_leaving, has_stood)

    def standing(self, gang: GangState) -> dict[str, int]:
        """Pods on nodes by group; those on their way out do not count."""
        count = dict.fromkeys(gang.minima, 0)
        for pod, group in self.members(gang):
            if self.bound_node(pod) and not pod.metadata.is_deleting:
                count[group] += 1
        return count

    def has_minimum(self, gang: GangState) -> bool:
        """Whether every group of it has its minimum on nodes."""
        return gang.has_minimum(self.standing(gang))

    def facts(self, pod: Pod) -> PodFacts:
        """A pod as the core sees it, on the node that is reserved for it if there is one."""
        key, uid = pod.metadata.key, pod.metadata.uid
        node = self.node_of(pod)
        if node and (known := self.snapshot.find_pod(uid)) is not None and known.node == node:
            return known
        found = self._facts.get(key)
        if found is None or found.uid != uid or found.terminating != pod.metadata.is_deleting:
            found = self.read(pod)
            if not pod.spec.node_name:
                self._facts[key] = found
                if depends_on_objects(pod, found):
                    self._dependent.add(key)
        return found.on(node) if node != found.node else found

    def read(self, pod: Pod) -> PodFacts:
        """The facts of a pod as the objects around it make them now."""
        facts = self.sources.read(pod)
        gang = self.gangs.get(self.gang_of.get(pod.metadata.key, ""))
        if gang is None:
            return facts if self.takes_gangs or not facts.gang else msgspec.structs.replace(facts, gang="", group="")
        group = gang.group_of[pod.metadata.key]
        priority = max(gang.priority, facts.priority)
        if (facts.gang, facts.group, facts.priority) == (gang.name, group, priority):
            return facts
        return msgspec.structs.replace(facts, gang=gang.name, group=group, priority=priority)

    def read_node(self, node: Node) -> NodeFacts:
        """The facts of a node, what the sources count on it among what it has."""
        facts = read_node(node, self._bandwidth_label)
        more = self.sources.amounts(facts.name)
        return replace(facts, allocatable={**facts.allocatable, **more}) if more else facts

    def meets(self, terms: NodeTerms, node: str) -> bool:
        row = self.snapshot.nodes.row_of.get(node)
        facts = self.snapshot.nodes.facts[row] if row is not None else None
        return facts is not None and meets(facts, terms)

    def level_names(self, topology: str) -> dict[str, str]:
        """Label keys by level name, of one topology or of all there are."""
        if topology in self.levels:
            return self.levels[topology]
        return {name: key for _, levels in sorted(self.levels.items()) for name, key in levels.items()}

    def read_again(self, key: Key) -> None:
        """What a pending pod depends on may have changed; it is helped by a change of that as before."""
        self._facts.pop(key, None)

    def forget_facts(self, key: Key) -> None:
        """What was read of a pending pod is not true any more."""
        self._facts.pop(key, None)
        self._dependent.discard(key)

    def forget_waiting(self, key: Key) -> None:
        """The pod is bound or gone."""
        self.forget_facts(key)
        self.sources.forget_pod(key)

    def asks_else(self, pod: Pod) -> bool:
        """Whether a pod that was read while it waited asks for something else now; it is read anew in any case."""
        before = self._facts.get(pod.metadata.key)
        self.forget_facts(pod.metadata.key)
        return before is not None and pod.metadata.uid not in self.reserved and self.read(pod).shape != before.shape

    def bound_since(self, pod: Pod) -> datetime | None:
        condition = find_condition(pod.status.conditions, "PodScheduled")
        return condition.last_transition_time if condition is not None and condition.status == "True" else None

    # What the cycle does to it

    def take(self, pods: Sequence[PodFacts], going: Iterable[PodFacts] = ()) -> Refusal | None:
        """Has every source set aside what pods need on the nodes chosen for them, or none: then says which node.

        What pods in `going` use counts as free.
        """
        with self.sources.without(going):
            refused = self.sources.take(pods)
            if refused is None:
                self.refresh()
            return refused

    def refresh(self) -> None:
        """Brings what sources count on nodes up to date."""
        for name in self.sources.refresh():
            self._recount(name)

    async def refresh_in_slices(self) -> bool:
        """The same, a few nodes at a time, for a new kind of request is counted on all nodes. Whether events came
        meanwhile."""
        self.sources.forget_kinds()
        stale = self.sources.refresh()
        for number, name in enumerate(stale, 1):
            self._recount(name)
            if number % NODES_A_SLICE == 0:
                await asyncio.sleep(0)
        return len(stale) >= NODES_A_SLICE

    def _recount(self, name: str) -> None:
        node = self.nodes.get(Key("", name))
        if node is not None and name in self.snapshot.nodes.row_of:
            self.snapshot.add_node(self.read_node(node))

    def reserve(self, pods: Collection[PodFacts]) -> None:
        """Counts pods on the nodes chosen for them, before anybody is asked to bind."""
        for pod in pods:
            self.reserved[pod.uid] = pod.node
            if (gang := self.gangs.get(pod.gang)) is not None:
                taken = gang.take_replaced(pod.group, pod.node)
                if taken is not None:
                    self.snapshot.remove_pod(f"{HELD}{taken.uid}")
            self.put(self.sources.without_counted(pod))

    def release(self, uid: str) -> None:
        """Takes a reservation back, unless the pod is known to be bound."""
        if uid in self.confirmed:
            self.reserved.pop(uid, None)
            return
        self.sources.give_back(uid)
        node = self.reserved.pop(uid, None)
        if node is not None:
            self.drop(uid)
            self.changes.relief.add(node)
            self.changes.wake()

    def confirm(self, key: Key, uid: str, node: str) -> None:
        """A bind was answered with success. The watch may have told us more already."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            self.release(uid)
        elif not pod.spec.node_name:
            self.confirmed[uid] = node

    def join(self, gang: GangState, base: str) -> None:
        """A gang is scaled with another, or (empty) with none any more."""
        scaled = self.scaled_of.get(gang.base, set())
        scaled.discard(gang.name)
        if not scaled:
            self.scaled_of.pop(gang.base, None)
        gang.join(base)
        if base:
            self.scaled_of.setdefault(base, set()).add(gang.name)

    def lose_node(self, name: str) -> None:
        """A node is gone, and with it whatever its pods stood in the way of elsewhere."""
        row = self.snapshot.nodes.row_of.get(name)
        for pod in self.snapshot.pods_on(row) if row is not None else ():
            self.changes.pod_moved(pod, None)
        self.snapshot.remove_node(name)
        self.changes.relief.add(name)  # nobody fits there, but what its pods had of a quota is free
        self.changes.neighbours_changed()  # fewer domains to be spread over

    def remember_place(self, gang: GangState) -> None:
        """Notes where a gang stands, for one that may take its place over later."""
        self.places.pop(gang.name, None)
        self.places[gang.name] = frozenset(node for pod, _ in self.members(gang) if (node := self.bound_node(pod)))
        if len(self.places) > MOST_PLACES:
            del self.places[next(iter(self.places))]

    def read_anew(self) -> None:
        """What every pending pod asks for may have changed."""
        self._facts.clear()
        self._dependent.clear()
        self.changes.wide_relief = True
        self.changes.wake()

    def help_anybody(self) -> None:
        """Something changed that no node stands for."""
        self.changes.wide_relief = True
        self.changes.wake()

    def help_dependents(self) -> None:
        """Volumes or devices changed, or who has them: pods that ask for any are read anew, and their units tried."""
        for key in self._dependent:
            self._facts.pop(key, None)
            self.changes.helped.add(self.gang_of.get(key) or f"{POD}{key}")
        self._dependent.clear()
        self.changes.wake()

    def put(self, pod: PodFacts) -> None:
        """Counts a pod on its node, instead of what was known of it."""
        before = self.snapshot.find_pod(pod.uid)
        self.snapshot.add_pod(pod)
        self.running.add(pod)
        self.changes.pod_moved(before, pod)

    def drop(self, uid: str) -> None:
        before = self.snapshot.find_pod(uid)
        self.running.remove(uid)
        self.snapshot.remove_pod(uid)
        self.changes.pod_moved(before, None)
