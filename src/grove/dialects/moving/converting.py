"""Documents of a file, each as a PodCliqueSet of `grove.io/v1alpha1` where it can be one, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from grove.api import dynamo as dynamo_api
from grove.api import koordset
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.faults import Fault
from grove.api.fields import mapping, text
from grove.api.labels import TRANSLATED_FROM, TRANSLATED_NAME
from grove.api.meta import Json
from grove.api.topology import ClusterTopologyBinding
from grove.dialects import dynamo, koord
from grove.dialects.moving import leaderworkerset, podgroups, volcanojob
from grove.dialects.moving.moved import Moved
from grove.dialects.placement import Levels, levels_of, placed
from grove.dialects.translation import Translation


class Document(NamedTuple):
    """One document of the result: where it comes from, what it is, and comments for its reader.

    `known` says whether it was one of ours to convert; `faults` are why it could not be.
    """

    source: str
    obj: Json
    chosen: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    known: bool = True
    faults: tuple[Fault, ...] = ()


def converted(documents: Sequence[Json]) -> list[Document]:
    return list(_converted(documents))


def spoken_in_grove_io(objects: Sequence[Json]) -> list[Json]:
    """The same objects, those of the dialects as PodCliqueSets; ValueError with every fault of one that cannot be."""
    objs = [obj for obj in objects if not _is_spoken(obj)]
    for document in converted([obj for obj in objects if _is_spoken(obj)]):
        if document.faults:
            raise ValueError(f"{document.source}: " + "; ".join(map(str, document.faults)))
        objs.append(document.obj)
    return objs


def _is_spoken(document: object) -> bool:
    group = text(mapping(document).get("apiVersion")).partition("/")[0]
    return group in (dynamo_api.GROUP, koordset.GROUP)


def _converted(documents: Sequence[Json]) -> Iterator[Document]:
    rules = [document for document in documents if _is(document, dynamo_api.GROUP, PlacementPodClique.RESOURCE.kind)]
    levels = levels_of(
        msgspec.convert(document, ClusterTopologyBinding)
        for document in documents
        if _is(document, ClusterTopologyBinding.RESOURCE.group, ClusterTopologyBinding.RESOURCE.kind)
    )
    gangs = podgroups.gangs_in(documents)
    taken = [obj for gang in gangs for obj in (*gang.workloads, gang.pod_group)]
    for document in documents:
        gang = next((gang for gang in gangs if gang.workloads[0] is document), None)
        if gang is not None:
            yield _moved(f"PodGroup {gang.name}", podgroups.to_set(gang))
        elif any(document is other for other in taken):
            continue
        elif _is(document, leaderworkerset.GROUP, leaderworkerset.KIND):
            yield _moved(source_of(document), leaderworkerset.to_set(document))
        elif _is(document, volcanojob.GROUP, volcanojob.KIND):
            yield _moved(source_of(document), volcanojob.to_set(document))
        elif _is(document, dynamo_api.GROUP, PodGangSet.RESOURCE.kind):
            yield _gang_set(document, rules, levels)
        elif _is(document, koordset.GROUP, "PodCliqueSet"):
            yield _translated(document, koord.to_set(document))
        elif not any(document is rule for rule in rules):
            yield Document(source_of(document), document, known=False)


def _gang_set(obj: Json, rules: Sequence[Json], levels: Levels) -> Document:
    labels = dynamo.template_labels(obj)
    namespace = text(mapping(obj.get("metadata")).get("namespace"))
    near = [rule for rule in rules if text(mapping(rule.get("metadata")).get("namespace")) == namespace]
    placement = placed(near, labels, namespace, {}, pack=False)
    document = _translated(obj, dynamo.to_set(obj, placement, levels))
    remarks = tuple(f"PodClique {name} became pod affinity of this set" for name in placement.effects)
    return document._replace(chosen=(*remarks, *document.chosen))


def _translated(obj: Json, translation: Translation) -> Document:
    """A dialect's object by itself: without the marks of the translator, which keeps no set of this file."""
    manifest = translation.manifest
    metadata = manifest["metadata"]
    metadata["labels"].pop(TRANSLATED_FROM, None)
    metadata["annotations"].pop(TRANSLATED_NAME, None)
    kept = {name: value for name, value in metadata.items() if value not in ("", {})}
    bare = {**manifest, "metadata": kept}
    return Document(source_of(obj), bare, chosen=translation.warnings, faults=translation.faults)


def _moved(source: str, moved: Moved) -> Document:
    return Document(source, moved.manifest, moved.chosen, moved.lost)


def _is(obj: Json, group: str, kind: str) -> bool:
    return text(obj.get("apiVersion")).partition("/")[0] == group and obj.get("kind") == kind


def source_of(obj: Json) -> str:
    """Kind and name of an object for messages, whatever it is made of."""
    return f"{text(obj.get('kind')) or '?'} {text(mapping(obj.get('metadata')).get('name')) or '?'}"
