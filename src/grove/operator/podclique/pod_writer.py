"""Carries out what was planned for the pods of a clique: deletes, creates, takes gates off, puts labels right.

Grove chooses the names of pods, and the cache shows what was written here before the watch does. So neither a lost
answer nor a late cache makes a second pod. After a refusal fewer writes are sent at once (see `kube.writes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

import structlog

from grove.api.conditions import FALSE, IN_PLACE, ErrorCode
from grove.api.core import Pod
from grove.api.labels import DRAINING
from grove.api.meta import Json, rfc3339
from grove.api.podclique import PodClique
from grove.kube.cache import Cache
from grove.kube.client import Client, Patch
from grove.kube.clock import Clock
from grove.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from grove.kube.writes import Refusals
from grove.operator.podclique.draining import DrainStep
from grove.operator.podclique.in_place import InPlaceStep, gate_words
from grove.operator.podclique.pods import PodPlan
from grove.operator.podclique.removals import Removal
from grove.operator.podgang.gangs import gate_removal
from grove.operator.shared.cluster.children_writer import delete
from grove.operator.shared.diff import condition_steps

log = structlog.get_logger(__name__)


class PodWriter:
    """Writes pods; what it remembers of a clique goes with `forget`. `salt` makes the names of this process its own."""

    def __init__(self, cache: Cache, client: Client, clock: Clock, *, salt: str) -> None:
        self._cache, self._client, self._clock, self._salt = cache, client, clock, salt
        self._rounds: dict[str, int] = {}
        self._refusals = Refusals()

    def names_for(self, clique: PodClique) -> Random:
        """Where the next pod names come from: the same ones again until a round of creations went through.

        A create whose answer was lost is then answered with AlreadyExists instead of a second pod.
        """
        return Random(f"{self._salt}/{clique.metadata.uid}/{self._rounds.get(clique.metadata.uid, 0)}")

    async def carry_out(self, clique: PodClique, plan: PodPlan) -> list[tuple[str, KubeError]]:
        """Does everything in the plan and returns what went wrong, with the code of what was tried.

        A pod that could not be deleted and is alive is not replaced: it holds its devices, and its index.
        """
        uid, do = clique.metadata.uid, partial(self._refusals.in_parallel, clique.metadata.uid)
        if plan.is_settled and not plan.delete:
            self._refusals.forget(uid)
            return []
        kept = await do(
            "delete", {removal.pod.metadata.name: partial(self._delete, removal) for removal in plan.delete}
        )
        held_places = {
            removal.pod.spec.hostname for removal in plan.delete if removal.is_alive and self._stays(removal.pod)
        }
        create = [pod for pod in plan.create if pod["spec"]["hostname"] not in held_places]
        # Lower indexes first, also after a refusal: with some schedulers they alone make the gang whole.
        refused = await do(
            "create", {pod["metadata"]["name"]: partial(self._create, clique, pod) for pod in create}, in_order=True
        )
        if create and not refused:
            self._next_round(uid)
        held = await do(
            "ungate", {pod.metadata.name: partial(self._ungate, pod, plan.node_labels) for pod in plan.ungate}
        )
        lost = await do(
            "relabel", {pod.metadata.name: partial(self._relabel, pod, changes) for pod, changes in plan.relabel}
        )
        patched = await do(
            "in place", {pod.metadata.name: partial(self._in_place, pod, step) for pod, step in plan.in_place}
        )
        drained = await do("drain", {pod.metadata.name: partial(self._drain, pod, step) for pod, step in plan.drain})
        by_code = (
            (ErrorCode.CREATE_POD, refused),
            (ErrorCode.DELETE_POD, kept),
            (ErrorCode.REMOVE_GATE, held),
            (ErrorCode.BUILD_POD, lost),
            (ErrorCode.BUILD_POD, patched),
            (ErrorCode.DELETE_POD, drained),
        )
        return [(code, error) for code, errors in by_code for error in errors]

    def forget(self, uid: str) -> None:
        self._rounds.pop(uid, None)
        self._refusals.forget(uid)

    def _stays(self, pod: Pod) -> bool:
        now = self._cache.get(Pod, pod.key)
        return now is not None and now.metadata.uid == pod.metadata.uid and not now.metadata.is_deleting

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
                raise Conflict(f"pod {made.metadata.name} has another owner; another name will be tried") from None
        self._cache.wrote(made)

    async def _ungate(self, pod: Pod, node_labels: Mapping[str, str]) -> None:
        await self._patch(pod, gate_removal(pod, node_labels))

    async def _in_place(self, pod: Pod, step: InPlaceStep) -> None:
        """Turns the readiness gate of a pod, or patches it. If the API server refuses the patch, the pod is deleted."""
        if step.gate:
            reason, message = gate_words(step.gate)
            steps = condition_steps(pod, IN_PLACE, step.gate, reason, message, self._clock.now())
            return await self._patch(pod, steps, subresource="status")
        try:
            await self._patch(pod, list(step.patch))
        except (Invalid, Forbidden) as refused:
            log.info("a pod cannot be updated in place, so it is recreated", pod=str(pod.key), error=str(refused))
            await delete(self._client, self._cache, pod)

    async def _drain(self, pod: Pod, step: DrainStep) -> None:
        """Marks a pod and closes its gate, or takes the mark off. A pod that the API server does not let us mark goes.

        The mark comes first: it has the time, which must outlive a crash between the two writes.
        """
        if step.until is not None or step.unmark:
            mark = rfc3339(step.until) if step.until is not None else None
            try:
                await self._patch(pod, {"metadata": {"annotations": {DRAINING: mark}}})
            except (Invalid, Forbidden) as refused:
                if step.unmark:
                    raise
                log.info("a pod cannot be marked as draining, so it is deleted", pod=str(pod.key), error=str(refused))
                await delete(self._client, self._cache, pod)
                return
        if step.closes_gate:
            reason, message = gate_words(FALSE, drains=True)
            steps = condition_steps(pod, IN_PLACE, FALSE, reason, message, self._clock.now())
            await self._patch(pod, steps, subresource="status")

    async def _relabel(self, pod: Pod, changes: Json) -> None:
        await self._patch(pod, {"metadata": {"labels": changes}})

    async def _patch(self, pod: Pod, patch: Patch, *, subresource: str = "") -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            self._cache.wrote(await self._client.patch(Pod, name, patch, namespace, subresource=subresource))
        except NotFound:
            self._cache.removed(pod)

    def _next_round(self, uid: str) -> None:
        self._rounds[uid] = self._rounds.get(uid, 0) + 1
