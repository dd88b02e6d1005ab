"""Rules about where gangs go, in a cluster: what they mean for a PodGangSet, and the status of each rule.

A rule never writes to a set itself. It wakes the PodGangSets it may be about, whose translation takes it into account.
"""

from __future__ import annotations

from typing import Any

from grove.api.core import Node, Pod
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.dialects import dynamo
from grove.dialects.placement import (
    Levels,
    Match,
    Placement,
    PodPlace,
    kept_placement,
    levels_of,
    matches,
    namespaces_of,
    rule_faults,
    rule_status,
    wanted_placement,
)
from grove.dialects.record import Record
from grove.kube.cache import Cache
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Result
from grove.operator.shared.cluster.status_writer import StatusWriter


def as_json(obj: Any) -> Json:
    """An object as the pure modules read it: name, labels, annotations and the whole spec."""
    meta = obj.metadata
    metadata = {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations}
    return {"metadata": metadata, "spec": obj.spec}


class Placements:
    """Where the rules of the cluster want a PodGangSet, read from caches."""

    def __init__(self, cache: Cache, sources: Cache, *, topology_enabled: bool) -> None:
        self._cache, self._sources, self._topology_enabled = cache, sources, topology_enabled

    def rules(self, namespace: str) -> list[Json]:
        """The rules of a namespace that can be used."""
        cliques = (
            clique for clique in self._sources.list(PlacementPodClique, namespace) if not clique.metadata.is_deleting
        )
        return [rule for rule in map(as_json, cliques) if not rule_faults(rule)]

    def wanted(self, obj: Json, record: Record | None) -> Placement:
        """Where the rules want the gang by now; `record` is that of its set, if it has one."""
        namespace = obj["metadata"]["namespace"]
        labels = dynamo.template_labels(obj)
        constraint = None if record is None else Placement.of(record.placement).constraint
        return wanted_placement(self.rules(namespace), labels, namespace, self.levels(), constraint=constraint)

    def in_effect(self, obj: Json, record: Record | None, rollout: str) -> Placement:
        """Where the gang goes: as wanted if all its pods are new anyway, else as before except for urgent rules."""
        wanted = self.wanted(obj, record)
        if record is None or record.rollout != rollout:
            return wanted
        return kept_placement(Placement.of(record.placement), wanted, self.rules(obj["metadata"]["namespace"]))

    def levels(self) -> Levels:
        """The levels of the cluster's topologies; none while topology-aware scheduling is off."""
        return levels_of(self._cache.list(ClusterTopologyBinding)) if self._topology_enabled else {}


class PlacementReconciler:
    """Keeps the status of a rule: which PodGangSets it is about, how it took effect, for how many pods it holds."""

    def __init__(
        self, cache: Cache, sources: Cache, placements: Placements, statuses: StatusWriter, clock: Clock
    ) -> None:
        self._cache, self._sources, self._placements = cache, sources, placements
        self._statuses, self._clock = statuses, clock

    async def reconcile(self, key: Key) -> Result:
        rule = self._sources.get(PlacementPodClique, key)
        if rule is None or rule.metadata.is_deleting:
            return DONE
        obj = as_json(rule)
        faults = rule_faults(obj)
        matched = [] if faults else [self._match(rule, pcs) for pcs in self._about(obj, key.namespace)]
        pods = [self._place(pod) for space in namespaces_of(obj) for pod in self._cache.list(Pod, space)]
        generation = rule.metadata.generation
        status = rule_status(rule.status, obj, generation, matched, pods, faults, self._clock.now())
        turned = status.conditions != rule.status.conditions
        return Result(after_s=await self._statuses.write(rule, status, news=turned))

    def _about(self, rule: Json, namespace: str) -> list[PodGangSet]:
        sets = (pcs for pcs in self._sources.list(PodGangSet, namespace) if not pcs.metadata.is_deleting)
        about = (pcs for pcs in sets if matches(rule, dynamo.template_labels(as_json(pcs))))
        return sorted(about, key=lambda pcs: pcs.metadata.name)

    def _match(self, rule: PlacementPodClique, source: PodGangSet) -> Match:
        """How the rule took effect; it waits while its set was rolled out with another version of it, or none."""
        name = source.status.pod_clique_set_name
        pcs = self._cache.get(PodCliqueSet, Key(source.metadata.namespace, name)) if name else None
        record = Record.of(pcs.metadata.annotations) if pcs is not None else None
        if record is None:
            return Match(source.metadata.name, "")
        there = Placement.of(record.placement).effects.get(rule.metadata.name)
        wanted = self._placements.wanted(as_json(source), record).effects.get(rule.metadata.name)
        return Match(source.metadata.name, there.applied_as if there is not None and there == wanted else "")

    def _place(self, pod: Pod) -> PodPlace:
        node = self._cache.get(Node, Key("", pod.spec.node_name)) if pod.is_bound else None
        meta = pod.metadata
        return PodPlace(meta.namespace, meta.name, meta.labels, node.metadata.labels if node is not None else None)
