"""What the Go operator of Grove leaves behind, put into a cluster as if it had just gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from grove.api.core import (
    HorizontalPodAutoscaler,
    Pod,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client

_DATA = Path(__file__).parent.parent / "data" / "takeover"
_KINDS: dict[str, type[Object]] = {
    kind.RESOURCE.kind: kind
    for kind in (
        PodCliqueSet, ServiceAccount, Role, RoleBinding, Secret, Service, HorizontalPodAutoscaler,
        PodCliqueScalingGroup, PodClique, PodGang, Pod,
    )
}  # fmt: skip
_WITH_STATUS = (PodCliqueSet, PodCliqueScalingGroup, PodClique, PodGang)


def left_behind(name: str) -> list[Json]:
    """The objects of a set, owners before what they own: `scaled`, `in-update`, `groups` or `start-order`."""
    lines = (_DATA / f"{name}.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


async def put(client: Client, namespace: str, objects: Sequence[Json], nodes: Sequence[str]) -> None:
    """Creates them with their status; owner references point at the new owners, pods stand on these nodes in turn.

    A cluster counts generations from 1, so what had been observed is 1 and what had not is 0.
    """
    uids: dict[str, str] = {}
    pods = 0
    for one in objects:
        kind, obj = _KINDS[one["kind"]], msgspec.json.decode(msgspec.json.encode(one))
        meta, status = obj["metadata"], obj.pop("status", None)
        old, generation = meta.pop("uid", ""), meta.pop("generation", None)
        meta["namespace"] = namespace
        for ref in meta.get("ownerReferences") or ():
            ref["uid"] = uids[ref["uid"]]
        if kind is Pod:
            obj["spec"]["nodeName"] = nodes[pods % len(nodes)]
            pods += 1
        if kind is PodGang:
            for group in obj["spec"]["podgroups"]:
                for pod in group["podReferences"]:
                    pod["namespace"] = namespace
        if kind is RoleBinding:
            obj["subjects"][0]["namespace"] = namespace
        made = await client.create(kind, obj)
        uids[old] = made.metadata.uid
        if status is not None and kind in _WITH_STATUS:
            if "observedGeneration" in status:
                status["observedGeneration"] = int(status["observedGeneration"] == generation)
            name = made.metadata.name
            await client.patch(kind, name, {"status": status}, namespace, subresource="status")
