"""PodCliqueSet of `grove.ai/v1alpha1` to one of `grove.io/v1alpha1`: cliques come out of their groups, numbers become
an explicit start order.

A clique of order n starts after those of its group with the next lower number there is; groups do not wait for each
other. The annotations by which a set speaks to Koordinator mean the same on both sides and travel as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grove.api.faults import Fault, duplicate, invalid, required
from grove.api.fields import integer, mapping, sequence, text
from grove.api.koordset import GROUP, KoordPodCliqueSetSpec
from grove.api.meta import Json
from grove.api.podcliqueset import ANY_ORDER, EXPLICIT
from grove.dialects.translation import (
    Translation,
    limit_warnings,
    name_faults,
    named,
    set_name,
    set_of,
    unknown_fields,
    with_device_limits,
)

_TEMPLATE = "spec.template"
_GROUPS = f"{_TEMPLATE}.podCliqueScalingGroups"
_HINTS = {
    "cliques": "spec.template.podCliqueScalingGroups[].podCliques, or spec.template.podCliques outside every group",
    "cliqueNames": "podCliques: here the cliques stand inside their group",
    "startsAfter": "startOrder",
    "cliqueStartupType": "startOrder of the cliques",
    "podSpec": "template.spec",
    "roleName": "name",
    "labels": "template.metadata.labels",
    "annotations": "template.metadata.annotations",
    "schedulerName": "template.spec.schedulerName of the cliques, or the annotation schedulerName of the set",
    "updateStrategy": "a PodCliqueSet of grove.io/v1alpha1, which has spec.updateStrategy",
    "resourceSharing": "a PodCliqueSet of grove.io/v1alpha1, which has spec.template.resourceSharing",
    "resourceClaimTemplates": "a PodCliqueSet of grove.io/v1alpha1, which has spec.template.resourceClaimTemplates",
    "scalingGroups": "spec.template.podCliqueScalingGroups",
    "scaleConfig": "scaleConfig of a group",
}
_SAME = ("terminationDelay", "priorityClassName", "headlessServiceConfig", "topologyConstraint")


@dataclass(frozen=True, slots=True)
class Member:
    """A clique of the object: where it stands there, and what it is called in the set."""

    raw: Json
    path: str
    group: str
    name: str
    set_name: str

    @property
    def order(self) -> int | None:
        return integer(self.raw.get("startOrder"))


def members_of(obj: Json) -> list[Member]:
    """All cliques in the order of the document, those outside every group last.

    The set needs names that are unique; those that several groups use get their group's name before them.
    """
    template = mapping(mapping(obj.get("spec")).get("template"))
    places = [
        (mapping(clique), f"{_GROUPS}[{at}].podCliques[{index}]", text(mapping(group).get("name")))
        for at, group in enumerate(sequence(template.get("podCliqueScalingGroups")))
        for index, clique in enumerate(sequence(mapping(group).get("podCliques")))
    ]
    places += [
        (mapping(clique), f"{_TEMPLATE}.podCliques[{index}]", "")
        for index, clique in enumerate(sequence(template.get("podCliques")))
    ]
    used = Counter(text(clique.get("name")) for clique, _, _ in places)
    members = []
    for clique, path, group in places:
        name = text(clique.get("name"))
        members.append(Member(clique, path, group, name, f"{group}-{name}" if group and used[name] > 1 else name))
    return members


def starts_after(member: Member, members: Sequence[Member]) -> list[str]:
    """Cliques of the set that this one waits for: those of its group with the next lower number there is."""
    order = member.order
    if order is None:
        return []
    peers = [peer for peer in members if peer.group == member.group and peer.order is not None]
    lower = [peer.order for peer in peers if peer.order is not None and peer.order < order]
    return [peer.set_name for peer in peers if lower and peer.order == max(lower)]


def to_set(obj: Json) -> Translation:
    spec = mapping(obj.get("spec"))
    template = mapping(spec.get("template"))
    groups = [mapping(group) for group in sequence(template.get("podCliqueScalingGroups"))]
    members = members_of(obj)
    waits = {member.set_name: starts_after(member, members) for member in members}
    explicit = any(waits.values())
    whole: Json = {
        "cliques": [_clique(member, waits[member.set_name] if explicit else []) for member in members],
        "cliqueStartupType": EXPLICIT if explicit else ANY_ORDER,
    }
    if groups:
        whole["podCliqueScalingGroups"] = [_group(group, members) for group in groups]
    whole |= {name: template[name] for name in _SAME if template.get(name) is not None}
    inner = max((len(member.group) + len(member.set_name) for member in members), default=0)
    replicas = integer(spec.get("replicas"))
    short = set_name(named(obj), inner)
    manifest = set_of(obj, GROUP, short, {"replicas": 1 if replicas is None else replicas, "template": whole})
    faults = [*unknown_fields(spec, KoordPodCliqueSetSpec, "spec", _HINTS), *_faults(obj, members, inner)]
    return Translation(manifest, tuple(_paths(members)), tuple(faults), tuple(_warnings(obj, members, short)))


def _clique(member: Member, waits: list[str]) -> Json:
    raw, template = member.raw, mapping(member.raw.get("template"))
    replicas = integer(raw.get("replicas"))
    # The role has the clique's name: the roles of a set must differ, too.
    spec: Json = {
        "roleName": member.set_name,
        "podSpec": with_device_limits(mapping(template.get("spec"))),
        "replicas": 1 if replicas is None else replicas,
    }
    if (minimum := integer(raw.get("minAvailable"))) is not None:
        spec["minAvailable"] = minimum
    if waits:
        spec["startsAfter"] = waits
    if raw.get("autoScalingConfig") is not None:
        spec["autoScalingConfig"] = raw["autoScalingConfig"]
    metadata = mapping(template.get("metadata"))
    body: Json = {"name": member.set_name}
    body |= {part: dict(metadata[part]) for part in ("labels", "annotations") if mapping(metadata.get(part))}
    if raw.get("topologyConstraint") is not None:
        body["topologyConstraint"] = raw["topologyConstraint"]
    return body | {"spec": spec}


def _group(group: Json, members: Sequence[Member]) -> Json:
    name = text(group.get("name"))
    replicas, minimum = integer(group.get("replicas")), integer(group.get("minAvailable"))
    body: Json = {
        "name": name,
        "cliqueNames": [member.set_name for member in members if member.group == name],
        "replicas": 1 if replicas is None else replicas,
        "minAvailable": 1 if minimum is None else minimum,
    }
    return body | {part: group[part] for part in ("scaleConfig", "topologyConstraint") if group.get(part) is not None}


def _paths(members: Sequence[Member]) -> Iterator[tuple[str, str]]:
    yield from ((f"{_TEMPLATE}.{name}", f"{_TEMPLATE}.{name}") for name in _SAME)
    # Some rules speak of cliques without saying of which.
    some = f"{_GROUPS}.podCliques" if any(member.group for member in members) else f"{_TEMPLATE}.podCliques"
    some = members[0].path if len(members) == 1 else some
    yield f"{_TEMPLATE}.cliques", some
    yield f"{_TEMPLATE}.cliques.spec", some
    yield f"{_TEMPLATE}.cliques.spec.podSpec", f"{some}.template.spec"
    yield f"{_TEMPLATE}.cliques.spec.startsAfter", f"{some}.startOrder"
    yield f"{_TEMPLATE}.cliques.roleName", f"{some}.name"
    yield f"{_TEMPLATE}.cliqueStartupType", f"{some}.startOrder"
    index_in: Counter[str] = Counter()
    for index, member in enumerate(members):
        ours, theirs = f"{_TEMPLATE}.cliques[{index}]", member.path
        yield ours, theirs
        yield f"{ours}.labels", f"{theirs}.template.metadata.labels"
        yield f"{ours}.annotations", f"{theirs}.template.metadata.annotations"
        yield f"{ours}.spec", theirs
        yield f"{ours}.spec.podSpec", f"{theirs}.template.spec"
        yield f"{ours}.spec.startsAfter", f"{theirs}.startOrder"
        yield f"{ours}.spec.roleName", f"{theirs}.name"
        if member.group:
            group = theirs.rpartition(".podCliques[")[0]
            yield f"{group}.cliqueNames", f"{group}.podCliques"
            yield f"{group}.cliqueNames[{index_in[group]}]", f"{theirs}.name"
            index_in[group] += 1


def _faults(obj: Json, members: Sequence[Member], inner: int) -> Iterator[Fault]:
    spec = mapping(obj.get("spec"))
    yield from _count_faults(spec, "spec")
    for at, group in enumerate(sequence(mapping(spec.get("template")).get("podCliqueScalingGroups"))):
        yield from _count_faults(mapping(group), f"{_GROUPS}[{at}]")
    if not members:
        yield required(_GROUPS, "at least one clique, in a group or in spec.template.podCliques")
    seen: dict[tuple[str, str], str] = {}
    for member in members:
        if (first := seen.setdefault((member.group, member.name), member.path)) != member.path:
            yield duplicate(f"{member.path}.name", member.name, f"{first} has the same name")
        order = member.raw.get("startOrder")
        if order is not None and (member.order is None or member.order < 0):
            yield invalid(
                f"{member.path}.startOrder", order, "must be a whole number, 0 or more; lower ones start first"
            )
        yield from _count_faults(member.raw, member.path)
        if not mapping(mapping(member.raw.get("template")).get("spec")):
            yield required(f"{member.path}.template.spec", "what the pods are made from")
    yield from name_faults(named(obj), inner, "metadata.name")


def _count_faults(part: Json, path: str) -> Iterator[Fault]:
    count, minimum = integer(part.get("replicas")), integer(part.get("minAvailable"))
    replicas = 1 if count is None else count
    if replicas < 0:
        yield invalid(f"{path}.replicas", replicas, "must not be negative")
    if minimum is not None and minimum < 1:
        yield invalid(f"{path}.minAvailable", minimum, "must be at least 1")
    elif minimum is not None and 0 < replicas < minimum:
        yield invalid(f"{path}.minAvailable", minimum, f"must not be greater than replicas ({replicas})")


def _warnings(obj: Json, members: Sequence[Member], short: str) -> Iterator[str]:
    numbered = {member.group for member in members if member.order is not None}
    for member in members:
        if member.group in numbered and member.order is None:
            yield f"{member.path}.startOrder: not given while others have one, so it neither waits nor is waited for"
        if member.set_name != member.name:
            yield f"{member.path}.name: several groups have a clique {member.name}; this one becomes {member.set_name}"
        yield from limit_warnings(
            mapping(mapping(member.raw.get("template")).get("spec")), f"{member.path}.template.spec"
        )
    if short != named(obj):
        yield f"metadata.name: too long for the names of pods; the PodCliqueSet of grove.io is called {short}"
