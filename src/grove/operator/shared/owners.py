"""Who owns what: each child has exactly one owner, which manages it and holds its own deletion for it."""

from __future__ import annotations

from grove.api.meta import Json, Object


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


def is_controlled_by(obj: Object, owner: Object) -> bool:
    controller = obj.metadata.controller
    return controller is not None and controller.uid == owner.metadata.uid


def is_left_behind(live: Object, owner: Object) -> bool:
    """Whether this belonged to an earlier object of the owner's name; then the garbage collector will come to it."""
    controller = live.metadata.controller
    return (
        controller is not None
        and (controller.kind, controller.name) == (owner.RESOURCE.kind, owner.metadata.name)
        and controller.uid != owner.metadata.uid
    )
