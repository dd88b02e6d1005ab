"""PodGangSet of `grove.dynamo.ai/v1` to PodCliqueSet: its replicas are the pods of one gang, not copies of a system.

So the set has one replica with one clique, called `gang`. Where the pods go by PodCliques of the same group comes in as
a `Placement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from grove.api.dynamo import GROUP, PodGangSetSpec
from grove.api.faults import Fault, forbidden, invalid
from grove.api.fields import integer, mapping, sequence, text
from grove.api.hashes import find_earlier_reading, generation_hash
from grove.api.koordinator import QUOTA
from grove.api.labels import GROVE_SCHEDULER
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSetTemplate
from grove.api.words import many
from grove.backends import QUEUES
from grove.dialects.placement import NO_PLACEMENT, Levels, Placement, find_selector, with_affinity
from grove.dialects.translation import (
    Translation,
    limit_warnings,
    named,
    set_name,
    set_of,
    unknown_fields,
    with_device_limits,
)

CLIQUE = "gang"
PREFIX = f"{GROUP}/"
RECREATE = f"{PREFIX}recreate"
"""On a PodGangSet, "true": a change that a running set cannot take deletes the set and creates it again."""

SPREAD = "spec.scheduling.topologySpread"
_SPREAD_FIELDS = ("topologyKey", "maxSkew", "whenUnsatisfiable", "labelSelector")

_HINTS = {
    "minMember": "spec.minAvailable",
    "minReplicas": "spec.minAvailable",
    "size": "spec.replicas",
    "podTemplate": "spec.template",
    "podSpec": "spec.template.spec",
    "schedulerName": "spec.template.spec.schedulerName",
    "priorityClassName": "spec.scheduling.priorityClassName",
    "nodeSelector": "spec.scheduling.nodeSelector",
    "nodeAffinity": "spec.scheduling.nodeAffinity",
    "tolerations": "spec.scheduling.tolerations",
    "affinity": "spec.scheduling.nodeAffinity, podAffinity or podAntiAffinity",
    "queue": "spec.scheduling.queue",
    "topology": "a PodClique of grove.dynamo.ai/v1 whose selector matches the labels of the template",
    "topologyConstraint": "a PodClique of grove.dynamo.ai/v1 with spec.topology",
    "cliques": "a PodCliqueSet of grove.io/v1alpha1, which has several cliques",
    "podCliqueScalingGroups": "a PodCliqueSet of grove.io/v1alpha1, which has scaling groups",
    "terminationDelay": "spec.template.terminationDelay of a PodCliqueSet of grove.io/v1alpha1",
}
_POD_SPEC = "spec.template.cliques[0].spec.podSpec"
_PATHS = (
    ("spec.replicas", "spec"),
    ("spec.template", "spec"),
    ("spec.template.priorityClassName", "spec.scheduling.priorityClassName"),
    ("spec.template.topologyConstraint", "spec.template.metadata.labels"),
    ("spec.template.cliques", "spec"),
    ("spec.template.cliques.spec", "spec"),
    ("spec.template.cliques.spec.podSpec", "spec.template.spec"),
    ("spec.template.cliques[0]", "spec"),
    ("spec.template.cliques[0].name", "metadata.name"),
    ("spec.template.cliques[0].labels", "spec.template.metadata.labels"),
    ("spec.template.cliques[0].annotations", "spec.template.metadata.annotations"),
    ("spec.template.cliques[0].spec", "spec"),
    ("spec.template.cliques[0].spreadConstraint", f"{SPREAD}[0]"),
    ("spec.template.cliques[0].spreadConstraint.topologyName", f"{SPREAD}[0].topologyKey"),
    ("spec.template.cliques[0].spreadConstraint.domain", f"{SPREAD}[0].topologyKey"),
    (_POD_SPEC, "spec.template.spec"),
)
_SCHEDULED_AS = {
    "nodeSelector": "nodeSelector",
    "tolerations": "tolerations",
}


def to_set(obj: Json, placement: Placement = NO_PLACEMENT, levels: Levels | None = None) -> Translation:
    """The PodCliqueSet of a PodGangSet; `placement` is where rules from outside want its pods.

    `levels` are those of the cluster's topologies. If they are not known (None), the spread is left out.
    """
    spec, name = mapping(obj.get("spec")), named(obj)
    template, scheduling = mapping(spec.get("template")), mapping(spec.get("scheduling"))
    pod_spec = _pod_spec(with_device_limits(mapping(template.get("spec"))), scheduling)
    scheduler = text(pod_spec["schedulerName"])
    pod_spec = with_affinity(pod_spec, placement.affinity)
    inner: Json = {"roleName": CLIQUE, "replicas": _replicas(spec)}
    if (minimum := integer(spec.get("minAvailable"))) is not None:
        inner["minAvailable"] = minimum
    metadata = mapping(template.get("metadata"))
    kept = {part: dict(metadata[part]) for part in ("labels", "annotations") if mapping(metadata.get(part))}
    clique: Json = {"name": CLIQUE, **kept, "spec": {**inner, "podSpec": pod_spec}}
    if levels is not None and (spread := _spread(scheduling, levels)):
        clique["spreadConstraint"] = spread
    whole: Json = {"cliques": [clique]}
    if priority := text(scheduling.get("priorityClassName")):
        whole["priorityClassName"] = priority
    if placement.constraint:
        whole["topologyConstraint"] = placement.constraint
    short = set_name(name, len(CLIQUE))
    manifest = set_of(obj, GROUP, short, {"replicas": 1, "template": whole}, without=PREFIX)
    queue = text(scheduling.get("queue"))
    if queue and (rule := QUEUES.get(scheduler)) is not None:
        manifest["metadata"][rule.parts[0]][rule.key] = queue
    faults = [*unknown_fields(spec, PodGangSetSpec, "spec", _HINTS), *_faults(spec, scheduler, queue)]
    faults += _spread_faults(scheduling, template_labels(obj), levels)
    return Translation(manifest, _PATHS, tuple(faults), tuple(_warnings(obj, short)))


def template_labels(obj: Json) -> dict[str, str]:
    """Labels of the pods of a PodGangSet, by which rules find it."""
    metadata = mapping(mapping(mapping(obj.get("spec")).get("template")).get("metadata"))
    return {name: value for name, value in mapping(metadata.get("labels")).items() if isinstance(value, str)}


def rollout_of(translation: Translation, recorded: str) -> str:
    """Digest of what pods are made from: a change of it replaces them. It stays if an earlier version recorded it."""
    try:
        template = msgspec.convert(translation.manifest["spec"]["template"], PodCliqueSetTemplate)
        return recorded if find_earlier_reading(template, recorded) is not None else generation_hash(template)
    except msgspec.ValidationError:
        return ""  # its status reports the fault, and nothing is made from it


def _replicas(spec: Json) -> int:
    replicas = integer(spec.get("replicas"))
    return 1 if replicas is None else replicas


def _faults(spec: Json, scheduler: str, queue: str) -> Iterator[Fault]:
    replicas, minimum = _replicas(spec), integer(spec.get("minAvailable"))
    if replicas < 0:
        yield invalid("spec.replicas", replicas, "must not be negative")
    if minimum is not None and minimum < 1:
        yield invalid("spec.minAvailable", minimum, "must be at least 1")
    elif minimum is not None and 0 < replicas < minimum:
        yield invalid("spec.minAvailable", minimum, f"must not be greater than replicas ({replicas})")
    if queue and scheduler not in QUEUES:
        detail = f"{scheduler} has no queues: name one of {', '.join(QUEUES)} in spec.template.spec.schedulerName"
        yield forbidden("spec.scheduling.queue", detail)


def _spread(scheduling: Json, levels: Levels) -> Json:
    """The spreadConstraint of the clique: the first entry of topologySpread, with the level that has its key."""
    given = [mapping(entry) for entry in sequence(scheduling.get("topologySpread"))]
    level = levels.get(text(given[0].get("topologyKey"))) if given else None
    if level is None:
        return {}
    own: Json = {name: given[0][name] for name in ("maxSkew", "whenUnsatisfiable") if name in given[0]}
    return {"topologyName": level[0], "domain": level[1], **own}


def _spread_faults(scheduling: Json, labels: Mapping[str, str], levels: Levels | None) -> Iterator[Fault]:
    given = [mapping(entry) for entry in sequence(scheduling.get("topologySpread"))]
    if len(given) > 1:
        yield forbidden(f"{SPREAD}[1]", "the pods of a gang are spread over one level: keep one entry")
    for entry in given[:1]:
        path, key = f"{SPREAD}[0]", text(entry.get("topologyKey"))
        if levels is not None and key not in levels:
            detail = f"not a level of a ClusterTopologyBinding, which have: {', '.join(sorted(levels)) or 'none'}"
            yield invalid(f"{path}.topologyKey", key, detail)
        counted = find_selector(entry.get("labelSelector"), empty=True)
        if counted is None or not counted.matches(labels):
            yield forbidden(f"{path}.labelSelector", "only the pods of the gang are counted: leave it out")
        for name in sorted(entry.keys() - set(_SPREAD_FIELDS)):
            yield forbidden(f"{path}.{name}", f"not supported; there are {', '.join(_SPREAD_FIELDS)}")


def _warnings(obj: Json, short: str) -> Iterator[str]:
    spec, name = mapping(obj.get("spec")), named(obj)
    scheduler = text(mapping(mapping(spec.get("template")).get("spec")).get("schedulerName"))
    if not scheduler:
        yield f"spec.template.spec.schedulerName: not given, so {GROVE_SCHEDULER} places the gang"
    if spec.get("minAvailable") is None and _replicas(spec):
        yield f"spec.minAvailable: not given, so all are needed: {many(_replicas(spec), 'pod')}"
    yield from limit_warnings(mapping(mapping(spec.get("template")).get("spec")), "spec.template.spec")
    if mapping(spec.get("scheduling")).get("queue") and scheduler in ("", GROVE_SCHEDULER):
        yield f"spec.scheduling.queue: read as a Queue of KAI; for an ElasticQuota use the label {QUOTA}"
    if short != name:
        yield f"metadata.name: too long for the names of pods; the PodCliqueSet is called {short}"


def _pod_spec(own: Json, scheduling: Json) -> Json:
    """The pod spec with the scheduling beside it: what both say must both hold."""
    merged: Json = {**own, "schedulerName": text(own.get("schedulerName")) or GROVE_SCHEDULER}
    affinity = {name: mapping(value) for name, value in mapping(own.get("affinity")).items()}
    for name in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        if given := mapping(scheduling.get(name)):
            affinity[name] = _both(mapping(affinity.get(name)), given)
    if affinity:
        merged["affinity"] = affinity
    for theirs, ours in _SCHEDULED_AS.items():
        wanted, mine = scheduling.get(theirs), own.get(ours)
        if isinstance(wanted, dict) and wanted:
            merged[ours] = {**mapping(mine), **wanted}
        elif isinstance(wanted, list) and wanted:
            merged[ours] = [*sequence(mine), *wanted]
    return merged


_PREFERRED, _REQUIRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("preferred", "required"))


def _both(own: Json, given: Json) -> Json:
    """Two affinities as one. Node terms are alternatives, so to hold both every pair of them becomes one term."""
    merged = {**own}
    if preferred := [*sequence(own.get(_PREFERRED)), *sequence(given.get(_PREFERRED))]:
        merged[_PREFERRED] = preferred
    mine, theirs = own.get(_REQUIRED), given.get(_REQUIRED)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        pairs = [
            _joined(mapping(term), mapping(other))
            for term in sequence(mine.get("nodeSelectorTerms"))
            for other in sequence(theirs.get("nodeSelectorTerms"))
        ]
        merged[_REQUIRED] = {"nodeSelectorTerms": pairs}
    elif isinstance(mine, list) and isinstance(theirs, list):
        merged[_REQUIRED] = [*mine, *theirs]
    elif theirs is not None:
        merged[_REQUIRED] = theirs
    return merged


def _joined(term: Json, other: Json) -> Json:
    parts = {
        part: [*sequence(term.get(part)), *sequence(other.get(part))] for part in ("matchExpressions", "matchFields")
    }
    return {part: terms for part, terms in parts.items() if terms}
