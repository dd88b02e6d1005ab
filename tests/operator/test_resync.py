"""The slow resync repairs what a failed handler lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.dialects import gang_set
from tests.support.manifests import clique, pcs
from tests.support.operating import World, operating

from grove.api import kueue
from grove.api.core import ControllerRevision, Pod, Service
from grove.api.dynamo import PodGangSet
from grove.api.meta import Object
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.kube.cache import Cache
from grove.operator.wiring import RESYNC_S, RESYNC_SPREAD_S

pytestmark = pytest.mark.simulated
WITHIN_S = 1.25 * RESYNC_S + RESYNC_SPREAD_S + 60.0
Loses = Callable[[type[Object], Object | None], bool]


class Handlers:
    """All handlers of all caches. An event for which `lose` answers yes reaches none of them."""

    lose: Loses = staticmethod(lambda kind, new: False)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    found, add = Handlers(), Cache.on_event

    def on_event(cache: Cache, of: type[Object], handler: object) -> None:
        def heard(old: Object | None, new: Object | None) -> None:
            if not found.lose(of, new):
                handler(old, new)  # type: ignore[operator]

        add(cache, of, heard)

    monkeypatch.setattr(Cache, "on_event", on_event)
    return found


@pytest.mark.parametrize(("kind", "name"), [(Service, "lost-0"), (Pod, "")])
async def test_a_missed_event_is_repaired(cluster: object, handlers: Handlers, kind: type[Object], name: str) -> None:
    async with operating(cluster) as world:
        await world.apply(pcs("lost", clique("w", 2)))
        await world.available("lost")
        await world.quiet()
        handlers.lose = lambda of, new: new is None and of is kind
        name = name or (await world.pods())[0].metadata.name
        await world.delete(kind, name, **({"grace_period_s": 0} if kind is Pod else {}))
        await asyncio.sleep(60)
        assert await _count(world, kind) == (1 if kind is Pod else 0), "no event was heard"
        await asyncio.sleep(WITHIN_S)
        assert await _count(world, kind) == (2 if kind is Pod else 1)


async def test_a_template_that_changed_unseen_is_rolled_out_and_kept_in_the_history(
    cluster: object, handlers: Handlers
) -> None:
    async with operating(cluster) as world:
        await world.apply(pcs("lost", clique("w")))
        await world.available("lost")
        await world.quiet()
        handlers.lose = lambda of, new: of is PodCliqueSet
        found = await world.client.get(PodCliqueSet.RESOURCE, "lost", world.namespace)
        cliques = found["spec"]["template"]["cliques"]
        cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = "two"
        await world.client.patch(PodCliqueSet, "lost", {"spec": {"template": {"cliques": cliques}}}, world.namespace)
        await asyncio.sleep(60)
        assert await _count(world, ControllerRevision) == 1, "no event was heard"
        handlers.lose = Handlers.lose
        await asyncio.sleep(WITHIN_S)
        assert [pod.spec.containers[0].image for pod in await world.pods()] == ["two"]
        assert await _count(world, ControllerRevision) == 2


async def test_an_object_of_a_dialect_that_came_unseen_is_translated(cluster: object, handlers: Handlers) -> None:
    await install(cluster.client, lambda line: None, dialects=True)  # type: ignore[attr-defined]
    async with operating(cluster, config="dialects: {enabled: true}\n") as world:
        handlers.lose = lambda of, new: of is PodGangSet
        manifest = gang_set("lost", 1)
        await world.client.create(PodGangSet, {**manifest, "metadata": {"name": "lost", "namespace": world.namespace}})
        await asyncio.sleep(60)
        assert await _count(world, PodCliqueSet) == 0, "no event was heard"
        handlers.lose = Handlers.lose
        await asyncio.sleep(WITHIN_S)
        assert await world.names(PodCliqueSet) == ["lost"]


async def test_a_deleted_pod_that_kueue_keeps_unseen_is_released(cluster: object, handlers: Handlers) -> None:
    async with operating(cluster) as world:
        await world.apply(pcs("lost", clique("w")))
        await world.available("lost")
        (pod,) = await world.pods()
        finalizers = {"metadata": {"finalizers": [kueue.MANAGED]}}
        await world.client.patch(Pod, pod.metadata.name, finalizers, world.namespace)
        await world.quiet()
        handlers.lose = lambda of, new: of is Pod and new is not None and kueue.keeps_deleted(None, new)
        await world.delete(Pod, pod.metadata.name, grace_period_s=0)
        await asyncio.sleep(60)
        assert (await world.get(Pod, pod.metadata.name)).metadata.is_deleting, "no event was heard"
        await asyncio.sleep(WITHIN_S)
        assert pod.metadata.name not in [one.metadata.name for one in await world.list(Pod)]


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
