"""Asking admission questions in tests: an object in, the faults or warnings it gives out, as the user reads them."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import VALIDATE_BINDING, VALIDATE_SET, Admission
from grove.api.fields import mapping
from grove.api.meta import Json
from grove.backends import Backends
from grove.backends.base import Backend, TopologyBackend
from tests.support.manifests import clique, group, pcs

ABSENT = object()
"""A value for `changed` that removes the field."""


def plain() -> Json:
    """A set that breaks no rule: a router beside a group of a leader and two workers."""
    return pcs("demo", clique("router", 2), clique("lead"), clique("work", 2), groups=[group("grp", "lead", "work")])


def schedulers(*names: str, topology_aware: Collection[str] = (), spreading: Collection[str] = ()) -> Backends:
    """Schedulers of these names; the first is the default. Only those in `spreading` take spread constraints."""
    made = []
    for one in names:
        spreads = frozenset({"set", "group", "clique"} if one in spreading else ())
        base = TopologyBackend if one in topology_aware else Backend
        made.append(type("Named", (base,), {"name": one, "spreads": spreads})())
    return Backends(made, names[0])


def changed(obj: Json, *edits: tuple[str, Any]) -> Json:
    """A copy with values at dotted paths (`spec.template.cliques.0.name`) replaced, added or removed."""
    copied = copy.deepcopy(obj)
    for path, value in edits:
        *way, last = [int(part) if part.isdigit() else part.replace("|", ".") for part in path.split(".")]
        at: Any = copied
        for part in way:
            at = at[part] if isinstance(part, int) else at.setdefault(part, {})
        if value is ABSENT:
            del at[last]
        elif isinstance(last, int) and last == len(at):
            at.append(value)
        else:
            at[last] = value
    return copied


def review_of(new: Json | None, old: Json | None = None, *, user: str = "someone", operation: str = "") -> Json:
    metadata = mapping(mapping(new or old).get("metadata"))
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "grove.io", "version": "v1alpha1", "kind": "PodCliqueSet"},
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": operation or ("UPDATE" if old is not None else "CREATE"),
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def response(admission: Admission, path: str, review: Json, lookups: Known | None = None) -> Json:
    answered = admission.review(path, review, lookups or Known())
    assert answered["apiVersion"] == "admission.k8s.io/v1"
    assert answered["kind"] == "AdmissionReview"
    found: Json = answered["response"]
    assert found["uid"] == review["request"]["uid"]
    return found


def faults(
    admission: Admission,
    new: Json,
    old: Json | None = None,
    *,
    path: str = VALIDATE_SET,
    lookups: Known | None = None,
) -> list[str]:
    """`path: message` of every fault; empty when the object is admitted."""
    found = response(admission, path, review_of(new, old), lookups)
    if found["allowed"]:
        return []
    assert found["status"]["code"] == 422
    assert found["status"]["reason"] == "Invalid"
    return [f"{cause['field']}: {cause['message']}" for cause in found["status"]["details"]["causes"]]


def warnings(admission: Admission, new: Json, old: Json | None = None, *, lookups: Known | None = None) -> list[str]:
    found = response(admission, VALIDATE_SET, review_of(new, old), lookups)
    assert found["allowed"], found
    return list(found.get("warnings", ()))


def binding(name: str = "cluster", **levels: str) -> Json:
    """A ClusterTopologyBinding; levels broadest first, `zone="topology.kubernetes.io/zone"`."""
    named = levels or {
        "zone": "topology.kubernetes.io/zone",
        "rack": "example.com/rack",
        "host": "kubernetes.io/hostname",
    }
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "ClusterTopologyBinding",
        "metadata": {"name": name},
        "spec": {"levels": [{"domain": domain, "key": key} for domain, key in named.items()]},
    }


__all__ = [
    "ABSENT",
    "VALIDATE_BINDING",
    "binding",
    "changed",
    "faults",
    "plain",
    "response",
    "review_of",
    "schedulers",
    "warnings",
]
