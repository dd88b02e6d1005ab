"""Discovery of what schedulers take: whoever waits for it hears of every change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grove.api.core import Node, Pod
from grove.api.meta import Resource
from grove.backends import Backends
from grove.backends.base import Backend, Question
from grove.kube.errors import ConnectionLost
from grove.operator.shared.cluster.backend_discovery import BackendDiscovery


class Asking(Backend):
    """A scheduler that wants to know whether one kind is served."""

    def __init__(self, name: str, resource: Resource) -> None:
        self.name, self._resource = name, resource

    @property
    def questions(self) -> Sequence[Question]:
        return (Question("served", "served", self._resource),)


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
