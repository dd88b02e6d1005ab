"""Bad weather: each fault does what it says and no more, and the system is right again when it stops."""

from __future__ import annotations

import asyncio
import random

import pytest

from grove.api.core import ConfigMap, Pod
from grove.kube.cache import Cache
from grove.kube.errors import Conflict, ConnectionLost, Gone, KubeError, NotFound, TooManyRequests, Unavailable
from grove.sim.client import SimClient
from grove.sim.crash import MortalClient, Process
from grove.sim.faults import CALM, ROUGH, FaultRates, Faults


def config(name: str = "a", **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def exists(cluster, name: str = "a") -> bool:
    try:
        await cluster.client().get(ConfigMap, name, "default")
    except NotFound:
        return False
    return True


@pytest.mark.parametrize(
    ("rates", "error", "happened"),
    [
        pytest.param(FaultRates(throttled=1), TooManyRequests, False, id="429: nothing happened"),
        pytest.param(FaultRates(failed=1), Unavailable, False, id="500: nothing happened"),
        pytest.param(FaultRates(unsent=1), ConnectionLost, False, id="broke on the way there: nothing happened"),
        pytest.param(FaultRates(lost=1), ConnectionLost, True, id="broke on the way back: it did happen"),
    ],
)
async def test_a_call_that_fails(cluster, rates, error, happened):
    with pytest.raises(error):
        await Faults(rates).client(cluster.client()).create(ConfigMap, config())

    assert await exists(cluster) is happened


async def test_a_conflict_out_of_the_blue_hits_patches(cluster):
    client = Faults(FaultRates(conflict=1)).client(cluster.client())
    await client.create(ConfigMap, config(k="0"))
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, "a", {"data": {"k": "1"}}, "default")

    assert (await client.get(ConfigMap, "a", "default")).data == {"k": "0"}


async def test_calm_weather_changes_nothing(cluster):
    faults = Faults(FaultRates(failed=1))
    client = faults.client(cluster.client())
    faults.stop()
    await client.create(ConfigMap, config())

    assert faults.rates == CALM
    assert await exists(cluster)


async def test_calls_take_longer_there_and_back(cluster):
    loop = asyncio.get_running_loop()
    client = Faults(FaultRates(delay_s=10), seed=3).client(cluster.client())
    began = loop.time()
    await client.create(ConfigMap, config())

    assert 1 < loop.time() - began < 21


async def test_a_watch_breaks_after_an_event(cluster):
    endings = []
    for seed in range(8):
        client = Faults(FaultRates(watch_drop=1), seed=seed).client(cluster.client())
        await cluster.client().create(ConfigMap, config(f"c{seed}"))
        seen = 0
        try:
            async for _ in client.watch(ConfigMap, "default"):
                seen += 1
            endings.append("quietly")
        except ConnectionLost:
            endings.append("with an error")
        assert seen == 1

    assert set(endings) == {"quietly", "with an error"}


async def test_a_resumed_watch_may_be_too_late(cluster):
    client = Faults(FaultRates(watch_expire=1)).client(cluster.client())
    version = (await client.list(ConfigMap, "default")).resource_version
    with pytest.raises(Gone):
        await anext(client.watch(ConfigMap, "default", resource_version=version))


async def test_late_events_keep_their_order(cluster):
    client = Faults(FaultRates(watch_delay_s=5), seed=1).client(cluster.client())
    loop, began, seen = asyncio.get_running_loop(), asyncio.get_running_loop().time(), []

    async def read() -> None:
        async for event in client.watch(ConfigMap, "default"):
            seen.append(event.object.data["k"])
            if len(seen) == 20:
                return

    reader = asyncio.ensure_future(read())
    for value in range(20):
        await (
            cluster.client().create(ConfigMap, config(k="0"))
            if value == 0
            else cluster.client().patch(ConfigMap, "a", {"data": {"k": str(value)}}, "default")
        )
    wrote_s = loop.time() - began
    await reader

    assert seen == [str(value) for value in range(20)]
    assert loop.time() - began > wrote_s + 1


async def test_a_list_that_accepts_any_version_may_come_from_the_past(cluster):
    client = Faults(FaultRates(stale=1, stale_revisions=3), seed=2).client(cluster.client())
    for value in range(20):
        await cluster.client().create(ConfigMap, config(f"c{value:02}"))

    sizes = {len((await client.list(ConfigMap, "default", resource_version="0")).items) for _ in range(20)}
    assert sizes == {17, 18, 19, 20}
    assert len((await client.list(ConfigMap, "default")).items) == 20


async def test_the_same_seed_brings_the_same_weather(cluster):
    async def outcome(seed: int) -> list[str]:
        client, results = Faults(ROUGH, seed=seed).client(cluster.client()), []
        for _ in range(100):
            try:
                await client.list(ConfigMap, "default")
                results.append("fine")
            except KubeError as error:
                results.append(type(error).__name__)
        return results

    assert await outcome(1) == await outcome(1) != await outcome(2)


@pytest.mark.parametrize("seed", range(5))
async def test_a_cache_ends_on_the_truth_after_any_weather(cluster, seed):
    faults, rng = Faults(ROUGH, seed=seed), random.Random(seed)
    truth = cluster.client()
    cache = Cache(faults.client(cluster.client()))
    cache.add(ConfigMap, namespace="default")
    async with cache:
        for at in range(150):
            name = f"c{rng.randint(0, 9)}"
            try:
                if rng.random() < 0.3:
                    await truth.delete(ConfigMap, name, "default")
                else:
                    await truth.patch(ConfigMap, name, {"data": {"k": str(at)}}, "default")
            except NotFound:
                await truth.create(ConfigMap, config(name, k=str(at)))
            if rng.random() < 0.05:
                cluster.server.store.compact()
            if rng.random() < 0.03:
                cluster.server.drop_watches(ConnectionLost("the API server restarts"))
            await asyncio.sleep(rng.uniform(0, 0.5))
        faults.stop()
        await asyncio.sleep(300)
        cached = {o.metadata.name: o for o in cache.list(ConfigMap)}

    assert cached == {o.metadata.name: o for o in (await truth.list(ConfigMap, "default")).items}


async def test_a_dead_client_reaches_no_server(cluster):
    client = MortalClient(cluster.client())
    await client.create(ConfigMap, config("before"))
    client.is_dead = True
    with pytest.raises(ConnectionLost):
        await client.create(ConfigMap, config("after"))

    assert await exists(cluster, "before")
    assert not await exists(cluster, "after")


async def test_a_killed_process_writes_no_last_will_and_lives_again(cluster):
    async def main(client) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await client.create(ConfigMap, config("last-will"))

    process = Process(main, cluster.client, restart_s=5)
    running = asyncio.ensure_future(process.run())
    await asyncio.sleep(1)
    process.kill()
    await asyncio.sleep(10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert process.lives == 2
    assert not await exists(cluster, "last-will")
    assert process.failures == []


async def test_a_process_that_fails_is_started_again_and_its_failure_kept(cluster):
    async def main(_client) -> None:
        raise LookupError("a bug")

    process = Process(main, cluster.client, restart_s=1)
    running = asyncio.ensure_future(process.run())
    await asyncio.sleep(4.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert process.lives == 5
    assert [str(failure) for failure in process.failures] == ["a bug"] * 5


async def test_random_kills_interrupt_at_every_step_of_the_work(cluster):
    """Ten creations in a row, killed at random and started over: each step is the last one of some life."""
    reached: list[int] = []

    def connect() -> SimClient:
        return SimClient(cluster.server, latency_s=1.0)

    async def main(client) -> None:
        reached.append(0)
        for step in range(10):
            await client.create(
                Pod,
                {
                    "metadata": {"generateName": "p-", "namespace": "default"},
                    "spec": {"containers": [{"name": "m", "image": "i"}]},
                },
            )
            reached[-1] = step + 1

    process = Process(main, connect, rng=random.Random(4), mean_life_s=5, restart_s=1)
    running = asyncio.ensure_future(process.run())
    await asyncio.sleep(2000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert set(reached) == set(range(11))
    made = len((await cluster.client().list(Pod, "default")).items)
    assert made >= sum(reached)
