"""Wakes units that come before the owner of a hold now, because the shares of their queues moved the order.

No capacity became free, so nothing else wakes them. The hold had closed its nodes to them when they were refused.
"""

from __future__ import annotations

from grove.scheduler.loop.state.gang_trees import order_of, without_nominated
from grove.scheduler.loop.state.view import View
from grove.scheduler.policy.hold_ledger import LONG_WAIT
from grove.scheduler.policy.waiting_queue import Waiting, WaitingQueue


class OrderChanges:
    def __init__(self, view: View, queue: WaitingQueue) -> None:
        self._view, self._queue = view, queue
        self._compared_at: tuple[int, ...] = ()
        """Versions of the snapshot and of what policies read, when orders were compared last."""

    def wake_units_ahead(self) -> None:
        """Wakes parked units that were kept out by a hold whose owner is behind them now."""
        snapshot = self._view.snapshot
        holds = [hold for hold in self._view.ledger if hold.reason in LONG_WAIT and hold.nodes]
        versions = (snapshot.version, *snapshot.seams.versions)
        if not holds or versions == self._compared_at:
            return
        self._compared_at = versions
        fair = without_nominated(self._view)
        orders = {hold.owner: order_of(self._view, hold.owner, fair) for hold in holds}
        owner_of: dict[str, str] = {}
        for hold in sorted(holds, key=lambda hold: orders[hold.owner], reverse=True):
            owner_of |= dict.fromkeys(hold.nodes, hold.owner)  # the first in order joins last

        def is_ahead(waiting: Waiting) -> bool:
            unit = self._view.units.find(waiting.order.name)
            if unit is None or unit.explained is None or not unit.explained.held_nodes:
                return False
            order = order_of(self._view, unit.name, fair)
            behind = {owner for owner in orders if order < orders[owner]}
            return bool(behind) and any(owner_of.get(node) in behind for node in unit.explained.held_nodes)

        parked = [waiting for waiting in self._queue.heads(1) if waiting.parked]
        self._queue.wake_named([waiting.order.name for waiting in parked if is_ahead(waiting)])
