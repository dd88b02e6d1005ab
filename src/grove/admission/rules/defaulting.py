"""What Grove fills in when a PodCliqueSet leaves it open, as a list of additions to the user's own JSON.

The additions change and drop nothing that the user wrote. Unknown fields survive, and `kubectl apply` finds no
difference. Filling twice adds nothing. This module repeats the defaults of the CRD schema. On an API server they are
already set and cost no patch. A simulator and the command line need them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from grove.api.fields import integer, mapping, sequence, text
from grove.api.hashes import POD_DEFAULTS
from grove.api.meta import Json

TERMINATION_DELAY = "4h0m0s"
STARTUP_TYPE = "CliqueStartupTypeAnyOrder"
UPDATE_STRATEGY = "RollingRecreate"

Segment = str | int


@dataclass(frozen=True, slots=True)
class Addition:
    """A value for a field that is absent (or null); its parent object exists."""

    path: tuple[Segment, ...]
    value: Any


def missing_defaults(obj: Json, old: Json | None = None, namespace: str = "") -> list[Addition]:
    """The additions that complete `obj`; `old` is the stored object on an update, `namespace` that of the request.

    `minAvailable` cannot change. If an update leaves it out, it keeps its stored value, so a client may send only the
    fields it sets.
    """
    return [*_metadata(obj, namespace), *_spec(mapping(obj.get("spec")), mapping(mapping(old).get("spec")))]


def with_additions(obj: Json, additions: Sequence[Addition]) -> Json:
    """A copy of `obj` that has them."""
    if not additions:
        return obj
    full: Json = deepcopy(obj)
    for addition in additions:
        at: Any = full
        for segment in addition.path[:-1]:
            at = at[segment]
        at[addition.path[-1]] = deepcopy(addition.value)
    return full


def json_patch(additions: Sequence[Addition]) -> list[Json]:
    """The same as JSON patch operations; `add` also replaces a null."""
    return [
        {"op": "add", "path": "".join(f"/{_pointer(segment)}" for segment in addition.path), "value": addition.value}
        for addition in additions
    ]


def _pointer(segment: Segment) -> str:
    return str(segment).replace("~", "~0").replace("/", "~1")


def _metadata(obj: Json, namespace: str) -> Iterator[Addition]:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and metadata.get("namespace") in (None, ""):
        yield Addition(("metadata", "namespace"), namespace or "default")


def _spec(spec: Json, old: Json) -> Iterator[Addition]:
    if not spec:
        return
    if spec.get("replicas") is None:
        yield Addition(("spec", "replicas"), 0)
    strategy = spec.get("updateStrategy")
    if isinstance(strategy, dict) and strategy.get("type") is None:
        yield Addition(("spec", "updateStrategy", "type"), UPDATE_STRATEGY)
    template = spec.get("template")
    if isinstance(template, dict):
        yield from _template(template, mapping(old.get("template")))


def _template(template: Json, old: Json) -> Iterator[Addition]:
    at: tuple[Segment, ...] = ("spec", "template")
    stored = {text(clique.get("name")): clique for clique in map(mapping, sequence(old.get("cliques")))}
    for index, clique in enumerate(sequence(template.get("cliques"))):
        name = text(mapping(clique).get("name"))
        yield from _clique((*at, "cliques", index, "spec"), mapping(clique), mapping(stored.get(name)))
    if template.get("cliqueStartupType") is None:
        yield Addition((*at, "cliqueStartupType"), STARTUP_TYPE)
    headless = template.get("headlessServiceConfig")
    if headless is None:
        yield Addition((*at, "headlessServiceConfig"), {"publishNotReadyAddresses": True})
    elif isinstance(headless, dict) and headless.get("publishNotReadyAddresses") is None:
        yield Addition((*at, "headlessServiceConfig", "publishNotReadyAddresses"), True)
    if template.get("terminationDelay") is None:
        yield Addition((*at, "terminationDelay"), TERMINATION_DELAY)
    for index, group in enumerate(sequence(template.get("podCliqueScalingGroups"))):
        if isinstance(group, dict):
            yield from _group((*at, "podCliqueScalingGroups", index), group)


def _clique(at: tuple[Segment, ...], clique: Json, stored: Json) -> Iterator[Addition]:
    spec = clique.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("roleName") is None:
        # Required by the schema, yet manifests leave it out: upstream's decoder makes it an empty string on the way.
        yield Addition((*at, "roleName"), "")
    # Upstream turns 0 replicas into 1 and copies the 0 into minAvailable, which it then refuses. Here 0 stays 0 (an
    # autoscaler's idle role), only an absent number becomes 1, and the minimum is what the role needs once it runs.
    replicas = integer(spec.get("replicas"))
    if spec.get("replicas") is None:
        replicas = 1
        yield Addition((*at, "replicas"), replicas)
    minimum = integer(spec.get("minAvailable"))
    if spec.get("minAvailable") is None and replicas is not None:
        minimum = integer(mapping(stored.get("spec")).get("minAvailable")) or max(replicas, 1)
        yield Addition((*at, "minAvailable"), minimum)
    scaling = spec.get("autoScalingConfig")
    if isinstance(scaling, dict) and scaling.get("minReplicas") is None and replicas is not None:
        yield Addition((*at, "autoScalingConfig", "minReplicas"), max(replicas, minimum or 1))
    pod_spec = spec.get("podSpec")
    if isinstance(pod_spec, dict):
        for name, value in POD_DEFAULTS.items():
            if pod_spec.get(name) in (None, ""):
                yield Addition((*at, "podSpec", name), value)


def _group(at: tuple[Segment, ...], group: Json) -> Iterator[Addition]:
    replicas, minimum = integer(group.get("replicas")), integer(group.get("minAvailable"))
    if group.get("replicas") is None:
        replicas = 1
        yield Addition((*at, "replicas"), replicas)
    if group.get("minAvailable") is None:
        minimum = 1
        yield Addition((*at, "minAvailable"), minimum)
    scaling = group.get("scaleConfig")
    if isinstance(scaling, dict) and scaling.get("minReplicas") is None and replicas is not None:
        yield Addition((*at, "scaleConfig", "minReplicas"), max(replicas, minimum or 1))
