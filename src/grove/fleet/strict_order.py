"""Strict order, to compare with: in a team, no gang is placed while a gang that came before it waits.

Only simulated fleets use it (`settings: {order: strict}`). Repairs of a minimum and pods above a minimum are not
ordered. A team whose first gang waits for quota waits whole, as in queues that are strictly first in, first out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grove.api import labels
from grove.fleet.manifests import QUEUE
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import Reason
from grove.scheduler.model.seams import Policy
from grove.scheduler.policy.waiting_queue import Stage, Waiting, WaitingQueue

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot

BEHIND = "BehindAnotherGang"
_NEW = (Stage.MINIMUM, Stage.SCALED_MINIMUM)


class StrictOrder(Policy):
    name = "strictOrder"
    moves = False

    def __init__(self, view: View, queue: WaitingQueue) -> None:
        self._view, self._queue = view, queue

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        mine = self._queue.get(gang.name)
        if mine is None or mine.order.stage not in _NEW:
            return None
        team, place = self._team(gang.name), self._place(mine)
        for other in self._queue.all():
            is_ahead = other.failures and other.order.stage in _NEW and self._place(other) < place
            if is_ahead and self._team(other.order.name) == team:
                return Reason(BEHIND, f"{other.order.name} of the same team came before it and waits")
        return None

    def _team(self, name: str) -> str:
        """The queue of a gang's pods, or the gang's set if it has none."""
        gang = self._view.units.gangs.get(name)
        if gang is None:
            return name
        marks = next((pod.metadata.labels for pod, _ in self._view.members(gang)), gang.podgang.metadata.labels)
        return marks.get(QUEUE) or marks.get(labels.PART_OF, name)

    def _place(self, waiting: Waiting) -> tuple[int, float, str]:
        gang = self._view.units.gangs.get(waiting.order.name)
        return (-gang.priority if gang is not None else 0, waiting.order.created_s, waiting.order.name)
