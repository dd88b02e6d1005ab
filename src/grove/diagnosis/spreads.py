"""How evenly units are distributed: the units in each domain of every spread constraint, and the skew.

Pure: from gangs, pods and nodes to values. A unit is a replica, or a pod. The domains are those that the scheduler
counts (`scheduler/solve/spread_domains.py`): when one of their nodes is empty, it could run every kind of pod of the
unit. Pods that terminate do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.podgang import GangSpreadConstraint, PodGang
from grove.api.topology import DO_NOT_SCHEDULE
from grove.backends.constraints import gang_constraints
from grove.diagnosis.seen import Seen
from grove.scheduler.filters.node_filters import hard_taints_tolerated, meets
from grove.scheduler.model.facts import NodeFacts, Shape
from grove.scheduler.model.reading import read_node, read_pod

Keys = tuple[str, ...]
"""Label keys of a level and of the broader ones, broad to narrow."""
Path = tuple[str, ...]
"""Their values: racks of the same name in two zones are two domains."""


@dataclass(frozen=True, slots=True)
class SpreadCount:
    """One spread constraint and the units in each domain, by name of the domain."""

    namespace: str
    owner: str
    """Set, scaling group or clique whose units are counted."""
    domain: str
    units: tuple[tuple[str, int], ...]
    skew: int
    max_skew: int
    is_required: bool
    words: str


def spread_counts(seen: Seen, gangs: Iterable[PodGang] | None = None) -> tuple[SpreadCount, ...]:
    """The spread constraints of these gangs, or of all gangs; gangs that share a constraint have one count."""
    counter = _Counter(seen)
    counts: dict[tuple[str, str, str], SpreadCount] = {}
    for gang in sorted(seen.gangs if gangs is None else gangs, key=lambda gang: gang.metadata.key):
        for constraint in gang.spec.spread_constraints:
            at = (gang.metadata.namespace, _owner(constraint, gang), constraint.topology_key)
            if at not in counts:
                counts[at] = counter.count(gang, constraint, at[1])
    return tuple(counts.values())


def _owner(constraint: GangSpreadConstraint, gang: PodGang) -> str:
    names = constraint.match_labels
    of = (names.get(label) for label in (labels.POD_CLIQUE, labels.SCALING_GROUP, labels.PART_OF))
    return next(filter(None, of), gang.metadata.name)


class _Counter:
    """Counts constraint by constraint; remembers which domains can run which pods."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._nodes = [(node, read_node(node)) for node in seen.nodes]
        self._domains: dict[tuple[Keys, Shape, tuple[str, str]], frozenset[Path]] = {}
        self._pods: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
        for pod in seen.pods:
            if not pod.metadata.is_deleting and not pod.is_finished:
                for label in (labels.POD_CLIQUE, labels.SCALING_GROUP, labels.PART_OF):
                    if value := pod.metadata.labels.get(label):
                        self._pods[pod.metadata.namespace, label, value].append(pod)

    def count(self, gang: PodGang, constraint: GangSpreadConstraint, owner: str) -> SpreadCount:
        key, namespace = constraint.topology_key, gang.metadata.namespace
        levels = self._levels(gang)
        keys = _keys_to(key, levels)
        pods = self._matching(namespace, constraint.match_labels)
        within = self._container(gang, constraint, pods, levels)
        units = {
            (pod.metadata.labels.get(constraint.unit_label, "") if constraint.unit_label else pod.metadata.uid, where)
            for pod in pods
            if (node := self._seen.node_of.get(pod.spec.node_name)) and (where := _path(node, keys))
        }
        by_domain = Counter(where for unit, where in units if unit)
        domains = sorted(self._counted(keys, pods, within))
        last = Counter(path[-1] for path in domains)
        counts = tuple((path[-1] if last[path[-1]] == 1 else "/".join(path), by_domain[path]) for path in domains)
        numbers = [count for _, count in counts]
        skew = max(numbers) - min(numbers) if numbers else 0
        name = next((domain for domain, level in levels if level == key), key)
        required = constraint.when_unsatisfiable == DO_NOT_SCHEDULE
        words = _words(owner, name, counts, f"skew {skew} of {constraint.max_skew}", required)
        return SpreadCount(namespace, owner, name, counts, skew, constraint.max_skew, required, words)

    def _levels(self, gang: PodGang) -> tuple[tuple[str, str], ...]:
        return self._seen.levels(gang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""), with_host=True)

    def _matching(self, namespace: str, wanted: Mapping[str, str]) -> list[Pod]:
        items = list(wanted.items())
        first = self._pods.get((namespace, *items[0]), []) if items else []
        return [pod for pod in first if all(pod.metadata.labels.get(key) == value for key, value in items[1:])]

    def _counted(self, keys: Keys, pods: Sequence[Pod], within: tuple[str, str]) -> frozenset[Path]:
        """Domains with a node for every kind of pod; if there is no pod yet, every domain."""
        shapes = {read_pod(pod).shape for pod in pods} or {Shape(requests=())}
        domains = [self._domains_for(keys, shape, within) for shape in {_asked(shape) for shape in shapes}]
        return frozenset.intersection(*domains)

    def _domains_for(self, keys: Keys, shape: Shape, within: tuple[str, str]) -> frozenset[Path]:
        at = (keys, shape, within)
        if at not in self._domains:
            self._domains[at] = frozenset(
                path
                for node, facts in self._nodes
                if (path := _path(node, keys)) and _is_in(node, within) and _could_run(facts, shape)
            )
        return self._domains[at]

    def _container(
        self, gang: PodGang, constraint: GangSpreadConstraint, pods: Sequence[Pod], levels: Sequence[tuple[str, str]]
    ) -> tuple[str, str]:
        """Label and value of the domain that all units must be in; empty if nothing keeps them together.

        A pack constraint around them does, or another spread of which they are in one unit.
        """
        ranks = {level: rank for rank, (_, level) in enumerate(levels)}
        names = set(constraint.pod_group_names) or {group.name for group in gang.spec.podgroups}
        mine = [pod for pod in pods if pod.metadata.labels.get(labels.POD_GANG) == gang.metadata.name]
        unit_of = {pod.metadata.labels.get(labels.POD_CLIQUE, ""): _unit(pod, constraint) for pod in mine}
        keys = [
            pack.required
            for pack in gang_constraints(gang)
            if names <= set(pack.members) and not _is_one_unit(pack.members, unit_of, constraint)
        ]
        outer = (other for other in gang.spec.spread_constraints if other.unit_label)
        keys += [other.topology_key for other in outer if len({_unit(pod, other) for pod in mine}) == 1]
        broader = [key for key in keys if ranks.get(key, len(ranks)) < ranks.get(constraint.topology_key, -1)]
        key = max(broader, key=lambda level: ranks[level], default="")
        nodes = [self._seen.node_of.get(pod.spec.node_name) for pod in mine]
        values = [node.metadata.labels.get(key, "") for node in nodes if node is not None]
        return (key, values[0]) if key and values else ("", "")


def _keys_to(key: str, levels: Sequence[tuple[str, str]]) -> Keys:
    keys = [level for _, level in levels]
    return tuple(keys[: keys.index(key) + 1]) if key in keys else (key,)


def _path(node: Node, keys: Keys) -> Path:
    """The domain of a node; empty if the node is in none."""
    path = tuple(node.metadata.labels.get(key, "") for key in keys)
    return path if path[-1] else ()


def _unit(pod: Pod, constraint: GangSpreadConstraint) -> str:
    return pod.metadata.labels.get(constraint.unit_label, "") if constraint.unit_label else pod.metadata.uid


def _is_one_unit(members: Collection[str], unit_of: Mapping[str, str], constraint: GangSpreadConstraint) -> bool:
    """True if a pack constraint keeps the groups of one unit together, and no other group."""
    units = {unit_of.get(name, "") for name in members}
    return bool(constraint.unit_label) and len(units) == 1 and "" not in units


def _asked(shape: Shape) -> Shape:
    """The part of a shape that decides which empty nodes could run it."""
    return Shape(
        requests=shape.requests,
        node_selector=shape.node_selector,
        node_affinity=shape.node_affinity,
        tolerations=shape.tolerations,
    )


def _is_in(node: Node, within: tuple[str, str]) -> bool:
    label, value = within
    return not label or node.metadata.labels.get(label) == value


def _could_run(node: NodeFacts, shape: Shape) -> bool:
    """True if the node could run such a pod when nothing else runs there."""
    return (
        all(node.allocatable.get(name, 0) >= amount for name, amount in shape.requests)
        and all(node.labels.get(name) == value for name, value in shape.node_selector)
        and (shape.node_affinity is None or meets(node, shape.node_affinity))
        and hard_taints_tolerated(node.taints, shape.tolerations)
    )


def _words(owner: str, domain: str, counts: Sequence[tuple[str, int]], skew: str, required: bool) -> str:
    shown = ", ".join(f"{name} {count}" for name, count in counts) or "no domain can run its pods"
    return f"{owner} is spread over {domain}: {shown} ({skew}{'' if required else ', preferred'})"
