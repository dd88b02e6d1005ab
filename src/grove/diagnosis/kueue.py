"""Why Kueue holds a gang, from the conditions of its Workload and the numbers of its ClusterQueue. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grove.api.fields import mapping, sequence, text
from grove.api.kueue import QUEUE
from grove.api.meta import Json
from grove.api.quantity import InvalidQuantity, amount, format_amount
from grove.api.words import many

WAITS = "waits for Kueue"
_LACKS = re.compile(r"insufficient (?:unused )?quota for (\S+) in flavor ([^\s,]+)")
_LEAVE = f"or remove the label {QUEUE} from the set"


@dataclass(frozen=True, slots=True)
class KueueSeen:
    """Kueue's objects for one pod group, as far as they exist and may be read.

    `is_served` is False on a cluster without Kueue's kinds. `unread` names the kind that may not be read.
    """

    is_served: bool = True
    workload: Json | None = None
    queue: Json | None = None
    """The ClusterQueue."""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class KueueReason:
    reason: str
    evidence: tuple[str, ...] = ()
    step: str = ""


def kueue_reason(kueue_seen: KueueSeen | None, held: int, total: int) -> KueueReason:
    """Why `held` pods of a gang wait. `total` is the size of their group; `found` is None if nothing was looked up."""
    if kueue_seen is None:
        return KueueReason(f"{WAITS} to admit it", step="kubectl grove explain says what Kueue says about it")
    if not kueue_seen.is_served:
        step = f"install Kueue with its pod integration, {_LEAVE}"
        return KueueReason(f"{WAITS}, and this cluster does not have it: the kind Workload is not installed", step=step)
    if kueue_seen.unread:
        return KueueReason(f"{WAITS} to admit it", (f"you may not read {kueue_seen.unread} of Kueue",))
    if kueue_seen.workload is None:
        if held < total:
            return KueueReason(f"{WAITS}, which waits for all its pods: {held} of {many(total, 'pod')} exist")
        step = "is Kueue running, with the pod integration and for this namespace?"
        return KueueReason(f"{WAITS}, which has made no Workload for it yet", step=step)
    return _of_workload(kueue_seen.workload, kueue_seen.queue)


def _of_workload(workload: Json, queue: Json | None) -> KueueReason:
    name = text(mapping(workload.get("metadata")).get("name"))
    conditions = map(mapping, sequence(mapping(workload.get("status")).get("conditions")))
    by_type = {text(condition.get("type")): condition for condition in conditions}
    evidence: tuple[str, ...] = (f"Workload {name}",)
    if mapping(workload.get("spec")).get("active") is False:
        step = f'kubectl patch workload {name} --type=merge -p \'{{"spec":{{"active":true}}}}\''
        return KueueReason(f"{WAITS}: its Workload is deactivated", evidence, step)
    if _is(by_type, "Admitted"):
        return KueueReason(f"{WAITS}, which has admitted it and is about to remove the scheduling gates", evidence)
    reserved = by_type.get("QuotaReserved", {})
    if _is(by_type, "QuotaReserved"):
        return KueueReason(f"{WAITS}: quota is reserved, an admission check is not done", evidence)
    message = text(reserved.get("message"))
    if _is(by_type, "Evicted"):
        evicted = by_type["Evicted"]
        evidence = (*evidence, f"evicted ({text(evicted.get('reason'))}): {text(evicted.get('message'))}")
    if message:
        evidence = (*evidence, f"Kueue: {message}")
    step = "wait, scale something else in the queue down, or raise the quota of the ClusterQueue"
    if (left := _left(queue, message)) is not None:
        return KueueReason(f"{WAITS}: {left}", evidence, step)
    if text(reserved.get("reason")) == "Inadmissible":
        step = f"create the queue, {_LEAVE}"
    return KueueReason(f"{WAITS}: {message}" if message else f"{WAITS} to admit it", evidence, step)


def _is(by_type: dict[str, Json], kind: str) -> bool:
    return text(by_type.get(kind, {}).get("status")) == "True"


def _left(queue: Json | None, message: str) -> str | None:
    """The free quota of the resource that Kueue's message names as short; None if it names none."""
    lacks = _LACKS.search(message)
    if queue is None or lacks is None:
        return None
    resource, flavor = lacks[1], lacks[2]
    groups = sequence(mapping(queue.get("spec")).get("resourceGroups"))
    flavors = [flavor_entry for group in groups for flavor_entry in sequence(mapping(group).get("flavors"))]
    total = _amount(flavors, flavor, resource, "nominalQuota")
    status = mapping(queue.get("status"))
    used = _amount(sequence(status.get("flavorsReservation")), flavor, resource, "total")
    if total is None:
        return None
    left = max(0, total - (used or 0))
    unit = "GPUs" if resource.endswith(("/gpu", ".gpu")) else resource
    name = text(mapping(queue.get("metadata")).get("name"))
    return f"ClusterQueue {name} has {format_amount(resource, left)} of {format_amount(resource, total)} {unit} left"


def _amount(flavors: list[Json], flavor: str, resource: str, field: str) -> int | None:
    for flavor_entry in flavors:
        for item in sequence(mapping(flavor_entry).get("resources")):
            entry = mapping(item)
            if text(mapping(flavor_entry).get("name")) == flavor and text(entry.get("name")) == resource:
                try:
                    return amount(resource, entry.get(field, 0))
                except InvalidQuantity:
                    return None
    return None
