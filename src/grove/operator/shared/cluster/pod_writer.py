"""Carries out what was planned for the pods of a clique: deletes, creates, takes gates off, puts labels right.

Pods have names of our choosing, and the cache shows what was written here before the watch does, so neither a lost
answer nor a late cache makes a second one. A clique whose last writes failed is written to with care (see
`kube.writes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

from grove.api.conditions import ErrorCode
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.kube.cache import Cache
from grove.kube.client import Client, Patch
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.writes import in_parallel
from grove.operator.podclique.pods import PodPlan, Removal
from grove.operator.podgang.gangs import gate_removal
from grove.operator.shared.cluster.children_writer import delete


class PodWriter:
    """Writes pods; what it remembers of a clique goes with `forget`. `salt` makes the names of this process its own."""

    def __init__(self, cache: Cache, client: Client, *, salt: str) -> None:
        self._cache, self._client, self._salt = cache, client, salt
        self._rounds: dict[str, int] = {}
        self._troubled: set[str] = set()

    def names_for(self, clique: PodClique) -> Random:
        """Where the next pod names come from: the same ones again until a round of creations went through.

        A create whose answer was lost is then answered with AlreadyExists instead of a second pod.
        """
        return Random(f"{self._salt}/{clique.metadata.uid}/{self._rounds.get(clique.metadata.uid, 0)}")

    async def carry_out(self, clique: PodClique, plan: PodPlan) -> list[tuple[str, KubeError]]:
        """Does everything in the plan and returns what went wrong, with the code of what was tried."""
        uid = clique.metadata.uid
        careful = uid in self._troubled
        kept = await in_parallel([partial(self._delete, one) for one in plan.delete], careful=careful)
        refused = await in_parallel([partial(self._create, clique, one) for one in plan.create], careful=careful)
        if plan.create and not refused:
            self._next_round(uid)
        held = await in_parallel([partial(self._ungate, one, plan.node_labels) for one in plan.ungate], careful=careful)
        lost = await in_parallel([partial(self._relabel, *one) for one in plan.relabel], careful=careful)
        by_code = (
            (ErrorCode.CREATE_POD, refused),
            (ErrorCode.DELETE_POD, kept),
            (ErrorCode.REMOVE_GATE, held),
            (ErrorCode.BUILD_POD, lost),
        )
        errors = [(code, error) for code, found in by_code for error in found]
        if errors:
            self._troubled.add(uid)
        else:
            self._troubled.discard(uid)
        return errors

    def forget(self, uid: str) -> None:
        self._rounds.pop(uid, None)
        self._troubled.discard(uid)

    async def _delete(self, removal: Removal) -> None:
        await delete(self._client, self._cache, removal.pod, grace_period_s=0 if removal.force else None)

    async def _create(self, clique: PodClique, pod: Json) -> None:
        uid = clique.metadata.uid
        try:
            made = await self._client.create(Pod, pod)
        except AlreadyExists:
            made = await self._client.get(Pod, pod["metadata"]["name"], clique.metadata.namespace)
            controller = made.metadata.controller
            if controller is None or controller.uid != uid:
                self._next_round(uid)
                raise Conflict(f"pod {made.metadata.name} is somebody else's; another name will be tried") from None
        self._cache.wrote(made)

    async def _ungate(self, pod: Pod, node_labels: Mapping[str, str]) -> None:
        await self._patch(pod, gate_removal(pod, node_labels))

    async def _relabel(self, pod: Pod, changes: Json) -> None:
        await self._patch(pod, {"metadata": {"labels": changes}})

    async def _patch(self, pod: Pod, patch: Patch) -> None:
        try:
            self._cache.wrote(await self._client.patch(Pod, pod.metadata.name, patch, pod.metadata.namespace))
        except NotFound:
            self._cache.removed(pod)

    def _next_round(self, uid: str) -> None:
        self._rounds[uid] = self._rounds.get(uid, 0) + 1
