"""Why something waits, as a value: a kind, what it is about, and numbers. Words are made of it in `show.reasons` alone.

The core, the loop's verdicts, `explain` and the command line pass these on; programs read them as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# Why there is no place: what `place` answers.
MISSING_PODS = "MissingPods"
UNKNOWN_LEVEL = "UnknownTopologyLevel"
NO_NODE = "NoSuitableNode"
NO_CAPACITY = "InsufficientRoom"
NO_DOMAIN = "NoDomainFits"
PINNED = "DomainPinned"
NO_PACKING = "NoPacking"
SPREAD_SKEW = "SpreadSkew"
SPREAD_HOME = "SpreadDomainFull"
NO_DEVICES = "NoDevices"
BUDGET_ENDED = "BudgetEnded"
NOT_ADMITTED = "NotAdmitted"

# Why a policy of queues keeps a unit out.
QUOTA_EXCEEDED = "QuotaExceeded"
QUOTA_KEPT = "QuotaKeptForOthers"
QUEUE_MISSING = "QueueDoesNotExist"
QUEUE_INVALID = "QueueInvalid"
QUEUE_NOT_LEAF = "QueueNotLeaf"
HOLDS_MORE = "HoldsMoreThanGuaranteed"
MAY_CALL_BACK = "MayCallBack"

# Parts of such an answer.
NEEDS = "Wants"
NODES_FOR = "NodesFor"
FILTERED = "Filtered"
INSUFFICIENT = "Insufficient"
OUTSIDE_BASE = "OutsideBaseDomain"
HELD = "HeldForOthers"
KEPT_OUT = "NodesHeldForOthers"
HEADROOM = "Headroom"
REPLICA_INCOMPLETE = "ReplicaIncomplete"
HEADROOM_OF_OTHERS = "HeadroomOfOthers"
QUOTA_OF_HEADROOM = "QuotaOfHeadroom"
NODES_HELD = "NodesHeld"
CLOSEST = "ClosestDomain"
GROUP_CAPACITY = "RoomForGroup"
TOGETHER = "PlacedTogether"
ONE_MORE = "RoomForOneMore"
UNITS_IN = "UnitsInDomain"
SHARED_HOME = "SharedClaimHome"
SCORED = "Scored"

# Why a gang is not considered yet, and what happens to it.
NO_PODS = "NamesNoPods"
PODS_COMING = "PodsBeingCreated"
PODS_MISSING = "PodsDoNotExist"
PODS_LEAVING = "PodsBeingDeleted"
GATED = "SchedulingGated"
BASE_WAITS = "WaitingForBaseGang"
INVALID = "InvalidPodGang"
FITS = "Fits"
STANDS = "MinimumOnNodes"
PLACED = "Placed"
PLACE_FREE = "PlaceIsFree"
PODS_LOST = "PodsLost"
BIND_FAILED = "BindFailed"
TIMED_OUT = "GangTimeout"
PREEMPTING = "Preempting"
KEPT_PLACE = "PlaceIsKept"

# Why no victim can be evicted for it.
NEVER_PREEMPTS = "PreemptionNever"
NONE_LOWER = "NoLowerPriority"
LEAVING = "WaitingForTermination"
NOT_ENOUGH = "NotEnoughToPreempt"
NO_SMALL_SET = "NoSmallSetOfVictims"
BUDGETS = "VictimsProtectedByBudgets"

# Why no other gang can be moved for it.
NOT_ENOUGH_FREE = "NotEnoughFree"
NONE_MAY_MOVE = "NoGangMayMove"
NO_MOVES = "NoMovesFound"


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact. `subject` is what it is about (a group, a resource, a domain); `parts` are facts it rests on.

    `names` holds what else has a name: a `level` is a node label's key until `named` puts the topology's word for it.
    """

    kind: str
    subject: str = ""
    numbers: Mapping[str, float] = {}
    names: Mapping[str, str] = {}
    parts: tuple[Reason, ...] = ()

    def number(self, name: str) -> int:
        return int(self.numbers.get(name, 0))

    def part(self, *kinds: str) -> Reason | None:
        """The first part of one of these kinds."""
        return next((reason for reason in self.parts if reason.kind in kinds), None)

    def parts_of(self, kind: str) -> list[Reason]:
        return [reason for reason in self.parts if reason.kind == kind]

    def with_parts(self, *more: Reason) -> Reason:
        return msgspec.structs.replace(self, parts=(*self.parts, *more)) if more else self


def named(reason: Reason, levels: Mapping[str, str]) -> Reason:
    """The reason with levels as the topology calls them; `levels` gives names by label keys."""
    names = reason.names
    if (level := names.get("level", "")) in levels:
        names = {**names, "level": levels[level]}
    parts = tuple(named(part, levels) for part in reason.parts)
    return msgspec.structs.replace(reason, names=names, parts=parts)
