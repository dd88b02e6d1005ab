"""Keeps a ledger from a cluster: one watch a kind, shared by all viewers with the same rights.

Sets whose objects changed get new rows; the fleet is drawn anew as a whole, at most as often as leaves most of the core
to others. Reads of followed kinds are answered from the cache (`CachedClient`), so questions about a set cost the API
server nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from grove.api import labels, selector
from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.console.ledger import Ledger
from grove.console.rows import fleet_rows, gang_row, node_rows
from grove.kube.cache import Cache
from grove.kube.client import Client, Page
from grove.kube.errors import KubeError, NotFound
from grove.show.layout import layout_of
from grove.show.seen import Seen

OF_NAMESPACE: tuple[type[Any], ...] = (PodCliqueSet, PodCliqueScalingGroup, PodClique, PodGang, Pod)
OF_CLUSTER: tuple[type[Any], ...] = (Node, ClusterTopologyBinding)
BREATH_S = 0.2
"""Changes come in bursts; a page is brought up to date at most this often."""
SHARE = 8
"""The fleet is drawn again after this many times what drawing it took."""

log = structlog.get_logger(__name__)
SetRow = Callable[[Client, Key], Awaitable[Any]]
"""The row of one set, as `kubectl grove status -o json` has it; None when the set is gone."""

_SET = "set"


class CachedClient:
    """A client whose reads of followed kinds come from a cache; everything else goes to the viewer's own client."""

    def __init__(self, cache: Cache, kinds: Iterable[type[Any]], namespace: str, own: Client) -> None:
        self._cache, self._kinds, self._namespace, self._own = cache, frozenset(kinds), namespace, own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def _has(self, kind: Any, namespace: str) -> bool:
        return kind in self._kinds and (kind in OF_CLUSTER or self._namespace in ("", namespace))

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if not self._has(kind, namespace):
            return await self._own.get(kind, name, namespace)
        found = self._cache.get(kind, Key(namespace if kind.RESOURCE.namespaced else "", name))
        if found is None:
            what = f'{kind.RESOURCE.plural}.{kind.RESOURCE.group} "{name}" not found'
            raise NotFound(what, details={"name": name, "kind": kind.RESOURCE.plural})
        return found

    async def list(self, kind: Any, namespace: str = "", *, labels: str = "", fields: str = "", **paging: Any) -> Any:
        if not self._has(kind, namespace) or fields:
            return await self._own.list(kind, namespace, labels=labels, fields=fields, **paging)
        return Page(_selected(self._cache, kind, namespace, labels), "")


def _selected(cache: Cache, kind: Any, namespace: str, text: str) -> list[Any]:
    """The objects of a kind that a label selector picks; those of one set are found by index."""
    only_set = text.removeprefix(f"{labels.PART_OF}=") if text.startswith(f"{labels.PART_OF}=") else ""
    if only_set and "," not in only_set and namespace and kind in OF_NAMESPACE:
        return list(cache.by_index(kind, _SET, Key(namespace, only_set)))
    found = cache.list(kind, namespace or None)
    if not text:
        return list(found)
    wanted = selector.parse(text)
    return [one for one in found if wanted.matches(one.metadata.labels)]


def _set_of(obj: Any) -> list[Key]:
    name = obj.metadata.name if isinstance(obj, PodCliqueSet) else obj.metadata.labels.get(labels.PART_OF, "")
    return [Key(obj.metadata.namespace, name)] if name else []


class Following:
    """A cluster, or one namespace of it, as far as some rights reach: its cache and its ledger.

    Use `following()`; `kinds` are those that may be listed and watched, the others are simply not there (`blind`).
    """

    def __init__(self, client: Client, kinds: Iterable[type[Any]], set_row: SetRow, namespace: str = "") -> None:
        self.ledger = Ledger()
        self.namespace, self.kinds = namespace, tuple(kinds)
        self.cache = Cache(client)
        self._client, self._set_row = client, set_row
        self._sets: set[Key] = set()
        self._gangs: set[Key] = set()
        self._fleet = True
        self._changed = asyncio.Event()
        for kind in self.kinds:
            in_cluster = kind in OF_CLUSTER
            self.cache.add(kind, namespace="" if in_cluster else namespace)
            if not in_cluster:
                self.cache.add_index(kind, _SET, _set_of)
            self.cache.on_event(kind, self._heard)

    @property
    def blind(self) -> list[str]:
        return sorted(one.RESOURCE.plural for one in (*OF_NAMESPACE, *OF_CLUSTER) if one not in self.kinds)

    def reader(self, own: Client) -> CachedClient:
        return CachedClient(self.cache, self.kinds, self.namespace, own)

    @asynccontextmanager
    async def following(self, timeout_s: float = 30.0) -> AsyncIterator[Following]:
        """The ledger is complete when the block begins, and kept until it ends."""
        async with self.cache, asyncio.TaskGroup() as group:
            await self.cache.wait_synced(timeout_s)
            await self._bring_up_to_date()
            task = group.create_task(self._keep())
            try:
                yield self
            finally:
                task.cancel()

    def _heard(self, old: Any, new: Any) -> None:
        one = new if new is not None else old
        if isinstance(one, Node | ClusterTopologyBinding):
            self._fleet = True
        else:
            self._sets.update(_set_of(one))
            self._fleet |= isinstance(one, Pod) and (old is None or new is None or _place(old) != _place(new))
            if isinstance(one, PodGang):
                self._gangs.add(one.metadata.key)
        self._changed.set()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        drawn_s = next_fleet_s = loop.time()
        while True:
            wait_s = max(0.0, next_fleet_s - loop.time()) if self._fleet and not self._changed.is_set() else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(BREATH_S)
            self._changed.clear()
            began_s = loop.time()
            fleet_due = self._fleet and began_s >= next_fleet_s
            try:
                await self._bring_up_to_date(fleet=fleet_due)
            except KubeError as error:
                log.warning("page not brought up to date", error=str(error))
            if fleet_due:
                drawn_s = loop.time() - began_s
                next_fleet_s = loop.time() + SHARE * drawn_s

    async def _bring_up_to_date(self, *, fleet: bool = True) -> None:
        sets, self._sets = self._sets, set()
        gangs, self._gangs = self._gangs, set()
        reader = self.reader(self._client)
        put: dict[str, dict[str, Any]] = {"sets": {}, "gangs": {}}
        gone: dict[str, list[str]] = {"sets": [], "gangs": []}
        for number, key in enumerate(sorted(sets)):
            row = await self._set_row(reader, key)
            if row is None:
                gone["sets"].append(str(key))
            else:
                put["sets"][str(key)] = row
            if number % 20 == 19:
                await asyncio.sleep(0)  # a thousand sets at the start must not keep the others waiting
        for key in sorted(gangs):
            gang = self.cache.get(PodGang, key)
            if gang is None:
                gone["gangs"].append(str(key))
            else:
                put["gangs"][str(key)] = gang_row(gang)
        self.ledger.record(put, gone)
        if fleet and self._fleet:
            self._fleet = False
            layout = layout_of(self._seen())
            whole = {"nodes": node_rows(layout), "fleet": fleet_rows(layout)}
            self.ledger.replace(whole if Node in self.kinds else {"fleet": {}, "nodes": {}})
        self.ledger.replace({"about": {"blind": self.blind, "namespace": self.namespace}})

    def _seen(self) -> Seen:
        def every(kind: type[Any]) -> list[Any]:
            return list(self.cache.list(kind)) if kind in self.kinds else []

        return Seen(nodes=every(Node), pods=every(Pod), bindings=every(ClusterTopologyBinding))


def _place(pod: Pod) -> tuple[str, bool]:
    return pod.spec.node_name, pod.is_finished
