"""The policy that is always there: the higher priority goes first, and may put out the lower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grove.scheduler.model.gang import Gang
from grove.scheduler.model.seams import Applicant, Policy

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.evict.victims import Running


class ByPriority(Policy):
    name = "priority"

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        return (-who.priority,)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        return victim.priority < gang.priority
