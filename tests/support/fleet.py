"""Quotas, queues, reservations and devices for tests: their definitions, and objects of them in a line each."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from grove.api import kai
from grove.api.core import CustomResourceDefinition
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import Json
from grove.kube.errors import AlreadyExists

FILE = Path(__file__).parents[1] / "data" / "fleet.yaml"
QUOTA = "quota.scheduling.koordinator.sh/name"
KAI_QUEUE = "kai.scheduler/queue"
GPU = "nvidia.com/gpu"
_PREFIX = "quota.scheduling.koordinator.sh/"

_AMOUNTS: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}
_TYPES: dict[str, Json] = {
    "amounts": _AMOUNTS,
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "list": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
}


def definitions(*kinds: str) -> list[Json]:
    """CustomResourceDefinitions of these kinds, or of all."""
    return [_definition(one) for one in yaml.safe_load(FILE.read_text()) if not kinds or one["kind"] in kinds]


def _definition(one: Json) -> Json:
    def fields(given: dict[str, str]) -> Json:
        return {"type": "object", "properties": {name: _TYPES[kind] for name, kind in given.items()}}

    schema = {
        "type": "object",
        "properties": {"spec": fields(one["spec"]), "status": fields(one["statusFields"])},
    }
    version = {
        "name": one["version"],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if one["status"] else {}),
    }
    kind = one["kind"]
    names = {"kind": kind, "plural": one["plural"], "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{one['plural']}.{one['group']}",
            # Names that end in k8s.io are Kubernetes' own to give.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": one["group"], "names": names, "scope": one["scope"], "versions": [version]},
    }


async def install(cluster: Any, *kinds: str) -> None:
    """Has the cluster serve these kinds; they stay, as those of other tests may need them."""
    for one in definitions(*kinds):
        with suppress(AlreadyExists):
            await cluster.client.create(CustomResourceDefinition.RESOURCE, one)
    for one in yaml.safe_load(FILE.read_text()):
        if not kinds or one["kind"] in kinds:
            await cluster.eventually(partial(cluster.client.serves, _KINDS[one["kind"]]))


def elastic(
    name: str,
    namespace: str,
    own: int = 0,
    most: int | None = None,
    *,
    parent: str = "",
    total: int | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """An ElasticQuota over GPUs."""
    found = {f"{_PREFIX}parent": parent} if parent else {}
    notes = {f"{_PREFIX}total-resource": json.dumps({GPU: total})} if total is not None else {}
    limit = {"max": {GPU: most}} if most is not None else {}
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": {**found, **(labels or {})},
        "annotations": {**notes, **(annotations or {})},
    }
    return {"metadata": meta, "spec": {"min": {GPU: own}, **limit}}


def kai_queue(name: str, own: float = 0, most: float = -1, *, parent: str = "", weight: float = 1) -> Json:
    resources = {"gpu": {"quota": own, "limit": most, "overQuotaWeight": weight}}
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}}


def reservation(
    name: str,
    *,
    gpus: int = 1,
    node: str = "",
    owners: list[Json] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A Reservation of GPUs for pods with the label `team: red`, unless other owners are given."""
    container = {"name": "x", "image": "x", "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}}
    template: Json = {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}}
    template["spec"] |= spec.pop("template", {})
    for_red = [{"labelSelector": {"matchLabels": {"team": "red"}}}]
    body: Json = {"metadata": {"name": name, "labels": labels or {}, "annotations": spec.pop("annotations", {})}}
    body["spec"] = {"template": template, "owners": for_red if owners is None else owners, **spec}
    return body


async def standing(cluster: Any, body: Json, node: str, gpus: int = 1) -> str:
    """Makes a Reservation that stands on a node already, as koord-scheduler would have placed it."""
    made = await cluster.client.create(Reservation, body)
    status = {"phase": "Available", "nodeName": node, "allocatable": {GPU: str(gpus)}}
    await cluster.client.patch(Reservation, made.metadata.name, {"status": status}, subresource="status")
    return str(made.metadata.name)


def device(node: str, cards: int = 4, *, pcie: int = 2, memory: str = "80Gi", nics: int = 0, **more: Any) -> Json:
    """The Device of a node: cards numbered from 0, this number to a PCIe switch, two switches to a NUMA node."""

    def place(number: int) -> Json:
        return {"pcieID": str(number // pcie), "nodeID": number // (2 * pcie), "socketID": 0}

    gpus = [
        {
            "type": "gpu",
            "id": f"GPU-{number}",
            "minor": number,
            "health": True,
            "topology": place(number),
            "resources": {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory": memory,
                "koordinator.sh/gpu-memory-ratio": "100",
            },
        }
        for number in range(cards)
    ]
    rdma = [
        {
            "type": "rdma",
            "minor": number,
            "health": True,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": {"pcieID": str(number), "nodeID": 0, "socketID": 0},
        }
        for number in range(nics)
    ]
    return {"metadata": {"name": node, **more}, "spec": {"devices": [*gpus, *rdma]}}


_KINDS: dict[str, Any] = {
    "ElasticQuota": ElasticQuota,
    "Queue": kai.Queue,
    "Reservation": Reservation,
    "Device": Device,
}
