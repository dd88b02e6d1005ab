"""A PodCliqueSet as the rules read it: every part with its path, nothing assumed about what a user wrote.

Built from plain decoded JSON. A value of the wrong type reads as absent here, because the schema check has already
reported it. So no rule checks types again, and no JSON makes a rule fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grove.api.fields import integer, mapping, sequence, text, texts

TEMPLATE = "spec.template"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A `topologyConstraint`. An empty string and an absent field mean the same."""

    path: str
    topology_name: str
    required: str
    preferred: str
    pack_domain: str
    has_pack: bool

    @classmethod
    def of(cls, path: str, value: Any) -> Constraint | None:
        if not isinstance(value, dict):
            return None
        pack = value.get("pack")
        inner = mapping(pack)
        return cls(
            path=f"{path}.topologyConstraint",
            topology_name=text(value.get("topologyName")),
            required=text(inner.get("required")),
            preferred=text(inner.get("preferred")),
            pack_domain=text(value.get("packDomain")),
            has_pack=isinstance(pack, dict),
        )

    @property
    def hard(self) -> str:
        """The domain that must hold: `pack.required`, or its legacy spelling."""
        return self.required or self.pack_domain


@dataclass(frozen=True, slots=True)
class Spread:
    """A `spreadConstraint`."""

    path: str
    topology_name: str
    domain: str
    max_skew: int | None
    when_unsatisfiable: str

    @classmethod
    def of(cls, path: str, value: Any) -> Spread | None:
        if not isinstance(value, dict):
            return None
        return cls(
            path=f"{path}.spreadConstraint",
            topology_name=text(value.get("topologyName")),
            domain=text(value.get("domain")),
            max_skew=integer(value.get("maxSkew")),
            when_unsatisfiable=text(value.get("whenUnsatisfiable")),
        )


@dataclass(frozen=True, slots=True)
class Scaling:
    """`autoScalingConfig` of a clique or `scaleConfig` of a group."""

    path: str
    min_replicas: int | None
    max_replicas: int | None

    @classmethod
    def of(cls, path: str, value: Any) -> Scaling | None:
        if not isinstance(value, dict):
            return None
        return cls(path, integer(value.get("minReplicas")), integer(value.get("maxReplicas")))


class CliqueView:
    def __init__(self, index: int, value: Any) -> None:
        self.path = f"{TEMPLATE}.cliques[{index}]"
        self.raw = mapping(value)
        spec = mapping(self.raw.get("spec"))
        self.name = text(self.raw.get("name"))
        self.role_name = text(spec.get("roleName"))
        self.replicas, self.min_available = integer(spec.get("replicas")), integer(spec.get("minAvailable"))
        self.starts_after = texts(spec.get("startsAfter"))
        self.starts_after_condition = text(spec.get("startsAfterCondition"))
        self.scaling = Scaling.of(f"{self.path}.spec.autoScalingConfig", spec.get("autoScalingConfig"))
        self.constraint = Constraint.of(self.path, self.raw.get("topologyConstraint"))
        self.spread = Spread.of(self.path, self.raw.get("spreadConstraint"))
        self.pod_spec = mapping(spec.get("podSpec"))
        self.labels, self.annotations = mapping(self.raw.get("labels")), mapping(self.raw.get("annotations"))

    @property
    def scheduler_name(self) -> str:
        return text(self.pod_spec.get("schedulerName"))


class GroupView:
    def __init__(self, index: int, value: Any) -> None:
        self.path = f"{TEMPLATE}.podCliqueScalingGroups[{index}]"
        self.raw = mapping(value)
        self.name, self.clique_names = text(self.raw.get("name")), texts(self.raw.get("cliqueNames"))
        self.replicas, self.min_available = integer(self.raw.get("replicas")), integer(self.raw.get("minAvailable"))
        self.scaling = Scaling.of(f"{self.path}.scaleConfig", self.raw.get("scaleConfig"))
        self.constraint = Constraint.of(self.path, self.raw.get("topologyConstraint"))
        self.spread = Spread.of(self.path, self.raw.get("spreadConstraint"))
        self.annotations = mapping(self.raw.get("annotations"))


class SetView:
    def __init__(self, obj: Any) -> None:
        self.raw = mapping(obj)
        metadata, self.spec = mapping(self.raw.get("metadata")), mapping(self.raw.get("spec"))
        self.template = mapping(self.spec.get("template"))
        # A generated name gets five random characters; the budget has to hold for those too.
        generated = text(metadata.get("generateName"))
        self.name = text(metadata.get("name")) or (generated and generated + "xxxxx")
        self.namespace = text(metadata.get("namespace"))
        self.labels, self.annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
        self.startup_type = text(self.template.get("cliqueStartupType"))
        self.starts_after_condition = text(self.template.get("startsAfterCondition"))
        self.constraint = Constraint.of(TEMPLATE, self.template.get("topologyConstraint"))
        self.spread = Spread.of(TEMPLATE, self.template.get("spreadConstraint"))
        self.cliques = [CliqueView(i, clique) for i, clique in enumerate(sequence(self.template.get("cliques")))]
        groups = enumerate(sequence(self.template.get("podCliqueScalingGroups")))
        self.groups = [GroupView(i, group) for i, group in groups]
        self._owners = {member: group for group in reversed(self.groups) for member in group.clique_names}

    @property
    def has_no_replicas(self) -> bool:
        return not integer(self.spec.get("replicas"))

    @property
    def constraints(self) -> list[Constraint]:
        """Every topology constraint of the set, broadest owner first."""
        owners = [self.constraint, *(g.constraint for g in self.groups), *(c.constraint for c in self.cliques)]
        return [owner for owner in owners if owner is not None]

    @property
    def spreads(self) -> list[Spread]:
        """Every spread constraint of the set, broadest owner first."""
        owners = [self.spread, *(g.spread for g in self.groups), *(c.spread for c in self.cliques)]
        return [owner for owner in owners if owner is not None]

    def group_of(self, clique: str) -> GroupView | None:
        """The scaling group of a member clique; the first one if it is (wrongly) in several."""
        return self._owners.get(clique)
