"""Carries decisions out: binds the pods of a placement in parallel, and takes a gang back that cannot be completed.

`Binder` reports the result for each pod. It never guesses whether a bind happened: after a lost answer or a conflict it
reads the pod again. If no answer comes or the server is busy, it tries again until the deadline. A refusal and a pod
that no longer exists are results.

`Committer` decides what follows. If a gang was never whole, and one of its pods is refused or its deadline has passed,
it is rolled back. The scheduler deletes its bound pods, since a binding cannot be undone, and their owner creates new
ones. After any other fault of single pods, the next cycle places the rest of the gang beside its bound pods, until the
same deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

import msgspec
import structlog

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import (
    ApiError,
    Conflict,
    ConnectionLost,
    KubeError,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unavailable,
)
from grove.scheduler.loop import metrics
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.evictions import Evictions, Spawn
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import AttemptBegan, AttemptEnded, HalfBound, Phase
from grove.scheduler.policy.gang_state import BIND_FAILED, GANG_TIMEOUT, GangState, Verdict
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason
from grove.scheduler.policy.waiting_queue import Order

BIND_RETRY_S, MAX_BIND_RETRY_S = 0.05, 2.0
PASSING = (ConnectionLost, Unavailable, TooManyRequests)
GIVEN_UP = "another pod of the gang was refused, or the gang is gone"

log = structlog.get_logger(__name__)


class BindFate(Enum):
    """What became of one pod of an attempt."""

    BOUND = "bound where we wanted it"
    ELSEWHERE = "another scheduler bound it to another node"
    GONE = "deleted, or replaced by another pod of its name"
    STALE = "its node changed since it was chosen; it needs another place"
    REFUSED = "the server will not have it"
    LATE = "the deadline came first"


COUNTED = {fate: metrics.BINDS.labels(fate.name.lower()) for fate in BindFate}


class BindResult(msgspec.Struct, frozen=True):
    pod: PodFacts
    fate: BindFate
    message: str = ""


class BindAttempt(msgspec.Struct, eq=False):
    """One placement on its way to the cluster. `after` must succeed first: a scaled gang waits for its base."""

    unit: str
    gang: GangState
    """The gang itself: by the time it ends another may have its name."""
    pods: tuple[PodFacts, ...]
    deadline_s: float
    order: Order
    """Where its unit comes in the queue."""
    is_minimum: bool = False
    """Whether it is for the gang's minimum."""
    decision: str = ""
    after: BindAttempt | None = None
    given_up: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set to stop asking: a pod was refused and the rest would have to be taken back, or the gang is gone."""
    done: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    succeeded: bool = False
    """Set together with `done`: whether what depends on it may go ahead."""


class Binder:
    """All attempts share the `turns` there are for requests, first come, first served.

    `fits` says right before each request whether the chosen node still has the capacity that was reserved on it.
    `prepare` does what must come before a binding: it writes the node on volume claims, and allocates device claims.
    """

    def __init__(
        self,
        client: Client,
        *,
        turns: asyncio.Semaphore,
        fits: Callable[[PodFacts], bool],
        prepare: Callable[[PodFacts, float], Iterable[Awaitable[str]]],
    ) -> None:
        self._client, self._turns, self._fits, self._prepare = client, turns, fits, prepare

    async def bind(self, attempt: BindAttempt, seen: Callable[[BindResult], None]) -> list[BindResult]:
        """Binds all pods of the attempt. `seen` is called for each result at once; the list has all results."""
        results: list[BindResult] = []

        async def bind_pod(pod: PodFacts) -> None:
            result = await self._bind(pod, attempt)
            results.append(result)
            seen(result)

        async with asyncio.TaskGroup() as group:
            for pod in attempt.pods:
                group.create_task(bind_pod(pod))
        return results

    async def _bind(self, pod: PodFacts, attempt: BindAttempt) -> BindResult:
        loop, deadline_s = asyncio.get_running_loop(), attempt.deadline_s
        pause_s = BIND_RETRY_S
        for preparing in self._prepare(pod, deadline_s):
            if trouble := await _unless(attempt.given_up, preparing):
                return BindResult(pod, BindFate.STALE, trouble)
        may_be_bound = False
        end: BindResult | None = None
        while end is None:
            async with self._turns:
                if attempt.given_up.is_set():
                    end = BindResult(pod, BindFate.LATE, GIVEN_UP)
                    break
                if not self._fits(pod):
                    end = BindResult(pod, BindFate.STALE, f"node {pod.node} is gone or was filled by others")
                    break
                try:
                    await self._client.bind(pod.namespace, pod.name, pod.node, uid=pod.uid)
                    return BindResult(pod, BindFate.BOUND)
                except NotFound:
                    return BindResult(pod, BindFate.GONE)
                except (Conflict, *PASSING) as err:
                    trouble = str(err)
                    pause_s = max(pause_s, getattr(err, "retry_after_s", None) or 0.0)
                    if not isinstance(err, TooManyRequests):
                        try:
                            known = await self._look(pod)
                            may_be_bound = False
                        except PASSING:
                            known, may_be_bound = None, True
                        if known is not None:
                            return known
                except ApiError as err:
                    return BindResult(pod, BindFate.REFUSED, str(err))
            if loop.time() + pause_s > deadline_s:
                end = BindResult(pod, BindFate.LATE, trouble)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_BIND_RETRY_S, pause_s * 2)
        return (await self._found_out(pod) if may_be_bound else None) or end

    async def _found_out(self, pod: PodFacts) -> BindResult | None:
        """What became of a pod that may be bound, however long the server is silent: its node is not free before."""
        while True:
            try:
                return await self._look(pod)
            except PASSING:
                await asyncio.sleep(MAX_BIND_RETRY_S)

    async def _look(self, pod: PodFacts) -> BindResult | None:
        """The truth about a pod whose bind was not simply answered; None when it is still to be bound.

        Trouble that passes rises.
        """
        try:
            now = await self._client.get(Pod, pod.name, pod.namespace)
        except NotFound:
            return BindResult(pod, BindFate.GONE)
        except PASSING:
            raise
        except KubeError:
            return None  # an unreadable pod must not end the binding of the others
        if now.metadata.uid != pod.uid:
            return BindResult(pod, BindFate.GONE)
        if now.spec.node_name:
            return BindResult(pod, BindFate.BOUND if now.spec.node_name == pod.node else BindFate.ELSEWHERE)
        if now.metadata.is_deleting:
            return BindResult(pod, BindFate.GONE)
        if now.is_gated:
            return BindResult(pod, BindFate.REFUSED, "it is held by a scheduling gate")
        return None


async def _unless(given_up: asyncio.Event, preparing: Awaitable[str]) -> str:
    """What a preparation ended with; it may wait for others for hours, and is left when the attempt is given up."""
    work, stop = asyncio.ensure_future(preparing), asyncio.ensure_future(given_up.wait())
    try:
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else GIVEN_UP
    finally:
        for task in (work, stop):
            task.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)


class Committer:
    """Owns the attempts that are on their way. `ended` is called when an attempt is over."""

    def __init__(
        self,
        view: View,
        binder: Binder,
        evictions: Evictions,
        reporter: Reporter,
        clock: Clock,
        *,
        spawn: Spawn,
        ended: Callable[[BindAttempt, bool], None],
    ) -> None:
        self._view, self._binder, self._evictions = view, binder, evictions
        self._reporter, self._clock = reporter, clock
        self._spawn, self._ended = spawn, ended
        self._half_bound: set[str] = set()
        """Names of gangs that may have a deadline."""

    def _attempts(self, gang: GangState) -> list[BindAttempt]:
        """Attempts of the gang that are on their way: not those of another one of its name."""
        unit = self._view.units.find(gang.name)
        return [attempt for attempt in unit.attempts if attempt.gang is gang] if unit is not None else []

    def minimum_attempt(self, gang: GangState | None) -> BindAttempt | None:
        """The attempt for a gang's minimum that is on its way, if there is one."""
        mine = self._attempts(gang) if gang is not None else ()
        return next((attempt for attempt in mine if attempt.is_minimum), None)

    def launch(self, attempt: BindAttempt) -> None:
        """Starts binding; the pods have their reservations already."""
        attempt.gang.tell(AttemptBegan(attempt.is_minimum))
        self._view.units.of(attempt.unit).attempts.append(attempt)
        self._hold(attempt)
        self._spawn(self._run(attempt))

    def _hold(self, attempt: BindAttempt) -> None:
        """Enters in the ledger what all attempts of the unit bind."""
        unit, order, ledger = attempt.unit, attempt.order, self._view.ledger
        pods = tuple(pod for open_attempt in self._view.units.of(unit).attempts for pod in open_attempt.pods)
        known = ledger.find(unit, HoldReason.BINDING)
        since = known.since if known is not None else self._clock.now()
        ledger.put(CapacityHold(unit, order, HoldReason.BINDING, since, pods=pods))

    def give_up(self, gang: GangState) -> None:
        """The gang is gone: pods that are not bound yet are not bound any more, and their capacity is free."""
        for attempt in self._attempts(gang):
            attempt.given_up.set()

    async def _run(self, attempt: BindAttempt) -> None:
        results: list[BindResult] = []
        try:
            if attempt.after is not None:
                await attempt.after.done.wait()
            if (attempt.after is None or attempt.after.succeeded) and not attempt.given_up.is_set():
                results = await self._bind(attempt)
        except* NotLeader:
            log.info("binding stopped, not the leader any more", unit=attempt.unit)
        finally:
            known = {bound.pod.uid for bound in results}
            for pod in attempt.pods:
                if pod.uid not in known:
                    self._view.counted.release(pod.uid)
            self._settle(attempt, results)

    async def _bind(self, attempt: BindAttempt) -> list[BindResult]:
        def seen(bound: BindResult) -> None:
            self._note_fate(attempt, bound)

        if self._view.traces is None:
            return await self._binder.bind(attempt, seen)
        with self._view.traces.bind(attempt.gang, len(attempt.pods)) as span:
            results = await self._binder.bind(attempt, seen)
            lost = [bound for bound in results if bound.fate is not BindFate.BOUND]
            if span is not None and lost:
                span.error = f"{len(lost)} pods: {lost[0].fate.value} {lost[0].message}".strip()
            return results

    def _note_fate(self, attempt: BindAttempt, bound: BindResult) -> None:
        pod = bound.pod
        COUNTED[bound.fate].inc()
        if bound.fate is BindFate.BOUND:
            self._view.counted.confirm(Key(pod.namespace, pod.name), pod.uid, pod.node)
            return
        self._view.counted.release(pod.uid)
        log.warning(
            "pod not bound",
            unit=attempt.unit,
            pod=pod.name,
            node=pod.node,
            why=bound.fate.value,
            error=bound.message,
            decision=attempt.decision,
        )
        if bound.fate is BindFate.REFUSED and not attempt.gang.stood:
            attempt.given_up.set()

    def _settle(self, attempt: BindAttempt, results: list[BindResult]) -> None:
        all_bound = len(results) == len(attempt.pods) and all(bound.fate is BindFate.BOUND for bound in results)
        self._view.units.of(attempt.unit).attempts.remove(attempt)
        self._hold(attempt)
        self._settle_gang(attempt, attempt.gang, results)
        attempt.done.set()
        self._ended(attempt, all_bound)

    def _settle_gang(self, attempt: BindAttempt, gang: GangState, results: list[BindResult]) -> None:
        gang.tell(AttemptEnded(attempt.is_minimum))
        if not self._view.units.is_current(gang):
            return
        if self._view.has_minimum(gang):
            attempt.succeeded = True
            gang.tell(HalfBound(None))
            return
        count = Counter(bound.fate for bound in results)
        if not gang.stood and (count[BindFate.REFUSED] or count[BindFate.LATE]):
            message = next(b.message for b in results if b.fate in (BindFate.REFUSED, BindFate.LATE))
            self.roll_back(gang, Verdict(False, BIND_FAILED, Reason(kinds.BIND_FAILED, message)))

    # Taking back

    def set_deadline(self, gang: GangState, timeout_s: float, now_s: float) -> None:
        """Sets the deadline of a gang that is bound in part and never stood.

        It counts from when the first pod was bound, as the cluster wrote it down, so a later scheduler keeps it. Clocks
        differ and jump: time that cannot have passed does not count, nor does more than all of it.
        """
        if gang.stood or gang.life.deadline_s is not None or gang.life.is_busy:
            return
        view = self._view
        bound = view.bound_pods(gang)
        if not bound or view.has_minimum(gang):
            return
        since = [moment for pod in bound if (moment := view.bound_since(pod)) is not None]
        elapsed_s = (self._clock.now() - min(since)).total_seconds() if since else 0.0
        gang.tell(HalfBound(now_s + timeout_s - min(max(elapsed_s, 0.0), timeout_s)))
        self._half_bound.add(gang.name)

    def take_late(self, now_s: float) -> list[GangState]:
        """Gangs with only a part of their pods bound at their deadline: the caller takes them back."""
        late = []
        for name in sorted(self._half_bound):
            gang = self._view.units.gangs.get(name)
            if gang is None or (deadline_s := gang.life.deadline_s) is None:
                self._half_bound.remove(name)
            elif deadline_s > now_s or (gang.life.is_busy and gang.phase is not Phase.NOMINATED):
                continue
            elif not any(self._view.standing(gang).values()) or self._view.has_minimum(gang):
                gang.tell(HalfBound(None))
            else:
                late.append(gang)
        return late

    def next_deadline_s(self) -> float | None:
        half = (gang.life.deadline_s for name in self._half_bound if (gang := self._view.units.gangs.get(name)))
        return min((moment for moment in half if moment is not None), default=None)

    def roll_back(self, gang: GangState, verdict: Verdict) -> None:
        """Deletes what is bound of a gang that never stood, and says so."""
        bound = self._evictions.bound_pods(gang)
        gang.tell(HalfBound(None))
        self._reporter.report(gang, verdict)
        reason = EventReason.GANG_TIMEOUT if verdict.reason == GANG_TIMEOUT else EventReason.GANG_UNSCHEDULABLE
        self._reporter.warn(gang, reason, verdict.why)
        log.warning("gang taken back", gang=gang.name, reason=self._reporter.say(verdict.why), bound=len(bound))
        if bound:
            metrics.ROLLBACKS.inc()
            self._evictions.take_back(gang)
