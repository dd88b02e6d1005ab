"""Carries out what was planned for the pods of a clique: deletes, creates, takes gates off, puts labels right.

Pods have names of our choosing and are expected by uid until the cache shows them, so neither a lost answer nor a late
cache makes a second one. A clique whose last writes failed is written to carefully (see `shared.parallel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from random import Random

from grove.api import labels as key
from grove.api.conditions import ErrorCode
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.expectations import Expectations
from grove.operator.podclique.pods import PodPlan, Removal
from grove.operator.podgang.gangs import gate_removal
from grove.operator.shared.parallel import in_parallel


class PodWriter:
    """Writes pods; what it remembers of a clique goes with `forget`. `salt` makes the names of this process its own."""

    def __init__(self, client: Client, expect: Expectations, *, salt: str) -> None:
        self._client, self._expect, self._salt = client, expect, salt
        self._rounds: dict[str, int] = {}
        self._troubled: set[str] = set()
        self._ungated: dict[str, set[str]] = {}
        """Pods by the uid of their clique whose gate we took off and the cache has not shown without it yet."""

    def names_for(self, clique: PodClique) -> Random:
        """Where the next pod names come from: the same ones again until a round of creations went through.

        A create whose answer was lost is then answered with AlreadyExists instead of a second pod.
        """
        return Random(f"{self._salt}/{clique.metadata.uid}/{self._rounds.get(clique.metadata.uid, 0)}")

    def still_gated(self, clique: PodClique, pods: Iterable[Pod]) -> list[Pod]:
        """Those whose gate we have not taken off already."""
        gated = [pod for pod in pods if pod.has_gate(key.POD_GANG_GATE)]
        done = self._ungated.get(clique.metadata.uid, set())
        done &= {pod.metadata.uid for pod in gated}
        return [pod for pod in gated if pod.metadata.uid not in done]

    async def carry_out(self, clique: PodClique, plan: PodPlan) -> list[tuple[str, KubeError]]:
        """Does everything in the plan and returns what went wrong, with the code of what was tried."""
        uid = clique.metadata.uid
        careful = uid in self._troubled
        kept = await in_parallel([partial(self._delete, uid, one) for one in plan.delete], careful=careful)
        refused = await in_parallel([partial(self._create, clique, one) for one in plan.create], careful=careful)
        if plan.create and not refused:
            self._next_round(uid)
        held = await in_parallel(
            [partial(self._ungate, uid, one, plan.node_labels) for one in plan.ungate], careful=careful
        )
        lost = await in_parallel([partial(self._relabel, *one) for one in plan.relabel], careful=careful)
        told = (
            (ErrorCode.CREATE_POD, refused),
            (ErrorCode.DELETE_POD, kept),
            (ErrorCode.REMOVE_GATE, held),
            (ErrorCode.BUILD_POD, lost),
        )
        errors = [(code, error) for code, found in told for error in found]
        if errors:
            self._troubled.add(uid)
        else:
            self._troubled.discard(uid)
        return errors

    def forget(self, uid: str) -> None:
        self._rounds.pop(uid, None)
        self._ungated.pop(uid, None)
        self._troubled.discard(uid)

    async def _delete(self, clique_uid: str, removal: Removal) -> None:
        meta = removal.pod.metadata
        try:
            grace_s = 0 if removal.force else None
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s)
        except NotFound:
            self._expect.gone(clique_uid, meta.uid)
            return
        self._expect.deleted(clique_uid, meta.uid)

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
        self._expect.created(uid, made.metadata.uid)

    async def _ungate(self, clique_uid: str, pod: Pod, node_labels: Mapping[str, str]) -> None:
        try:
            patch = gate_removal(pod, node_labels)
            await self._client.patch(Pod, pod.metadata.name, patch, pod.metadata.namespace)
        except NotFound:
            pass
        self._ungated.setdefault(clique_uid, set()).add(pod.metadata.uid)

    async def _relabel(self, pod: Pod, changes: Json) -> None:
        try:
            patch = {"metadata": {"labels": changes}}
            await self._client.patch(Pod, pod.metadata.name, patch, pod.metadata.namespace)
        except NotFound:
            pass

    def _next_round(self, uid: str) -> None:
        self._rounds[uid] = self._rounds.get(uid, 0) + 1
