"""Wanted against observed: what to create, what to patch, what to delete, and what must wait.

Wanted objects are the plain JSON we would create; observed ones are what was read, as JSON or as a view. A patch holds
only what differs, in the fields we own (`OWNERSHIP`); everything else on a live object belongs to others and stays.
Law: a patch, once applied, leaves nothing to patch. Each child has exactly one owner, which manages it and holds its
own deletion for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from grove.api import labels, labelsets
from grove.api.meta import Json, Object, Struct, find_condition, rfc3339
from grove.api.patch import struct_patch, to_json
from grove.api.pod import Pod
from grove.api.podclique import PodClique
from grove.api.quantity import InvalidQuantity, exact

Path: TypeAlias = tuple[str, ...]

_LABELS: Path = ("metadata", "labels")
_ANNOTATIONS: Path = ("metadata", "annotations")
_AT_CREATION: tuple[Path, ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "finalizers"),
    ("metadata", "ownerReferences"),
)
"""Said when an object is made and never corrected: identity, and lists that others write to as well."""


class Ownership(NamedTuple):
    """Which parts of a live object are ours.

    - `exact`: every key below is ours and compared literally (a label with an empty value is not a missing label).
    - `whole`: every key below is ours, but a zero value and a missing one are the same, as on Kubernetes' own types.
    - `left`: ours when the object is created, free for others afterwards.
    - `unordered`: lists whose order means nothing and is the server's.
    - `amounts`: names of maps whose values may be quantities. They are compared by value, because the server changes
      their spelling (`1000m` comes back as `1`).

    Any other part is patched where the wanted object names it. Foreign keys beside it stay.
    """

    exact: tuple[Path, ...] = (_LABELS,)
    whole: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    unordered: tuple[Path, ...] = ()
    amounts: tuple[str, ...] = ()


OWNERSHIP: Mapping[str, Ownership] = {
    # spec.replicas belongs to the user or HPA that scales. The template sets it only at creation.
    "PodClique": Ownership(
        exact=(_LABELS, _ANNOTATIONS, ("spec", "podSpec")), whole=(("spec",),), left=(("spec", "replicas"),)
    ),
    "PodCliqueScalingGroup": Ownership(exact=(_LABELS, _ANNOTATIONS), whole=(("spec",),), left=(("spec", "replicas"),)),
    "PodGang": Ownership(exact=(_LABELS, _ANNOTATIONS), whole=(("spec",),), left=(("spec", "reuseReservationRef"),)),
    "Service": Ownership(exact=(_LABELS, ("spec", "selector"))),
    # API servers that store autoscalers in their first version, as older ones do, show the CPU's metric last.
    "HorizontalPodAutoscaler": Ownership(unordered=(("spec", "metrics"),), amounts=("target",)),
    "ServiceAccount": Ownership(),
    "Role": Ownership(),
    "RoleBinding": Ownership(left=(("roleRef",),)),
    "Secret": Ownership(exact=(), left=(("type",),)),
    # A claim's spec cannot change; programs that use the claim may add labels.
    "ResourceClaim": Ownership(exact=(), left=(("spec",),)),
    "ComputeDomain": Ownership(exact=(), left=(("spec",),)),
}
_DEFAULT = Ownership(exact=())


def needed_patch(wanted: Json, observed: Json | Object, ownership: Ownership | None = None) -> Json | None:
    """The JSON merge patch that makes `observed` as `wanted` in the fields we own; None when it already is."""
    rules = ownership or OWNERSHIP.get(wanted.get("kind", ""), _DEFAULT)
    return _patch_map(wanted, _plain(observed, wanted), rules, (), "named") or None


def child_patch(wanted: Json, live: Object) -> Json | None:
    """The patch that its owner makes to a child.

    A PodClique that has another template keeps it: its own controller gives it the new one when its turn has come.
    """
    patch = needed_patch(wanted, live)
    own = wanted["metadata"].get("labels") or {}
    if patch is None or not isinstance(live, PodClique) or _template_of(own) == _template_of(live.metadata.labels):
        return patch
    metadata, spec = dict(patch.get("metadata") or {}), dict(patch.get("spec") or {})
    spec.pop("podSpec", None)
    metadata.pop("annotations", None)
    place = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key in _PLACE_LABELS}
    metadata |= {"labels": place} if place else {}
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})} or None


def _template_of(own: Mapping[str, str]) -> tuple[str | None, str | None]:
    return own.get(labels.POD_TEMPLATE_HASH), own.get(labels.REVISION)


_PLACE_LABELS = frozenset(labelsets.member_clique({}, "", 0, "", 0, "", "", "-", "")) - {labels.POD_TEMPLATE_HASH}
"""Labels that say where a PodClique belongs; the others come from its template."""


def status_patch(before: Struct, after: Struct, *, resource_version: str = "") -> Json | None:
    """The merge patch for the status subresource, or None when the status already says so.

    Made from two readings of the same status, so fields we do not read stay. A first status is written whole, zeros
    included: the API requires counters to be there. `resource_version` makes the write conditional, for lists with two
    writers.
    """
    patch = struct_patch(before, after)
    if patch and before == type(before)():
        patch = to_json(after)
    if not patch:
        return None
    return (
        {"metadata": {"resourceVersion": resource_version}, "status": patch} if resource_version else {"status": patch}
    )


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """The changes of the children of one kind. Apply them in the order delete, adopt, patch, create.

    `blocked` are names that are wanted but taken: by an object on its way out, or by one that is not ours. Their
    deletion is the event to wait for; `foreign` says which of them will not go away by themselves.
    """

    create: list[Json] = field(default_factory=list)
    adopt: list[tuple[str, Json]] = field(default_factory=list)
    patch: list[tuple[str, Json]] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        return not (self.create or self.adopt or self.patch or self.delete or self.blocked)


def plan_children(
    wanted: Iterable[Json], observed: Iterable[Object], owner: Object, *, unchanged: Iterable[str] = ()
) -> ChildPlan:
    """Plan for all children of one kind of one owner, distinguished by their controller.

    `observed` may hold objects of others (a label selector finds them too). They are never patched or deleted; only
    orphans are adopted. Children of an earlier object with the owner's name are deleted too, before the garbage
    collector reaches them. Existing children named in `unchanged` were compared before and have not changed since.
    """
    plan = ChildPlan()
    seen = {obj.metadata.name: obj for obj in observed}
    same = set(unchanged)
    names = set()
    for child in wanted:
        name = child["metadata"]["name"]
        names.add(name)
        live = seen.get(name)
        if live is None:
            plan.create.append(child)
        elif is_orphan(live, child):
            plan.adopt.append((name, adoption(child, live)))
        elif live.metadata.is_deleting or not is_controlled_by(live, owner):
            plan.blocked.append(name)
            if not live.metadata.is_deleting and not is_left_behind(live, owner):
                plan.foreign.append(name)
        elif name not in same and (patch := child_patch(child, live)):
            plan.patch.append((name, patch))
    for name in sorted(seen.keys() - names):
        if is_controlled_by(seen[name], owner) and not seen[name].metadata.is_deleting:
            plan.delete.append(name)
    return plan


def finalizer_patch(finalizers: Sequence[str], resource_version: str, name: str, *, present: bool) -> Json | None:
    """The conditional merge patch that adds or removes one finalizer, leaving the others; None if nothing is to do.

    Conditional, because the list has several writers and a merge patch replaces it whole.
    """
    if (name in finalizers) == present:
        return None
    kept = [*finalizers, name] if present else [finalizer for finalizer in finalizers if finalizer != name]
    return {"metadata": {"resourceVersion": resource_version, "finalizers": kept}}


_SAME: Any = object()
_ITEM = "[]"
"""In a path: an item of a list. Lists are replaced whole, so only the law of the list itself counts inside."""


def _patch_map(wanted: Json, observed: Json, rules: Ownership, path: Path, mode: str) -> Json:
    patch: Json = {}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    for key, value in wanted.items():
        here = (*path, key)
        if here in rules.left or here in _AT_CREATION:
            continue
        change = _change(value, observed.get(key), rules, here, _mode(rules, here, mode))
        if change is not _SAME:
            patch[key] = change
    for key in (key for key in observed if key not in wanted and observed[key] is not None):
        here = (*path, key)
        ours = _mode(rules, here, mode)
        if ours == "named" or here in rules.left or (mode == "whole" and _is_blank(observed[key])):
            continue
        if mode != "named":
            patch[key] = None
        elif isinstance(observed[key], Mapping) and (emptied := _patch_map({}, observed[key], rules, here, ours)):
            # A map of ours that wanted does not mention at all is wanted empty.
            patch[key] = emptied
    return patch


def _change(wanted: Any, observed: Any, rules: Ownership, path: Path, mode: str) -> Any:
    """The value to put at `path`, or `_SAME`."""
    if wanted == observed:
        return _SAME
    if isinstance(wanted, Mapping):
        if isinstance(observed, Mapping):
            return _patch_map(dict(wanted), dict(observed), rules, path, mode) or _SAME
        is_same = observed is None and not wanted and (mode != "exact" or path in rules.exact)
    elif mode != "exact" and _is_blank(wanted) and _is_blank(observed):
        is_same = True
    elif isinstance(wanted, list | tuple) and isinstance(observed, list | tuple):
        is_same = _has_same_items(wanted, observed, rules, path, mode)
    else:
        holder = path[-2] if len(path) > 1 else ""
        is_same = holder in rules.amounts and _is_same_amount(wanted, observed)
    return _SAME if is_same else wanted


def _has_same_items(wanted: Sequence[Any], observed: Sequence[Any], rules: Ownership, path: Path, mode: str) -> bool:
    def is_same(item: Any, other: Any) -> bool:
        return _change(item, other, rules, (*path, _ITEM), mode) is _SAME

    if len(wanted) != len(observed):
        return False
    if path not in rules.unordered:
        return all(map(is_same, wanted, observed))
    rest = list(observed)
    for item in wanted:
        at = next((at for at, other in enumerate(rest) if is_same(item, other)), None)
        if at is None:
            return False
        del rest[at]
    return True


def _is_same_amount(wanted: Any, observed: Any) -> bool:
    try:
        return exact(wanted) == exact(observed)
    except InvalidQuantity:
        return False


def _mode(rules: Ownership, path: Path, inherited: str) -> str:
    if path in rules.exact:
        return "exact"
    if path in rules.whole:
        return "whole"
    return inherited


def _is_blank(value: Any) -> bool:
    """Zero values that Kubernetes' own types drop on the wire."""
    return value is None or value is False or value == 0 or value == "" or value == [] or value == {} or value == ()


def _plain(observed: Json | Object, parts: Iterable[str]) -> Json:
    """The named parts of an object as JSON.

    A view has its defaults spelled out: what it did not find, the API server would have filled in so.
    """
    if isinstance(observed, Mapping):
        return observed
    fields = dict(_fields(type(observed)))
    return {name: _spelled(getattr(observed, fields[name])) for name in parts if name in fields}


def _spelled(value: Any) -> Any:
    if isinstance(value, Struct):
        return {
            name: field_value if type(field_value) in _PLAIN else _spelled(field_value)
            for name, attr in _fields(type(value))
            if (field_value := getattr(value, attr)) is not None
        }
    if isinstance(value, tuple):
        return [_spelled(item) for item in value]
    return rfc3339(value) if isinstance(value, datetime) else value


_PLAIN = frozenset({str, int, bool, float, dict})
"""Types of values that are JSON as they are. Most fields of an object have one of them."""


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field_info.encode_name, field_info.name) for field_info in msgspec.structs.fields(kind))


def owned_by(owner: Object) -> list[Json]:
    """The `ownerReferences` of a child."""
    return [
        {
            "apiVersion": owner.RESOURCE.api_version,
            "kind": owner.RESOURCE.kind,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def child_metadata(
    owner: Object,
    name: str,
    own_labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    finalizer: str = "",
) -> Json:
    """The metadata of a child, which is in the namespace of its owner."""
    return {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": own_labels,
        "ownerReferences": owned_by(owner),
        **({"annotations": dict(annotations)} if annotations else {}),
        **({"finalizers": [finalizer]} if finalizer else {}),
    }


def refers_to(obj: Json, owner: Object) -> bool:
    """True if an object has this owner."""
    return any(ref.get("uid") == owner.metadata.uid for ref in obj["metadata"].get("ownerReferences") or ())


def is_controlled_by(obj: Object, owner: Object) -> bool:
    controller = obj.metadata.controller
    return controller is not None and controller.uid == owner.metadata.uid


def is_orphan(live: Object, wanted: Json) -> bool:
    """True if an object has no owner and our labels: its owner was deleted without its children."""
    if live.metadata.controller is not None or live.metadata.is_deleting:
        return False
    made, asked = live.metadata.labels, wanted["metadata"]["labels"]
    return all(label in made and made[label] == asked.get(label) for label in (labels.MANAGED_BY, labels.PART_OF))


def adoption(wanted: Json, live: Object) -> Json:
    """The patch that gives an orphan the owner that `wanted` names, and makes it as wanted; conditional, because the
    list of owners has several writers."""
    patch = child_patch(wanted, live) or {}
    owners = [*map(to_json, live.metadata.owner_references), *wanted["metadata"]["ownerReferences"]]
    metadata = {"resourceVersion": live.metadata.resource_version, "ownerReferences": owners}
    return {**patch, "metadata": {**patch.get("metadata", {}), **metadata}}


def is_left_behind(live: Object, owner: Object) -> bool:
    """True if an object belonged to an earlier object of the owner's name. The garbage collector deletes it."""
    controller = live.metadata.controller
    return (
        controller is not None
        and (controller.kind, controller.name) == (owner.RESOURCE.kind, owner.metadata.name)
        and controller.uid != owner.metadata.uid
    )


def condition_steps(pod: Pod, type_: str, status: str, reason: str, message: str, now: datetime) -> list[Json]:
    """The JSON patch of a pod's status that writes this condition and touches no other."""
    conditions = pod.status.conditions
    old = find_condition(conditions, type_)
    since = old.last_transition_time if old is not None and old.status == status and old.last_transition_time else now
    condition: Json = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }
    if old is None:
        return [{"op": "add", "path": "/status/conditions/-", "value": condition}]
    at = f"/status/conditions/{conditions.index(old)}"
    return [
        {"op": "test", "path": f"{at}/type", "value": type_},
        {"op": "replace", "path": at, "value": condition},
    ]
