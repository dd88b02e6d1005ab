"""What is known of a gang that waits, as values: what keeps it, and where it stands in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from grove.scheduler.explain.explanation import Explanation
from grove.scheduler.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`placed` gangs have their minimum on nodes; the others wait for their `gate` or for room, as explained."""

    gang: str
    placed: bool
    gate: Reason | None = None
    explanation: Explanation | None = None

    @property
    def cannot_fit(self) -> bool:
        return not self.placed and self.gate is None and self.explanation is not None and not self.explanation.fits


@dataclass(frozen=True, slots=True)
class InLine:
    """A gang that waits. `can_start` is False while something else has to happen before it is considered at all.

    `why` is known before it is considered; what the scheduler found when it tried is on the gang's condition, `said`.
    """

    namespace: str
    name: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    why: Reason | None
    said: str = ""
