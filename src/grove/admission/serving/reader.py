"""What the rules want to know of other objects, read from the API server. The rules themselves read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from grove.admission.rules.lookups import LISTED, Known, Needs
from grove.api.meta import Json, Key, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound

FETCH_S = 8.0
"""The API server waits ten seconds for us; a read that takes longer is told as a failure in time."""

VOLCANO_QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Reader(Protocol):
    """Fetches what rules need to know about other objects."""

    async def fetch(self, needs: Needs) -> Known: ...


class ClusterReader:
    """Asks the API server, no cache: a binding applied a moment before the set that names it must be found."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def fetch(self, needs: Needs) -> Known:
        if not needs:
            return Known()
        topologies, queues, sets, lists = await asyncio.gather(
            self._all(needs.topologies, lambda name: self._get(ClusterTopologyBinding.RESOURCE, Key("", name))),
            self._all(needs.queues, lambda name: self._get(VOLCANO_QUEUE, Key("", name))),
            self._all(needs.sets, lambda key: self._get(PodCliqueSet.RESOURCE, key)),
            self._all(needs.lists, lambda kind: self._list(LISTED[kind])),
        )
        return Known(topologies=topologies, queues=queues, sets=sets, lists=lists)

    async def _all(self, keys: Iterable[K], get: Callable[[K], Any]) -> dict[K, Any]:
        ordered = list(keys)
        return dict(zip(ordered, await asyncio.gather(*(get(key) for key in ordered)), strict=True))

    async def _get(self, resource: Resource, key: Key) -> Json | Exception | None:
        return await self._answer(lambda: self._client.get(resource, key.name, key.namespace))

    async def _list(self, resource: Resource) -> list[Json] | Exception | None:
        found = await self._answer(lambda: self._client.list(resource))
        return found if found is None or isinstance(found, Exception) else list(found.items)

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T | Exception | None:
        try:
            async with asyncio.timeout(FETCH_S):
                return await ask()
        except NotFound:
            return None
        except TimeoutError:
            return TimeoutError(f"no answer in {FETCH_S:g} s")
        except KubeError as error:
            return error
