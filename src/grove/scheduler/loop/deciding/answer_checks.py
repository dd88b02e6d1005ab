"""Whether an answer still holds: the cluster may have changed while a thread worked it out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grove.api.meta import Key
from grove.scheduler.filters.fit import has_place
from grove.scheduler.loop.state.gang_trees import Unit, closed_capacity
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.waiting_queue import WaitingQueue
from grove.scheduler.solve.spread_domains import broken_spreads


class AnswerCheck:
    """Compares answers, and the units they are for, with the cluster as it is now."""

    def __init__(self, view: View, queue: WaitingQueue) -> None:
        self._view, self._queue = view, queue

    def still_holds(self, unit: Unit, answer: Placement | NoFit, labels_version: int) -> bool:
        """Whether an answer may be acted on although the cluster moved on while it was worked out.

        A refusal may, if the unit still waits: capacity that became free meanwhile wakes it again.
        """
        if isinstance(answer, NoFit):
            return self.still_waits(unit)
        is_same = labels_version == self._view.snapshot.nodes.labels_version
        if not is_same or not self.still_waits(unit) or not self.have_capacity(unit.to_bind(answer), self._own(unit)):
            return False
        return next(broken_spreads(self._view.snapshot, unit.tree, unit.to_bind(answer)), None) is None

    def _own(self, unit: Unit) -> Collection[str]:
        return closed_capacity(self._view, unit.name, unit.order).own

    def have_capacity(self, pods: Sequence[PodFacts], open_uids: Collection[str]) -> bool:
        """Whether pods for which sources have set aside what they need still fit on their nodes, all at once."""
        asking = [self._view.sources.without_counted(pod) for pod in pods]
        return has_place(self._view.snapshot.without(open_uids), asking)

    def still_waits(self, unit: Unit) -> bool:
        """Whether a unit and all its pods are as they were when the scheduler read them."""
        view, waiting = self._view, self._queue.get(unit.name)
        if waiting is None or waiting.order != unit.order:
            return False
        if unit.reservation is not None:
            return view.units.reservation(unit.name) is unit.reservation
        if not (view.units.is_current(unit.gang) and unit.gang.life.is_open):
            return False
        pods = (facts for group in unit.tree.groups() for facts in group.pods)
        pods_now = ((view.pods.get(Key(facts.namespace, facts.name)), facts.uid) for facts in pods)
        return all(
            pod is not None and pod.metadata.uid == uid and not (view.counted.node_of(pod) or pod.metadata.is_deleting)
            for pod, uid in pods_now
        )
