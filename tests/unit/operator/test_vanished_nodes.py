"""A node counts as gone only when the cluster itself says so, not when a cache has merely not received it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grove.api.core import Node, Pod, PodSpec
from grove.api.meta import Key, ObjectMeta
from grove.kube.errors import NotFound
from grove.operator.podclique.pod_facts import VanishedNodes

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A cache, a cluster and a clock that a test sets by hand."""

    def __init__(self) -> None:
        self.cached: set[str] = set()
        self.there: set[str] = set()
        self.asked: list[str] = []
        self.time = BEGIN
        self.pods = [Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(node_name="n1"))]
        self.handler: Any = None
        self.nodes = VanishedNodes(self, self, self)  # type: ignore[arg-type]

    def on_event(self, kind: type, handler: Any) -> None:
        self.handler = handler

    def get(self, kind: type, key: Any) -> Any:
        """Of the cache when asked with a Key, of the cluster when asked by name."""
        if isinstance(key, Key):
            return Node(metadata=ObjectMeta(name=key.name)) if key.name in self.cached else None
        return self._ask(key)

    async def _ask(self, name: str) -> Node:
        self.asked.append(name)
        if name not in self.there:
            raise NotFound(name)
        return Node(metadata=ObjectMeta(name=name))

    def by_index(self, kind: type, index: str, value: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.spec.node_name == value]

    def now(self) -> datetime:
        return self.time

    def missing_s(self) -> float | None:
        since = self.nodes.gone_since(self.pods).get("n1")
        return None if since is None else (self.time - since).total_seconds()

    async def after(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        await self.nodes.confirm(self.pods)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_node_that_is_there_is_not_gone(world: World) -> None:
    world.cached = {"n1"}
    await world.after(60)
    assert world.missing_s() is None
    assert world.asked == []


async def test_a_missing_node_is_asked_about_once_when_its_time_is_up(world: World) -> None:
    world.missing_s()
    await world.after(9)
    assert world.asked == []
    await world.after(1)
    await world.after(60)
    assert world.asked == ["n1"]
    assert world.missing_s() == 70


async def test_a_node_the_cache_has_not_seen_yet_keeps_its_pods(world: World) -> None:
    world.there = {"n1"}
    world.missing_s()
    await world.after(10)
    assert world.asked == ["n1"]
    assert world.missing_s() == 0


async def test_a_node_that_comes_back_and_goes_again_is_asked_about_again(world: World) -> None:
    world.missing_s()
    await world.after(10)
    node = Node(metadata=ObjectMeta(name="n1"))
    world.cached = {"n1"}
    world.handler(None, node)
    assert world.missing_s() is None
    world.cached = set()
    world.handler(node, None)
    await world.after(10)
    assert world.asked == ["n1", "n1"]


def test_nodes_without_pods_are_forgotten(world: World) -> None:
    world.pods = []
    world.handler(Node(metadata=ObjectMeta(name="n1")), None)
    assert world.nodes._gone == {}
