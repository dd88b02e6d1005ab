"""A cluster without Grove, or without the rights to look: one clear line each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from grove.answers.answer import Unanswered
from grove.answers.doctor import doctor_answer
from grove.answers.errors import explained
from grove.answers.explain import explain_answer
from grove.answers.topology import topology_answer
from grove.answers.tree import status_answer
from grove.api.core import Node
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.errors import Forbidden
from grove.plan.world import World, shaped
from grove.scheduler.model.config import load_configuration
from grove.sim.cluster import SimCluster
from grove.sim.kinds import QUOTA
from grove.sim.loop import run


def test_a_cluster_without_grove_is_reported_as_that() -> None:
    async def look() -> None:
        async with SimCluster(definitions=[]) as cluster:
            client = cluster.client()
            await explained(client, status_answer(client, "default", "", cluster.clock.now()))

    with pytest.raises(Unanswered, match="Grove is not installed on this cluster"):
        run(look())


def test_the_doctor_says_what_to_install_and_asks_no_further() -> None:
    async def look() -> Any:
        async with SimCluster(definitions=[]) as cluster:
            return await doctor_answer(cluster.client(), "default", cluster.clock.now())

    answer = run(look())
    assert answer.code == 1
    assert [(one.check, one.state, one.fix) for one in answer.data] == [("kinds", "failed", "grove crds --apply")]


class Restricted:
    """A client of a user who may not list some kinds."""

    def __init__(self, inner: Any, *forbidden: str) -> None:
        self._inner, self._forbidden = inner, forbidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _check(self, kind: Any) -> None:
        resource = getattr(kind, "RESOURCE", kind)
        if resource.plural in self._forbidden:
            raise Forbidden(f"{resource.plural} is forbidden", code=403, reason="Forbidden")

    async def list(self, kind: Any, *args: Any, **kw: Any) -> Any:
        self._check(kind)
        return await self._inner.list(kind, *args, **kw)

    async def watch(self, kind: Any, *args: Any, **kw: Any) -> Any:
        self._check(kind)
        async for event in self._inner.watch(kind, *args, **kw):
            yield event


def system() -> dict[str, Any]:
    container = {"name": "c", "image": "example/c:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    spec = {"roleName": "a", "replicas": 3, "minAvailable": 3, "podSpec": {"containers": [container]}}
    return {
        "metadata": {"name": "big"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "a", "spec": spec}]}},
    }


def test_without_the_right_to_see_nodes_explain_tells_what_the_scheduler_wrote() -> None:
    async def look() -> Any:
        async with World(shaped(2)) as world:
            await world.apply(system())
            await world.cluster.eventually(lambda: bool(world.scheduler.queue.get("default/big-0")))
            await asyncio.sleep(5)
            return await explain_answer(Restricted(world.client, "nodes"), "default", "big")

    answer = run(look())
    assert answer.code == 4
    assert answer.data["gangs"][0].reason.startswith("needs 24 nvidia.com/gpu, 16 free in the cluster")
    assert "you may not see what the scheduler sees" in answer.data["note"]


def test_topology_without_nodes_is_refused() -> None:
    async def look() -> None:
        async with World(shaped(2)) as world:
            await topology_answer(Restricted(world.client, Node.RESOURCE.plural))

    with pytest.raises(Unanswered, match="you may not list nodes"):
        run(look())


def test_status_without_the_right_to_see_sets_is_refused() -> None:
    async def look() -> Any:
        async with World(shaped(2)) as world:
            client: Any = Restricted(world.client, PodCliqueSet.RESOURCE.plural)
            return await explained(client, status_answer(client, "default", "", world.cluster.clock.now()))

    with pytest.raises(Forbidden, match="podcliquesets is forbidden"):
        run(look())


def test_a_quota_that_forbids_pods_is_the_reason_before_all_others() -> None:
    async def look() -> Any:
        async with World(shaped(4)) as world:
            quota = {"metadata": {"name": "few", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
            await world.client.create(QUOTA, quota)
            await asyncio.sleep(1)
            await world.apply(system())
            await asyncio.sleep(5)
            return await explain_answer(world.client, "default", "big")

    answer = run(look())
    [verdict] = answer.data["gangs"]
    assert (answer.code, verdict.level) == (4, "quota")
    assert verdict.reason.startswith("ResourceQuota few is full: pods ")
    assert "exceeded quota: few" in verdict.evidence[0]


def test_a_label_that_no_node_has_is_named_with_the_way_to_set_it() -> None:
    async def look() -> Any:
        async with World(shaped(4)) as world:
            picky = system()
            picky["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["nodeSelector"] = {"pool": "gold"}
            await world.apply(picky)
            await asyncio.sleep(5)
            return await explain_answer(world.client, "default", "big")

    answer = run(look())
    [verdict] = answer.data["gangs"]
    assert (answer.code, verdict.level) == (4, "node")
    assert verdict.evidence[0] == "node: its pods select pool=gold, and no node has that label"
    assert verdict.next == "kubectl label node NODE pool=gold, or correct the nodeSelector of its pods"
    assert not any("minAvailable: 0" in one.text for one in verdict.advice)


def test_topology_needs_no_right_to_see_sets() -> None:
    async def look() -> Any:
        async with World(shaped(2)) as world:
            hidden = ("podcliquesets", "podcliques", "podgangs", "podcliquescalinggroups")
            return await topology_answer(Restricted(world.client, *hidden))

    assert run(look()).data.root.total == 16


def test_a_scheduler_that_says_nothing_is_the_reason_of_its_pods() -> None:
    async def look() -> Any:
        async with World(shaped(4), settings=load_configuration("schedulerName: another")) as world:
            await world.apply(system())
            await asyncio.sleep(5)
            return await status_answer(world.client, "default", "", world.cluster.clock.now())

    [line] = run(look()).data
    assert (line.state, line.why) == ("waiting", "it fits; the scheduler has not placed it yet")
