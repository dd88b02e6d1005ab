"""How a set unfolds: which PodCliques and PodGangs each replica has, by exact names.

Everything downstream (children, gangs, start order, status) reads this one expansion. So a name is computed in one
place, and a PodClique's template is found by labels, never by the end of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from grove.api import labels, labelsets, names
from grove.api.core import Pod
from grove.api.deletion_cost import unit_costs
from grove.api.draining import drain_s
from grove.api.meta import Object, ObjectMeta
from grove.api.podclique import PodClique
from grove.api.podcliqueset import CliqueTemplate, PodCliqueSet, PodCliqueSetTemplate, ScalingGroupConfig
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import SpreadConstraint, TopologyConstraint

T = TypeVar("T", bound=Object)


class GroupPlace(Struct, frozen=True):
    """Which replica of which scaling group a member clique is in."""

    config: ScalingGroupConfig
    fqn: str
    replica: int


class Unit(Struct, frozen=True):
    """One PodClique a set has: its name, its template, and where in the set it stands."""

    fqn: str
    template: CliqueTemplate
    replica: int
    gang: str
    base_gang: str
    group: GroupPlace | None = None

    @property
    def part(self) -> str:
        """The part of the set it belongs to: its scaling group, or itself."""
        return self.template.name if self.group is None else self.group.config.name

    @property
    def is_scaled(self) -> bool:
        """True if its gang waits for the base gang."""
        return self.gang != self.base_gang


class GangLayout(Struct, frozen=True):
    """One PodGang a set has; `units` in the order of its pod groups."""

    name: str
    replica: int
    units: tuple[Unit, ...]
    scaled: GroupPlace | None = None


Part = PodCliqueSetTemplate | ScalingGroupConfig | CliqueTemplate
"""What of a set may have constraints of its own."""
GroupReplicas = Callable[[str, ScalingGroupConfig], Collection[int]]
"""The replicas of a scaling group, by its object name; those of the template while there is no object."""


def group_minimum(replicas: int, min_available: int) -> int:
    """Replicas of a scaling group that must be whole: its minAvailable, or what it was scaled to if that is less."""
    return min(replicas, min_available)


def is_group_available(group: PodCliqueScalingGroup) -> bool:
    """True if a scaling group has its minimum of whole replicas. At 0 replicas it needs none."""
    return group.status.available_replicas >= group_minimum(group.spec.replicas, group.spec.min_available)


def is_group_scheduled(group: PodCliqueScalingGroup) -> bool:
    """True if a scaling group has its minimum of replicas, each with its minimum of pods on nodes."""
    return group.status.scheduled_replicas >= group_minimum(group.spec.replicas, group.spec.min_available)


def min_pods(template: CliqueTemplate) -> int:
    """Pods of a clique that are placed together; at least one, whatever the template says."""
    return max(1, template.spec.minimum)


def living(objects: Iterable[T]) -> dict[str, T]:
    """Those that are not on their way out, by name."""
    return {obj.metadata.name: obj for obj in objects if not obj.metadata.is_deleting}


def asked_indexes(group: PodCliqueScalingGroup) -> Collection[int]:
    """The replicas that a scaling group is to have now: those asked for, and those that an update has beyond them."""
    asked, progress = group.indexes, group.status.update_progress
    surge = progress.surge if progress is not None else None
    return asked if surge is None else (*asked, *(index for index in surge.indexes if index not in asked))


def group_indexes(group: PodCliqueScalingGroup) -> Collection[int]:
    """The replicas of a scaling group whose objects stay: those it is to have, and those that drain.

    After a scale-in all replicas stay until the group has recorded which of them drain.
    """
    asked, status = asked_indexes(group), group.status
    extra = {entry.replica_index for entry in status.draining}
    if status.observed_generation != group.metadata.generation and drain_s(group.metadata.annotations):
        extra.update(group.recorded_indexes)
    return (*asked, *sorted(extra.difference(asked))) if extra else asked


def group_costs(group: PodCliqueScalingGroup, members: Iterable[PodClique], pods_of: PodsOf) -> dict[int, int]:
    """The deletion costs that decide which replicas a scale-in takes; none if there is no scale-in to decide.

    While a scale-in with costs is not recorded in the status, all replicas stay. During an update with surge replicas
    the last ones go.
    """
    if not group.is_scaled_in or len(asked_indexes(group)) != group.spec.replicas:
        return {}
    units: dict[int, list[Pod]] = {}
    for clique in members:
        index = group_replica_of(clique.metadata)
        if index is not None and index in group.recorded_indexes and not clique.metadata.is_deleting:
            units.setdefault(index, []).extend(pods_of(clique.metadata.name))
    return unit_costs(units)


def set_costs(pcs: PodCliqueSet, cliques: Iterable[PodClique], pods_of: PodsOf) -> dict[int, int]:
    """The same of a set; `cliques` are all that it has, and are read only if there is a scale-in to decide."""
    if not pcs.is_scaled_in:
        return {}
    units: dict[int, list[Pod]] = {}
    for clique in cliques:
        index = find_replica(pcs.metadata.name, clique.metadata.name)
        if index is not None and index in pcs.recorded_indexes and not clique.metadata.is_deleting:
            units.setdefault(index, []).extend(pods_of(clique.metadata.name))
    return unit_costs(units)


def kept_replicas(pcs: PodCliqueSet) -> Collection[int]:
    """The replicas of a set whose objects stay: those asked for, and those that drain.

    After a scale-in all replicas stay until the set has recorded which of them go.
    """
    asked, status = pcs.indexes, pcs.status
    extra = {entry.replica_index for entry in status.draining} if status.draining else set()
    if pcs.is_scaled_in:
        extra.update(pcs.recorded_indexes)
    return (*asked, *sorted(extra.difference(asked))) if extra else asked


def live_replicas(groups: Iterable[PodCliqueScalingGroup]) -> GroupReplicas:
    """Replicas of each group as the live objects say."""
    live = living(groups)
    return lambda fqn, config: group_indexes(live[fqn]) if fqn in live else range(config.replicas)


def constraints_of(pcs: PodCliqueSet) -> Iterator[TopologyConstraint]:
    """Every constraint of a set, widest first: the set's own, its scaling groups', its cliques'."""
    template = pcs.spec.template
    parts: tuple[Part, ...] = (template, *template.pod_clique_scaling_groups, *template.cliques)
    for part in parts:
        if part.topology_constraint is not None:
            yield part.topology_constraint


def spreads_of(pcs: PodCliqueSet) -> Iterator[SpreadConstraint]:
    """Every spread constraint of a set, widest first."""
    template = pcs.spec.template
    parts: tuple[Part, ...] = (template, *template.pod_clique_scaling_groups, *template.cliques)
    for part in parts:
        if part.spread_constraint is not None:
            yield part.spread_constraint


def topology_name(pcs: PodCliqueSet) -> str:
    """Name of the binding a set uses: the first one named; empty if none is."""
    constraints: tuple[TopologyConstraint | SpreadConstraint, ...] = (*constraints_of(pcs), *spreads_of(pcs))
    for constraint in constraints:
        if constraint.topology_name:
            return constraint.topology_name
    return ""


def group_names(pcs: PodCliqueSet, replica: int) -> list[tuple[str, ScalingGroupConfig]]:
    """The scaling groups of a replica by the names of their objects, in template order."""
    pcs_name, configs = pcs.metadata.name, pcs.spec.template.pod_clique_scaling_groups
    return [(names.scaling_group(pcs_name, replica, config.name), config) for config in configs]


def standalone_names(pcs: PodCliqueSet) -> Callable[[int], list[tuple[str, str]]]:
    """For every replica, the names of its standalone PodCliques and of their templates; the templates are read once."""
    pcs_name, templates = pcs.metadata.name, [clique.name for clique in pcs.spec.template.standalone_cliques]
    return lambda replica: [(names.clique(pcs_name, replica, template), template) for template in templates]


def standalone_units(pcs: PodCliqueSet, replica: int) -> Iterator[Unit]:
    gang = names.base_gang(pcs.metadata.name, replica)
    for template in pcs.spec.template.standalone_cliques:
        yield Unit(names.clique(pcs.metadata.name, replica, template.name), template, replica, gang, gang)


def member_units(pcs: PodCliqueSet, replica: int, config: ScalingGroupConfig, group_replica: int) -> Iterator[Unit]:
    """The member cliques of one replica of a group, in the order the group names them."""
    pcs_name = pcs.metadata.name
    fqn = names.scaling_group(pcs_name, replica, config.name)
    base = names.base_gang(pcs_name, replica)
    gang = names.gang_of_member(pcs_name, replica, fqn, group_replica, config.min_available)
    place = GroupPlace(config, fqn, group_replica)
    for clique_name in config.clique_names:
        template = pcs.spec.template.find_clique(clique_name)
        if template is not None:
            yield Unit(names.member_clique(fqn, group_replica, clique_name), template, replica, gang, base, place)


def unit_of(pcs: PodCliqueSet, clique: PodClique) -> Unit | None:
    """The unit that a PodClique is in its set, read from its labels; None if the set has no such clique."""
    meta = clique.metadata
    replica = _index(meta, labels.REPLICA_INDEX)
    if replica is None:
        return None
    group_fqn = meta.labels.get(labels.SCALING_GROUP)
    if group_fqn is None:
        return next((unit for unit in standalone_units(pcs, replica) if unit.fqn == meta.name), None)
    group_replica = _index(meta, labels.SCALING_GROUP_REPLICA_INDEX)
    config = group_config_of(pcs, group_fqn, replica)
    if group_replica is None or config is None:
        return None
    return next((unit for unit in member_units(pcs, replica, config, group_replica) if unit.fqn == meta.name), None)


def group_config_of(pcs: PodCliqueSet, group_fqn: str, replica: int) -> ScalingGroupConfig | None:
    return next((config for fqn, config in group_names(pcs, replica) if fqn == group_fqn), None)


def replica_of(meta: ObjectMeta) -> int | None:
    """The replica of its set an object belongs to, by its label."""
    return _index(meta, labels.REPLICA_INDEX)


def find_replica(pcs_name: str, name: str) -> int | None:
    """The replica of the set that an object belongs to, by its name, which cannot be edited; None for objects of all
    replicas.
    """
    prefix = f"{pcs_name}-"
    if not name.startswith(prefix):
        return None
    number = name[len(prefix) :].partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else None


def group_replica_of(meta: ObjectMeta) -> int | None:
    return _index(meta, labels.SCALING_GROUP_REPLICA_INDEX)


def pod_index(pod: Pod) -> int | None:
    """The index of a pod within its clique: the end of its hostname, else its label."""
    index = names.find_pod_index(pod.spec.hostname)
    return index if index is not None else _index(pod.metadata, labels.POD_INDEX)


def replica_layouts(pcs: PodCliqueSet, replica: int, group_replicas: GroupReplicas) -> Iterator[GangLayout]:
    """The gangs of one replica.

    The base gang holds the standalone cliques and each group's replicas up to its minimum. Every further replica is a
    gang of its own, numbered from 0 again. A group at zero replicas is in no gang.
    """
    units: list[Unit] = list(standalone_units(pcs, replica))
    scaled: list[GangLayout] = []
    for fqn, config in group_names(pcs, replica):
        for index in group_replicas(fqn, config):
            members = tuple(member_units(pcs, replica, config, index))
            if index < config.min_available:
                units += members
            else:
                name = names.scaled_gang(fqn, index, config.min_available)
                scaled.append(GangLayout(name, replica, members, GroupPlace(config, fqn, index)))
    yield GangLayout(names.base_gang(pcs.metadata.name, replica), replica, tuple(units))
    yield from scaled


def find_scaled_layout(pcs: PodCliqueSet, replica: int, name: str, group_replicas: GroupReplicas) -> GangLayout | None:
    """The scaled gang of this name as `replica_layouts` has it, found by its number."""
    for fqn, config in group_names(pcs, replica):
        number = name.removeprefix(f"{fqn}-")
        if name.startswith(f"{fqn}-") and number.isascii() and number.isdigit():
            index = int(number) + config.min_available
            if index in group_replicas(fqn, config) and names.scaled_gang(fqn, index, config.min_available) == name:
                members = tuple(member_units(pcs, replica, config, index))
                return GangLayout(name, replica, members, GroupPlace(config, fqn, index))
    return None


def _index(meta: ObjectMeta, label: str) -> int | None:
    value = meta.labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() else None


# The selectors that scaling groups and sets publish for autoscalers. For the HPA controller, each
# pod that a selector matches is a replica of its target. Such a replica is several pods, so the selector
# matches the first pod of one clique of each: the metrics clique. Pods from an operator without the label have none,
# and keep none. As long as such a pod would stand for its replica, the selector still matches all pods.

PodsOf = Callable[[str], Iterable[Pod]]
"""The pods of a PodClique, by its name."""


def no_pods(fqn: str) -> tuple[Pod, ...]:
    return ()


def group_scale_selector(
    pcs: PodCliqueSet, group: PodCliqueScalingGroup, config: ScalingGroupConfig, pods_of: PodsOf
) -> str:
    """`status.selector` of a scaling group."""
    clique, fqn = pcs.spec.template.metrics_clique_of(config), group.metadata.name
    wanted = labelsets.group_unit_selector(pcs.metadata.name, fqn, clique)
    firsts = (names.member_clique(fqn, index, clique) for index in group_indexes(group))
    if wanted == group.status.selector or _all_labelled(firsts, pods_of):
        return wanted
    return labelsets.group_selector(pcs.metadata.name, fqn)


def set_scale_selector(pcs: PodCliqueSet, pods_of: PodsOf) -> str:
    """`status.hpaPodSelector` of a set."""
    template, pcs_name = pcs.spec.template, pcs.metadata.name
    clique = template.metrics_clique(pcs.metadata.annotations)
    group = template.find_group_of(clique)
    wanted = labelsets.set_unit_selector(pcs_name, clique, in_group=group is not None)

    def first(replica: int) -> str:
        if group is None:
            return names.clique(pcs_name, replica, clique)
        return names.member_clique(names.scaling_group(pcs_name, replica, group.name), 0, clique)

    if wanted == pcs.status.hpa_pod_selector or _all_labelled(map(first, pcs.indexes), pods_of):
        return wanted
    return labelsets.set_selector(pcs_name)


def _all_labelled(cliques: Iterable[str], pods_of: PodsOf) -> bool:
    """True if every first pod of these PodCliques has the label. A pod that does not exist yet will have it."""
    return all(
        labels.CLIQUE_NAME in pod.metadata.labels
        for fqn in cliques
        for pod in pods_of(fqn)
        if pod.metadata.labels.get(labels.POD_INDEX) == "0" and not pod.metadata.is_deleting
    )
