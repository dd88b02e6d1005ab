"""How the pods of a gang stand to running pods and to each other: classes of alike pods, masks, who may share a node.

Pods are alike if they have the same shape and every term that matters sees them alike. Most terms speak of running pods
only, or keep pods of the gang on different hosts; those become masks, limits and pairs. The rest (affinity to, spread
over, or zones apart from each other) makes the gang coupled, and the search has to go pod by pod.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grove.scheduler.cluster.nodes import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.interpod import affinity_mask, anti_affinity_mask, spread_mask
from grove.scheduler.model.facts import HOSTNAME, PodFacts, PodScope, Shape


class Relations:
    def __init__(self, snapshot: Snapshot, pods: Sequence[PodFacts]) -> None:
        self._snapshot = snapshot
        shapes: dict[Shape, None] = dict.fromkeys(pod.shape for pod in pods)
        own = {
            scope
            for shape in shapes
            if shape.sees_pods
            for scope in (
                *(term.scope for term in shape.affinity),
                *(term.scope for term in shape.anti_affinity),
                *(spread.scope for spread in shape.spread),
            )
        }
        self._scopes = tuple(own)  # only ever used as parts of a dictionary key, so its order is free
        self._standing = any(True for _ in snapshot.counts.standing_terms())
        self._firsts = self.classes(pods) if own else []
        self.coupled = bool(own) and self._is_coupled()

    def classes(self, pods: Sequence[PodFacts]) -> list[list[PodFacts]]:
        """Pods in classes of alike ones, in order of first appearance."""
        found: dict[object, list[PodFacts]] = {}
        if not self._scopes and not self._standing:
            for pod in pods:
                found.setdefault(pod.shape, []).append(pod)
        else:
            counts = self._snapshot.counts
            for pod in pods:
                seen = tuple(counts.matches(scope, pod) for scope in self._scopes)
                found.setdefault((pod.shape, seen, frozenset(counts.terms_against(pod))), []).append(pod)
        return list(found.values())

    def mask(self, pod: PodFacts) -> Mask | None:
        """Rows that running pods leave open to this one, where that does not depend on the rest of the gang.

        None if running pods mean nothing to it.
        """
        if not self._scopes and not self._standing:
            return None
        mask = anti_affinity_mask(self._snapshot, pod)
        shape = pod.shape
        if shape.affinity and not any(self._concerns_gang(term.scope) for term in shape.affinity):
            mask &= affinity_mask(self._snapshot, pod)
        if shape.spread and not any(self._concerns_gang(spread.scope) for spread in shape.spread):
            mask &= spread_mask(self._snapshot, pod)
        return mask

    def apart_from_itself(self, pod: PodFacts) -> bool:
        """Whether two such pods may not share a host."""
        return self._apart(pod, pod)

    def rather_apart(self, pod: PodFacts) -> bool:
        """Whether two such pods would rather not share a host, though they may."""
        return any(
            weight < 0 and term.topology_key == HOSTNAME and self._snapshot.counts.matches(term.scope, pod)
            for weight, term in pod.shape.preferred_pods
        )

    def conflicts(self, firsts: Sequence[PodFacts]) -> list[list[int]]:
        """For each of these pods, which of the others may not share a host with it."""
        if not any(pod.shape.ports or pod.shape.anti_affinity for pod in firsts):
            return [[] for _ in firsts]
        return [[j for j, b in enumerate(firsts) if i != j and self._apart(a, b)] for i, a in enumerate(firsts)]

    def _apart(self, a: PodFacts, b: PodFacts) -> bool:
        if any(mine.clashes(theirs) for mine in a.shape.ports for theirs in b.shape.ports):
            return True
        return self._minds(a, b) or self._minds(b, a)

    def _minds(self, a: PodFacts, b: PodFacts) -> bool:
        return any(
            term.topology_key == HOSTNAME and self._snapshot.counts.matches(term.scope, b)
            for term in a.shape.anti_affinity
        )

    def _concerns_gang(self, scope: PodScope) -> bool:
        return any(self._snapshot.counts.matches(scope, pods[0]) for pods in self._firsts)

    def _is_coupled(self) -> bool:
        for pods in self._firsts:
            shape = pods[0].shape
            if any(self._concerns_gang(term.scope) for term in shape.affinity):
                return True
            if any(self._concerns_gang(spread.scope) for spread in shape.spread):
                return True
            for term in shape.anti_affinity:
                if self._concerns_gang(term.scope) and not (term.topology_key == HOSTNAME and self._one_node_a_host()):
                    return True
        return False

    def _one_node_a_host(self) -> bool:
        table = self._snapshot.nodes
        ids = table.column(HOSTNAME).ids[: table.rows][table.alive[: table.rows]]
        return bool((ids >= 0).all()) and np.unique(ids).size == ids.size
