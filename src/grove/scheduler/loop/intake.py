"""What changed is looked at: units come into the queue or leave it, and a gang that stands is told so.

Between turns this hears of attempts that are over. Nothing is placed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from grove.api import labels
from grove.api.conditions import EventReason
from grove.kube.events import Recorder
from grove.scheduler.evict.running import POD
from grove.scheduler.loop import metrics
from grove.scheduler.loop.bind import Attempt, Committer
from grove.scheduler.loop.holding import Holding
from grove.scheduler.loop.nominate import Nominations
from grove.scheduler.loop.report import Reporter
from grove.scheduler.loop.trees import former_nodes, gang_order, order_of
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gangs import (
    GANG_SCHEDULED,
    GANG_TIMEOUT,
    INVALID,
    PLACED,
    Base,
    GangState,
    Verdict,
    readiness,
)
from grove.scheduler.policy.life import Looked, Phase, Stands
from grove.scheduler.policy.queue import Queue, Stage

ORPHAN_S = 5.0
"""How long a pod may name a PodGang that does not exist before it is told so."""


class Intake:
    """`forgets` are told the name of a unit of which nothing is to be kept."""

    def __init__(
        self, view: View, queue: Queue, committer: Committer, nominations: Nominations, holding: Holding,
        reporter: Reporter, events: Recorder, *, forgets: Sequence[Callable[[str], object]],
    ) -> None:  # fmt: skip
        self._view, self._queue, self._committer, self._nominations = view, queue, committer, nominations
        self._holding, self._reporter, self._events, self._forgets = holding, reporter, events, forgets
        self._ready_since: dict[str, float] = {}

    def ended(self, attempt: Attempt, all_bound: bool) -> None:
        """An attempt is over: whoever depends on it gets another look, and what is missing is tried again."""
        name, gang = attempt.unit, attempt.gang
        now = asyncio.get_running_loop().time()
        is_current = self._is_current(attempt)
        if gang is not None and is_current and self._view.has_minimum(gang):
            self._stands(gang, now)
        if not all_bound and is_current:
            if self._queue.get(name) is None:
                self._queue.offer(name, order_of(self._view, name), now)
            self._queue.retry(name, now)
        for scaled in self._view.scaled_of.get(name, ()):
            self._view.mark(scaled)
        self._view.mark(name)

    def _is_current(self, attempt: Attempt) -> bool:
        """Whether what an attempt was for still exists: not another unit of its name."""
        if attempt.gang is not None:
            return self._view.is_current(attempt.gang)
        pod = self._view.singles.get(attempt.unit)
        return pod is not None and pod.metadata.uid == attempt.pods[0].uid

    def consider(self, name: str, now: float, *, fresh: bool = False) -> None:
        """Puts a changed unit into the queue, or takes it out."""
        if name.startswith(POD):
            self._consider_pod(name, now, fresh=fresh)
            return
        gang = self._view.gangs.get(name)
        if gang is None or gang.podgang.metadata.is_deleting or not self._view.concerns_us(gang):
            self.forget(name)
            return
        self._reporter.touch(name)
        if gang.phase is Phase.NEW:
            self._nominations.resume(gang)
        if not gang.life.is_open:
            self._queue.withdraw(name)
            return
        if gang.podgang.spec.reuse_reservation_ref is not None:
            gang.succeed(former_nodes(self._view, gang))
        look = self._view.look(gang)
        found = readiness(gang, look, self.base_of)
        gang.tell(Looked(found.phase, look.on_nodes, look.has_stood))
        is_binding = gang.life.attempts > 0
        if found.stage is None or (is_binding and found.stage is not Stage.SURPLUS):
            self._queue.withdraw(name)
        else:
            self._ready_since.setdefault(name, now)
            self._queue.offer(name, gang_order(self._view, gang, found.stage), now, fresh=fresh)
        if found.verdict is not None and not is_binding and found.verdict.placed:
            self._stands(gang, now)
        elif found.verdict is not None and not found.verdict.placed:
            self._reporter.settled(gang, found.verdict)
        self._committer.note(gang, self._holding.timeout_s(gang), now)

    def _consider_pod(self, name: str, now: float, *, fresh: bool) -> None:
        pod = self._view.singles.get(name)
        if pod is None:
            self.forget(name)
            return
        named = pod.metadata.labels.get(labels.POD_GANG)
        if named and self._view.takes_gangs:
            self._queue.withdraw(name)
            if f"{pod.metadata.namespace}/{named}" not in self._view.gangs:
                why = Reason(kinds.INVALID, f"the pod names PodGang {named}, which does not exist")
                self._reporter.pod_waits(name, Verdict(False, INVALID, why), after_s=ORPHAN_S)
            else:
                self._reporter.forget(name)
            return
        if pod.is_gated or self._view.node_of(pod) or self._nominations.has(name):
            self._queue.withdraw(name)
            return
        self._queue.offer(name, order_of(self._view, name), now, fresh=fresh)

    def forget(self, name: str) -> None:
        self._queue.withdraw(name)
        self._reporter.forget(name)
        self._ready_since.pop(name, None)
        for forget in self._forgets:
            forget(name)

    def take_back(self, gang: GangState) -> None:
        """It is bound in part at its deadline."""
        why = Reason(kinds.TIMED_OUT, numbers={"seconds": self._holding.timeout_s(gang)})
        self._queue.withdraw(gang.name)
        self._nominations.drop(gang.name)
        self._committer.roll_back(gang, Verdict(False, GANG_TIMEOUT, why))

    def base_of(self, name: str) -> Base:
        """Whether the base gang is placed, or about to be: its attempt is on its way, and others wait for its end."""
        base = self._view.gangs.get(name)
        if base is None:
            return Base.ABSENT
        stands = self._committer.floor_of(base) is not None or base.stood or self._view.has_minimum(base)
        return Base.STANDS if stands else Base.WAITS

    def _stands(self, gang: GangState, now: float) -> None:
        """The minimum is on nodes. Tells the world if that is news."""
        is_news = not gang.stood
        gang.tell(Stands())
        if not is_news:
            return
        self._view.remember_place(gang)
        since = self._ready_since.pop(gang.name, None)
        if since is not None:
            metrics.SCHEDULE_SECONDS.observe(now - since)
        self._holding.forget(gang.name)
        if gang.verdict is None or gang.verdict.reason != GANG_SCHEDULED:
            self._reporter.settled(gang, PLACED)
        else:
            self._reporter.settled(gang, gang.verdict)
        assert gang.verdict is not None
        self._events.normal(gang.podgang, EventReason.GANG_SCHEDULED, self._reporter.say(gang.verdict.why))
