"""What tests of dialects do to an object of one, and what they wait for."""

from __future__ import annotations

from typing import Any

from grove.api.dynamo import PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Json
from tests.support.operating import World, condition

Kind = type[PodGangSet] | type[KoordPodCliqueSet]


async def apply(world: World, obj: Json) -> None:
    obj["metadata"]["namespace"] = world.namespace
    kind = PodGangSet if obj["kind"] == "PodGangSet" else KoordPodCliqueSet
    await world.client.create(kind, obj)


async def said(world: World, kind: Kind, name: str, type_: str, status: str, reason: str = "") -> Any:
    """The object, once this condition says so about its newest generation."""

    async def look() -> Any:
        found = await world.get(kind, name)
        told = condition(found.status.conditions, type_)
        is_new = found.status.observed_generation == found.metadata.generation
        return found if is_new and told is not None and told[0] == status and reason in ("", told[1]) else None

    return await world.eventually(look, 90)


async def edit(world: World, kind: Kind, name: str, patch: Json) -> None:
    await world.client.patch(kind, name, patch, world.namespace)
