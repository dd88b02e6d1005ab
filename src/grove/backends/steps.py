"""What to do about one object of a gang: compare the wanted with the live one; a controller carries out the step.

The step never touches an object of another owner. It replaces an object whose spec cannot change only while no pod
refers to it. It reports a difference that must stay. An object records the fields that Grove set: Grove takes back a
field that it no longer sets, and keeps fields that others wrote.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from grove.api.labels import LAST_WRITTEN
from grove.api.meta import Json
from grove.backends.base import NAME_CONFLICT, REPLACING, SPEC_DRIFT


class Step(NamedTuple):
    """The next write to one object. `wait`: the object is being deleted, and its deletion starts the next reconcile;
    with a reason if another object must replace it.
    """

    act: Literal["nothing", "create", "patch", "replace", "wait", "keep", "conflict"]
    patch: Json | None = None
    reason: str = ""
    message: str = ""


def step_for(
    wanted: Json,
    live: Json | None,
    owner_uid: str,
    patch: Json | None,
    *,
    frozen: bool,
    in_use: bool,
    fixed: Collection[tuple[str, ...]] = (),
) -> Step:
    """`patch` is what would make `live` as wanted (None: nothing); `in_use` says that pods refer to the object.

    A change at one of the paths in `fixed` deletes the object and creates it again, pods or not.
    """
    if live is None:
        return Step("create")
    what = f"{wanted['kind']} {wanted['metadata']['name']}"
    if _controller(live) != owner_uid:
        return Step("conflict", reason=NAME_CONFLICT, message=f"{what} exists and belongs to another owner")
    is_old = any(_touches(patch, path) for path in fixed)
    if live["metadata"].get("deletionTimestamp"):
        # Pods in a frozen one keep it: to hold them until it is gone would be to wait for ever.
        is_old = is_old or (frozen and not in_use and "spec" in (patch or {}))
        return Step("wait", reason=REPLACING if is_old else "")
    if patch is None:
        return Step("nothing")
    if is_old:
        return Step("replace")
    if not frozen or "spec" not in patch:
        return Step("patch", patch)
    if not in_use:
        return Step("replace")
    message = f"{what} cannot be changed while pods are in it: {', '.join(sorted(patch['spec']))}"
    return Step("keep", _metadata_alone(patch), SPEC_DRIFT, message)


def _touches(patch: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(patch, dict) or name not in patch:
            return False
        patch = patch[name]
    return True


def _metadata_alone(patch: Json) -> Json | None:
    """The part of a patch that a frozen object takes. It goes on remembering what its spec still says."""
    metadata = dict(patch.get("metadata") or {})
    annotations = {
        name: value for name, value in (metadata.pop("annotations", None) or {}).items() if name != LAST_WRITTEN
    }
    metadata |= {"annotations": annotations} if annotations else {}
    return {"metadata": metadata} if metadata else None


# What was said before


def remembering(wanted: Json, once: Collection[tuple[str, ...]] = ()) -> Json:
    """The object as it is to be written, with an annotation that names every field of ours in it.

    The annotation has the form of the merge patch that removes all of these fields. A list can only be replaced whole,
    so the annotation has its digest. Fields of the spec that can be set only once (`once`) are never removed.
    """
    metadata = wanted["metadata"]
    trace_of_metadata = {name: _trace(metadata[name]) for name in ("labels", "annotations") if metadata.get(name)}
    spec = {name: _trace(value) for name, value in wanted["spec"].items() if ("spec", name) not in once}
    trace = json.dumps({"metadata": trace_of_metadata, "spec": spec}, separators=(",", ":"), sort_keys=True)
    annotations = {**(metadata.get("annotations") or {}), LAST_WRITTEN: trace}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def taking_back(wanted: Json, live: Json) -> Json:
    """The merge patch that removes from `live` what it remembers as ours and `wanted` does not say any more."""
    try:
        last = json.loads((live["metadata"].get("annotations") or {}).get(LAST_WRITTEN) or "{}")
    except ValueError:
        return {}  # a user's edit: the last state is unknown, and the wanted state is written all the same
    return _less(last, wanted, live) if isinstance(last, dict) else {}


def merged(patch: Json | None, other: Json) -> Json | None:
    """Both merge patches as one; None if there is nothing in them."""
    both = dict(patch or {})
    for name, value in other.items():
        mine = both.get(name)
        both[name] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both or None


def _trace(value: Any) -> Any:
    if isinstance(value, dict) and value:
        return {name: _trace(item) for name, item in value.items()}
    if isinstance(value, list):
        return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
    return None


def _less(last: Json, wanted: Json, live: Json) -> Json:
    patch: Json = {}
    for name, trace in last.items():
        if name not in live or name == LAST_WRITTEN:
            continue
        if name not in wanted:
            patch[name] = None
        elif isinstance(trace, dict) and isinstance(wanted[name], dict) and isinstance(live[name], dict):
            if inner := _less(trace, wanted[name], live[name]):
                patch[name] = inner
        elif isinstance(trace, str) and trace != _trace(wanted[name]):
            patch[name] = wanted[name]  # said differently then: an item may have had a field that it has no more
    return patch


def owner_references(gang: Json, wanted: Json, made: Mapping[tuple[str, str], str]) -> list[Json]:
    """The gang, which manages the object, and the objects beside it that it names.

    Deletion of the gang never waits for the object: a finalizer of the scheduler's may hold it for long.
    """
    beside = (
        (made.get((named["kind"], named["name"])), named) for named in wanted["metadata"].get("ownerReferences", ())
    )
    return [
        {**gang, "controller": True, "blockOwnerDeletion": False},
        *({**named, "uid": uid} for uid, named in beside if uid),
    ]


def _controller(live: Json) -> str:
    owners = live["metadata"].get("ownerReferences") or ()
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")
