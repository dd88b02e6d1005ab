"""Carries decisions out: binds attempts, says how they ended, and takes a gang back that cannot be completed.

A gang that never stood and has a refused pod, or whose deadline came, is rolled back: its bound pods are deleted, since
a binding cannot be undone, and their owner makes new ones. Anything else that went wrong with single pods leaves the
gang to the next cycle, which places the rest beside what is bound, until the same deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import Conflict, KubeError, NotFound, NotLeader
from grove.kube.events import Recorder
from grove.scheduler.loop import metrics
from grove.scheduler.loop.bind import Attempt, Binder, Bound, Fate
from grove.scheduler.loop.report import Reporter
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gangs import BIND_FAILED, GANG_TIMEOUT, GangState, Verdict
from grove.scheduler.policy.life import AttemptBegan, AttemptEnded, HalfBound, Phase, TakenBack, TakingBack

Spawn = Callable[[Coroutine[Any, Any, None]], None]

RETRY_S, MAX_RETRY_S = 0.5, 30.0

log = structlog.get_logger(__name__)


class Committer:
    """Owns the attempts that are on their way. `ended` tells the cycle of a unit whose attempt is over."""

    def __init__(
        self, client: Client, view: View, binder: Binder, reporter: Reporter, events: Recorder, clock: Clock, *,
        spawn: Spawn, ended: Callable[[Attempt, bool], None],
    ) -> None:  # fmt: skip
        self._client, self._view, self._binder = client, view, binder
        self._reporter, self._events, self._clock = reporter, events, clock
        self._spawn, self._ended = spawn, ended
        self._under_way: dict[str, list[Attempt]] = {}
        """Attempts by the uid of their gang."""
        self._half_bound: dict[str, GangState] = {}

    def floor_of(self, gang: GangState | None) -> Attempt | None:
        """The attempt for a gang's minimum that is on its way, if there is one."""
        mine = self._under_way.get(gang.uid, ()) if gang is not None else ()
        return next((attempt for attempt in mine if attempt.is_floor), None)

    def launch(self, attempt: Attempt) -> None:
        """Starts binding; the pods are reserved already."""
        if attempt.gang is not None:
            attempt.gang.tell(AttemptBegan(attempt.is_floor))
            self._under_way.setdefault(attempt.gang.uid, []).append(attempt)
        self._spawn(self._run(attempt))

    def give_up(self, gang: GangState) -> None:
        """The gang is gone: what is not bound yet is not bound any more, and its room is free."""
        for attempt in self._under_way.get(gang.uid, ()):
            attempt.given_up.set()

    async def _run(self, attempt: Attempt) -> None:
        results: list[Bound] = []
        try:
            if attempt.after is not None:
                await attempt.after.done.wait()
            if (attempt.after is None or attempt.after.succeeded) and not attempt.given_up.is_set():
                results = await self._binder.bind(attempt, lambda bound: self._seen(attempt, bound))
        except* NotLeader:
            log.info("binding stopped, not the leader any more", unit=attempt.unit)
        finally:
            known = {bound.pod.uid for bound in results}
            for pod in attempt.pods:
                if pod.uid not in known:
                    self._view.release(pod.uid)
            self._settle(attempt, results)

    def _seen(self, attempt: Attempt, bound: Bound) -> None:
        pod = bound.pod
        metrics.BINDS[bound.fate].inc()
        if bound.fate is Fate.BOUND:
            self._view.confirm(Key(pod.namespace, pod.name), pod.uid, pod.node)
            return
        self._view.release(pod.uid)
        log.warning("pod not bound", unit=attempt.unit, pod=pod.name, node=pod.node, why=bound.fate.value,
                    error=bound.message, decision=attempt.decision)  # fmt: skip
        if bound.fate is Fate.REFUSED and attempt.gang is not None and not attempt.gang.stood:
            attempt.given_up.set()

    def _settle(self, attempt: Attempt, results: list[Bound]) -> None:
        all_bound = len(results) == len(attempt.pods) and all(bound.fate is Fate.BOUND for bound in results)
        if attempt.gang is None:
            attempt.succeeded = all_bound
        else:
            self._settle_gang(attempt, attempt.gang, results)
        attempt.done.set()
        self._ended(attempt, all_bound)

    def _settle_gang(self, attempt: Attempt, gang: GangState, results: list[Bound]) -> None:
        mine = self._under_way[gang.uid]
        mine.remove(attempt)
        if not mine:
            del self._under_way[gang.uid]
        gang.tell(AttemptEnded(attempt.is_floor))
        if not self._view.is_current(gang):
            return
        if self._view.has_minimum(gang):
            attempt.succeeded = True
            gang.tell(HalfBound(None))
            return
        count = Counter(bound.fate for bound in results)
        if not gang.stood and (count[Fate.REFUSED] or count[Fate.LATE]):
            said = next(b.message for b in results if b.fate in (Fate.REFUSED, Fate.LATE))
            self.roll_back(gang, Verdict(False, BIND_FAILED, Reason(kinds.BIND_FAILED, said)))

    # Taking back

    def note(self, gang: GangState, timeout_s: float, now_s: float) -> None:
        """Sets the deadline of a gang that is bound in part and never stood.

        It counts from when the first pod was bound, as the cluster wrote it down, so a later scheduler keeps it. Clocks
        differ and jump: time that cannot have passed does not count, nor does more than all of it.
        """
        if gang.stood or gang.life.deadline_s is not None or gang.life.is_busy:
            return
        view = self._view
        bound = [pod for pod, _ in view.members(gang) if view.bound_node(pod) and not view.is_leaving(pod)]
        if not bound or view.has_minimum(gang):
            return
        since = [moment for pod in bound if (moment := view.bound_since(pod)) is not None]
        elapsed_s = (self._clock.now() - min(since)).total_seconds() if since else 0.0
        gang.tell(HalfBound(now_s + timeout_s - min(max(elapsed_s, 0.0), timeout_s)))
        self._half_bound[gang.name] = gang

    def take_late(self, now_s: float) -> list[GangState]:
        """Gangs that are still bound in part at their deadline: they have to be taken back."""
        found = []
        for name, gang in sorted(self._half_bound.items()):
            deadline_s = gang.life.deadline_s
            if deadline_s is None or not self._view.is_current(gang):
                del self._half_bound[name]
            elif deadline_s > now_s or (gang.life.is_busy and gang.phase is not Phase.NOMINATED):
                continue
            elif not any(self._view.standing(gang).values()) or self._view.has_minimum(gang):
                gang.tell(HalfBound(None))
            else:
                found.append(gang)
        return found

    def next_deadline_s(self) -> float | None:
        half = (gang.life.deadline_s for gang in self._half_bound.values() if self._view.is_current(gang))
        return min((moment for moment in half if moment is not None), default=None)

    def roll_back(self, gang: GangState, verdict: Verdict) -> None:
        """Deletes what is bound of a gang that never stood, and says so."""
        bound = [pod for pod, _ in self._view.members(gang) if self._is_to_go(pod)]
        gang.tell(HalfBound(None))
        self._reporter.settled(gang, verdict)
        reason = EventReason.GANG_TIMEOUT if verdict.reason == GANG_TIMEOUT else EventReason.GANG_UNSCHEDULABLE
        self._events.warn(gang.podgang, reason, verdict.message)
        log.warning("gang taken back", gang=gang.name, reason=verdict.message, bound=len(bound))
        if bound:
            metrics.ROLLBACKS.inc()
            gang.tell(TakingBack())
            self._spawn(self._delete(gang))

    def _is_to_go(self, pod: Pod) -> bool:
        return bool(self._view.bound_node(pod)) and self._view.is_ours(pod) and not self._view.is_leaving(pod)

    async def _delete(self, gang: GangState) -> None:
        pause_s = RETRY_S
        while True:
            left = [pod for pod, _ in self._view.members(gang) if self._is_to_go(pod)]
            if not left or not self._view.is_current(gang):
                break
            try:
                for pod in left:
                    await self._delete_one(pod)
                    self._view.leaving.add(pod.metadata.uid)
            except NotLeader:
                break
            except KubeError as err:
                log.warning("pod of a gang to be taken back not deleted, trying again", gang=gang.name, error=str(err))
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_RETRY_S, pause_s * 2)
        gang.tell(TakenBack())
        self._view.mark(gang.name)

    async def _delete_one(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            pass  # gone already, or another pod by that name
