"""Builders of objects: `*_manifest` as a client sends one, the others as a cache has one.

Gangs and nodes for the scheduler's core are in `scheduler/kit.py`, templates of cliques in `manifests.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from grove.api.core import Node, Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang

GPU = "nvidia.com/gpu"
CONTAINER = {"name": "m", "image": "registry.example/m:1"}
NO_SCHEDULER = "none"
"""A scheduler name that no scheduler has: such a pod stays where the test binds it."""


def clique_manifest(
    namespace: str,
    name: str = "c",
    replicas: int = 2,
    *,
    labels: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    **spec: Any,
) -> Json:
    meta: Json = {"name": name, "namespace": namespace}
    if labels:
        meta["labels"] = dict(labels)
    if finalizers:
        meta["finalizers"] = list(finalizers)
    body = {"roleName": "r", "replicas": replicas, "podSpec": {"containers": [dict(CONTAINER)]}, **spec}
    return {"metadata": meta, "spec": body}


def pod_manifest(
    namespace: str,
    name: str = "p",
    *,
    clique: str = "",
    parents: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    **spec: Any,
) -> Json:
    """A pod that no scheduler binds. `parents` are cliques that its init container waits for."""
    meta: Json = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if clique:
        meta["labels"]["grove.io/podclique"] = clique
    if finalizers:
        meta["finalizers"] = list(finalizers)
    body: Json = {"schedulerName": NO_SCHEDULER, "containers": [dict(CONTAINER)], **spec}
    if parents:
        args = [f"--podcliques={parent}" for parent in parents]
        body["initContainers"] = [{"name": "grove-initc", "image": "i:1", "args": args}]
    return {"metadata": meta, "spec": body}


def pod(name: str = "p", *, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Pod:
    found = {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.convert(found, Pod)


def clique(name: str = "c", *, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> PodClique:
    body = {"podSpec": {"containers": []}, **(spec or {})}
    found = {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": body, "status": status or {}}
    return msgspec.convert(found, PodClique)


def gang(
    name: str = "g", *groups: Json, status: Json | None = None, spec: Json | None = None, **metadata: Any
) -> PodGang:
    """`groups` are its pod groups."""
    body = {"podgroups": list(groups), **(spec or {})}
    found = {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": body, "status": status or {}}
    return msgspec.convert(found, PodGang)


def node(name: str = "n", *, gpus: int = 8, capacity: int = 8, **metadata: Any) -> Node:
    """A ready node; `gpus` are those that pods can have."""
    status = {"allocatable": {GPU: str(gpus)}, "capacity": {GPU: str(capacity)}, "conditions": conditions(Ready="True")}
    return msgspec.convert({"metadata": {"name": name, **metadata}, "status": status}, Node)


def conditions(**states: str) -> list[Json]:
    return [{"type": type_, "status": status} for type_, status in states.items()]
