"""What several reconcilers read about a set: its scheduler, its topology, the live size of its groups.

Reads come from the cache alone, so between two awaits they describe one state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.hashes import set_generation_hash
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import AdoptedHash, PodCliqueSet, ScalingGroupConfig
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends import Backends
from grove.backends.base import Backend
from grove.kube.cache import Cache
from grove.kube.wakes import Keys, each
from grove.operator.shared.children import (
    awaits_takeover,
    earlier_priority,
    earlier_reading,
    template_hashes,
)
from grove.operator.shared.layout import (
    group_costs,
    group_indexes,
    group_names,
    kept_replicas,
    member_units,
    replica_of,
    topology_name,
)
from grove.operator.shared.rollout import is_open

SET = "set"
"""Index: objects by the key of the set they are part of."""
BINDING = "binding"
"""Index: sets by the name of the ClusterTopologyBinding they use."""
ON_NODE = "node"
"""Index: pods by the name of their node."""
COUNTED_OFTEN = 16
"""The largest clique whose pods are counted at every event of one: beyond it counting costs more than a short wait."""


def set_key(obj: Object) -> Key | None:
    """The set of one of our objects: by its label, or by its owner if the label was removed."""
    name = obj.metadata.labels.get(labels.PART_OF) or owner_name(obj, PodCliqueSet)
    return Key(obj.metadata.namespace, name) if name else None


def owner_name(obj: Object, kind: type[Object]) -> str:
    """The name of the object's controller, if that is of this kind; else empty."""
    owner = obj.metadata.controller
    return owner.name if owner is not None and owner.kind == kind.RESOURCE.kind else ""


def owner_keys(kind: type[Object]) -> Keys[Object, Key]:
    """Maps an event to the controllers of this kind that the object had before it and has after it."""
    return each(lambda obj: Key(obj.metadata.namespace, name) if (name := owner_name(obj, kind)) else None)


def differ(old: Object, new: Object, *fields: str) -> bool:
    """True if one of these fields of the metadata changed."""
    return any(getattr(old.metadata, name) != getattr(new.metadata, name) for name in fields)


def is_older_pod_gone(old: Pod | None, new: Pod | None) -> bool:
    """True if a pod of an older operator was deleted. After the last one, selectors can use the labels of units."""
    return new is None and old is not None and labels.CLIQUE_NAME not in old.metadata.labels


def by_binding(pcs: PodCliqueSet) -> tuple[str, ...]:
    name = topology_name(pcs)
    return (name,) if name else ()


def by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_set(obj: Object) -> tuple[Key, ...]:
    pcs_key = set_key(obj)
    return (pcs_key,) if pcs_key is not None else ()


class _Hashes(NamedTuple):
    """The hashes of a set's templates, made from its generation and the names it goes by."""

    made_from: tuple[int, tuple[AdoptedHash, ...]]
    of_set: str
    of_cliques: dict[str, str]


class Sets:
    """Reads about sets. `topology_enabled` is the operator's switch for topology-aware scheduling."""

    def __init__(self, cache: Cache, backends: Backends, *, topology_enabled: bool) -> None:
        self._cache, self._backends, self.topology_enabled = cache, backends, topology_enabled
        self._chosen: dict[str, Backend] = {}
        self._hashes: dict[str, _Hashes] = {}

    def find_of(self, obj: Object) -> PodCliqueSet | None:
        """The set that has this object, unless names of another operator await adoption."""
        pcs_key, replica = set_key(obj), replica_of(obj.metadata)
        pcs = self._cache.get(PodCliqueSet, pcs_key) if pcs_key is not None else None
        if pcs is None or pcs.metadata.is_deleting or (replica is not None and replica not in kept_replicas(pcs)):
            return None
        return None if self.awaits_takeover(pcs) else pcs

    def awaits_takeover(self, pcs: PodCliqueSet) -> bool:
        """True if the hash of the present templates is not recorded yet.

        Such a hash is from another operator, from an earlier version, or from before an edit that does not concern
        pods.
        """
        if not pcs.status.current_generation_hash or self.is_recorded(pcs):
            return False
        return awaits_takeover(pcs) or earlier_reading(pcs) is not None or self.is_same_to_pods(pcs)

    def is_same_to_pods(self, pcs: PodCliqueSet) -> bool:
        """True if only the priority class changed since the templates were recorded, and pods do not have it."""
        backend = None if self.is_recorded(pcs) else self.backend_of(pcs)
        if backend is None or backend.sets_pod_priority:
            return False
        return earlier_priority(pcs, self._cache.by_index(PodGang, SET, pcs.key)) is not None

    def backend_of(self, pcs: PodCliqueSet) -> Backend | None:
        """The set's scheduler, chosen once; None if it names one that is not enabled here.

        What runs is not moved: another choice, by annotation, takes effect when the set has neither gangs nor pods.
        """
        chosen = self._chosen.get(pcs.metadata.uid)
        if chosen is None or (
            self._backends.for_set(pcs) is not chosen
            and not any(self._cache.by_index(kind, SET, pcs.key) for kind in (PodGang, Pod))
        ):
            backend = self._backends.for_set(pcs, self._cache.by_index(PodGang, SET, pcs.key))
            if backend is None:
                return None
            chosen = self._chosen[pcs.metadata.uid] = backend
        return chosen

    def hashes_of(self, pcs: PodCliqueSet) -> dict[str, str]:
        """Template hashes by clique name."""
        return self._hashes_now(pcs).of_cliques

    def is_recorded(self, pcs: PodCliqueSet) -> bool:
        """True if the set's status has the hash of the present templates. Updates wait for that."""
        return pcs.status.current_generation_hash == self.generation_hash_of(pcs)

    def is_in_update(self, pcs: PodCliqueSet) -> bool:
        """True if an update is open or begins now."""
        return is_open(pcs.status.update_progress) or not self.is_recorded(pcs)

    def generation_hash_of(self, pcs: PodCliqueSet) -> str:
        return self._hashes_now(pcs).of_set

    def _hashes_now(self, pcs: PodCliqueSet) -> _Hashes:
        """Reckoned once a generation, asked for at every look at a clique."""
        made_from = (pcs.metadata.generation, pcs.status.adopted_hashes)
        known = self._hashes.get(pcs.metadata.uid)
        if known is None or known.made_from != made_from:
            known = _Hashes(made_from, set_generation_hash(pcs), template_hashes(pcs))
            self._hashes[pcs.metadata.uid] = known
        return known

    def forget(self, uid: str) -> None:
        self._chosen.pop(uid, None)
        self._hashes.pop(uid, None)

    def uses_gate(self, gang: PodGang) -> bool:
        """True if our scheduling gate holds the pods of a gang until the gang is complete."""
        return self._backends.for_gang(gang).needs_gate

    def binding_of(self, pcs: PodCliqueSet) -> ClusterTopologyBinding | None:
        name = topology_name(pcs) if self.topology_enabled else ""
        return self._cache.get(ClusterTopologyBinding, Key("", name)) if name else None

    def group_replicas(self, pcs: PodCliqueSet, fqn: str, config: ScalingGroupConfig) -> Collection[int]:
        """Replicas a scaling group is to have: by the live object, or by the template while there is none."""
        group = self._cache.get(PodCliqueScalingGroup, Key(pcs.metadata.namespace, fqn))
        if group is None or group.metadata.is_deleting:
            return range(config.replicas)
        indexes = group_indexes(group)
        if group.is_scaled_in:
            members = self._cache.owned(PodClique, by=group.metadata.uid)
            if group_costs(group, members, lambda fqn: self.pods_of(pcs.metadata.namespace, fqn)):
                return {*indexes, *group.recorded_indexes}
        return indexes

    def parent_replicas(self, pcs: PodCliqueSet, replica: int, clique: PodClique) -> dict[str, int]:
        """Replicas of the cliques that one starts after, as far as known; 0 in replicas that a group does not have."""
        if not clique.spec.starts_after:
            return {}
        parents = (self._cache.get(PodClique, Key(pcs.metadata.namespace, fqn)) for fqn in clique.spec.starts_after)
        replicas = {parent.metadata.name: parent.spec.replicas for parent in parents if parent is not None}
        for fqn, config in group_names(pcs, replica):
            missing = set(range(config.min_available)).difference(self.group_replicas(pcs, fqn, config))
            replicas |= {unit.fqn: 0 for index in missing for unit in member_units(pcs, replica, config, index)}
        return replicas

    def pods_of(self, namespace: str, clique_fqn: str) -> Sequence[Pod]:
        """Pods that the PodClique of this name owns; not those of an earlier one of the same name."""
        clique = self._cache.get(PodClique, Key(namespace, clique_fqn))
        return self._cache.owned(Pod, by=clique.metadata.uid) if clique is not None else []

    def is_whole(self, clique_key: Key, *, ready: bool = False) -> bool:
        """True if a clique has all its pods, or all of them ready. False if it is too large to count often."""
        clique = self._cache.get(PodClique, clique_key)
        if clique is None or clique.spec.replicas > COUNTED_OFTEN:
            return False
        pods = self._cache.owned(Pod, by=clique.metadata.uid)
        return sum(pod.is_active and (pod.is_ready or not ready) for pod in pods) >= clique.spec.replicas

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of a node; None if it is not there."""
        node = self._cache.get(Node, Key("", name))
        return node.metadata.labels if node is not None else None
