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
