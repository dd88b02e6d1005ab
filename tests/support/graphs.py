"""The objects of a namespace in a form that can be compared with another: what stands, and a fresh apply of it."""

from __future__ import annotations

import json

from grove.api import labels
from grove.api.core import Pod, Service
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client
from tests.support.golden import normalise


async def read_graph(client: Client, namespace: str) -> dict[str, Json]:
    """The namespace's name must not occur in the objects as anything else."""
    objects: list[Json] = []
    for kind in (PodClique, PodCliqueScalingGroup, PodGang, Service, Pod):
        resource = kind.RESOURCE
        page = await client.list(resource, namespace)
        objects += ({"apiVersion": resource.api_version, "kind": resource.kind, **one} for one in page.items)
    objects = json.loads(json.dumps(objects).replace(namespace, "here"))
    _rank(objects)
    for one in objects:
        (one["metadata"].get("annotations") or {}).pop(labels.INCARNATION, None)
    return normalise(objects)


def _rank(objects: list[Json]) -> None:
    """Numbers the pods of each clique from 0: after scaling in, survivors keep whatever index they had."""
    pods: dict[str, list[Json]] = {}
    for one in objects:
        if one["kind"] == "Pod":
            pods.setdefault(one["metadata"]["labels"][labels.POD_CLIQUE], []).append(one)
    for name, members in pods.items():
        members.sort(key=lambda pod: int(pod["metadata"]["labels"][labels.POD_INDEX]))
        for rank, pod in enumerate(members):
            pod["metadata"]["labels"][labels.POD_INDEX] = str(rank)
            pod["spec"]["hostname"] = f"{name}-{rank}"
