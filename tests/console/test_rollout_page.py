"""An update on the set page of the console and in `rollout status -w`: slices, revisions, budgets, surge, and waits."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, updated

from grove.answers.answer import Answer
from grove.answers.following import following
from grove.answers.rollout import status_picture
from grove.api import labels as key
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.access import formatted
from grove.console.questions import questions
from grove.diagnosis.rollouts import Rollout
from grove.diagnosis.words import camel

pytestmark = pytest.mark.simulated

OPERATING = Operating(start_s=0.2)


@pytest.fixture
async def world(world: World) -> World:
    """A coherent update whose first slice waits for the surge unit of a clique."""
    front = clique("front", 4, min_available=2)
    front["rollingUpdate"] = {"maxSurge": 1}
    decode = group("decode", "d", replicas=4, min_available=2, rollingUpdate={"maxUnavailable": 3})
    await world.apply(pcs("wl", front, clique("d"), groups=[decode], strategy={"type": "Coherent"}))
    await world.available("wl")
    await world.ready(8)
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "front", "d")
    await world.quiet()
    return world


async def release(world: World, held: str = "") -> None:
    """New pods become ready, those that are there and those that come; pods of the clique `held` do not."""
    world.nodes.hold = lambda pod: pod.metadata.labels[key.CLIQUE_NAME] == held
    for pod in await world.pods():
        if not pod.is_ready and pod.metadata.labels[key.CLIQUE_NAME] != held:
            await world.nodes.set_ready(world.namespace, pod.metadata.name, True)


async def page(world: World) -> Any:
    """What the browser gets for the part of the set page that shows the update."""
    asked = {"name": "wl", "now": world.cluster.clock.now().isoformat()}
    return camel(msgspec.to_builtins(await questions()["rollout"](world.client, world.namespace, asked)))


async def test_the_page_shows_slices_revisions_budgets_surge_and_what_is_waited_for(world: World) -> None:
    found = await page(world)
    progress = (await world.get(PodCliqueSet, "wl")).status
    new, old = progress.current_generation_hash, progress.update_progress.from_generation_hash
    assert found["state"] == "updating"
    parts = found["parts"]
    assert [(one["revision"], one["pods"], one["outdated"]) for one in parts["revisions"]] == [(new, 1, 0), (old, 8, 8)]
    assert [(one["part"], one["maxUnavailable"], one["maxSurge"]) for one in parts["budgets"]] == [
        ("", 1, 0),
        ("front", 2, 1),
        ("decode", 3, 0),
    ]
    (slice_,) = parts["slices"]
    assert (slice_["replica"], slice_["number"], slice_["units"]) == ("wl-0", 1, {"front": 2, "decode": 2})
    assert slice_["waitsForSurge"] is True
    (surge,) = parts["surges"]
    assert (surge["name"], surge["indexes"], surge["ready"]) == ("wl-0-front", [4], 0)
    assert "wl-0: slice 1 (front 2, decode 2); it waits for surge units" in found["lines"]
    assert "surge units of wl-0-front: 1 (4), 0 ready" in found["lines"]

    await release(world, "d")
    await world.quiet()
    found = await page(world)
    (down,) = found["down"]
    assert down["name"] == "wl-0"
    assert down["waitsFor"].startswith("wl-0-decode-")
    assert down["waitsFor"] in found["sentence"]


async def test_watching_the_status_shows_the_same_until_the_update_is_over(world: World) -> None:
    ended: list[Answer] = []
    async with following(world.client, world.namespace) as source:
        draw = status_picture("wl", ended)
        found = await draw(source)
        assert found is not None
        assert isinstance(found.data, Rollout)
        assert (found.data.parts.slices, found.data.parts.surges) != ((), ())
        shown = camel(msgspec.to_builtins(found.data))
        on_page = await page(world)  # its sentences have ages by another clock
        for part in ("state", "hash", "parts", "roles", "down"):
            assert shown[part] == on_page[part]
        for line in found.data.lines:
            assert line in formatted(found.data, "json")
        await release(world)
        await updated(world, "wl")
        async with asyncio.timeout(60):
            while await draw(source) is not None:
                source.changed.clear()
                await source.changed.wait()
    (last,) = ended
    assert isinstance(last.data, Rollout)
    assert last.data.sentence == "up to date: 8 of 8 pods up to date"
    assert last.data.parts.slices == last.data.parts.surges == ()
