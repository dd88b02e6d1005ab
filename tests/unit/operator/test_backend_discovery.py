"""Discovery of what schedulers take: whoever waits for it hears of every change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grove.api.core import Node, Pod
from grove.api.meta import Resource
from grove.backends import Backends
from grove.backends.base import Answers, Backend, Question
from grove.kube.errors import ConnectionLost
from grove.operator.shared.cluster.backend_discovery import BackendDiscovery


class Asking(Backend):
    """A scheduler that wants to know whether one kind is served."""

    def __init__(self, name: str, resource: Resource) -> None:
        self.name, self._resource = name, resource
        self.learned: list[bool] = []

    @property
    def questions(self) -> Sequence[Question]:
        return (Question("served", "served", self._resource),)

    def learn(self, answers: Answers) -> None:
        self.learned.append(answers["served"])


class Server:
    """Serves these kinds; what is asked about `lost` finds no server."""

    def __init__(self) -> None:
        self.served: set[Resource] = set()
        self.lost: Resource | None = None

    async def serves(self, resource: Resource) -> bool:
        if resource == self.lost:
            raise ConnectionLost("gone")
        return resource in self.served


async def test_news_of_one_scheduler_is_told_also_when_another_answers_for_the_first_time() -> None:
    server, told = Server(), list[str]()
    backends = Backends([Asking("a", Node.RESOURCE), Asking("b", Pod.RESOURCE)], "a")
    discovery = BackendDiscovery(server, backends, lambda: told.append("changed"))  # type: ignore[arg-type]
    server.lost = Pod.RESOURCE
    with pytest.raises(ConnectionLost):
        await discovery.look()  # a is known, b is not
    server.lost, server.served = None, {Node.RESOURCE}
    await discovery.look()
    assert told == ["changed"]
    await discovery.look()
    assert told == ["changed"]


async def test_a_kind_that_is_uninstalled_and_comes_back_is_told_each_time() -> None:
    server, told, asking = Server(), list[str](), Asking("a", Node.RESOURCE)
    discovery = BackendDiscovery(server, Backends([asking], "a"), lambda: told.append("changed"))  # type: ignore[arg-type]
    for served in ({Node.RESOURCE}, {Node.RESOURCE}, set[Resource](), {Node.RESOURCE}):
        server.served = served
        await discovery.look()
    assert asking.learned == [True, False, True]
    assert told == ["changed", "changed"]  # what is heard first is no change
