"""What scaling does, as values: which gangs come and go, how many pods, and what stops working."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grove.api import names
from grove.api.deletion_cost import filled, staying
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many

MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Scaled:
    """One object whose replicas change. `warnings` say what stops working."""

    kind: str
    name: str
    before: int
    after: int
    gangs_come: tuple[str, ...] = ()
    gangs_go: tuple[str, ...] = ()
    pods: int = 0
    """Pods more, or fewer where it is negative."""
    warnings: tuple[str, ...] = field(default=())

    @property
    def sentences(self) -> Iterator[str]:
        if self.gangs_come:
            yield f"creates {many(len(self.gangs_come), 'gang')}: {_few(self.gangs_come)}"
        if self.gangs_go:
            yield f"deletes {many(len(self.gangs_go), 'gang')}: {_few(self.gangs_go)}"
        if self.pods:
            yield f"{many(abs(self.pods), 'pod')} {'more' if self.pods > 0 else 'fewer'}"
        yield from self.warnings


@dataclass(frozen=True, slots=True)
class Existing:
    """The present state of a set: the names of its gangs, and the pods of each replica.

    `costs` are the deletion costs of the replicas of the set or a scaling group, by its name.
    """

    gangs: tuple[str, ...]
    pods: Mapping[int, int]
    costs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def _few(words: tuple[str, ...]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return ", ".join(words[:MOST_NAMED]) + more


def scaled(
    obj: PodCliqueSet | PodCliqueScalingGroup | PodClique,
    after: int,
    pcs: PodCliqueSet,
    existing: Existing | None = None,
) -> Scaled:
    """`existing` is what the set has now, which autoscalers may have made other than its template."""
    if isinstance(obj, PodCliqueSet):
        return _set(obj, after, existing)
    if isinstance(obj, PodCliqueScalingGroup):
        return _group(obj, after, pcs, existing.costs.get(obj.metadata.name, {}) if existing is not None else {})
    return _clique(obj, after)


def _set(pcs: PodCliqueSet, after: int, existing: Existing | None) -> Scaled:
    before, name = pcs.spec.replicas, pcs.metadata.name
    costs = existing.costs.get(name, {}) if existing is not None else {}
    now = pcs.indexes
    then = staying(now, after, costs) if after < before else filled(now, after)
    leaving = [index for index in now if index not in then]
    come = tuple(gang for index in then if index not in now for gang in _gangs(pcs, index))
    go = tuple(gang for index in leaving for gang in _gangs(pcs, index))
    template = pcs.spec.template
    grouped = {clique: group.replicas for group in template.pod_clique_scaling_groups for clique in group.clique_names}
    each = sum(clique.spec.replicas * grouped.get(clique.name, 1) for clique in template.cliques)
    pods = (after - before) * each
    if existing is not None and after < before:
        starts = {f"{name}-{index}" for index in leaving}
        go = tuple(gang for gang in existing.gangs if _replica_of(gang, name) in starts)
        pods = -sum(existing.pods.get(index, 0) for index in leaving)
    warnings = (
        (f"to 0: every pod of {name} stops, and the set serves nothing until you scale it up",) if not after else ()
    )
    return Scaled("PodCliqueSet", name, before, after, come, go, pods, warnings)


def _replica_of(gang: str, name: str) -> str:
    """The replica of the set that a gang belongs to, as `chat-0`."""
    return f"{name}-{gang.removeprefix(f'{name}-').partition('-')[0]}"


def _gangs(pcs: PodCliqueSet, index: int) -> Iterator[str]:
    """The gangs of one replica, as the template has its groups."""
    yield names.base_gang(pcs.metadata.name, index)
    for group in pcs.spec.template.pod_clique_scaling_groups:
        fqn = names.scaling_group(pcs.metadata.name, index, group.name)
        for copy in range(group.min_available, group.replicas):
            yield names.scaled_gang(fqn, copy, group.min_available)


def _group(group: PodCliqueScalingGroup, after: int, pcs: PodCliqueSet, costs: Mapping[int, int]) -> Scaled:
    before, least, name = group.spec.replicas, group.spec.min_available, group.metadata.name
    now = group.indexes
    then = staying(now, after, costs, least) if after < before else filled(now, after)
    come, go = (
        tuple(names.scaled_gang(name, copy, least) for copy in some if copy >= least and copy not in others)
        for some, others in ((then, now), (now, then))
    )
    cliques = (pcs.spec.template.find_clique(clique) for clique in group.spec.clique_names)
    each = sum(clique.spec.replicas for clique in cliques if clique is not None)
    warnings = tuple(_below(name, after, least, "replicas"))
    return Scaled("PodCliqueScalingGroup", name, before, after, come, go, (after - before) * each, warnings)


def _clique(clique: PodClique, after: int) -> Scaled:
    before, name = clique.spec.replicas, clique.metadata.name
    least = clique.spec.min_available if clique.spec.min_available is not None else 0
    return Scaled(
        "PodClique", name, before, after, pods=after - before, warnings=tuple(_below(name, after, least, "pods"))
    )


def _below(name: str, after: int, least: int, what: str) -> Iterator[str]:
    if after == 0:
        yield f"to 0: every pod of {name} stops, and the parts that need it stop working"
    elif after < least:
        state = f"it runs with {after}, and its gang needs only the pods that exist"
        yield f"below its minAvailable of {least} {what}: {state}"
