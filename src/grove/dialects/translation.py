"""What a dialect's object becomes: a PodCliqueSet, its faults, and how paths are spelled on either side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

import msgspec

from grove.api.faults import Fault, forbidden, invalid
from grove.api.fields import mapping, sequence, text
from grove.api.labels import LAST_APPLIED, TRANSLATED_FROM, TRANSLATED_NAME
from grove.api.meta import Json, Struct
from grove.api.names import MAX_COMBINED_LENGTH
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podrequest import may_overcommit

SHORTEST_NAME = 8
"""Characters of a name that are kept at least when it is cut; a set with less is not found again by a person."""
_MARK = 5
"""Characters that a cut name ends in: a dash and four of the digest of the whole."""

Paths = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """A PodCliqueSet made from another object. With `faults` it must not be used."""

    manifest: Json
    paths: Paths = ()
    """Paths of the set and what they are called in the object it was made from."""
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return text(self.manifest["metadata"]["name"])

    def called(self, name: str) -> Translation:
        """The same for a set of another name."""
        metadata = {**self.manifest["metadata"], "name": name}
        return replace(self, manifest={**self.manifest, "metadata": metadata})

    def spelled(self, path: str) -> str:
        """A path of the set as the author of the object would write it; the longest known part of it decides."""
        known = (pair for pair in self.paths if path == pair[0] or path.startswith((f"{pair[0]}.", f"{pair[0]}[")))
        ours, theirs = max(known, key=lambda pair: len(pair[0]), default=("", ""))
        return theirs + path[len(ours) :] if ours else path

    def in_source_words(self, fault: Fault) -> Fault:
        """A fault of the set as one of the object."""
        return replace(fault, path=self.spelled(fault.path))


def set_of(obj: Json, group: str, name: str, spec: Json, *, without: str = "") -> Json:
    """The manifest of the set: what the object carries, and the labels that say where it comes from.

    `without` is the prefix of annotations that are words to the translator alone.
    """
    metadata = mapping(obj.get("metadata"))
    annotations = {
        key: value
        for key, value in mapping(metadata.get("annotations")).items()
        if key != LAST_APPLIED and not (without and key.startswith(without))
    }
    made: Json = {"name": name, "namespace": text(metadata.get("namespace"))}
    made["labels"] = {**mapping(metadata.get("labels")), TRANSLATED_FROM: group}
    made["annotations"] = {**annotations, TRANSLATED_NAME: text(metadata.get("name"))}
    resource = PodCliqueSet.RESOURCE
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": made, "spec": spec}


def is_made_from(labels: Mapping[str, str], annotations: Mapping[str, str], group: str, name: str) -> bool:
    """True if a set with these labels and annotations is the translation of the object of this group and name."""
    return labels.get(TRANSLATED_FROM) == group and annotations.get(TRANSLATED_NAME) == name


def named(obj: Json) -> str:
    """The object's name; a generated one is longer by five characters, which it does not have yet at admission."""
    metadata = mapping(obj.get("metadata"))
    return text(metadata.get("name")) or (text(metadata.get("generateName")) and f"{metadata['generateName']}xxxxx")


def set_name(name: str, inner: int) -> str:
    """The name of the set: `name`, cut and marked with a digest if the names inside leave too few characters for it.

    `inner` is the length of the longest group and clique name together.
    """
    longest = MAX_COMBINED_LENGTH - inner
    if len(name) <= longest:
        return name
    return f"{name[: max(longest - _MARK, 1)].rstrip('-.')}-{_fnv1a(name) >> 16:04x}"


def name_faults(name: str, inner: int, path: str) -> Iterator[Fault]:
    """Names inside that leave no characters for a name of the set, even one that is cut."""
    longest = MAX_COMBINED_LENGTH - inner
    if len(name) > longest and longest < SHORTEST_NAME + _MARK:
        detail = (
            f"the names of a group and its clique may have {MAX_COMBINED_LENGTH - SHORTEST_NAME - _MARK} characters"
        )
        yield invalid(path, name, f"{detail} together beside a set's name of {len(name)}; they have {inner}")


def with_device_limits(pod_spec: Json) -> Json:
    """The pod spec with a limit for every device that a container only requests.

    Devices cannot be shared out beyond what there is, so the API server takes no request without its limit.
    """
    limited = dict(pod_spec)
    for part in ("containers", "initContainers"):
        if isinstance(pod_spec.get(part), list):
            limited[part] = [
                _limited(container) if isinstance(container, dict) else container for container in pod_spec[part]
            ]
    return limited


def _limited(container: Json) -> Json:
    resources = mapping(container.get("resources"))
    limits = mapping(resources.get("limits"))
    missing = {
        name: amount
        for name, amount in mapping(resources.get("requests")).items()
        if not may_overcommit(name) and name not in limits
    }
    return {**container, "resources": {**resources, "limits": {**limits, **missing}}} if missing else container


def limit_warnings(pod_spec: Json, path: str) -> Iterator[str]:
    """A word for every container that gets a limit it does not have."""
    for part in ("containers", "initContainers"):
        for index, container in enumerate(sequence(pod_spec.get(part))):
            if isinstance(container, dict) and _limited(container) is not container:
                yield f"{path}.{part}[{index}].resources.limits: devices are requested only, so as many are the limit"


def _fnv1a(name: str) -> int:
    digest = 0x811C9DC5
    for byte in name.encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return digest


def unknown_fields(value: Any, shape: type[Struct], path: str, hints: Mapping[str, str]) -> Iterator[Fault]:
    """A fault for every field that the dialect does not have, with what does it where something does."""
    if not isinstance(value, dict):
        return
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(shape)}
    types = get_type_hints(shape)
    for name, inner in value.items():
        here = f"{path}.{name}"
        if name not in fields:
            yield forbidden(here, f"no such field{_instead(name, tuple(fields), hints)}")
            continue
        nested = _nested(types[fields[name]])
        if nested is None:
            continue
        many = inner if isinstance(inner, list) else [inner]
        for index, item in enumerate(many):
            yield from unknown_fields(item, nested, f"{here}[{index}]" if isinstance(inner, list) else here, hints)


def _instead(name: str, fields: tuple[str, ...], hints: Mapping[str, str]) -> str:
    if name in hints:
        return f"; use {hints[name]}"
    close = get_close_matches(name, fields, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(fields)}"


def _nested(hint: Any) -> type[Struct] | None:
    """The Struct a field holds, by itself or in a list."""
    for shape in (hint, *get_args(hint)):
        if isinstance(shape, type) and issubclass(shape, Struct):
            return shape
    return None
