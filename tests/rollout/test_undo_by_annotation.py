"""The annotation `grove.io/rollout-undo`, for tools that only annotate: the operator brings a template back."""

from __future__ import annotations

import pytest
from tests.support.operating import Operating, World
from tests.support.workloads import change, updated, versions, wl2

from grove.api import labels as key
from grove.api.conditions import EventReason
from grove.api.core import ControllerRevision, Event
from grove.api.podcliqueset import PodCliqueSet

OPERATING = Operating(start_s=0.2)


async def revisions(world: World, count: int) -> None:
    async def kept() -> bool:
        return len(await world.list(ControllerRevision)) == count

    await world.eventually(kept)


async def undo(world: World, asked: str) -> None:
    """Asks, and waits until the operator has answered."""
    patch = {"metadata": {"annotations": {key.ROLLOUT_UNDO: asked}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)

    async def answered() -> bool:
        return key.ROLLOUT_UNDO not in (await world.get(PodCliqueSet, "wl")).metadata.annotations

    await world.eventually(answered)


async def said(world: World, reason: str) -> str:
    async def found() -> str:
        events = (await world.client.list(Event, world.namespace)).items
        return next((one.message for one in events if one.reason == reason), "")

    return await world.eventually(found)


async def test_the_revision_before_comes_back(world: World) -> None:
    await world.apply(wl2())
    await world.available("wl")
    await revisions(world, 1)
    await change(world, "wl", "pc-a")
    await updated(world, "wl")
    await revisions(world, 2)
    assert any((await versions(world)).values())
    await undo(world, "previous")
    await updated(world, "wl")
    assert not any((await versions(world)).values())
    assert "revision 1" in await said(world, EventReason.UPDATE_UNDONE)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param("previous", "no earlier template of wl is kept", id="nothing to go back to"),
        pytest.param("7", "there is no revision 7 of wl; kept are 1", id="a revision that is not kept"),
        pytest.param("yesterday", "neither 'previous' nor the number of a revision", id="no number"),
        pytest.param("9" * 5000, "neither 'previous' nor the number of a revision", id="too many digits"),
    ],
)
async def test_what_cannot_be_undone_is_refused_once_and_changes_nothing(world: World, asked: str, why: str) -> None:
    await world.apply(wl2())
    before = await world.available("wl")
    await revisions(world, 1)
    await undo(world, asked)
    assert why in await said(world, EventReason.UNDO_REFUSED)
    assert (await world.get(PodCliqueSet, "wl")).spec == before.spec
