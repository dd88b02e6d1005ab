"""A PodCliqueSet as the rules read it: every part with its path, nothing assumed about what a user wrote.

Built from plain decoded JSON. A value of the wrong type reads as absent here; the schema check has already named it, so
no rule has to ask for types again and no JSON can make a rule stumble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grove.api.fields import integer, mapping, sequence, text, texts
from grove.api.meta import Json

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


@dataclass(frozen=True, slots=True)
class CliqueView:
    path: str
    name: str
    raw: Json
    role_name: str
    replicas: int | None
    min_available: int | None
    starts_after: tuple[str, ...]
    scaling: Scaling | None
    constraint: Constraint | None
    pod_spec: Json
    labels: Json
    annotations: Json

    @property
    def scheduler_name(self) -> str:
        return text(self.pod_spec.get("schedulerName"))

    @classmethod
    def of(cls, index: int, value: Any) -> CliqueView:
        raw = mapping(value)
        spec = mapping(raw.get("spec"))
        path = f"{TEMPLATE}.cliques[{index}]"
        return cls(
            path=path,
            name=text(raw.get("name")),
            raw=raw,
            role_name=text(spec.get("roleName")),
            replicas=integer(spec.get("replicas")),
            min_available=integer(spec.get("minAvailable")),
            starts_after=texts(spec.get("startsAfter")),
            scaling=Scaling.of(f"{path}.spec.autoScalingConfig", spec.get("autoScalingConfig")),
            constraint=Constraint.of(path, raw.get("topologyConstraint")),
            pod_spec=mapping(spec.get("podSpec")),
            labels=mapping(raw.get("labels")),
            annotations=mapping(raw.get("annotations")),
        )


@dataclass(frozen=True, slots=True)
class GroupView:
    path: str
    name: str
    raw: Json
    clique_names: tuple[str, ...]
    replicas: int | None
    min_available: int | None
    scaling: Scaling | None
    constraint: Constraint | None
    annotations: Json

    @classmethod
    def of(cls, index: int, value: Any) -> GroupView:
        raw = mapping(value)
        path = f"{TEMPLATE}.podCliqueScalingGroups[{index}]"
        return cls(
            path=path,
            name=text(raw.get("name")),
            raw=raw,
            clique_names=texts(raw.get("cliqueNames")),
            replicas=integer(raw.get("replicas")),
            min_available=integer(raw.get("minAvailable")),
            scaling=Scaling.of(f"{path}.scaleConfig", raw.get("scaleConfig")),
            constraint=Constraint.of(path, raw.get("topologyConstraint")),
            annotations=mapping(raw.get("annotations")),
        )


@dataclass(frozen=True, slots=True)
class SetView:
    name: str
    namespace: str
    labels: Json
    annotations: Json
    raw: Json
    spec: Json
    template: Json
    cliques: tuple[CliqueView, ...]
    groups: tuple[GroupView, ...]
    constraint: Constraint | None
    owners: dict[str, GroupView]
    """The scaling group of each member clique; the first one if a clique is (wrongly) in several."""

    @property
    def startup_type(self) -> str:
        return text(self.template.get("cliqueStartupType"))

    @property
    def constraints(self) -> list[Constraint]:
        """Every topology constraint of the set, broadest owner first."""
        owners = [self.constraint, *(g.constraint for g in self.groups), *(c.constraint for c in self.cliques)]
        return [one for one in owners if one is not None]

    def group_of(self, clique: str) -> GroupView | None:
        return self.owners.get(clique)

    @classmethod
    def of(cls, obj: Any) -> SetView:
        raw = mapping(obj)
        metadata = mapping(raw.get("metadata"))
        spec = mapping(raw.get("spec"))
        template = mapping(spec.get("template"))
        generated = text(metadata.get("generateName"))
        groups = tuple(GroupView.of(i, one) for i, one in enumerate(sequence(template.get("podCliqueScalingGroups"))))
        return cls(
            # A generated name gets five random characters; the budget has to hold for those too.
            name=text(metadata.get("name")) or (generated and generated + "xxxxx"),
            namespace=text(metadata.get("namespace")),
            labels=mapping(metadata.get("labels")),
            annotations=mapping(metadata.get("annotations")),
            raw=raw,
            spec=spec,
            template=template,
            cliques=tuple(CliqueView.of(i, one) for i, one in enumerate(sequence(template.get("cliques")))),
            groups=groups,
            constraint=Constraint.of(TEMPLATE, template.get("topologyConstraint")),
            owners={member: group for group in reversed(groups) for member in group.clique_names},
        )
