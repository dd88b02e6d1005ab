"""Optional kinds: found when they are there, missed when they go, reported once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from grove.api.core import HorizontalPodAutoscaler
from grove.kube.cache import Cache
from grove.kube.errors import NotFound, Unavailable
from grove.operator.shared.cluster.optional_kinds import OptionalKinds

AUTOSCALER = msgspec.convert(
    {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "5"}}, HorizontalPodAutoscaler
)


class Server:
    """Answers discovery slowly; `error` is what it answers instead."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_served = True
        self.asked = 0

    async def serves(self, kind: object) -> bool:
        await asyncio.sleep(0)
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.is_served


def kinds(server: Server) -> tuple[OptionalKinds, Cache, list[str]]:
    cache = Cache(server)  # type: ignore[arg-type]
    optional = OptionalKinds(cache, server, kinds=(HorizontalPodAutoscaler,))  # type: ignore[arg-type]
    heard: list[str] = []
    optional.on_event(HorizontalPodAutoscaler, lambda old, new: heard.append(new.metadata.name if new else ""))
    return optional, cache, heard


async def test_however_many_ask_at_once_an_event_arrives_once() -> None:
    server = Server()
    optional, cache, heard = kinds(server)
    asking = [asyncio.create_task(optional.follow(HorizontalPodAutoscaler)) for _ in range(5)]
    while server.asked < len(asking):  # noqa: ASYNC110 - all of them have asked before the first answer
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.informer(HorizontalPodAutoscaler).synced.set()
    cache.informer(HorizontalPodAutoscaler)._changed.set()
    assert await asyncio.gather(*asking) == [True] * 5
    cache.store(HorizontalPodAutoscaler).put(AUTOSCALER)
    assert heard == ["a"]


async def test_a_look_that_failed_and_a_later_one_hear_an_event_once() -> None:
    server = Server()
    optional, cache, heard = kinds(server)
    server.error = Unavailable("not now")
    await optional.look()
    with pytest.raises(Unavailable):
        await optional.follow(HorizontalPodAutoscaler)
    server.error = None
    await optional.look()
    await optional.look()
    cache.store(HorizontalPodAutoscaler).put(AUTOSCALER)
    assert heard == ["a"]


async def test_a_kind_that_was_uninstalled_is_missed_and_found_again() -> None:
    server = Server()
    optional, cache, _ = kinds(server)
    await optional.look()
    informer = cache.informer(HorizontalPodAutoscaler)
    informer.synced.set()
    assert await optional.follow(HorizontalPodAutoscaler)
    informer.error, server.is_served = NotFound("the server could not find the requested resource"), False
    assert not await optional.follow(HorizontalPodAutoscaler)
    informer.error, server.is_served = None, True
    assert await optional.follow(HorizontalPodAutoscaler)
