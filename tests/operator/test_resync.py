"""What a failed handler lost is found by the slow look at everything."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import World, operating

from grove.api.core import Pod, Service
from grove.api.meta import Object
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.operator.wiring import RESYNC_S, RESYNC_SPREAD_S

pytestmark = pytest.mark.simulated
WITHIN_S = 1.25 * RESYNC_S + RESYNC_SPREAD_S + 60.0


@pytest.mark.parametrize(("kind", "name"), [(Service, "lost-0"), (Pod, "")])
async def test_what_no_handler_was_told_of_is_repaired(
    cluster: object, monkeypatch: pytest.MonkeyPatch, kind: type[Object], name: str
) -> None:
    deaf = False
    add = Cache.on_event

    def on_event(cache: Cache, of: type[Object], handler: object) -> None:
        def heard(old: Object | None, new: Object | None) -> None:
            if not (deaf and new is None and of is kind):
                handler(old, new)  # type: ignore[operator]

        add(cache, of, heard)

    monkeypatch.setattr(Cache, "on_event", on_event)
    async with operating(cluster) as world:
        await world.apply(pcs("lost", clique("w", 2)))
        await world.available("lost")
        await world.quiet()
        deaf = True
        name = name or (await world.pods())[0].metadata.name
        await world.delete(kind, name, **({"grace_period_s": 0} if kind is Pod else {}))
        await asyncio.sleep(60)
        assert await _count(world, kind) == (1 if kind is Pod else 0), "no event was heard"
        await asyncio.sleep(WITHIN_S)
        assert await _count(world, kind) == (2 if kind is Pod else 1)


async def _count(world: World, kind: type[Object]) -> int:
    return len(await world.list(kind))


async def test_a_day_without_an_event_costs_no_write(cluster: object) -> None:
    async with operating(cluster) as world:
        await world.apply(pcs("calm", clique("w", 2), replicas=2))
        await world.available("calm")
        await world.quiet()
        before = world.writes()
        version = (await world.get(PodCliqueSet, "calm")).metadata.resource_version
        await asyncio.sleep(24 * 3600)
        assert (await world.get(PodCliqueSet, "calm")).metadata.resource_version == version
        assert not {one: count for one, count in (world.writes() - before).items() if one[1] != "events"}
