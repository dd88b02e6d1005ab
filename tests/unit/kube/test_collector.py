"""The garbage collector and a big cache: what lives long is out of its sight, what leaks is found in the end."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest
from tests.unit.kube.api import FakeApi, Thing

from grove.kube import collector as module
from grove.kube.cache import Cache
from grove.kube.collector import Collector
from grove.kube.http import HttpClient


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    made.rest()
    assert not gc.isenabled()
    made.settle()
    yield made
    made.release()


class Node:
    """Something that only the collector can free once it points to itself."""

    def __init__(self) -> None:
        self.me = self


async def test_what_outlives_a_young_collection_is_put_out_of_sight(collector: Collector) -> None:
    before = gc.get_freeze_count()
    kept = [[n] for n in range(5000)]
    gc.collect(1)
    assert gc.get_freeze_count() >= before + len(kept)
    assert gc.isenabled()


async def test_young_garbage_is_still_collected(collector: Collector) -> None:
    dead = weakref.ref(Node())
    gc.collect(1)
    assert dead() is None


async def test_when_the_frozen_set_has_doubled_everything_is_looked_at(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLACK", 0)
    monkeypatch.setattr(module, "LOOK_EVERY", 1)
    leak = Node()
    seen = weakref.ref(leak)
    gc.collect(1)  # it is alive and therefore frozen
    del leak
    gc.collect(1)
    assert seen() is not None
    grown = [[n] for n in range(gc.get_freeze_count() + 1000)]
    gc.collect(1)
    await asyncio.sleep(0)
    assert seen() is None
    assert len(grown) > 1000


async def test_a_cache_that_tunes_puts_things_back_when_it_stops(api: FakeApi) -> None:
    thresholds = gc.get_threshold()
    api.put("a")
    async with HttpClient(api.config()) as client:
        cache = Cache(client, tune_gc=True)
        cache.add(Thing)
        async with cache:
            assert not gc.isenabled()
            await cache.wait_synced(60)
            assert gc.isenabled()
            assert gc.get_freeze_count() > 0
    assert (gc.get_freeze_count(), gc.get_threshold(), gc.isenabled()) == (0, thresholds, True)
