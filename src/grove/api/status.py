"""Status parts that several Grove kinds share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from grove.api.meta import Struct, doc

RECONCILE, DELETE = "Reconcile", "Delete"
PROCESSING, SUCCEEDED, ERROR = "Processing", "Succeeded", "Error"


class LastError(Struct):
    code: Annotated[str, doc("Stable code of what went wrong.", required=True)] = ""
    description: Annotated[str, doc("What went wrong, in words.", required=True)] = ""
    observed_at: Annotated[datetime | None, doc("When it was last seen.", required=True)] = None


class LastOperation(Struct):
    type: Annotated[str, doc("What the operator was doing.", enum=[RECONCILE, DELETE])] = ""
    state: Annotated[str, doc("How it went.", enum=[PROCESSING, SUCCEEDED, ERROR])] = ""
    description: Annotated[str, doc("The same, in words.")] = ""
    last_update_time: Annotated[datetime | None, doc("When this was last written.")] = None


class SurgeProgress(Struct):
    """Units that an update made beyond `replicas`, so that no capacity is missing while old units are replaced."""

    indexes: Annotated[tuple[int, ...], doc("Indexes of the surge units.")] = ()
    ready: Annotated[int, doc("Surge units that are ready.")] = 0
    waiting_since: Annotated[datetime | None, doc("Since when a surge unit has no place.")] = None
    displaced_since: Annotated[
        datetime | None, doc("Since when a replaced unit has no place while surge units exist.")
    ] = None
    not_placed: Annotated[
        bool | None, doc("True if the scheduler did not place all new units in time; surge units are removed then.")
    ] = None
    settled_slice: Annotated[int | None, doc("Slice of a coherent update that needs no further surge unit.")] = None


class DrainingReplica(Struct):
    """A replica of a set or of a scaling group that was scaled in, and whose pods finish their requests."""

    replica_index: Annotated[int, doc("Replica it is about.", required=True)] = 0
    until: Annotated[datetime | None, doc("When its pods are deleted at the latest.", required=True)] = None


class ReplicaRestart(Struct):
    """How often all pods of one replica, of a set or of a scaling group, were created again together."""

    replica_index: Annotated[int, doc("Replica it is about.", required=True)] = 0
    incarnation: Annotated[int, doc("Pods of an earlier incarnation are replaced at once.", required=True)] = 0
    gang_restarts: Annotated[int, doc("Times it was restarted because it stayed in breach.")] = 0
    last_gang_restart_time: Annotated[datetime | None, doc("When that last happened.")] = None
    generation_hash: Annotated[str, doc("Generation of the set that an update last brought it to.")] = ""
