"""Wanted against live, one object at a time: what to do about an object beside a gang; a controller carries it out.

Nobody else's object is ever touched, an object whose spec cannot change is replaced only while no pod leans on it, and
what differs and must stay is said instead of hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from grove.api.meta import Json
from grove.backends.base import NAME_CONFLICT, SPEC_DRIFT


class Step(NamedTuple):
    """What to do about one object. `wait`: it is on its way out, and its deletion is the event that brings us back."""

    act: Literal["nothing", "create", "patch", "replace", "wait", "keep", "conflict"]
    patch: Json | None = None
    reason: str = ""
    message: str = ""


def step_for(
    wanted: Json, live: Json | None, owner_uid: str, patch: Json | None, *, frozen: bool, in_use: bool
) -> Step:
    """`patch` is what would make `live` as wanted (None: nothing); `in_use` says that pods refer to the object."""
    if live is None:
        return Step("create")
    what = f"{wanted['kind']} {wanted['metadata']['name']}"
    if _controller(live) != owner_uid:
        return Step("conflict", reason=NAME_CONFLICT, message=f"{what} exists and belongs to somebody else")
    if live["metadata"].get("deletionTimestamp"):
        return Step("wait")
    if patch is None:
        return Step("nothing")
    if not frozen or "spec" not in patch:
        return Step("patch", patch)
    if not in_use:
        return Step("replace")
    message = f"{what} cannot be changed while pods are in it: {', '.join(sorted(patch['spec']))}"
    metadata = {"metadata": patch["metadata"]} if "metadata" in patch else None
    return Step("keep", metadata, SPEC_DRIFT, message)


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
    return next((str(one.get("uid", "")) for one in owners if one.get("controller")), "")
