"""The Go operator of Grove: what it leaves behind, put into a cluster as if it had just gone; and what it does about
hashes when it starts, as far as that is known, so that the way back to it can be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from grove.api import labels
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
        PodCliqueSet,
        ServiceAccount,
        Role,
        RoleBinding,
        Secret,
        Service,
        HorizontalPodAutoscaler,
        PodCliqueScalingGroup,
        PodClique,
        PodGang,
        Pod,
    )
}
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


class GoOperator:
    """What it does about hashes, a look at a time. The hashes are not its own, but are made and compared like its own.

    Known of it: an empty `currentGenerationHash` is filled, another one starts an update. With RollingRecreate pods and
    replicas of groups whose label is another one are replaced, with OnDelete nothing is: labels of all PodCliques are
    written, and updates begin and end at once. Seen live: of a set made by our operator alone, 13 of 15 pods were
    replaced within 40 seconds of its start.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self.replaced: list[str] = []
        """Names of the pods that it deleted to replace them."""

    async def look(self) -> None:
        for pcs in (await self._client.list(PodCliqueSet.RESOURCE, self._namespace)).items:
            await self._look_at(pcs)

    async def _look_at(self, pcs: Json) -> None:
        templates, name = pcs["spec"]["template"]["cliques"], pcs["metadata"]["name"]
        hashes = {one["name"]: _hash([one]) for one in templates}
        rolling = (pcs["spec"].get("updateStrategy") or {}).get("type") != "OnDelete"
        current, ended = _hash(templates), {} if rolling else {"updateEndedAt": _NOW}
        before = (pcs.get("status") or {}).get("currentGenerationHash")
        if before != current:
            status: Json = {"currentGenerationHash": current}
            if before:
                status |= {"updateProgress": {"updateStartedAt": _NOW, **ended}, "updatedReplicas": 0}
            await self._patch_status(PodCliqueSet, name, status)
        is_open = rolling and bool(before) and before != current
        for clique in (await self._client.list(PodClique.RESOURCE, self._namespace)).items:
            await self._look_at_clique(clique, hashes, current, rolling, is_open)
        cliques = (await self._client.list(PodClique.RESOURCE, self._namespace)).items
        for one in (await self._client.list(PodCliqueScalingGroup.RESOURCE, self._namespace)).items:
            group = one["metadata"]["name"]
            mine = [of for of in cliques if of["metadata"]["labels"].get(labels.SCALING_GROUP) == group]
            if all(of["status"].get("currentPodCliqueSetGenerationHash") == current for of in mine):
                await self._patch_status(PodCliqueScalingGroup, group, {"currentPodCliqueSetGenerationHash": current})

    async def _look_at_clique(
        self, clique: Json, hashes: dict[str, str], current: str, rolling: bool, is_open: bool
    ) -> None:
        meta, status = clique["metadata"], clique.get("status") or {}
        name, found = meta["name"], meta["labels"]
        wanted = next(hash_ for of, hash_ in hashes.items() if name.endswith(f"-{of}"))
        is_member = labels.SCALING_GROUP in found
        pods = await self._pods(name)
        if is_member and rolling and found[labels.POD_TEMPLATE_HASH] != wanted:
            self.replaced += (pod["metadata"]["name"] for pod in pods if is_open)  # they go with their PodClique
            return
        progress = status.get("updateProgress") or {}
        if not (is_member and rolling):
            patch = {"metadata": {"labels": {labels.POD_TEMPLATE_HASH: wanted}}}
            await self._client.patch(PodClique, name, patch, self._namespace)
            known = (status.get("currentPodCliqueSetGenerationHash"), progress.get("podCliqueSetGenerationHash"))
            if current not in known:
                progress = {"updateStartedAt": _NOW, "podCliqueSetGenerationHash": current, "podTemplateHash": wanted}
                progress |= {} if rolling else {"updateEndedAt": _NOW}
                await self._patch_status(PodClique, name, {"updateProgress": progress})
        old = [pod for pod in pods if pod["metadata"]["labels"][labels.POD_TEMPLATE_HASH] != wanted]
        if rolling and progress and "updateEndedAt" not in progress:
            self.replaced += (pod["metadata"]["name"] for pod in old)
        if not old and (not progress or "updateEndedAt" in progress):
            hashes_ = {"currentPodTemplateHash": wanted, "currentPodCliqueSetGenerationHash": current}
            await self._patch_status(PodClique, name, hashes_)

    async def _pods(self, clique: str) -> list[Json]:
        found = (await self._client.list(Pod.RESOURCE, self._namespace, labels=f"{labels.POD_CLIQUE}={clique}")).items
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def _patch_status(self, kind: type[Object], name: str, status: Json) -> None:
        await self._client.patch(kind, name, {"status": status}, self._namespace, subresource="status")


_NOW = "2026-01-01T00:00:00Z"


def _hash(templates: Sequence[Json]) -> str:
    """Twice as long as one of ours, in the same alphabet."""
    parts = [(one.get("labels"), one.get("annotations"), one["spec"]["podSpec"]) for one in templates]
    digest = sha256(msgspec.json.encode(parts)).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[byte % 27] for byte in digest[:16])
