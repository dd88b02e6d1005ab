"""Moves running gangs so that waiting gangs fit, if the configuration switches it on.

Every half minute it looks at the first gangs that have waited for a minute. It makes a plan in a thread and follows it
with the steps of `repack --apply`. There is a new plan before each move, and the work ends if the cluster changed. The
pods that it restarts in any hour are never more than `repack.restartsPerHour`.

A scheduler that starts does not have the count of the one before it. It counts pods that are younger than their gang:
such a pod replaced another. So it may count too many. It does not count deleted gangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.move_request import MoveRequest
from grove.api.words import many
from grove.kube.clock import Clock
from grove.scheduler.evict.repack import Movable, Move, NoRepack, Repack
from grove.scheduler.loop import metrics
from grove.scheduler.loop.moving.movable import MovableGangs, may_be_disrupted, repack_question
from grove.scheduler.loop.moving.moves import Moves
from grove.scheduler.loop.moving.repack_steps import carry_out
from grove.scheduler.loop.state.gang_trees import order_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.policy.gang_state import NO_PLACE, GangState
from grove.scheduler.policy.restart_budget import HOUR_S, RestartBudget

LOOK_S = 30.0
WAITS_S = 60.0
"""A gang must have waited for this time before others are moved for it."""
RETRY_S = 300.0
"""A gang without a plan is looked at again after this time, if the cluster changed."""
MOST_PLANS = 4
"""The most gangs of one round."""
GANGS_AT_ONCE = 32
"""Running gangs that it reads without a pause."""
CREATION_S = 60.0
"""Pods that are created within this time after their gang are its first ones."""

log = structlog.get_logger(__name__)


class SelfRepack:
    """`run` moves gangs until cancelled."""

    def __init__(
        self, view: View, moves: Moves, reporter: Reporter, clock: Clock, config: SchedulerConfiguration
    ) -> None:
        self._view, self._moves, self._reporter = view, moves, reporter
        self._clock, self._config = clock, config
        self._thread = ThreadPoolExecutor(1, "repack")
        self.budget = RestartBudget(config.repack.restarts_per_hour)

    async def run(self) -> None:
        self.budget = RestartBudget(
            self._config.repack.restarts_per_hour, restarted_lately(self._view, self._config, self._now_s)
        )
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # moves are no reason to stop scheduling
                log.exception("no gangs are moved in this round")

    async def look(self) -> None:
        """Helps the first gang for which it finds moves."""
        for gang in self._waiting()[:MOST_PLANS]:
            left = self.budget.left(self._now_s)
            if not left:
                return
            answer = await self._plan(gang)
            version = answer.version if isinstance(answer, NoRepack) else -1
            if not self._view.units.is_current(gang):
                continue
            self._view.units.of(gang.name).repack_tried = asyncio.get_running_loop().time(), version
            if isinstance(answer, NoRepack):
                continue
            if answer.cost[0] > left:
                log.info("moves would restart too many pods", gang=gang.name, restarts=answer.cost[0], left=left)
                continue
            await self._help(gang, answer.cost[0])
            return

    def _waiting(self) -> list[GangState]:
        """Gangs that have waited long enough for a place, in their order."""
        view, now_s = self._view, asyncio.get_running_loop().time()
        waiting = []
        for gang in view.units.gangs.values():
            verdict = gang.verdict
            if verdict is None or verdict.placed or verdict.reason not in NO_PLACE or gang.life.is_busy:
                continue
            unit = view.units.of(gang.name)
            since_s = unit.ready_since_s
            if since_s is None or now_s - since_s < WAITS_S or not gang.has_object or view.has_minimum(gang):
                continue
            tried_s, version = unit.repack_tried
            if view.concerns_us(gang) and now_s - tried_s >= RETRY_S and version != view.snapshot.version:
                waiting.append(gang)
        return sorted(waiting, key=lambda gang: order_of(view, gang.name))

    async def _plan(self, gang: GangState) -> Repack | NoRepack:
        movable = list[Movable]()
        for number, candidate in enumerate(MovableGangs(self._view, self._config).each(), start=1):
            if candidate is not None:
                movable.append(candidate)
            if number % GANGS_AT_ONCE == 0:
                await asyncio.sleep(0)  # many gangs run: the event loop handles events in between
        for pod, _ in self._view.members(gang):
            self._view.reader.facts(pod)  # what was never asked for before is counted now
        await self._view.counted.refresh_until_current()
        ask = repack_question(self._view, gang, movable, self._config)
        snapshot = self._view.snapshot.copy_for_thread()
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask, snapshot)

    async def _help(self, gang: GangState, restarts: int) -> None:
        async def plan() -> Repack | str:
            if not self._view.units.is_current(gang) or self._view.has_minimum(gang):
                return "it does not wait any more"
            answer = await self._plan(gang)
            return self._reporter.say(answer.why) if isinstance(answer, NoRepack) else answer

        def begins(move: Move) -> None:
            self.budget.spend(self._now_s, len(move.unit.pods))
            metrics.REPACK_RESTARTS.inc(len(move.unit.pods))

        done = await carry_out(
            _OwnGangs(self._view, self._moves), plan, gang.name, restarts, self._clock, begins=begins
        )
        log.info("gangs moved", gang=gang.name, moved=done.moved, restarts=done.restarts, stopped=done.why)
        metrics.REPACKS.labels("stopped" if done.why else "placed").inc()
        if done.moved and self._view.units.is_current(gang):
            text = f"{many(len(done.moved), 'gang')} moved for this gang, {many(done.restarts, 'pod')} restarted"
            ending = f"; stopped: {done.why}" if done.why else ""
            self._reporter.tell(gang, EventReason.GANGS_MOVED_FOR_IT, text + ending)

    @property
    def _now_s(self) -> float:
        return self._clock.now().timestamp()


class _OwnGangs:
    """Gangs as the scheduler follows them. A request stays in the process."""

    def __init__(self, view: View, moves: Moves) -> None:
        self._view, self._moves = view, moves

    async def pods(self, gang: str) -> Sequence[Pod]:
        state = self._view.units.gangs.get(gang)
        return [pod for pod, _ in self._view.members(state)] if state is not None else []

    async def refusals(self, gang: str) -> Mapping[str, int]:
        why = self._moves.refusal(gang)
        return {why: 1} if why else {}

    async def is_placed(self, gang: str) -> bool:
        state = self._view.units.gangs.get(gang)
        return state is not None and self._view.has_minimum(state)

    async def request(self, gang: str, move: MoveRequest | None) -> None:
        self._moves.ask(gang, move)


def restarted_lately(view: View, config: SchedulerConfiguration, now_s: float) -> Iterator[float]:
    """When pods were created in the last hour that replace others, and now for each pod that a gang lacks.

    Only of gangs that may move.
    """
    for gang in view.units.gangs.values():
        made = gang.podgang.metadata.creation_timestamp
        if made is None or not may_be_disrupted(gang, config):
            continue
        pods = [pod.metadata.creation_timestamp for pod, _ in view.members(gang)]
        times = [created.timestamp() for created in pods if created is not None]
        yield from (time for time in times if time > max(made.timestamp() + CREATION_S, now_s - HOUR_S))
        if made.timestamp() < now_s - CREATION_S:
            yield from [now_s] * max(0, sum(gang.minima.values()) - len(times))
