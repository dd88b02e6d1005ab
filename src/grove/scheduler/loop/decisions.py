"""Where the live scheduler asks the core: every decision gets an id, is measured, counted and recorded.

Nearly all decisions take a millisecond and are made in place. One that takes long is made again in a thread, on a copy
of the snapshot, so that the event loop keeps its lease, watches and binds; the cluster moves on meanwhile, and whoever
asked has to see whether the answer still holds. Where a decision is made changes nothing about it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.victims import DisruptionBudget, Running
from grove.scheduler.loop import metrics
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place
from grove.scheduler.solve.state import TakesLong, hurried

IN_PLACE_STEPS = 400
"""A decision of more steps is made in a thread: some 10 to 20 milliseconds of work."""
IN_PLACE_PODS = 2_000
"""Where more pods run victims are chosen in a thread from the start: taking them all out is work of its own."""

T = TypeVar("T")
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]

log = structlog.get_logger(__name__)


class Tape(Protocol):
    """Keeps decisions for a replay. Between `hold` and `go_on` only decisions are written; changes follow them."""

    def decided(
        self, decision: str, gang: Gang, budget: Budget, closed: tuple[str, ...], answer: Placement | NoFit
    ) -> None: ...

    def preempted(
        self, decision: str, gang: Gang, running: Sequence[Running], budgets: Sequence[DisruptionBudget],
        budget: Budget, closed: tuple[str, ...], answer: Victims | NoVictims,
    ) -> None: ...  # fmt: skip

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class Decider:
    """`aside` runs work beside the event loop; on the simulator's loop that is in place, too."""

    def __init__(
        self, snapshot: Snapshot, run: str, tape: Tape | None = None, *, in_place_steps: int = IN_PLACE_STEPS,
        aside: Aside | None = None,
    ) -> None:  # fmt: skip
        self._snapshot, self._run, self._tape = snapshot, run, tape
        self._in_place_steps, self._aside = in_place_steps, aside or self._in_thread
        self._thread = ThreadPoolExecutor(1, "decision")
        self._count = 0
        self.asides = 0
        """How many decisions were made aside: the cluster may have moved on where this grew."""
        self._aside_s = 0.0

    async def place(self, gang: Gang, budget: Budget, closed: Iterable[str] = ()) -> tuple[str, Placement | NoFit]:
        """The decision's id and the core's answer."""
        decision = self._next()
        shut = tuple(sorted(closed))
        began = time.perf_counter()

        def note(answer: Placement | NoFit) -> None:
            if self._tape is not None:
                self._tape.decided(decision, gang, budget, shut, answer)

        answer = await self.work(lambda snapshot: place(snapshot, gang, budget, closed=shut), note)
        metrics.DECISION_SECONDS.observe(time.perf_counter() - began)
        if isinstance(answer, Placement):
            metrics.ATTEMPTS.labels("placed", "").inc()
        else:
            metrics.ATTEMPTS.labels("refused", answer.reason).inc()
        return decision, answer

    async def preempt(
        self, gang: Gang, running: Sequence[Running], budgets: Sequence[DisruptionBudget], budget: Budget,
        closed: Iterable[str] = (),
    ) -> tuple[str, Victims | NoVictims]:  # fmt: skip
        """The same for victims."""
        decision = self._next()
        shut = tuple(sorted(closed))

        def note(answer: Victims | NoVictims) -> None:
            if self._tape is not None:
                self._tape.preempted(decision, gang, running, budgets, budget, shut, answer)

        is_long = sum(len(unit.pods) for unit in running) > IN_PLACE_PODS

        def ask(snapshot: Snapshot) -> Victims | NoVictims:
            return preempt(snapshot, gang, running, budgets, budget, closed=shut)

        return decision, await self.work(ask, note, is_long=is_long)

    async def work(
        self, decide: Callable[[Snapshot], T], note: Callable[[T], None] = lambda _: None, *, is_long: bool = False
    ) -> T:
        """What the core answers on the snapshot as it is now; `note` hears of it before whatever happened since."""
        if is_long:
            return await self._decide_aside(decide, note)
        try:
            with hurried(self._in_place_steps):
                answer = decide(self._snapshot)
        except TakesLong:
            return await self._decide_aside(decide, note)
        note(answer)
        return answer

    async def _decide_aside(self, decide: Callable[[Snapshot], T], note: Callable[[T], None]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.asides += 1
        metrics.DECIDED_ASIDE.inc()
        if self._tape is not None:
            self._tape.hold()
        try:
            answer: T = await self._aside(partial(decide, self._snapshot.apart()))
            note(answer)
            return answer
        finally:
            self._aside_s += loop.time() - began
            if self._tape is not None:
                self._tape.go_on()

    def take_aside_s(self) -> float:
        """Seconds that were waited for decisions aside since this was asked last."""
        found, self._aside_s = self._aside_s, 0.0
        return found

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _next(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"
