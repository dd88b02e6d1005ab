"""The life of a gang: which phase it is in, what can happen to it, and what it is in afterwards. One function decides.

    waiting for pods, gates, its base ─► queued ─► binding ─► placed ─► repairing ─► binding …
                                           └─► nominated ─┘      └─► leaving (evicted whole)
                                       binding ─► taking back ─► waiting for pods

What happens comes in as an event; `after` is the only place where a phase is left. A gang that
stood once, with pods that are still on nodes, is repaired and never taken back.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from grove.scheduler.model.reasons import Reason


class Phase(Enum):
    NEW = "not looked at yet"
    INVALID = "its PodGang contradicts itself"
    WAITING_FOR_PODS = "pods that it names do not exist, or are going"
    WAITING_FOR_GATES = "its pods are gated"
    WAITING_FOR_BASE = "its base gang has no place yet"
    QUEUED = "its minimum may be placed"
    NOMINATED = "its place is reserved, and others have to leave it first"
    BINDING = "its minimum is being bound"
    PLACED = "its minimum is on nodes"
    REPAIRING = "its minimum was on nodes and is not any more; what is missing may be placed, or has to come first"
    TAKING_BACK = "it could not be completed, and its bound pods are being deleted"
    LEAVING = "it is being evicted whole"


ENGAGED = frozenset({Phase.NOMINATED, Phase.BINDING, Phase.TAKING_BACK, Phase.LEAVING})
"""The scheduler works on the gang. A look at its pods does not change the phase; the end of that work does."""


class Life(msgspec.Struct, frozen=True):
    phase: Phase = Phase.NEW
    stood: bool = False
    """Its minimum was on nodes once, and some of its pods still are."""
    extra: int = 0
    """Bindings of pods above its minimum on their way."""
    deadline_s: float | None = None
    """Loop time at which it is taken back if it is still bound in part."""
    victim_of: str = ""
    """Why it is evicted, in words for its condition."""
    spared: bool = False
    """Its eviction was called off; it is no victim any more, whatever its condition said."""
    nominated: Reason | None = None
    """The pods that must leave the reserved nodes, while there are any."""

    @property
    def is_busy(self) -> bool:
        """True while the gang must not be judged or evicted, because its place is about to change."""
        return self.extra > 0 or self.phase in ENGAGED

    @property
    def is_open(self) -> bool:
        """True if the scheduler may search a place for it, or for pods above its minimum."""
        return self.phase not in (Phase.NOMINATED, Phase.TAKING_BACK, Phase.LEAVING)

    @property
    def attempts(self) -> int:
        """Bindings on their way, of its minimum or of pods above it."""
        return self.extra + (self.phase is Phase.BINDING)


class Looked(msgspec.Struct, frozen=True):
    """Its pods were looked at: the phase they alone speak for, and whether those on nodes are of a gang that stood."""

    phase: Phase
    on_nodes: bool
    stood: bool


class Nominated(msgspec.Struct, frozen=True):
    """A place was reserved for its minimum, which others have to leave."""

    why: Reason


class NominationDropped(msgspec.Struct, frozen=True):
    """The place was given back."""


class AttemptBegan(msgspec.Struct, frozen=True):
    is_minimum: bool


class AttemptEnded(msgspec.Struct, frozen=True):
    is_minimum: bool


class Stands(msgspec.Struct, frozen=True):
    """The minimum of every group is bound."""


class HalfBound(msgspec.Struct, frozen=True):
    """It is bound in part, and has until then to be completed."""

    deadline_s: float | None


class TakingBack(msgspec.Struct, frozen=True):
    """Its bound pods are being deleted."""


class TakenBack(msgspec.Struct, frozen=True):
    pass


class Evicting(msgspec.Struct, frozen=True):
    because: str


class EvictionEnded(msgspec.Struct, frozen=True):
    """All its pods terminate, or (`spared`) no unit needs their capacity any more: the rest is repaired."""

    spared: bool = False


Event = (
    Looked
    | Nominated
    | NominationDropped
    | AttemptBegan
    | AttemptEnded
    | Stands
    | HalfBound
    | TakingBack
    | TakenBack
    | Evicting
    | EvictionEnded
)


class Impossible(Exception):
    """An event that cannot happen in this phase: a mistake of the caller."""


def after(life: Life, event: Event) -> Life:
    """The life of a gang after something happened to it."""
    match event:
        case Looked(phase, on_nodes, stood):
            kept = replace(life, stood=stood, deadline_s=life.deadline_s if on_nodes and not stood else None)
            return kept if life.phase in ENGAGED else replace(kept, phase=phase)
        case Nominated(why):
            _only(life, event, Phase.QUEUED, Phase.REPAIRING)
            return replace(life, phase=Phase.NOMINATED, nominated=why)
        case NominationDropped():
            _only(life, event, Phase.NOMINATED)
            return replace(life, phase=_idle(life), nominated=None)
        case AttemptBegan(is_minimum):
            if is_minimum:
                _only(life, event, Phase.QUEUED, Phase.REPAIRING, Phase.NOMINATED)
                return replace(life, phase=Phase.BINDING)
            return replace(life, extra=life.extra + 1)
        case AttemptEnded(is_minimum):
            if is_minimum:
                _only(life, event, Phase.BINDING)
                return replace(life, phase=_idle(life), nominated=None)
            if not life.extra:
                raise Impossible("an attempt ended that never began")
            return replace(life, extra=life.extra - 1)
        case Stands():
            phase = life.phase if life.phase in ENGAGED else Phase.PLACED
            return replace(life, stood=True, deadline_s=None, phase=phase)
        case HalfBound(deadline_s):
            return replace(life, deadline_s=deadline_s)
        case TakingBack():
            if life.stood or life.phase in (Phase.BINDING, Phase.TAKING_BACK, Phase.LEAVING):
                raise Impossible(f"a gang is taken back that stood, or while {life.phase.value}")
            return replace(life, phase=Phase.TAKING_BACK, deadline_s=None, nominated=None)
        case TakenBack():
            _only(life, event, Phase.TAKING_BACK)
            return replace(life, phase=Phase.WAITING_FOR_PODS)
        case Evicting(because):
            if life.is_busy:
                raise Impossible(f"a gang is evicted while {life.phase.value}")
            return replace(life, phase=Phase.LEAVING, victim_of=because, spared=False)
        case EvictionEnded(spared):
            _only(life, event, Phase.LEAVING)
            return replace(life, phase=_idle(life), victim_of="", spared=spared)


def _idle(life: Life) -> Phase:
    """The phase of a gang that the scheduler does not work on, until its pods are looked at again."""
    return Phase.REPAIRING if life.stood else Phase.QUEUED


def _only(life: Life, event: Event, *phases: Phase) -> None:
    if life.phase not in phases:
        raise Impossible(f"{type(event).__name__} while {life.phase.value}")
