"""The cluster as the scheduler sees it: free amounts in dense columns, kept current by node and pod events.

Invariant: `free[r, row]` is allocatable minus the sum over the pods on that row, for every resource, exactly. A copy
costs microseconds: arrays are shared until one side writes. Nothing here decides anything; `fit` and `place` read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.node_table import FIRST_ROWS, Ints, NodeTable
from grove.scheduler.cluster.pod_counts import PodCounts, Shards, Usage
from grove.scheduler.cluster.topology import Tree, levels_for, path_name
from grove.scheduler.model.facts import HOSTNAME, PODS, HostPort, NodeFacts, PodFacts, Requests
from grove.scheduler.model.seams import Seams
from grove.scheduler.standard import STANDARD

if TYPE_CHECKING:
    from grove.scheduler.model.answers import Placement


class Snapshot:
    def __init__(self, topologies: Mapping[str, tuple[str, ...]] | None = None, seams: Seams = STANDARD) -> None:
        self.topologies = dict(topologies or {})
        self.seams = seams
        """Filters, sources, scores and policies that are asked about this cluster."""
        self.usage = Usage(seams.policies)
        self.resources: list[str] = [PODS, "cpu", "memory"]
        self.free: Ints = np.zeros((len(self.resources), FIRST_ROWS), dtype=np.int64)
        self.allocatable: Ints = np.zeros_like(self.free)
        self.nodes = NodeTable()
        self.counts = PodCounts()
        self.version = 0
        """Grows with every change; a decision names the version it was made on."""
        self._resource_row = {name: i for i, name in enumerate(self.resources)}
        self._spare: dict[str, None] = {}
        """Resources that are no longer counted. Other resources may take over their rows once these are empty."""
        self._pods: Shards[tuple[PodFacts, int]] = Shards()
        self._homeless: dict[str, dict[str, PodFacts]] = {}
        """Pods by uid on nodes, by name, that are not known (yet)."""
        self._awaited: dict[str, str] = {}
        """The node of each of them by uid."""
        self._ports: dict[int, tuple[HostPort, ...]] = {}
        self._leaving: dict[str, None] = {}
        self._on: dict[int, dict[str, None]] | None = {}
        """Uids by row. A copy has none: it is made when a copy loses its first node, which few do."""
        self._amounts: dict[Requests, tuple[tuple[int, int], ...]] = {}
        self._owns_free = self._owns_nodes = True

    # Nodes

    def add_node(self, node: NodeFacts) -> None:
        """Adds a node or takes over its new state. A state that changes nothing for placement costs nothing."""
        row = self.nodes.row_of.get(node.name)
        if row is not None and self.nodes.facts[row] == node:
            return
        self._own_nodes()
        self._own_free()
        row = self.nodes.put(node)
        self._fit_rows()
        rows = self._resource_rows(node.allocatable)
        old = self.allocatable[:, row].copy()
        self.allocatable[:, row] = 0
        for r, amount in rows:
            self.allocatable[r, row] = amount
        self.free[:, row] += self.allocatable[:, row] - old
        self.version += 1
        for pod in self._homeless.pop(node.name, {}).values():
            del self._awaited[pod.uid]
            self.add_pod(pod)

    def remove_node(self, name: str) -> None:
        """Forgets a node. Its pods wait for it to come back, or for their own removal."""
        row = self.nodes.row_of.get(name)
        if row is None:
            return
        self._own_nodes()
        self._own_free()
        for pod in self.pods_on(row):
            self.remove_pod(pod.uid)
            self._await_node(pod)
        self.nodes.drop(name)
        self.allocatable[:, row] = 0
        self.free[:, row] = 0
        self.version += 1

    # Pods

    def add_pod(self, pod: PodFacts) -> None:
        """Counts a pod on its node, instead of what was known of it. A pod without a node is not counted."""
        known = self._pods.get(pod.uid)
        row = self.nodes.row_of.get(pod.node, -1)
        if known is not None:
            before = known[0]
            if (
                known[1] == row
                and before.shape == pod.shape
                and before.labels == pod.labels
                and (before.terminating == pod.terminating and before.priority == pod.priority)
            ):
                return
            self.remove_pod(pod.uid)
        else:
            self._drop_homeless(pod.uid)
        if row < 0:
            if pod.node:
                self._await_node(pod)
            return
        self._own_free()
        for r, amount in self.amounts(pod.shape.requests):
            self.free[r, row] -= amount
        if pod.shape.ports:
            self._ports = {**self._ports, row: self._ports.get(row, ()) + pod.shape.ports}
        self.counts.add(pod, row)
        if self.usage.charges:
            self.usage.add(pod)
        self._pods.put(pod.uid, (pod, row))
        if pod.terminating:
            self._leaving[pod.uid] = None
        if self._on is not None:
            self._on.setdefault(row, {})[pod.uid] = None
        self.version += 1

    def remove_pod(self, uid: str) -> None:
        known = self._pods.pop(uid)
        if known is None:
            self._drop_homeless(uid)
            return
        pod, row = known
        if pod.terminating:
            del self._leaving[uid]
        if self._on is not None:
            here = self._on[row]
            del here[uid]
            if not here:
                del self._on[row]
        self._own_free()
        for r, amount in self.amounts(pod.shape.requests):
            self.free[r, row] += amount
        if pod.shape.ports:
            left = list(self._ports.get(row, ()))
            for port in pod.shape.ports:
                left.remove(port)
            self._ports = {**self._ports, row: tuple(left)}
        self.counts.remove(pod, row)
        if self.usage.charges:
            self.usage.remove(pod)
        self.version += 1

    def assume(self, placement: Placement) -> None:
        """Counts a placement as if its pods were bound; `remove_pod` by uid takes one back."""
        for pod in placement.pods:
            self.add_pod(pod)

    def find_pod(self, uid: str) -> PodFacts | None:
        known = self._pods.get(uid)
        return known[0] if known else None

    def pods(self) -> Iterator[PodFacts]:
        """All pods that are counted, in no particular order: sort before deciding by it."""
        return (pod for pod, _ in self._pods.values())

    def pod_rows(self) -> Iterable[tuple[PodFacts, int]]:
        return self._pods.values()

    def use(self, seams: Seams) -> None:
        """Takes other filters, sources, scores and policies."""
        self.seams, self.usage = seams, Usage(seams.policies)
        for pod in self.pods():
            self.usage.add(pod)
        self._own_nodes()
        self.nodes.forget_derived()
        self.version += 1

    def with_capacity_of(self, pods: Iterable[PodFacts]) -> Snapshot:
        """A copy in which these pods take nothing of their nodes, and are neighbours still: for what-ifs by the
        thousand, where only amounts matter."""
        twin = self.copy()
        rows: dict[Requests, list[int]] = {}
        for pod in pods:
            known = self._pods.get(pod.uid)
            if known is not None:
                rows.setdefault(known[0].shape.requests, []).append(known[1])
        asked = {requests: self.amounts(requests) for requests in rows}
        twin._own_free()
        for requests, at in rows.items():
            for r, amount in asked[requests]:
                np.add.at(twin.free[r], at, amount)
        twin.version += 1
        return twin

    def without(self, uids: Collection[str]) -> Snapshot:
        """The snapshot itself if it counts none of these pods, else a copy that does not count them."""
        known = [uid for uid in sorted(uids) if self._pods.get(uid) is not None]
        if not known:
            return self
        twin = self.copy()
        for uid in known:
            twin.remove_pod(uid)
        return twin

    def add_free(self, node: str, amounts: Mapping[str, int]) -> None:
        """Counts more as free on a node than its pods leave, or less: for what-ifs, on copies."""
        row = self.nodes.row_of.get(node)
        if row is None or not any(amounts.values()):
            return
        rows = self._resource_rows(amounts)
        self._own_free()
        for r, amount in rows:
            self.free[r, row] += amount
        self.version += 1

    def forget(self, resources: Iterable[str]) -> None:
        """Stops counting nodes by these resources."""
        self._spare.update(dict.fromkeys(name for name in resources if name in self._resource_row))

    def terminating(self) -> list[PodFacts]:
        """Pods that are on their way out and still counted."""
        return [self._pods.get(uid)[0] for uid in self._leaving]  # type: ignore[index]

    # Reading

    def copy(self) -> Snapshot:
        """A twin that shares everything until one of the two is written to."""
        twin = Snapshot.__new__(Snapshot)
        twin.topologies, twin.seams = self.topologies, self.seams
        twin.usage = self.usage.copy() if self.usage.charges else self.usage
        twin.resources, twin._resource_row = self.resources, self._resource_row
        twin.free, twin.allocatable, twin.nodes = self.free, self.allocatable, self.nodes
        twin.counts, twin._pods = self.counts.copy(), self._pods.copy()
        twin.version = self.version
        twin._homeless = {name: dict(pods) for name, pods in self._homeless.items()} if self._homeless else {}
        twin._awaited = dict(self._awaited) if self._awaited else {}
        twin._ports, twin._amounts = self._ports, self._amounts
        twin._leaving, twin._on, twin._spare = self._leaving.copy(), None, {}
        self._owns_free = self._owns_nodes = False
        twin._owns_free = twin._owns_nodes = False
        return twin

    def copy_for_thread(self) -> Snapshot:
        """A copy for another thread: what copies derive from nodes, and share, is its own from the start."""
        twin = self.copy()
        twin._own_nodes()
        twin.seams = self.seams.for_thread()
        return twin

    def amounts(self, requests: Requests) -> tuple[tuple[int, int], ...]:
        """Requests as (resource row, amount); resources not met before get a row."""
        amounts = self._amounts.get(requests)
        if amounts is None:
            amounts = tuple(self._resource_rows(dict(requests)))
            if len(self._amounts) > 8192:
                self._amounts = {}
            self._amounts[requests] = amounts
        return amounts

    def column_of(self, requests: Requests) -> Ints:
        """Requests as a column: an amount for each of `resources`."""
        asked = self.amounts(requests)
        column = np.zeros(len(self.resources), dtype=np.int64)
        for r, amount in asked:
            column[r] += amount
        return column

    def ports_at(self, row: int) -> tuple[HostPort, ...]:
        return self._ports.get(row, ())

    def rows_with_ports(self) -> Iterable[int]:
        return self._ports

    def tree(self, keys: Iterable[str] = (), topology: str = "") -> Tree:
        """Domains of the topology that has all these level keys."""
        return self.nodes.tree(levels_for(keys, topology, self.topologies, self._distinct))

    def domain_name(self, tree: Tree, level: int, domain: int) -> str:
        row = int(tree.rows_in(level, domain)[0])
        node = self.nodes.facts[row]
        return path_name(node.labels, tree.keys, level, node.name) if node else ""

    def set_topology(self, name: str, keys: tuple[str, ...] | None) -> None:
        """Takes over a ClusterTopologyBinding's level keys, broad to narrow; None forgets it."""
        topologies = {other: levels for other, levels in self.topologies.items() if other != name}
        self.topologies = topologies if keys is None else {**topologies, name: keys}
        self.version += 1

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Namespaces' labels, for affinity terms that choose namespaces by them."""
        self.counts.set_namespace(name, labels)
        self.version += 1

    def pods_on(self, row: int) -> list[PodFacts]:
        """The pods of a row, by uid."""
        if self._on is None:
            self._on = {}
            for pod, at in self._pods.values():
                self._on.setdefault(at, {})[pod.uid] = None
        return [known[0] for uid in sorted(self._on.get(row, ())) if (known := self._pods.get(uid)) is not None]

    def _distinct(self, key: str) -> int:
        return len(set(self.nodes.column(key).values)) if key != HOSTNAME else self.nodes.rows

    def _resource_rows(self, amounts: Mapping[str, int]) -> list[tuple[int, int]]:
        new = sorted(name for name in amounts if name not in self._resource_row)
        if new and self._spare:
            for name in amounts:
                self._spare.pop(name, None)
            new = self._in_spare_rows(new)
        if new:
            # Lists and dicts may be shared with copies, which do not know the new rows: replace, never extend.
            self.resources = [*self.resources, *new]
            self._resource_row = {name: i for i, name in enumerate(self.resources)}
            more = np.zeros((len(new), self.free.shape[1]), dtype=np.int64)
            self.free = np.concatenate([self.free, more])
            self.allocatable = np.concatenate([self.allocatable, more])
            self._amounts = dict(self._amounts)
            self._owns_free = True
        return [(self._resource_row[name], amounts[name]) for name in sorted(amounts)]

    def _in_spare_rows(self, new: list[str]) -> list[str]:
        """Gives new resources rows of those that were forgotten; those that got none."""
        rows = map(self._resource_row.__getitem__, self._spare)
        unused = (r for r in rows if not (self.allocatable[r].any() or self.free[r].any()))
        given = dict(zip(unused, new, strict=False))
        if given:
            for r in given:
                del self._spare[self.resources[r]]
            self.resources = [given.get(r, name) for r, name in enumerate(self.resources)]
            self._resource_row = {name: r for r, name in enumerate(self.resources)}
            self._amounts = {}
        return new[len(given) :]

    def _fit_rows(self) -> None:
        have, want = self.free.shape[1], self.nodes.capacity
        if want > have:
            more = np.zeros((len(self.resources), want - have), dtype=np.int64)
            self.free = np.concatenate([self.free, more], axis=1)
            self.allocatable = np.concatenate([self.allocatable, more], axis=1)

    def _own_free(self) -> None:
        if not self._owns_free:
            self.free, self.allocatable = self.free.copy(), self.allocatable.copy()
            self._owns_free = True

    def _own_nodes(self) -> None:
        if not self._owns_nodes:
            self.nodes = self.nodes.copy()
            self._owns_nodes = True

    def _await_node(self, pod: PodFacts) -> None:
        self._homeless.setdefault(pod.node, {})[pod.uid] = pod
        self._awaited[pod.uid] = pod.node

    def _drop_homeless(self, uid: str) -> None:
        node = self._awaited.pop(uid, None)
        if node is not None:
            del self._homeless[node][uid]
            if not self._homeless[node]:
                del self._homeless[node]


def cluster(
    nodes: Iterable[NodeFacts],
    pods: Iterable[PodFacts] = (),
    topologies: Mapping[str, tuple[str, ...]] | None = None,
    seams: Seams = STANDARD,
) -> Snapshot:
    """A snapshot of given nodes and pods, for plans, replays and tests."""
    snapshot = Snapshot(topologies, seams)
    for node in nodes:
        snapshot.add_node(node)
    for pod in pods:
        snapshot.add_pod(pod)
    return snapshot
