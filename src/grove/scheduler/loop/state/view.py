"""The cluster as the scheduler sees it: the caches, one snapshot, the gangs, and what changed lately.

`follower` brings the events in. `counted` has the pods on nodes, `reader` the facts of waiting pods. The cache shows at
once that a pod terminates which this scheduler deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from grove.api import labels
from grove.api.core import Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.meta import Key, find_condition
from grove.kube.cache import Cache
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.node_filters import meets
from grove.scheduler.loop.state.counted_pods import CountedPods
from grove.scheduler.loop.state.pod_reader import PodReader
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.loop.writes.gang_traces import GangTraces
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import NodeTerms
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.policy.gang_state import GangState, Look, says_placed
from grove.scheduler.policy.hold_ledger import Ledger
from grove.scheduler.sources.node_sources import NodeSources

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class View:
    """Everything a cycle reads and reserves in. `wake` is called when there is something new to decide."""

    def __init__(
        self, cache: Cache, snapshot: Snapshot, config: SchedulerConfiguration, *, wake: Callable[[], None]
    ) -> None:
        self.cache, self.snapshot, self.changes = cache, snapshot, Changes(wake)
        self.scheduler_name, self.takes_gangs = config.scheduler_name, config.takes_gangs
        self.units = Units()
        self.levels: dict[str, dict[str, str]] = {}
        """Node label keys by the names of the levels, of every topology."""
        self.pods = cache.add(Pod, fields=UNFINISHED)
        self.nodes = cache.add(Node)
        self.budgets = cache.add(PodDisruptionBudget)
        self.priorities = cache.add(PriorityClass)
        self.sources = NodeSources(snapshot)
        self.before_turn: list[Callable[[], None]] = []
        """Callbacks before the decisions of a turn, when all facts are current."""
        self.traces: GangTraces | None = None
        """None while this process exports no traces."""
        self.ledger = Ledger()
        self.counted = CountedPods(
            snapshot,
            self.sources,
            self.changes,
            self.pods,
            self.nodes,
            self.units.gangs,
            bandwidth_label=config.network_bandwidth_label,
        )
        self.reader = PodReader(
            snapshot,
            self.sources,
            self.changes,
            self.units.gangs,
            self.units.gang_of,
            node_of=self.counted.node_of,
            takes_gangs=config.takes_gangs,
        )

    # Reading

    def is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name == self.scheduler_name

    def members(self, gang: GangState) -> Iterator[tuple[Pod, str]]:
        """Existing pods of a gang with their groups, in the order of the references."""
        get, owner = self.pods.get, self.units.gang_of.get
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
        return self.is_ours(pod) and not self.counted.node_of(pod) and not pod.metadata.is_deleting

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
            elif self.counted.node_of(pod):
                reserved[group] += 1
                usable[group] += 1
                bound[group] += bool(self.counted.bound_node(pod))
            elif self.is_ours(pod):
                pending.append(pod)
                usable[group] += not pod.is_gated
            if not gang.stood and pod.spec.node_name and (moment := self.bound_since(pod)) is not None:
                since.append(moment)
        has_stood = any(reserved.values()) and (gang.stood or says_placed(gang.podgang, since))
        return Look(bound, reserved, pending, usable, is_leaving, has_stood)

    def bound_pods(self, gang: GangState) -> list[Pod]:
        """Pods of the gang on nodes, without those that terminate."""
        pods = (pod for pod, _ in self.members(gang) if not pod.metadata.is_deleting)
        return [pod for pod in pods if self.counted.bound_node(pod)]

    def count(self, gang: GangState, counts: Callable[[Pod], object]) -> dict[str, int]:
        """How many pods count, by group; those that terminate do not."""
        numbers = dict.fromkeys(gang.minima, 0)
        for pod, group in self.members(gang):
            numbers[group] += not pod.metadata.is_deleting and bool(counts(pod))
        return numbers

    def standing(self, gang: GangState) -> dict[str, int]:
        """Pods on nodes, by group."""
        return self.count(gang, self.counted.bound_node)

    def has_minimum(self, gang: GangState) -> bool:
        """Whether every group of it has its minimum on nodes."""
        return gang.has_minimum(self.standing(gang))

    def meets(self, terms: NodeTerms, node: str) -> bool:
        row = self.snapshot.nodes.row_of.get(node)
        facts = self.snapshot.nodes.facts[row] if row is not None else None
        return facts is not None and meets(facts, terms)

    def level_names(self, topology: str) -> dict[str, str]:
        """Label keys by level name, of one topology or of all there are."""
        if topology in self.levels:
            return self.levels[topology]
        return {name: key for _, levels in sorted(self.levels.items()) for name, key in levels.items()}

    def bound_since(self, pod: Pod) -> datetime | None:
        condition = find_condition(pod.status.conditions, "PodScheduled")
        return condition.last_transition_time if condition is not None and condition.status == "True" else None

    # What the cycle does to it

    def remember_place(self, gang: GangState) -> None:
        """Notes where a gang stands, for one that may take its place over later."""
        nodes = (self.counted.bound_node(pod) for pod, _ in self.members(gang))
        self.units.remember_place(gang.name, frozenset(node for node in nodes if node))
