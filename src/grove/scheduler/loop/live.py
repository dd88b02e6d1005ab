"""The running scheduler: caches, view, queue, cycle, binder and reporter wired together, over any `Client`.

    scheduler = Scheduler(client, say=sentence)
    await scheduler.run()

One task decides (`Cycle`), woken by events and by one timer for the next exact moment; binding, eviction and reporting
are tasks beside it. Cancelling `run` stops everything; what was half done is found and finished by the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import structlog

from grove.api import kai
from grove.api.core import ResourceSlice
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.events import Recorder
from grove.kube.tracing import Traces
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.decisions import IN_PLACE_STEPS, Aside, Decider
from grove.scheduler.loop.following.follower import ClusterFollower
from grove.scheduler.loop.following.optional_kinds import OptionalKinds
from grove.scheduler.loop.following.quota_follower import QuotaFollower
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.moving.moves import Moves
from grove.scheduler.loop.moving.self_repack import SelfRepack
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.turn.cycle import Cycle
from grove.scheduler.loop.writes.bind import BindAttempt, Binder, Committer
from grove.scheduler.loop.writes.evictions import Evictions
from grove.scheduler.loop.writes.gang_traces import GangTraces
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.waiting_queue import Backoff, WaitingQueue
from grove.scheduler.sources.claim_writer import ClaimWriter
from grove.scheduler.sources.device_claims import DeviceClaims
from grove.scheduler.sources.koordinator_devices import KoordinatorDevices
from grove.scheduler.sources.node_sources import DaemonPods
from grove.scheduler.sources.reservation_source import ReservationSource
from grove.scheduler.sources.reservation_writer import ReservationWriter
from grove.scheduler.sources.volume_source import VolumeSource

if TYPE_CHECKING:
    from grove.scheduler.replay.journal import Journal

SYNC_S = 120.0
LONG_CYCLE_S, LONGEST_REST_S = 0.1, 1.0
STANDBY_S = 10.0

log = structlog.get_logger(__name__)


class Scheduler:
    """Schedules until cancelled. `say` has the words for reasons, which are values in here.

    `snapshot` and `tape` record a run; `tune_gc` is for a process of its own.
    `aside` makes all decisions beside the event loop, in its own way, not only those that take long in a thread.
    """

    def __init__(
        self,
        client: Client,
        config: SchedulerConfiguration = SchedulerConfiguration(),
        clock: Clock = SYSTEM,
        *,
        say: Callable[[Reason], str],
        snapshot: Snapshot | None = None,
        tape: Journal | None = None,
        tune_gc: bool = False,
        aside: Aside | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.config, self._client = config, client
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        """There while it decides."""
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What else runs while it decides."""
        self.cache = Cache(client, tune_gc=tune_gc)
        snapshot = snapshot if snapshot is not None else Snapshot()
        snapshot.use(snapshot.seams.joined(weights=config.scores))
        self._news = asyncio.Event()
        turns = asyncio.Semaphore(config.bind_concurrency)
        self.view = View(self.cache, snapshot, config, wake=self._news.set)
        storage, daemons = VolumeSource(self.view, client, turns), DaemonPods(self.view)
        claims = DeviceClaims(self.view, ClaimWriter(client, turns).write)
        self.view.sources.join(storage, claims, daemons)
        if clock is SYSTEM:
            self.view.counted.cpu_s = time.thread_time
        self._events = Recorder(client, config.scheduler_name, clock=clock)
        if traces is not None:
            self.view.traces = GangTraces(traces, self.view.units.gangs)
            self._events.trace_id_of = self.view.traces.trace_id_of
        self.reporter = Reporter(client, self.view, self._events, clock, settle_s=config.settle, say=say)
        storage.follow()
        daemons.follow()
        replacements = Replacements(self.view, clock)
        ClusterFollower(self.view, replacements, self._readiness_changed).follow()
        self.queue = WaitingQueue(self.view.units, Backoff(config.backoff.initial, config.backoff.max))
        self.quotas = QuotaFollower(client, self.view, self._events, clock)
        status = ReservationWriter(self.cache, client, self._events, clock)
        self.reservations = ReservationSource(self.view, client, status, clock, count_use=metrics.RESERVATION_USED.inc)
        self.view.sources.join(self.reservations)
        reserving = PendingReservations(self.view, self.queue, status, clock, say=say)
        minors = KoordinatorDevices(self.view, client, self._events)

        def follow_reservations() -> None:
            self.reservations.follow()
            self.view.before_turn.append(reserving.turn)

        def follow_devices() -> None:
            self.view.sources.join(minors)
            minors.follow()

        self._optional = OptionalKinds(
            client,
            {
                ElasticQuota: self.quotas.follow_quotas,
                kai.Queue: self.quotas.follow_queues,
                Reservation: follow_reservations,
                Device: follow_devices,
            },
            built_in={ResourceSlice: claims.follow},
        )
        binder = Binder(client, turns=turns, fits=self._fits, prepare=self.view.sources.prepare)
        evictions = Evictions(client, self.view, self.reporter, spawn=self._spawn)
        moves = Moves(self.view, replacements, evictions, self.reporter, clock, config)
        asked = self.view.units.asked_to_move
        self.view.before_turn.append(lambda: moves.turn() if asked else None)
        if config.repack.automatic:
            self.beside.append(SelfRepack(self.view, moves, self.reporter, clock, config).run)
        self._committer = Committer(
            self.view, binder, evictions, self.reporter, clock, spawn=self._spawn, ended=self._ended
        )
        run = f"{int(clock.now().timestamp()):x}" if clock is SYSTEM else "run"
        # With `aside` given, all decisions go there.
        steps = IN_PLACE_STEPS if aside is None else 0
        self._decider = decider = Decider(self.view.snapshot, run, tape, in_place_steps=steps, aside=aside)
        nominations = Nominations(self.view, decider, evictions, self.reporter, clock, fits=self._fits)
        self._cycle = Cycle(
            self.view,
            self.queue,
            decider,
            self._committer,
            nominations,
            replacements,
            self.reporter,
            clock,
            config,
            self._wake_at,
            reserving,
            evictions,
        )
        self.in_step_since: float | None = None
        """Loop time since which the caches follow the cluster."""
        self.cycles = 0

    @property
    def is_ready(self) -> bool:
        return self.in_step_since is not None

    async def run(self) -> None:
        """Follows the cluster and schedules; ends when cancelled."""
        async with self.following():
            await self.schedule()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keeps the caches in step and decides nothing: what a standby does until it leads (`lead`)."""
        await self._optional.follow_served()
        async with self.cache:
            await self.cache.wait_synced(SYNC_S)
            self.quotas.refresh()
            self.view.counted.refresh()
            log.info(
                "in step with the cluster",
                nodes=len(self.view.nodes),
                pods=len(self.view.pods),
                gangs=len(self.view.units.gangs),
            )
            self.in_step_since = asyncio.get_running_loop().time()
            spawn = asyncio.get_running_loop().create_task
            beside = (
                spawn(self._optional.follow_installed(), name="optional-kinds"),
                spawn(self._stand_by(), name="standby"),
            )
            try:
                yield
            finally:
                self.in_step_since = None
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)

    async def _stand_by(self) -> None:
        """Forgets now and then what has gone, until turns are taken, which do."""
        view = self.view
        while True:
            await asyncio.sleep(STANDBY_S)
            if self._tasks is not None:
                return
            view.changes.forget_gone(view.units.gangs.__contains__)

    async def lead(self) -> None:
        """`schedule` for a standby, once it has read everything that the former leader wrote.

        Caches may be behind by any time, and what was bound meanwhile would be given away again.
        """
        await self.cache.relist()
        log.info("read the whole cluster again as the leader", pods=len(self.view.pods))
        await self.schedule()

    async def schedule(self) -> None:
        """Decides and acts until cancelled; once, inside `following`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._events.run(), name="events")
                tasks.create_task(self.reporter.run(), name="reporter")
                tasks.create_task(self.quotas.write_used(), name="quotas")
                tasks.create_task(self.reservations.status.run(), name="reservations")
                for work in self.beside:
                    tasks.create_task(work())
                await self._decide()
        finally:
            self._tasks = None
            if self._timer is not None:
                self._timer.cancel()
            if self._cycle.referee is not None:
                self._cycle.referee.close()

    async def _decide(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._news.wait()
            # A watch chunk brings many events; the handlers of the rest of it run before we look.
            await asyncio.sleep(0)
            self._news.clear()
            self.cycles += 1
            began = clock()
            await self._cycle.run()
            took = clock() - began - self._decider.take_aside_s()
            if took > LONG_CYCLE_S:
                await asyncio.sleep(min(took, LONGEST_REST_S))  # a crowd that waits must not starve binds and events

    # What the parts ask of each other

    def _readiness_changed(self, gang: str) -> None:
        if self._tasks is not None:  # who stands by writes nothing, and looks at all gangs when it leads
            self.reporter.readiness_changed(gang)

    def _ended(self, attempt: BindAttempt, all_bound: bool) -> None:
        self._cycle.ended(attempt, all_bound)

    def _wake_at(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when_s, self._news.set)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            work.close()
            return
        self._tasks.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A bug in one attempt must not end the scheduling of all others."""
        try:
            await work
        except Exception:
            log.exception("task failed")

    def _fits(self, pod: PodFacts) -> bool:
        """Whether the node chosen for a pod is still there, still takes it, and still has what was reserved on it."""
        snapshot = self.view.snapshot
        row = snapshot.nodes.row_of.get(pod.node)
        if row is None or not allowed_mask(snapshot, pod.shape)[row]:
            return False
        return all(snapshot.free[r, row] >= 0 for r, amount in snapshot.amounts(pod.shape.requests) if amount)

    async def close(self) -> None:
        """Writes the events that are still unsaid, as far as the cluster lets us."""
        with suppress(Exception):
            await self._events.flush()
