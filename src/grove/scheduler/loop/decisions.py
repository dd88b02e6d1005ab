"""Where the live scheduler asks the core: every decision gets an id, is measured, counted and recorded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.victims import DisruptionBudget, Running
from grove.scheduler.loop import metrics
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place


class Tape(Protocol):
    """Keeps decisions for a replay."""

    def decided(
        self, decision: str, gang: Gang, budget: Budget, closed: tuple[str, ...], answer: Placement | NoFit
    ) -> None: ...

    def preempted(
        self, decision: str, gang: Gang, running: Sequence[Running], budgets: Sequence[DisruptionBudget],
        budget: Budget, closed: tuple[str, ...], answer: Victims | NoVictims,
    ) -> None: ...  # fmt: skip


class Decider:
    def __init__(self, snapshot: Snapshot, run: str, tape: Tape | None = None) -> None:
        self._snapshot, self._run, self._tape = snapshot, run, tape
        self._count = 0

    def place(self, gang: Gang, budget: Budget, closed: Iterable[str] = ()) -> tuple[str, Placement | NoFit]:
        """The decision's id and the core's answer."""
        decision = self._next()
        shut = tuple(sorted(closed))
        began = time.perf_counter()
        answer = place(self._snapshot, gang, budget, closed=shut)
        metrics.DECISION_SECONDS.observe(time.perf_counter() - began)
        if isinstance(answer, Placement):
            metrics.ATTEMPTS.labels("placed", "").inc()
        else:
            metrics.ATTEMPTS.labels("refused", answer.reason).inc()
        if self._tape is not None:
            self._tape.decided(decision, gang, budget, shut, answer)
        return decision, answer

    def preempt(
        self, gang: Gang, running: Sequence[Running], budgets: Sequence[DisruptionBudget], budget: Budget,
        closed: Iterable[str] = (),
    ) -> tuple[str, Victims | NoVictims]:  # fmt: skip
        """The same for victims."""
        decision = self._next()
        shut = tuple(sorted(closed))
        answer = preempt(self._snapshot, gang, running, budgets, budget, closed=shut)
        if self._tape is not None:
            self._tape.preempted(decision, gang, running, budgets, budget, shut, answer)
        return decision, answer

    def _next(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"
