"""A PodCliqueSet of `grove.io/v1alpha1` in the words of a dialect, and what those words cannot say.

Law: where nothing is lost, translating the result gives the same set again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grove.api import dynamo as gangs
from grove.api.dynamo import PodGangSet
from grove.api.fields import mapping, sequence, text, texts
from grove.api.koordset import KoordPodCliqueSet
from grove.api.labels import GROVE_SCHEDULER, LAST_APPLIED, TRANSLATED_FROM, TRANSLATED_NAME, TRANSLATION
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import ANY_ORDER, EXPLICIT, IN_ORDER
from grove.dialects.koord import Member, starts_after

_OURS = (TRANSLATED_FROM, TRANSLATED_NAME, TRANSLATION, LAST_APPLIED)
_NOT_OF_A_GROUP = ("annotations", "resourceSharing", "spreadConstraint")
_SAME = ("terminationDelay", "priorityClassName", "headlessServiceConfig", "topologyConstraint")


class Reversed(NamedTuple):
    """The object in the dialect's words, and a sentence for everything of the set that it does not say."""

    manifest: Json
    lost: tuple[str, ...]


def to_dialect(pcs: Json, group: str) -> Reversed:
    """The set as an object of this API group; a set that was translated gets its own name back."""
    return _gang_set(pcs) if group == gangs.GROUP else _koord_set(pcs)


def _manifest(pcs: Json, resource: Resource, spec: Json) -> Json:
    metadata = mapping(pcs.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    own_metadata: Json = {"name": text(annotations.get(TRANSLATED_NAME)) or text(metadata.get("name"))}
    if namespace := text(metadata.get("namespace")):
        own_metadata["namespace"] = namespace
    for part in ("labels", "annotations"):
        if kept := {name: value for name, value in mapping(metadata.get(part)).items() if name not in _OURS}:
            own_metadata[part] = kept
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": own_metadata, "spec": spec}


def _gang_set(pcs: Json) -> Reversed:
    spec = mapping(pcs.get("spec"))
    template = mapping(spec.get("template"))
    cliques = [mapping(item) for item in sequence(template.get("cliques"))]
    clique = cliques[0] if cliques else {}
    inner = mapping(clique.get("spec"))
    own_spec: Json = {"replicas": inner.get("replicas", 1)}
    if inner.get("minAvailable") is not None:
        own_spec["minAvailable"] = inner["minAvailable"]
    own_spec["template"] = _pod_template(clique)
    if priority := text(template.get("priorityClassName")):
        own_spec["scheduling"] = {"priorityClassName": priority}
    lost = [*_lost_of_set(spec), *_lost_of_template(template, ("priorityClassName", "cliqueStartupType"))]
    if spec.get("replicas", 1) != 1:
        lost.append(f"spec.replicas is {spec.get('replicas')}: a PodGangSet is one gang; write one object for each")
    lost += [f'clique "{text(other.get("name"))}": a PodGangSet has one kind of pods' for other in cliques[1:]]
    lost += [f'scaling group "{name}": a PodGangSet has none' for name in _group_names(template)]
    lost += _lost_of_clique(
        clique, ("topologyConstraint", "spreadConstraint", "autoScalingConfig", "startsAfter", "resourceSharing")
    )
    scheduler = text(mapping(inner.get("podSpec")).get("schedulerName"))
    if not scheduler:
        lost.append(f"no schedulerName means the operator's default here, and {GROVE_SCHEDULER} there")
    return Reversed(_manifest(pcs, PodGangSet.RESOURCE, own_spec), tuple(lost))


def _koord_set(pcs: Json) -> Reversed:
    spec = mapping(pcs.get("spec"))
    template = mapping(spec.get("template"))
    cliques = {text(mapping(item).get("name")): mapping(item) for item in sequence(template.get("cliques"))}
    groups = [mapping(item) for item in sequence(template.get("podCliqueScalingGroups"))]
    home = {name: text(group.get("name")) for group in groups for name in texts(group.get("cliqueNames"))}
    waits = _waits(template, list(cliques))
    orders = _orders(waits)
    lost = [*_lost_of_set(spec), *_lost_of_template(template, ("podCliqueScalingGroups", "cliqueStartupType", *_SAME))]
    lost += _lost_order(waits, orders, home)
    nested = {name: _nested(clique, orders.get(name)) for name, clique in cliques.items()}
    whole: Json = {}
    if groups:
        whole["podCliqueScalingGroups"] = [
            {
                **{part: value for part, value in group.items() if part not in ("cliqueNames", *_NOT_OF_A_GROUP)},
                "podCliques": [nested[name] for name in texts(group.get("cliqueNames")) if name in nested],
            }
            for group in groups
        ]
    if loose := [clique for name, clique in nested.items() if name not in home]:
        whole["podCliques"] = loose
    whole |= {name: template[name] for name in _SAME if template.get(name) is not None}
    for group in groups:
        at = f'scaling group "{text(group.get("name"))}"'
        lost += [f"{at}: {part} has no place there" for part in _NOT_OF_A_GROUP if group.get(part)]
    for clique in cliques.values():
        lost += _lost_of_clique(clique, ("resourceSharing", "spreadConstraint"))
    own_spec = {"replicas": spec.get("replicas", 0), "template": whole}
    return Reversed(_manifest(pcs, KoordPodCliqueSet.RESOURCE, own_spec), tuple(lost))


def _nested(clique: Json, order: int | None) -> Json:
    inner = mapping(clique.get("spec"))
    body: Json = {"name": text(clique.get("name")), "replicas": inner.get("replicas", 1)}
    for part in ("minAvailable", "autoScalingConfig"):
        if inner.get(part) is not None:
            body[part] = inner[part]
    if clique.get("topologyConstraint") is not None:
        body["topologyConstraint"] = clique["topologyConstraint"]
    if order is not None:
        body["startOrder"] = order
    return body | {"template": _pod_template(clique)}


def _pod_template(clique: Json) -> Json:
    metadata = {part: clique[part] for part in ("labels", "annotations") if clique.get(part)}
    pod_spec = mapping(mapping(clique.get("spec")).get("podSpec"))
    return {**({"metadata": metadata} if metadata else {}), "spec": pod_spec}


# Start order


def _waits(template: Json, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each clique those it starts after."""
    kind = text(template.get("cliqueStartupType")) or ANY_ORDER
    if kind == IN_ORDER:
        return {name: (names[at - 1],) if at else () for at, name in enumerate(names)}
    if kind != EXPLICIT:
        return dict.fromkeys(names, ())
    cliques = [mapping(item) for item in sequence(template.get("cliques"))]
    return {text(clique.get("name")): texts(mapping(clique.get("spec")).get("startsAfter")) for clique in cliques}


def _orders(waits: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """A number for each clique that waits or is waited for: how long its chain of waiting is."""
    named = {name for name, parents in waits.items() if parents} | {
        parent for parents in waits.values() for parent in parents
    }

    def depth(name: str, seen: frozenset[str]) -> int:
        parents = [parent for parent in waits.get(name, ()) if parent not in seen]
        return 1 + max(depth(parent, seen | {parent}) for parent in parents) if parents else 0

    return {name: depth(name, frozenset((name,))) for name in waits if name in named}


def _lost_order(waits: dict[str, tuple[str, ...]], orders: dict[str, int], home: dict[str, str]) -> Iterator[str]:
    members = [
        Member({"startOrder": orders[name]} if name in orders else {}, "", home.get(name, ""), name, name)
        for name in waits
    ]
    for member in members:
        if set(starts_after(member, members)) != set(waits[member.name]):
            parents = ", ".join(waits[member.name]) or "nothing"
            yield f'clique "{member.name}" starts after {parents}: numbers within a group cannot say that'


# What has no place


def _lost_of_set(spec: Json) -> Iterator[str]:
    return (f"spec.{name} has no place there" for name in spec if name not in ("replicas", "template"))


def _lost_of_template(template: Json, known: Sequence[str]) -> Iterator[str]:
    filled = ("headlessServiceConfig", "terminationDelay")  # admission fills them in; their usual values lose nothing
    usual = {"headlessServiceConfig": {"publishNotReadyAddresses": True}, "terminationDelay": "4h0m0s"}
    for name, value in template.items():
        if name not in ("cliques", "podCliqueScalingGroups", *known) and not (name in filled and usual[name] == value):
            yield f"spec.template.{name} has no place there"
    if "podCliqueScalingGroups" not in known and text(template.get("cliqueStartupType")) not in ("", ANY_ORDER):
        yield "spec.template.cliqueStartupType: one kind of pods has no order"


def _lost_of_clique(clique: Json, parts: Sequence[str]) -> Iterator[str]:
    inner = mapping(clique.get("spec"))
    for part in parts:
        if clique.get(part) or inner.get(part):
            yield f'clique "{text(clique.get("name"))}": {part} has no place there'


def _group_names(template: Json) -> list[str]:
    return [text(mapping(group).get("name")) for group in sequence(template.get("podCliqueScalingGroups"))]
