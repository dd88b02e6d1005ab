"""An object that goes is let go once: a second look before the watch shows it finds our finalizer gone."""

from __future__ import annotations

import msgspec
import pytest

from grove.api import labels
from grove.api.meta import Json, Key
from grove.api.podclique import PodClique
from grove.kube.cache import Cache
from grove.kube.errors import NotFound
from grove.operator.shared.cluster.pod_cleanup import release


def leaving(version: int, *finalizers: str) -> PodClique:
    meta: Json = {
        "name": "d-0-w",
        "namespace": "default",
        "uid": "c1",
        "resourceVersion": str(version),
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": list(finalizers),
    }
    return msgspec.convert({"metadata": meta}, PodClique)


class Lagging:
    """A server that has the clique, unless it is gone, and a watch that shows nothing by itself."""

    def __init__(self, *, is_gone: bool = False) -> None:
        self.cache, self.is_gone, self.patches = Cache(self), is_gone, list[Json]()  # type: ignore[arg-type]
        self.watch = self.cache.add(PodClique)
        self.watch.put(leaving(1, labels.CLIQUE_FINALIZER, "example.com/theirs"))

    async def patch(self, kind: type[PodClique], name: str, patch: Json, namespace: str) -> PodClique:
        self.patches.append(patch)
        if self.is_gone:
            raise NotFound(name)
        return leaving(2, "example.com/theirs")

    def shown(self) -> PodClique | None:
        return self.cache.get(PodClique, Key("default", "d-0-w"))

    async def look(self) -> None:
        if (clique := self.shown()) is not None:
            await release(self.cache, self, clique, labels.CLIQUE_FINALIZER)  # type: ignore[arg-type]


async def test_a_finalizer_that_is_off_is_not_taken_off_again() -> None:
    server = Lagging()
    await server.look()
    await server.look()
    wanted = {"metadata": {"finalizers": ["example.com/theirs"], "resourceVersion": "1"}}
    assert server.patches == [wanted]
    server.watch.remove(leaving(3))
    assert server.shown() is None


@pytest.mark.parametrize("version", [pytest.param(2, id="at once"), pytest.param(3, id="later")])
async def test_what_goes_with_its_last_finalizer_does_not_come_back(version: int) -> None:
    server = Lagging()
    await server.look()
    server.watch.remove(leaving(version))
    assert server.shown() is None


async def test_what_is_gone_already_is_fine() -> None:
    server = Lagging(is_gone=True)
    await server.look()
    assert len(server.patches) == 1
