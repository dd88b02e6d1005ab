"""Engines that are played: who serves a set, in which order requests pass, and what a load does to their pages."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from tests.support import objects
from tests.support.manifests import clique, group, pcs

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.metrics.readings import SET, Readings, Subject
from grove.plan.world import World, shaped
from grove.sim.engines import EnginePages, front_of, stages_of
from grove.sim.loop import run
from grove.sim.pages import LOAD, PageServer, requests_per_second


def stored(manifest: Json) -> PodCliqueSet:
    return msgspec.convert(manifest | {"metadata": {"namespace": "default", **manifest["metadata"]}}, PodCliqueSet)


def engine_pod(name: str, clique_name: str, index: str = "0", *, ready: bool = True) -> Pod:
    own = {labels.PART_OF: "d", labels.CLIQUE_NAME: clique_name, labels.POD_INDEX: index}
    status = {"conditions": objects.conditions(Ready=str(ready))}
    return objects.pod(name, namespace="default", labels=own, status=status)


TWO_STAGES = stored(
    pcs(
        "d",
        clique("router"),
        clique("pre"),
        clique("lead"),
        clique("work"),
        groups=[group("prefill", "pre"), group("decode", "lead", "work")],
    )
)


@pytest.mark.parametrize(
    ("found", "front", "stages"),
    [
        pytest.param(TWO_STAGES, "router", ["prefill", "decode"], id="a router before two groups"),
        pytest.param(stored(pcs("d", clique("w"))), "", ["w"], id="one clique serves by itself"),
        pytest.param(stored(pcs("d", clique("w"), clique("x"))), "w", ["x"], id="the first of two is the front"),
    ],
)
def test_who_serves(found: PodCliqueSet, front: str, stages: list[str]) -> None:
    assert (front_of(found), stages_of(found)) == (front, stages)


def waiting(page: bytes) -> float:
    return numbers_of(scan(page, wanted_names(()))).gauges["grove_requests_waiting"].value


def test_a_load_shows_on_the_pages_of_those_that_serve() -> None:
    engines = EnginePages()
    pods = [
        engine_pod("r", "router"),
        engine_pod("p", "pre"),
        engine_pod("l", "lead"),
        engine_pod("w", "work"),
        engine_pod("q", "pre", ready=False),
    ]
    assert engines.advance(1.0, [TWO_STAGES], pods) == {}, "nobody has asked for a load"
    engines.set_load(TWO_STAGES, 100.0)
    for _ in range(30):
        shown = engines.advance(1.0, [TWO_STAGES], pods)
    assert {key.name for key in shown} == {"r", "p", "l"}, "workers and pods that are not ready say nothing"
    assert waiting(shown[Key("default", "p")]) > 1000
    assert waiting(shown[Key("default", "r")]) == waiting(shown[Key("default", "p")]), "at the front of the first stage"
    engines.set_load(TWO_STAGES, 0.0)
    before = waiting(shown[Key("default", "p")])
    shown = engines.advance(10.0, [TWO_STAGES], pods)
    assert 0 < waiting(shown[Key("default", "p")]) < before, "the same queue, getting shorter"
    assert engines.advance(1.0, [], pods) == {}
    assert TWO_STAGES.metadata.key not in engines


def test_what_was_slow_an_hour_ago_is_not_reported_again_when_another_front_comes_or_goes() -> None:
    """Counters are each pod's own: one that comes begins at nothing, and those that stay keep their own past."""
    engines, readings = EnginePages(), Readings(5.0)
    fronts, engine = [engine_pod("r0", "router"), engine_pod("r1", "router")], engine_pod("p", "pre")
    for one in fronts:
        readings.add_pod("default", one.metadata.name, one.metadata.labels)
    now = 0.0

    def p95(requests: float, ticks: int, routers: int) -> float:
        nonlocal now
        engines.set_load(TWO_STAGES, requests)
        for _ in range(ticks):
            now += 5.0
            pods = [*fronts[:routers], engine, engine_pod("l", "lead")]
            for key, page in engines.advance(5.0, [TWO_STAGES], pods).items():
                readings.observe(key.namespace, key.name, numbers_of(scan(page, wanted_names(()))), now)
        found = readings.find(Subject("default", SET, "d"), "grove_e2e_p95_seconds", now)
        assert found is not None
        return found.number

    assert p95(20.0, 60, 1) > 40
    assert p95(1.0, 120, 1) < 10, "long after the rush"
    assert p95(1.0, 2, 2) < 10, "a second front"
    assert p95(1.0, 2, 1) < 10, "and the first one alone again"


@pytest.mark.parametrize(
    ("text", "want"),
    [("40", 40.0), ("0.5", 0.5), ("0", 0.0), ("-1", None), ("many", None), ("nan", None), ("inf", None), ("", None)],
)
def test_the_load_in_an_annotation(text: str, want: float | None) -> None:
    assert requests_per_second(text) == want


async def followed() -> None:
    async with World(shaped(2, 4), seed=1) as world:
        await world.apply(pcs("d", clique("router"), clique("pre"), groups=[group("g", "pre")]))
        assert await world.until(lambda: world.is_settled("d"))
        server = PageServer(world.client)
        async with server._cache:
            await server._cache.wait_synced()
            server._tick()
            (front, engine) = sorted(world.all(Pod), key=lambda one: one.metadata.labels[labels.CLIQUE_NAME] == "pre")
            assert waiting(server._pages[engine.metadata.key]) == 0
            await world.client.patch(PodCliqueSet, "d", {"metadata": {"annotations": {LOAD: "100"}}}, "default")
            await asyncio.sleep(1)
            for _ in range(30):
                server._tick()
            assert waiting(server._pages[engine.metadata.key]) > 1000
            assert waiting(server._pages[front.metadata.key]) > 1000


def test_a_cluster_is_followed_and_its_annotations_are_the_load() -> None:
    run(followed(), seed=1)


async def test_pages_are_served_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    server = PageServer(None)  # type: ignore[arg-type]
    server._pages = {Key("n", "p"): b"x 1\n"}
    monkeypatch.setattr(server._cache, "get", lambda kind, key: "a pod" if key.name == "worker" else None)

    async def read(name: str) -> tuple[int, object]:
        asked = make_mocked_request("GET", f"/n/{name}", match_info={"namespace": "n", "pod": name})
        answer = await server._answer(asked)
        return answer.status, answer.body

    assert await read("p") == (200, b"x 1\n")
    assert await read("worker") == (200, b""), "a pod that serves nothing has an empty page"
    assert (await read("stranger"))[0] == 404
