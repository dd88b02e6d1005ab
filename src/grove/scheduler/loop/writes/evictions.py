"""Pods that have to go: victims are evicted, pods of a gang that cannot be completed are deleted; patiently.

Victims go through the Eviction API, as long as a unit needs their capacity. A gang that goes whole is marked first.
A gang that is moved drains first, if its set drains: the operator does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from grove.api.core import Pod
from grove.api.draining import has_readiness_gate
from grove.api.labels import RESTART_REQUESTED
from grove.api.meta import Key
from grove.kube.client import Client
from grove.kube.errors import Conflict, KubeError, NotFound, NotLeader, TooManyRequests
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.gang_life import Evicting, EvictionEnded, TakenBack, TakingBack
from grove.scheduler.policy.gang_state import GangState

Spawn = Callable[[Coroutine[Any, Any, None]], None]
Remove = Callable[[PodFacts, Callable[[], object]], Awaitable[bool]]
"""Removes a pod; whether it is on its way out. If a disruption budget forbids it, the second argument runs."""

RETRY_S, MAX_RETRY_S = 0.25, 10.0
DELETE_RETRY_S, MAX_DELETE_RETRY_S = 0.5, 30.0

log = structlog.get_logger(__name__)


class Evictions:
    def __init__(self, client: Client, view: View, reporter: Reporter, *, spawn: Spawn) -> None:
        self._client, self._view, self._reporter, self._spawn = client, view, reporter, spawn
        self._wanting: dict[str, list[tuple[Callable[[], bool], Callable[[], None]]]] = {}
        """By uid of each pod that a task evicts alone: whether a unit still needs its capacity."""

    def evict_alone(self, pod: PodFacts, still_wanted: Callable[[], bool], refused: Callable[[], None]) -> None:
        """`refused` is called when a disruption budget does not allow the eviction now."""
        is_new = pod.uid not in self._wanting
        self._wanting.setdefault(pod.uid, []).append((still_wanted, refused))
        if is_new:
            self._spawn(self._evict_single(pod))

    def evicts_alone(self, uid: str) -> bool:
        return uid in self._wanting

    def evict_gang(
        self,
        victim: GangState,
        pods: list[PodFacts],
        because: str,
        still_wanted: Callable[[], bool],
        refused: Callable[[], None] = lambda: None,
        *,
        drains: bool = False,
    ) -> None:
        """`drains`: pods that can drain are asked for from the operator. It drains and deletes them."""
        victim.tell(Evicting(because))
        remove = self._ask_operator if drains else self._evict_one
        self._spawn(self._mark_and_evict(victim, pods, still_wanted, refused, remove))

    def take_back(self, gang: GangState) -> None:
        """Deletes the bound pods of a gang that never was whole: no request undoes a binding."""
        gang.tell(TakingBack())
        self._spawn(self._delete(gang))

    def bound_pods(self, gang: GangState) -> list[Pod]:
        """Pods of a gang that a rollback would delete."""
        return [pod for pod in self._view.bound_pods(gang) if self._view.is_ours(pod)]

    async def _delete(self, gang: GangState) -> None:
        pause_s = DELETE_RETRY_S
        while self._view.units.is_current(gang) and (left := self.bound_pods(gang)):
            try:
                for pod in left:
                    await self._delete_one(pod)
                    self._view.pods.removed(pod.metadata.key, pod.metadata.uid)
            except NotLeader:
                break
            except KubeError as err:
                log.warning("pod of a gang to be taken back not deleted, trying again", gang=gang.name, error=str(err))
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_DELETE_RETRY_S, pause_s * 2)
        gang.tell(TakenBack())
        self._view.changes.mark(gang.name)

    async def _delete_one(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            pass  # gone already, or another pod by that name

    async def _mark_and_evict(
        self,
        victim: GangState,
        pods: list[PodFacts],
        still_wanted: Callable[[], bool],
        refused: Callable[[], None],
        remove: Remove,
    ) -> None:
        pause_s = RETRY_S
        is_spared = False
        try:
            while self._view.units.is_current(victim) and still_wanted():
                try:
                    await self._reporter.write_status(victim.name)
                    break
                except NotLeader:
                    return
                except KubeError as err:
                    log.info("victim not marked yet, trying again", gang=victim.name, error=str(err))
                    await asyncio.sleep(pause_s)
                    pause_s = min(MAX_RETRY_S, pause_s * 2)
            asked: set[str] = set()
            while pods and not is_spared:
                is_spared = not await self._evict(pods, victim.name, still_wanted, refused, remove)
                asked.update(pod.uid for pod in pods)
                # It goes whole: also pods that were bound after it was chosen.
                late = (pod for pod in self.bound_pods(victim) if pod.metadata.uid not in asked)
                pods = [self._view.reader.facts(pod) for pod in late]
        finally:
            victim.tell(EvictionEnded(is_spared))
            self._view.changes.mark(victim.name)

    async def _evict_single(self, pod: PodFacts) -> None:
        wanting = self._wanting[pod.uid]
        try:
            await self._evict(
                [pod],
                pod.name,
                lambda: any(is_wanted() for is_wanted, _ in wanting),
                lambda: [tell() for _, tell in wanting],
                self._evict_one,
            )
        finally:
            del self._wanting[pod.uid]

    async def _evict(
        self,
        pods: list[PodFacts],
        who: str,
        still_wanted: Callable[[], bool],
        refused: Callable[[], object],
        remove: Remove,
    ) -> bool:
        """Evicts these pods while a unit needs their capacity; returns whether all of them terminate.

        If the unit no longer needs them after some have left, the gang is repaired like any other that lost pods.
        """
        left = list(pods)
        pause_s = RETRY_S
        try:
            while left:
                again: list[PodFacts] = []
                for pod in left:
                    if not still_wanted():
                        return False
                    if not await remove(pod, refused):
                        again.append(pod)
                left = again
                if left:
                    await asyncio.sleep(pause_s)
                    pause_s = min(MAX_RETRY_S, pause_s * 2)
        except NotLeader:
            log.info("eviction stopped, not the leader any more", unit=who)
        return True

    async def _ask_operator(self, pod: PodFacts, refused: Callable[[], object]) -> bool:
        """The same for a pod that may have to drain first. It evicts a pod without our readiness gate."""
        known: Pod | None = self._view.pods.get(Key(pod.namespace, pod.name))
        if known is None or known.metadata.uid != pod.uid or known.metadata.is_deleting:
            return True
        if not has_readiness_gate(known):
            return await self._evict_one(pod, refused)
        if RESTART_REQUESTED not in known.metadata.annotations:
            mark = {"uid": pod.uid, "annotations": {RESTART_REQUESTED: "true"}}
            try:
                await self._client.patch(Pod, pod.name, {"metadata": mark}, pod.namespace)
            except NotLeader:
                raise
            except KubeError as err:
                log.info("pod not marked yet, trying again", pod=f"{pod.namespace}/{pod.name}", error=str(err))
        return False

    async def _evict_one(self, pod: PodFacts, refused: Callable[[], object]) -> bool:
        """Whether the pod is on its way out; False to ask again later."""
        try:
            await self._client.evict(pod.namespace, pod.name, uid=pod.uid)
        except (NotFound, Conflict):
            known: Pod | None = self._view.pods.get(Key(pod.namespace, pod.name))
            return known is None or known.metadata.uid != pod.uid or known.metadata.is_deleting
        except TooManyRequests as err:
            log.info("eviction refused for now", pod=f"{pod.namespace}/{pod.name}", reason=str(err))
            refused()
            return False
        except NotLeader:
            raise
        except KubeError as err:
            log.warning("eviction failed, trying again", pod=f"{pod.namespace}/{pod.name}", error=str(err))
            return False
        self._view.pods.removed(Key(pod.namespace, pod.name), pod.uid)
        return True
