"""Object metadata under the server's rules: the fields it fills in, those that cannot change, and how it marks a
deletion.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from grove.api.faults import Fault, forbidden, invalid, required
from grove.api.meta import Json, Resource, rfc3339
from grove.kube.client import Propagation
from grove.kube.errors import Unavailable
from grove.sim import refusals
from grove.sim.kinds import NAMESPACE, Kind

if TYPE_CHECKING:
    from grove.sim.server import SimServer

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_PROPAGATION_FINALIZER: dict[Propagation, tuple[str, ...]] = {
    "Background": (),
    "Foreground": (FOREGROUND,),
    "Orphan": (ORPHAN,),
}
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED = 5
_MAX_GENERATED_BASE = 63 - _GENERATED
_GENERATE_ATTEMPTS = 8

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LOOSE_NAMES = ("rbac.authorization.k8s.io",)
"""Groups whose names are path segments, not DNS names (`system:node`)."""

_SERVER_OWNED = ("creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_FIELDS = frozenset(
    (
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        *_SERVER_OWNED,
    )
)
_DROPPED_WHEN_EMPTY = ("labels", "annotations", "ownerReferences", "finalizers", "generateName", "namespace")


def for_create(resource: Resource, obj: Json, server: SimServer) -> Json:
    """The new object with its identity: name, uid, creation time, generation 1."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        meta = {}
    if meta.get("resourceVersion"):
        why = "resourceVersion should not be set on objects to be created"
        raise Unavailable(why, code=500, reason="InternalError")  # a real server calls it an error of its own
    meta = _tidied(meta)
    if resource.namespaced and not meta.get("namespace"):
        raise refusals.bad_request("an empty namespace may not be set during creation")
    if not resource.namespaced:
        meta.pop("namespace", None)
    if not meta.get("name"):
        meta["name"] = _generated_name(resource, meta, server)
    for owned in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        meta.pop(owned, None)
    meta["uid"], meta["creationTimestamp"] = server.new_uid(), server.stamp()
    kind = server.kind_of(resource)
    if kind.has_generation:
        meta["generation"] = 1
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def _generated_name(resource: Resource, meta: Json, server: SimServer) -> str:
    base = meta.get("generateName", "")
    if not base:
        fault = required("metadata.name", "name or generateName is required")
        raise refusals.invalid(resource, "", [fault])
    for _ in range(_GENERATE_ATTEMPTS):
        suffix = "".join(server.rng.choice(_NAME_ALPHABET) for _ in range(_GENERATED))
        name = f"{base[:_MAX_GENERATED_BASE]}{suffix}"
        if server.find(resource, name, meta.get("namespace", "")) is None:
            break
    return name


def for_update(kind: Kind, new: Json, old: Json, subresource: str) -> Json:
    """The update reduced to what this endpoint may change; a stale resourceVersion is a Conflict."""
    before = old["metadata"]
    name, meta = before["name"], _tidied(new["metadata"])
    if meta.get("resourceVersion") not in (None, "", before["resourceVersion"]):
        raise refusals.modified(kind.resource, name)
    for field in ("name", "namespace"):
        if meta.get(field) != before.get(field):
            given, url = meta.get(field), before.get(field)
            raise refusals.bad_request(
                f"the {field} of the object ({given}) does not match the {field} on the URL ({url})"
            )
    if meta.get("uid", before["uid"]) != before["uid"]:
        fault = invalid("metadata.uid", meta["uid"], "field is immutable")
        raise refusals.invalid(kind.resource, name, [fault])
    if subresource == "status":
        # A custom resource's status endpoint takes nothing but status; built-in ones let labels through.
        meta = before if kind.is_custom else {**meta, "ownerReferences": before.get("ownerReferences")}
        fixed = {k: v for k, v in old.items() if k not in ("status", "metadata")}
        return {**fixed, "metadata": _restored(meta, before), **({"status": new["status"]} if "status" in new else {})}
    meta = _restored(meta, before)
    new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": meta}
    if kind.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    return new


def _restored(meta: Json, before: Json) -> Json:
    restored = {k: v for k, v in _tidied(meta).items() if k not in _SERVER_OWNED}
    restored["uid"], restored["resourceVersion"] = before["uid"], before["resourceVersion"]
    restored.update((owned, before[owned]) for owned in _SERVER_OWNED if owned in before)
    return restored


def _tidied(meta: Json) -> Json:
    """Only the fields metadata has, and empty ones left out, as typed metadata is encoded."""
    return {k: v for k, v in meta.items() if k in _FIELDS and (v or k not in _DROPPED_WHEN_EMPTY)}


def with_generation(kind: Kind, new: Json, old: Json) -> Json:
    """Generation counts changes of what is wanted: not metadata, and not status where status has its own endpoint."""
    if not kind.has_generation:
        return new
    aside = ("metadata", "status") if kind.has_status else ("metadata",)
    if all(new.get(k) is old.get(k) or new.get(k) == old.get(k) for k in {**new, **old} if k not in aside):
        return new
    meta = new["metadata"]
    return {**new, "metadata": {**meta, "generation": meta["generation"] + 1}}


def check(kind: Kind, new: Json, old: Json | None = None) -> None:
    """Names, labels, owners and finalizers that a server would refuse."""
    resource = kind.resource
    meta, faults = new["metadata"], []
    before = old["metadata"] if old is not None else {}
    name = meta["name"]
    if old is None and resource.group not in _LOOSE_NAMES and not _is_name(resource, name):
        faults.append(
            invalid(
                "metadata.name",
                name,
                "a lowercase RFC 1123 subdomain must consist of lower case "
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                "character",
            )
        )
    if (labels := meta.get("labels")) and labels != before.get("labels"):
        faults.extend(_label_faults(labels))
    if (owners := meta.get("ownerReferences")) and owners != before.get("ownerReferences"):
        faults.extend(_owner_faults(owners))
    if before.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            faults.append(forbidden("metadata.finalizers", why))
    for finalizer in () if kind.is_custom else meta.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in (FOREGROUND, ORPHAN, "kubernetes"):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            faults.append(invalid("metadata.finalizers", finalizer, why))
    if faults:
        raise refusals.invalid(resource, name, faults)


def _is_name(resource: Resource, name: str) -> bool:
    limit = 63 if resource in (NAMESPACE,) or resource.plural == "services" else 253
    return len(name) <= limit and _SUBDOMAIN.fullmatch(name) is not None


def _label_faults(labels: Json) -> list[Fault]:
    faults = []
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            faults.append(invalid("metadata.labels", key, "name part must consist of alphanumeric characters"))
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            faults.append(invalid("metadata.labels", value, why))
    return faults


def _owner_faults(owners: list[Json]) -> list[Fault]:
    faults = [
        invalid(f"metadata.ownerReferences[{at}].{field}", "", "must not be empty")
        for at, owner in enumerate(owners)
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        why = "Only one reference can have Controller set to true"
        faults.append(invalid("metadata.ownerReferences", "…", why))
    return faults


def for_deletion(old: Json, propagation: Propagation, grace_s: int, now: datetime) -> Json:
    """The object as a delete leaves it; `old` itself when this delete adds nothing to an earlier one."""
    before = old["metadata"]
    kept = [f for f in before.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
    finalizers = [*kept, *_PROPAGATION_FINALIZER[propagation]]
    meta = {k: v for k, v in before.items() if k != "finalizers"}
    if finalizers:
        meta["finalizers"] = finalizers
    if before.get("deletionTimestamp"):
        had_s = before.get("deletionGracePeriodSeconds") or 0
        if grace_s >= had_s and finalizers == (before.get("finalizers") or []):
            return old
        grace_s = min(grace_s, had_s)
    elif "generation" in meta:
        meta["generation"] += 1
    if not before.get("deletionTimestamp") or grace_s < had_s:
        meta["deletionTimestamp"] = rfc3339(now + timedelta(seconds=grace_s))
    meta["deletionGracePeriodSeconds"] = grace_s
    return {**old, "metadata": meta}
