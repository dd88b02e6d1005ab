"""What the loop remembers about one unit: a gang, or the Reservations of one group. A pod alone is a gang of one.

Every part of the loop keeps what it has to remember in the unit's record. Forgetting a unit is dropping its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from grove.api.meta import Key
from grove.api.podgang import HeldCapacity, ReplacementAnswer
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_state import GangState, Verdict
from grove.scheduler.policy.waiting_queue import Waiting

if TYPE_CHECKING:
    from grove.scheduler.loop.holds.headrooms import HeadroomLook
    from grove.scheduler.loop.holds.nominations import Nomination
    from grove.scheduler.loop.holds.pending_reservations import PendingReservation
    from grove.scheduler.loop.moving.moves import MoveState
    from grove.scheduler.loop.writes.bind import BindAttempt

MOST_PLACES = 4096
NEVER_TRIED = (float("-inf"), -1)


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


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """A question about pods that an update will replace."""

    id: str
    version: int
    """Of the snapshot to which the answer belongs."""
    at_s: float


class UnitRecord(msgspec.Struct, eq=False):
    """One unit. All times are seconds of the event loop's clock."""

    name: str
    waiting: Waiting | None = None
    """How it waits in the queue, while it does."""
    attempts: list[BindAttempt] = msgspec.field(default_factory=list)
    """Bindings on their way."""
    asked: list[dict[str, dict[str, int]]] | None = None
    """What it asks for in the accounts of each policy that counts demand, by account and resource."""
    reservation: PendingReservation | None = None
    """The Reservations that wait, if it stands for some that can be placed."""
    reservation_versions: tuple[str, ...] = ()
    """Versions of these Reservations at the last look."""
    failed_binds: int = 0
    """Attempts in a row that did not bind all their pods."""
    ready_since_s: float | None = None
    """When the gang was first ready to be placed; None once its minimum was on nodes."""

    # The last refusal
    explained: Explained | None = None
    tried_choices: tuple[int, int] | None = None
    """How many choices of nodes for shared claims failed, and the version of the snapshot when the first one did."""
    shortage: Shortage | None = None

    # Capacity that is held for it
    nomination: Nomination | None = None
    headroom: HeadroomLook | None = None
    """What is held for further replicas, if its PodGang asks for that."""
    recorded: HeldCapacity | None = None
    """Whole nodes that an earlier scheduler held for it, until they are held again."""
    nominated_since: datetime | None = None
    """Since when an earlier scheduler held capacity for it while victims terminated, until its next decision."""
    protected_by: tuple[str, ...] = ()
    """Names of the disruption budgets that protect its victims."""
    held_shapes: frozenset[Shape] = frozenset()
    """Shapes of the pods that nodes are held for."""
    waits_for_ending: bool = False
    """Whether all pods that it waits for on the held nodes end by themselves."""

    # Moving it
    own_move: str = ""
    """The scheduler's own request to move it."""
    move: MoveState | None = None
    """The request of the last look."""
    repack_tried: tuple[float, int] = NEVER_TRIED
    """When moves of others were last planned for it, and the version of a snapshot for which there was no plan."""

    # What was reported
    pods_verdict: Verdict | None = None
    """What its waiting pods are to say, if that differs from the gang's verdict."""
    pods_text: tuple[Reason, float] | None = None
    """What its waiting pods say, and since when."""
    worded_s: float | None = None
    """When the status of its gang was last written."""
    settling: tuple[str, float] | None = None
    """Reason of the last verdict, and when that verdict is old enough to be written."""
    replacement: ReplacementAnswer | None = None
    """The answer to what its PodGang asks about pods that are to be replaced."""
    answered: AnsweredQuestion | None = None
    """The question of the last answer."""
    lacking_since_s: float | None = None
    """Since when nodes of replaced pods are vacant and other pods are awaited."""


class Units:
    """All units by name: what they are, and what is remembered about them."""

    def __init__(self) -> None:
        self._records: dict[str, UnitRecord] = {}
        self.gangs: dict[str, GangState] = {}
        """Also gangs of one: a pod of ours that no PodGang refers to, while it waits."""
        self.scaled_of: dict[str, set[str]] = {}
        """Scaled gangs by the name of their base."""
        self.gang_of: dict[Key, str] = {}
        """The gang that refers to a pod; the first one, if there are several. Also that of a pod alone."""
        self.asked_to_move: set[str] = set()
        """Gangs whose PodGang, or the scheduler itself, requests to move them."""
        self.places: dict[str, frozenset[str]] = {}
        """Nodes of gangs that stood, by name, after they are gone too; the oldest are forgotten."""

    # Records

    def __iter__(self) -> Iterator[UnitRecord]:
        return iter(self._records.values())

    def of(self, name: str) -> UnitRecord:
        """The record of a unit that exists; a new one if nothing is remembered about it."""
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = UnitRecord(name)
        return record

    def find(self, name: str) -> UnitRecord | None:
        return self._records.get(name)

    def drop(self, name: str) -> None:
        """Forgets a unit. Bindings on their way stay until they end."""
        record = self._records.pop(name, None)
        if record is not None and record.attempts:
            self._records[name] = UnitRecord(name, attempts=record.attempts)

    def reservation(self, name: str) -> PendingReservation | None:
        """The Reservations that wait under this name."""
        record = self._records.get(name)
        return record.reservation if record is not None else None

    # Gangs

    def gang_with(self, pod: Key) -> GangState | None:
        """The gang of a pod."""
        return self.gangs.get(self.gang_of.get(pod, ""))

    def is_current(self, gang: GangState) -> bool:
        """Whether the gang still exists: not another one of its name."""
        return self.gangs.get(gang.name) is gang

    def join(self, gang: GangState, base: str) -> None:
        """A gang is scaled with another, or (empty) with none any more."""
        scaled = self.scaled_of.get(gang.base, set())
        scaled.discard(gang.name)
        if not scaled:
            self.scaled_of.pop(gang.base, None)
        gang.join(base)
        if base:
            self.scaled_of.setdefault(base, set()).add(gang.name)

    def remember_place(self, gang: str, nodes: frozenset[str]) -> None:
        """Notes the nodes of a gang, for a gang that may take its place over later."""
        self.places.pop(gang, None)
        self.places[gang] = nodes
        if len(self.places) > MOST_PLACES:
            del self.places[next(iter(self.places))]
