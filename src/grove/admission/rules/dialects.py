"""Objects of the dialects as the rules see them: the PodCliqueSet behind each, and its faults in the object's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known, LookupFailed
from grove.api import koordset
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.faults import Fault, FaultType
from grove.api.fields import mapping, text
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Json, Key, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.dialects import dynamo, koord
from grove.dialects.placement import Levels, levels_of
from grove.dialects.record import Record, merged_set, record_of
from grove.dialects.translation import Translation, is_made_from

RESOURCES: tuple[Resource, ...] = (PodGangSet.RESOURCE, PlacementPodClique.RESOURCE, KoordPodCliqueSet.RESOURCE)


def translated(obj: Json, levels: Levels | None = None) -> Translation | None:
    """The translation of an object to a PodCliqueSet. None for a placement rule, which alone makes no set.

    `levels` are those of the cluster's topologies, if they are known.
    """
    if group_of(obj) == koordset.GROUP:
        return koord.to_set(obj)
    return dynamo.to_set(obj, levels=levels) if obj.get("kind") == PodGangSet.RESOURCE.kind else None


def asks_for_spread(obj: Json) -> bool:
    """True if the translation needs the levels of all topologies."""
    return bool(mapping(mapping(obj.get("spec")).get("scheduling")).get("topologySpread"))


def find_levels(lookups: Known) -> Levels | None:
    """The levels of all topologies by label key; None if they were not looked up or could not be read."""
    try:
        bindings = lookups.find_all(ClusterTopologyBinding.RESOURCE.kind)
        return (
            None
            if bindings is None
            else levels_of(msgspec.convert(binding, ClusterTopologyBinding) for binding in bindings)
        )
    except (LookupFailed, msgspec.ValidationError):
        return None


def with_topologies(lookups: Known) -> Known:
    """The lookups with every topology that was listed under its name."""
    try:
        bindings = lookups.find_all(ClusterTopologyBinding.RESOURCE.kind) or []
    except LookupFailed:
        bindings = []
    by_name = {text(mapping(binding.get("metadata")).get("name")): binding for binding in bindings}
    return replace(lookups, topologies={**by_name, **lookups.topologies})


def group_of(obj: Json) -> str:
    return text(obj.get("apiVersion")).partition("/")[0]


def resource_of(obj: Json) -> Resource | None:
    """The dialect's resource an object is of, if it is one."""
    wanted = (group_of(obj), text(obj.get("kind")))
    return next((resource for resource in RESOURCES if (resource.group, resource.kind) == wanted), None)


def set_key(obj: Json, translation: Translation, namespace: str) -> Key:
    """The set behind an object: the one it has, else the one it would get."""
    name = text(mapping(obj.get("status")).get("podCliqueSetName")) or translation.name
    return Key(text(mapping(obj.get("metadata")).get("namespace")) or namespace, name)


def is_own(obj: Json, stored: Json) -> bool:
    """True if this object is the source of a stored set."""
    metadata = mapping(stored.get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    return is_made_from(labels, annotations, group_of(obj), text(mapping(obj.get("metadata")).get("name")))


def set_behind(translation: Translation, stored: Json | None, namespace: str) -> Json:
    """The set as it would be written; `stored` is what there is of it."""
    if stored is None:
        return with_additions(translation.manifest, missing_defaults(translation.manifest, namespace=namespace))
    last = Record.of(mapping(mapping(stored.get("metadata")).get("annotations"))) or Record()
    merged = merged_set(stored, translation.manifest, last, record_of(translation.manifest, last.placement, last))
    return with_additions(merged, missing_defaults(merged, stored, namespace))


def needs_new_set(obj: Json) -> bool:
    """True if Grove may delete and create a set again for a change that a running set cannot take."""
    return mapping(mapping(obj.get("metadata")).get("annotations")).get(dynamo.RECREATE) == "true"


def in_source_words(translation: Translation, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Faults of the set in the object's words, without what was said already of a field, or of names used twice."""
    known = {fault.path for fault in translation.faults}
    repeated = any(fault.type is FaultType.DUPLICATE for fault in translation.faults)
    yield from translation.faults
    for fault in map(translation.in_source_words, faults):
        if fault.path not in known and not (repeated and fault.type is FaultType.DUPLICATE):
            yield fault


def translated_warnings(translation: Translation, warnings: Iterable[str]) -> Iterator[str]:
    yield from translation.warnings
    for warning in warnings:
        path, colon, rest = warning.partition(": ")
        yield translation.spelled(path) + colon + rest if colon and " " not in path else warning
