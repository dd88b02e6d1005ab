"""What is written to a Reservation: who uses it and how much, that it stands, or that its time is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from grove.api import duration
from grove.api.core import Pod
from grove.api.fields import parsed
from grove.api.koordinator import RESERVATION_ALLOCATED, Reservation
from grove.api.meta import Json, find_condition, rfc3339
from grove.api.quantity import InvalidQuantity, amount, format_amount
from grove.scheduler.model.facts import PODS
from grove.scheduler.model.reading import pod_requests

HOLD = "reservation:"
"""What stands for a reservation's free part among the pods of its node is called so, with its uid."""
SCHEDULED, NODE_HELD = "Scheduled", "NodeHeld"
"""Conditions. The message of `NodeHeld` is the name of the node: pods say it in `nominatedNodeName`."""
UNKNOWN_SINCE = datetime.fromtimestamp(0, UTC)
PENDING, AVAILABLE, SUCCEEDED, FAILED = "Pending", "Available", "Succeeded", "Failed"


class HeldNode(NamedTuple):
    """A node that is held for a Reservation, or for another one of its group."""

    node: str
    reason: str
    since: datetime


def owners_status(reservation: Reservation, users: Sequence[Pod], now: datetime) -> Json | None:
    """The status that is true now, as far as it is ours to say; None if that is what it says already."""
    if reservation.status.phase != AVAILABLE:
        return None
    expires = expiry_of(reservation)
    if expires is not None and expires <= now and not users:
        return ended(reservation, FAILED, "Expired", "its time is over", now)
    owners = sorted(
        ({"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in users),
        key=lambda owner: (owner["namespace"], owner["name"]),
    )
    held = reservation.status.allocatable
    allocated: dict[str, int] = {}
    for pod in users:
        for resource, used in pod_requests(pod):
            if resource in held:
                allocated[resource] = allocated.get(resource, 0) + used
    shown = {resource: format_amount(resource, used) for resource, used in sorted(allocated.items())}
    before = [
        {key: owner.get(key) for key in ("namespace", "name", "uid")} for owner in reservation.status.current_owners
    ]
    same = before == owners and {k: str(v) for k, v in reservation.status.allocated.items()} == shown
    if same:
        return None
    status: Json = {"currentOwners": owners, "allocated": shown or None}
    if users and reservation.spec.allocate_once is not False:
        return {**status, **ended(reservation, SUCCEEDED, "Succeeded", f"used by {owners[0]['name']}", now)}
    return status


def placed_status(reservation: Reservation, node: str, amounts: Mapping[str, int], now: datetime) -> Json:
    """It stands on a node and holds this."""
    return {
        "phase": AVAILABLE,
        "nodeName": node,
        "allocatable": {resource: format_amount(resource, held) for resource, held in sorted(amounts.items())},
        "conditions": [
            _condition(reservation, SCHEDULED, "True", "Scheduled", f"placed on {node}", now),
            _condition(reservation, "Ready", "True", "Available", "its owners may use it", now),
        ],
    }


def unplaced_status(reservation: Reservation, why: str | None, held: HeldNode | None, now: datetime) -> Json | None:
    """It found no place, and which node is held for it; None if it says so already. Without `why` that stays."""
    conditions = reservation.status.conditions
    before, was_held = find_condition(conditions, SCHEDULED), held_node(reservation)
    if why is None:
        if before is None or before.status != "False":
            return None
        why = before.message
    is_same = before is not None and (before.status, before.message) == ("False", why)
    if is_same and held == was_held:
        return None
    new_conditions = [_condition(reservation, SCHEDULED, "False", "Unschedulable", why, now)]
    if held is not None:
        new_conditions.append(
            {
                "type": NODE_HELD,
                "status": "True",
                "reason": held.reason,
                "message": held.node,
                "lastProbeTime": rfc3339(now),
                "lastTransitionTime": rfc3339(held.since),
            }
        )
    return {"phase": PENDING, "conditions": new_conditions}


def held_node(reservation: Reservation) -> HeldNode | None:
    """The node that is held for it by its own word, while it waits."""
    condition = find_condition(reservation.status.conditions, NODE_HELD)
    if condition is None or condition.status != "True" or reservation.status.phase not in ("", PENDING):
        return None
    return HeldNode(
        condition.message, condition.reason, (condition.last_transition_time or UNKNOWN_SINCE).replace(microsecond=0)
    )


def ended(reservation: Reservation, phase: str, reason: str, message: str, now: datetime) -> Json:
    others = [
        {
            "type": c.type,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "lastTransitionTime": rfc3339(c.last_transition_time or now),
            "lastProbeTime": rfc3339(now),
        }
        for c in reservation.status.conditions
        if c.type not in ("Ready", NODE_HELD)
    ]
    return {"phase": phase, "conditions": [*others, _condition(reservation, "Ready", "False", reason, message, now)]}


def _condition(reservation: Reservation, type_: str, status: str, reason: str, message: str, now: datetime) -> Json:
    before = find_condition(reservation.status.conditions, type_)
    same = before is not None and before.status == status and before.last_transition_time is not None
    since = before.last_transition_time if same and before is not None else now
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": rfc3339(now),
        "lastTransitionTime": rfc3339(since or now),
    }


DEFAULT_TTL = timedelta(hours=24)


def expiry_of(reservation: Reservation) -> datetime | None:
    """When it is over by its own word; None if never. `expires` excludes `ttl`, which counts from its creation."""
    if reservation.spec.expires is not None:
        return reservation.spec.expires
    created = reservation.metadata.creation_timestamp
    try:
        ttl = duration.parse(reservation.spec.ttl) if reservation.spec.ttl else DEFAULT_TTL
    except duration.InvalidDuration:
        ttl = DEFAULT_TTL
    return created + ttl if created is not None and ttl > timedelta() else None


def node_of(reservation: Reservation, now: datetime) -> str:
    """Where it stands; empty while it waits, when it is over, and after its time."""
    expires = expiry_of(reservation)
    is_over = reservation.metadata.is_deleting or (expires is not None and expires <= now)
    return reservation.status.node_name if reservation.status.phase == AVAILABLE and not is_over else ""


def amounts_of(reservation: Reservation) -> tuple[dict[str, int], list[str]]:
    """The amounts of a reservation, and the faults of amounts that are not readable."""
    amounts: dict[str, int] = {}
    faults = []
    for resource, value in reservation.status.allocatable.items():
        try:
            amounts[resource] = max(0, amount(resource, value))
        except InvalidQuantity:
            faults.append(f"allocatable.{resource}: {value!r} is not a quantity")
    amounts.pop(PODS, None)
    return amounts, faults


def is_there(pod: Pod) -> bool:
    return pod.is_bound and not pod.is_finished


class ReservationRef(NamedTuple):
    """Which reservation: another one may have had its name before. A pod without a uid means the one of now."""

    name: str = ""
    uid: str = ""

    def is_of(self, reservation: Reservation) -> bool:
        return self.name == reservation.metadata.name and self.uid in ("", reservation.metadata.uid)


def reservation_of(pod: Pod) -> ReservationRef:
    """The reservation that is written on a pod."""
    text = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
    if not text:
        return ReservationRef()
    try:
        body = parsed(text)
    except ValueError:
        return ReservationRef()
    return (
        ReservationRef(str(body.get("name", "")), str(body.get("uid", "")))
        if isinstance(body, dict)
        else ReservationRef()
    )


def is_used_by(reservation: Reservation, pod: Pod) -> bool:
    """True if a pod exists on the reservation's node and names this reservation."""
    return (
        is_there(pod) and pod.spec.node_name == reservation.status.node_name and reservation_of(pod).is_of(reservation)
    )
