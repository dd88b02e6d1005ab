"""Merges a translation into a set that exists: removes what only the last translation had, keeps what others wrote.

An annotation of the set records the last translation. Replicas are written once: a direct change of the set's scale
holds until the translated object has another number. Law: merging a translation into what it was merged into changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from grove.api.fields import mapping, text
from grove.api.labels import TRANSLATION
from grove.api.meta import Json
from grove.api.patch import merge_patch

CLIQUES, GROUPS = "cliques", "podCliqueScalingGroups"
_MINIMUM = "minAvailable"
"""Cannot change on a set that runs, so one that is left out stays, as in the set itself."""


class Scaling(NamedTuple):
    """Replicas of a clique or a group of a set: which of the two lists it stands in, its name, how many.

    `done` are the uids of PodCliques or groups that have been scaled to it. Each is scaled once.
    """

    part: str
    name: str
    replicas: int
    done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The last spec, labels and annotations that a translation wrote to its set."""

    spec: Json = field(default_factory=dict)
    labels: Json = field(default_factory=dict)
    annotations: Json = field(default_factory=dict)
    placement: Json = field(default_factory=dict)
    """Where its gangs go by rules from outside, as they were when it was last rolled out."""
    rollout: str = ""
    """Digest of the pod template without those rules: a change of it replaces pods anyway."""
    scaling: list[Scaling] = field(default_factory=list)
    """Replicas that were changed and may not have reached the PodCliques and groups there are."""

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Record | None:
        """The record on a set; None if there is none or it cannot be read: then all is written again."""
        try:
            return msgspec.json.decode(annotations[TRANSLATION], type=cls)
        except (KeyError, msgspec.DecodeError):
            return None

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name)}
        return msgspec.json.encode(fields, order="sorted").decode()


def with_record(manifest: Json, record: Record) -> Json:
    """The manifest as it is written: with the annotation that remembers it."""
    metadata = manifest["metadata"]
    annotations = {**metadata["annotations"], TRANSLATION: str(record)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def record_of(manifest: Json, placement: Json, last: Record | None = None, *, rollout: str = "") -> Record:
    """The record of a manifest. It marks replicas that differ from the last record: the set does not have them yet."""
    metadata = manifest["metadata"]
    scaling = [] if last is None else scale_changes(last, manifest["spec"])
    return Record(manifest["spec"], metadata["labels"], metadata["annotations"], placement, rollout, scaling)


def merged_set(live: Json, manifest: Json, last: Record, now: Record) -> Json:
    """The live set with the translation in it."""
    metadata = mapping(live.get("metadata"))
    labels = merged(mapping(metadata.get("labels")), manifest["metadata"]["labels"], last.labels)
    stored = mapping(metadata.get("annotations"))
    annotations = merged(stored, manifest["metadata"]["annotations"], last.annotations) | {TRANSLATION: str(now)}
    spec = merged(mapping(live.get("spec")), manifest["spec"], last.spec)
    return {**live, "metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": spec}


def set_patch(live: Json, wanted: Json) -> Json | None:
    """The conditional merge patch that turns one into the other, or None."""
    patch = merge_patch(live, wanted)
    if not patch:
        return None
    version = text(mapping(live.get("metadata")).get("resourceVersion"))
    return {**patch, "metadata": {**mapping(patch.get("metadata")), "resourceVersion": version}}


def merged(live: Any, wanted: Any, last: Any) -> Any:
    """`live` with `wanted` in it, less what was in `last` and is not wanted any more; a minimum stays.

    Lists of named things are merged by name, other lists are replaced.
    """
    if isinstance(wanted, dict) and isinstance(live, dict):
        before = mapping(last)
        kept = {name: value for name, value in live.items() if name in wanted or name not in before or name == _MINIMUM}
        return kept | {name: _field(name, live, value, before) for name, value in wanted.items()}
    if _is_named(wanted) and _is_named(live):
        mine, before = _by_name(live), _by_name(last) if _is_named(last) else {}
        ours = _by_name(wanted)
        extra = [item for name, item in mine.items() if name not in ours and name not in before]
        return [merged(mine.get(name), item, before.get(name)) for name, item in ours.items()] + extra
    return wanted


def _field(name: str, live: Json, wanted: Any, last: Json) -> Any:
    if name == "replicas" and name in live and last.get(name) == wanted:
        return live[name]
    return merged(live.get(name), wanted, last.get(name))


def _is_named(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    names = [item.get("name") if isinstance(item, dict) else None for item in value]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _by_name(items: list[Json]) -> dict[str, Json]:
    return {item["name"]: item for item in items}


def scale_changes(last: Record, spec: Json) -> list[Scaling]:
    """Cliques and groups whose replicas changed, or whose replicas the set did not receive yet."""
    changes = {(scaling.part, scaling.name): scaling for scaling in last.scaling}
    for part in (CLIQUES, GROUPS):
        before = {item["name"]: _replicas(item) for item in mapping(last.spec.get("template")).get(part, ())}
        for item in mapping(spec.get("template")).get(part, ()):
            if before.get(item["name"], _replicas(item)) != _replicas(item):
                changes[part, item["name"]] = Scaling(part, item["name"], _replicas(item))
    return list(changes.values())


def _replicas(part: Json) -> int:
    return int(mapping(part.get("spec", part)).get("replicas", 1))
