"""Gangs and time: the deadline of one that is bound in part, and what is done for one that waits too long.

A deadline counts from when the first pod was bound, as the cluster wrote it down, so a scheduler that starts later
keeps it. A gang that waits has nodes held for it after a while; at its own timeout it is told, lets go, and waits anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grove.api import labels
from grove.api.conditions import EventReason
from grove.kube.clock import Clock
from grove.kube.events import Recorder
from grove.scheduler.evict.holds import Holds
from grove.scheduler.loop.commit import Committer
from grove.scheduler.loop.readiness import tree_of
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.config import SchedulerConfiguration, gang_timeout_s
from grove.scheduler.model.gang import BadGang
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gangs import GANG_TIMEOUT, GangState, Verdict
from grove.scheduler.policy.life import HalfBound, Phase
from grove.scheduler.policy.queue import Queue, Stage, Waiting
from grove.show.reasons import sentence


class Deadlines:
    def __init__(
        self, view: View, queue: Queue, holds: Holds, committer: Committer, events: Recorder, clock: Clock,
        config: SchedulerConfiguration, drop_nomination: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._view, self._queue, self._holds, self._committer = view, queue, holds, committer
        self._events, self._clock, self._config = events, clock, config
        self._drop_nomination = drop_nomination
        self._half_bound: dict[str, GangState] = {}

    def timeout_s(self, gang: GangState | None) -> float:
        """How long an attempt may take: what the gang says, or the default."""
        said = gang.podgang.metadata.annotations.get(labels.GANG_TIMEOUT) if gang is not None else None
        return gang_timeout_s(said, self._config.gang_timeout)

    def note(self, gang: GangState, now_s: float) -> None:
        """Sets the deadline of a gang that is bound in part and never stood."""
        if gang.stood or gang.life.deadline_s is not None or gang.life.is_busy:
            return
        view = self._view
        bound = [pod for pod, _ in view.members(gang) if view.bound_node(pod) and not view.is_leaving(pod)]
        if not bound or view.has_minimum(gang):
            return
        since = [moment for pod in bound if (moment := view.bound_since(pod)) is not None]
        elapsed_s = (self._clock.now() - min(since)).total_seconds() if since else 0.0
        timeout_s = self.timeout_s(gang)
        # Clocks differ and jump: time that cannot have passed does not count, nor does more than all of it.
        gang.tell(HalfBound(now_s + timeout_s - min(max(elapsed_s, 0.0), timeout_s)))
        self._half_bound[gang.name] = gang

    def take_back_late(self, now_s: float) -> None:
        """Rolls back gangs whose deadline has come."""
        for name, gang in sorted(self._half_bound.items()):
            deadline_s = gang.life.deadline_s
            if deadline_s is None or not self._view.is_current(gang):
                del self._half_bound[name]
                continue
            if deadline_s > now_s or (gang.life.is_busy and gang.phase is not Phase.NOMINATED):
                continue
            if not any(self._view.standing(gang).values()) or self._view.has_minimum(gang):
                gang.tell(HalfBound(None))
                continue
            why = Reason(kinds.TIMED_OUT, numbers={"seconds": self.timeout_s(gang)})
            self._queue.withdraw(name)
            self._drop_nomination(name)
            self._committer.roll_back(gang, Verdict(False, GANG_TIMEOUT, why))

    def look_after_waiting(self, now_s: float) -> None:
        """Holds nodes for gangs that waited long; those past their timeout start another round."""
        for gang, waiting in self._waiting():
            waited_s = now_s - waiting.since_s
            if self._holds.has_lost(gang.name):
                self._holds.drop(gang.name)
                self._view.help_anybody()
            if waited_s >= self.timeout_s(gang):
                self._time_out(gang, waiting, now_s)
            elif self._is_to_be_held_for(gang) and waited_s >= self._config.hold_after:
                try:
                    tree = tree_of(self._view, gang, self._config.node_policy)
                except BadGang:
                    continue
                self._holds.take(gang.name, waiting.order, tree)

    def moments(self) -> Iterator[float]:
        """Loop times at which something falls due."""
        for gang in self._half_bound.values():
            if gang.life.deadline_s is not None and self._view.is_current(gang):
                yield gang.life.deadline_s
        for gang, waiting in self._waiting():
            yield waiting.since_s + self.timeout_s(gang)
            if self._is_to_be_held_for(gang):
                yield waiting.since_s + self._config.hold_after

    def _waiting(self) -> Iterator[tuple[GangState, Waiting]]:
        """Gangs whose minimum was tried and found no place, in order."""
        for waiting in sorted(self._queue.all(), key=lambda unit: unit.order):
            gang = self._view.gangs.get(waiting.order.name)
            if gang is not None and waiting.failures and waiting.order.stage is not Stage.SURPLUS:
                yield gang, waiting

    def _is_to_be_held_for(self, gang: GangState) -> bool:
        return self._config.hold_after > 0 and gang.name not in self._holds

    def _time_out(self, gang: GangState, waiting: Waiting, now_s: float) -> None:
        waiting.since_s = now_s
        said = gang.verdict.why if gang.verdict is not None else Reason(kinds.NO_ROOM)
        why = Reason(kinds.TIMED_OUT, numbers={"seconds": self.timeout_s(gang)}, parts=(said,))
        self._events.warn(gang.podgang, EventReason.GANG_TIMEOUT, sentence(why))
        if self._holds.drop(gang.name):
            self._view.help_anybody()
