"""What the loop remembers about one unit: a gang, a single pod, or the Reservations of one group.

Every part of the loop keeps what it has to remember in the unit's record. Forgetting a unit is dropping its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from grove.scheduler.model.facts import Shape
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_state import Verdict

if TYPE_CHECKING:
    from grove.scheduler.loop.nominations import Nomination


class Shortage(msgspec.Struct, frozen=True):
    """What a gang that waits is short of, and the shapes of its pods."""

    resource: str
    amount: int
    shapes: tuple[Shape, ...]


class Explained(msgspec.Struct, frozen=True):
    """A refusal, the nodes that were held for others at that time, and the verdict that was worked out from both."""

    why: Reason
    held_nodes: frozenset[str]
    verdict: Verdict


class UnitRecord(msgspec.Struct, eq=False):
    """One unit. All times are seconds of the event loop's clock."""

    name: str
    ready_since_s: float | None = None
    """When the gang was first ready to be placed; None once its minimum was on nodes."""

    # The last refusal
    explained: Explained | None = None
    tried_choices: tuple[int, int] | None = None
    """How many choices of nodes for shared claims failed, and the version of the snapshot when the first one did."""
    shortage: Shortage | None = None

    # Capacity that is held for it
    nomination: Nomination | None = None
    protected_by: tuple[str, ...] = ()
    """Names of the disruption budgets that protect its victims."""
    held_shapes: frozenset[Shape] = frozenset()
    """Shapes of the pods that nodes are held for."""
    hopeless_at: int | None = None
    """The version of the nodes at which no set of nodes was worth holding."""

    # What was reported
    pods_verdict: Verdict | None = None
    """What its waiting pods are to say, if that differs from the gang's verdict."""
    pods_text: tuple[Reason, float] | None = None
    """What its waiting pods say, and since when."""
    settling: tuple[str, float] | None = None
    """Reason of the last verdict, and when that verdict is old enough to be written."""
    lacking_since_s: float | None = None
    """Since when nodes of replaced pods are vacant and other pods are awaited."""


class Units:
    """The records, by name of the unit."""

    def __init__(self) -> None:
        self._records: dict[str, UnitRecord] = {}

    def __iter__(self) -> Iterator[UnitRecord]:
        return iter(self._records.values())

    def of(self, name: str) -> UnitRecord:
        """The record of a unit that exists; a new one if nothing is remembered about it."""
        found = self._records.get(name)
        if found is None:
            found = self._records[name] = UnitRecord(name)
        return found

    def find(self, name: str) -> UnitRecord | None:
        return self._records.get(name)

    def drop(self, name: str) -> None:
        """Forgets a unit."""
        self._records.pop(name, None)
