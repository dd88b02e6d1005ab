"""The topology constraints of a set and of a gang, one by one, for backends to judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang


class Constraint(NamedTuple):
    """One constraint; `cliques` is how many cliques it keeps together."""

    path: str
    owner: Literal["set", "group", "clique"]
    name: str
    required: str
    preferred: str
    cliques: int


def constraints_of(pcs: PodCliqueSet) -> Iterator[Constraint]:
    """Broad to narrow: the set's, those of scaling groups, those of cliques."""
    template, path = pcs.spec.template, "spec.template"
    if (own := template.topology_constraint) is not None:
        yield Constraint(
            f"{path}.topologyConstraint", "set", pcs.metadata.name, own.required, own.preferred, len(template.cliques)
        )
    for at, group in enumerate(template.pod_clique_scaling_groups):
        if (own := group.topology_constraint) is not None:
            where = f"{path}.podCliqueScalingGroups[{at}].topologyConstraint"
            yield Constraint(where, "group", group.name, own.required, own.preferred, len(group.clique_names))
    for at, clique in enumerate(template.cliques):
        if (own := clique.topology_constraint) is not None:
            where = f"{path}.cliques[{at}].topologyConstraint"
            yield Constraint(where, "clique", clique.name, own.required, own.preferred, 1)


class Spread(NamedTuple):
    """One spread constraint of a set."""

    path: str
    owner: Literal["set", "group", "clique"]


def spreads_of(pcs: PodCliqueSet) -> Iterator[Spread]:
    """Broad to narrow: the set's, those of scaling groups, those of cliques."""
    template, path = pcs.spec.template, "spec.template"
    if template.spread_constraint is not None:
        yield Spread(f"{path}.spreadConstraint", "set")
    for at, group in enumerate(template.pod_clique_scaling_groups):
        if group.spread_constraint is not None:
            yield Spread(f"{path}.podCliqueScalingGroups[{at}].spreadConstraint", "group")
    for at, clique in enumerate(template.cliques):
        if clique.spread_constraint is not None:
            yield Spread(f"{path}.cliques[{at}].spreadConstraint", "clique")


class GangConstraint(NamedTuple):
    """One constraint of a gang, in node label keys; `members` are the pod groups it keeps together."""

    owner: Literal["gang", "group", "clique"]
    name: str
    required: str
    preferred: str
    members: tuple[str, ...]

    def __str__(self) -> str:
        words = [f"required {self.required}"] if self.required else []
        words += [f"preferred {self.preferred}"] if self.preferred else []
        return f"{' and '.join(words)} of {self.name}"


def gang_constraints(gang: PodGang) -> Iterator[GangConstraint]:
    """Broad to narrow, without empty ones."""
    spec = gang.spec
    everybody = tuple(group.name for group in spec.podgroups)
    if (own := spec.topology_constraint) is not None and (own.required or own.preferred):
        yield GangConstraint("gang", "the gang", own.required, own.preferred, everybody)
    for config in spec.topology_constraint_group_configs:
        if (own := config.topology_constraint) is not None and (own.required or own.preferred):
            yield GangConstraint("group", config.name, own.required, own.preferred, tuple(config.pod_group_names))
    for group in spec.podgroups:
        if (own := group.topology_constraint) is not None and (own.required or own.preferred):
            yield GangConstraint("clique", group.name, own.required, own.preferred, (group.name,))
