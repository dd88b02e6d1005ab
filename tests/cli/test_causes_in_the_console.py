"""The console reads why pods do not start: for viewers with the right to, seldom, and once for all viewers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.support.asking import World, server
from tests.support.broken import TOKEN

from grove.api.core import Event, Pod, Secret
from grove.console.follow import COMPLAINTS, OF_CLUSTER, OF_NAMESPACE, REFERRED, Following

pytestmark = pytest.mark.simulated

EVERYTHING = (*OF_NAMESPACE, *OF_CLUSTER, *REFERRED, *COMPLAINTS)
SETS = ("chat", "code", "draw")
ABSENT, SILENT = "Secret hf-token does not exist", "its pods are starting"


class Counted:
    """A client that counts what is asked of kinds that the console does not follow."""

    def __init__(self, own: Any) -> None:
        self._own, self.asked = own, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    async def get(self, kind: Any, *args: Any, **options: Any) -> Any:
        self._count(kind)
        return await self._own.get(kind, *args, **options)

    async def list(self, kind: Any, *args: Any, **options: Any) -> Any:
        self._count(kind)
        return await self._own.list(kind, *args, **options)

    def _count(self, kind: Any) -> None:
        self.asked.update([kind.__name__] if kind in (*REFERRED, *COMPLAINTS) else [])


async def without_their_secret(world: World) -> None:
    world.nodes.hold = lambda pod: True
    for name in SETS:
        manifest = world.system(name, cliques=[server("worker", 1, 1)])
        manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["env"] = TOKEN
        await world.apply(manifest)

    async def bound() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return len(pods) == len(SETS) and all(pod.is_bound for pod in pods)

    await world.cluster.eventually(bound)


def said(page: Following) -> set[str]:
    rows = page.ledger.table("sets").values()
    assert len(rows) == len(SETS)
    return {row["why"] for row in rows}


async def test_one_read_serves_many_changes_and_is_made_again_after_ten_seconds(world: World) -> None:
    await without_their_secret(world)
    client: Any = Counted(world.client)
    async with Following(client, EVERYTHING, world.namespace, world.cluster.clock).following() as page:
        assert said(page) == {ABSENT}
        assert client.asked == {"Secret": 1, "Event": 1}, "three sets that lack one Secret"
        pods = (await world.client.list(Pod, world.namespace)).items
        for number in range(20):
            for pod in pods:
                change = {"metadata": {"annotations": {"seen": str(number)}}}
                await world.client.patch(Pod, pod.metadata.name, change, world.namespace)
            await asyncio.sleep(0.3)
        assert client.asked == {"Secret": 1, "Event": 1}
        await asyncio.sleep(30)
        assert client.asked["Secret"] <= 5
        token = {"metadata": {"name": "hf-token", "namespace": world.namespace}, "data": {"token": "eA=="}}
        await world.client.create(Secret, token)
        for pod in pods:
            await world.nodes.set_ready(world.namespace, pod.metadata.name, True)

        async def over() -> bool:
            return said(page) == {"1 of 1 pod ready"}

        await world.cluster.eventually(over)
        before = client.asked.copy()
        await asyncio.sleep(30)
        assert client.asked == before, "nothing is read while every clique is ready"


@pytest.mark.parametrize(
    ("kinds", "want", "asked"),
    [
        pytest.param(EVERYTHING, ABSENT, {"Secret": 1, "Event": 1}, id="a viewer who may read Secrets"),
        pytest.param(tuple(one for one in EVERYTHING if one is not Secret), SILENT, {"Event": 1}, id="one who may not"),
        pytest.param(
            tuple(one for one in EVERYTHING if one not in (Secret, Event)), SILENT, {}, id="nor see the warnings"
        ),
    ],
)
async def test_what_a_viewer_may_not_read_is_not_read_for_them(
    world: World, kinds: Any, want: str, asked: dict[str, int]
) -> None:
    await without_their_secret(world)
    client: Any = Counted(world.client)
    async with Following(client, kinds, world.namespace, world.cluster.clock).following() as page:
        assert said(page) == {want}
        assert client.asked == asked
