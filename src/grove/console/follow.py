"""Keeps a ledger from a cluster: one watch a kind, shared by all viewers with the same rights.

Sets whose objects or causes changed get new rows. The fleet is drawn again as a whole, only as often as leaves most
of the core to others. Reads of followed kinds are answered from the cache (`CachedClient`), so questions about a set
cost the API server nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog

from grove.answers.referred import RecentCauses, is_broken
from grove.api import labels, selector
from grove.api.core import ConfigMap, Event, Node, Pod, Secret
from grove.api.koordinator import Reservation
from grove.api.meta import Key
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.console.ledger import Ledger
from grove.console.rows import fleet_rows, gang_row, node_rows, set_rows
from grove.diagnosis.held_capacity import held_for
from grove.diagnosis.processes import Processes, read_processes
from grove.diagnosis.seen import Seen
from grove.kube.cache import Cache
from grove.kube.client import Client, Page
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import Forbidden, KubeError, NotFound
from grove.show.engine_figures import METRICS, EngineReader
from grove.show.figures import FLEET, GangCounts, own_values
from grove.show.layout import layout_of
from grove.show.past import Past

OF_NAMESPACE: tuple[type[Any], ...] = (PodCliqueSet, PodCliqueScalingGroup, PodClique, PodGang, Pod)
OF_CLUSTER: tuple[type[Any], ...] = (Node, ClusterTopologyBinding)
OPTIONAL: tuple[type[Any], ...] = (Reservation,)
"""Kinds of the whole cluster that few clusters have."""
REFERRED: tuple[type[Any], ...] = (PersistentVolumeClaim, Secret, ConfigMap)
COMPLAINTS: tuple[type[Any], ...] = (PersistentVolume, StorageClass, Event)
"""Kinds that say why pods do not start. The console gets single objects of `REFERRED` and lists `COMPLAINTS`. It
follows neither."""


class EngineFigures:
    """Stands for the right to read the figures of engines, among the kinds that a viewer may see."""

    RESOURCE = METRICS


BREATH_S = 0.2
"""Changes come in bursts; a page is brought up to date at most this often."""
SHARE = 8
"""The fleet is drawn again after this many times what drawing it took."""

PROCESSES_S = 10.0
"""How often it is asked whether operator and scheduler run."""
TOGETHER = 50
"""Sets judged between two breaths of the event loop."""

log = structlog.get_logger(__name__)

_SET = "set"


class CachedClient:
    """A client whose reads of followed kinds come from a cache; everything else goes to the viewer's own client."""

    def __init__(self, cache: Cache, kinds: Iterable[type[Any]], namespace: str, own: Client) -> None:
        self._cache, self._kinds, self._namespace, self._own = cache, frozenset(kinds), namespace, own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def _has(self, kind: Any, namespace: str) -> bool:
        return kind in self._kinds and (not kind.RESOURCE.namespaced or self._namespace in ("", namespace))

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if not self._has(kind, namespace):
            return await self._own.get(kind, name, namespace)
        obj = self._cache.get(kind, Key(namespace if kind.RESOURCE.namespaced else "", name))
        if obj is None:
            what = f'{kind.RESOURCE.plural}.{kind.RESOURCE.group} "{name}" not found'
            raise NotFound(what, details={"name": name, "kind": kind.RESOURCE.plural})
        return obj

    async def list(self, kind: Any, namespace: str = "", *, labels: str = "", fields: str = "", **paging: Any) -> Any:
        if not self._has(kind, namespace) or fields:
            return await self._own.list(kind, namespace, labels=labels, fields=fields, **paging)
        return Page(_selected(self._cache, kind, namespace, labels), "")


class RightsOnly:
    """A client that reads nothing but some kinds.

    One viewer's credentials read for all viewers with the same rights. A viewer may have a right to one named Secret
    that the others do not have.
    """

    def __init__(self, own: Client, kinds: Iterable[type[Any]]) -> None:
        self._own, self._kinds = own, frozenset(kinds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return await self._own.get(self._checked(kind), name, namespace)

    async def list(self, kind: Any, namespace: str = "", **options: Any) -> Any:
        return await self._own.list(self._checked(kind), namespace, **options)

    def _checked(self, kind: Any) -> Any:
        if kind not in self._kinds:
            raise Forbidden(f"you may not read all {kind.RESOURCE.plural}", code=403)
        return kind


def _selected(cache: Cache, kind: Any, namespace: str, text: str) -> list[Any]:
    """The objects of a kind that a label selector picks; those of one set are found by index."""
    only_set = text.removeprefix(f"{labels.PART_OF}=") if text.startswith(f"{labels.PART_OF}=") else ""
    if only_set and "," not in only_set and namespace and kind in OF_NAMESPACE:
        return list(cache.by_index(kind, _SET, Key(namespace, only_set)))
    objects = cache.list(kind, namespace or None)
    if not text:
        return list(objects)
    wanted = selector.parse(text)
    return [obj for obj in objects if wanted.matches(obj.metadata.labels)]


def _set_of(obj: Any) -> list[Key]:
    name = obj.metadata.name if isinstance(obj, PodCliqueSet) else obj.metadata.labels.get(labels.PART_OF, "")
    return [Key(obj.metadata.namespace, name)] if name else []


class Following:
    """A cluster, or one namespace of it, as far as some rights reach: its cache and its ledger.

    Use `following()`; `kinds` are those that may be listed and watched, the others are simply not there (`unreadable`).
    """

    def __init__(self, client: Client, kinds: Iterable[type[Any]], namespace: str = "", clock: Clock = SYSTEM) -> None:
        self.ledger, self.past = Ledger(), Past()
        self.namespace, self.kinds = namespace, tuple(kinds)
        self.cache = Cache(client)
        self._client, self._clock = client, clock
        self._causes = RecentCauses(cast(Client, RightsOnly(client, self.kinds)))
        self._processes, self._resource = Processes(), ""
        self._counts = GangCounts()
        self._used: tuple[int | None, int | None] = (None, None)
        self._sets: set[Key] = set()
        self._gangs: set[Key] = set()
        self._fleet = True
        self._changed = asyncio.Event()
        self._followed = tuple(kind for kind in (*OF_NAMESPACE, *OF_CLUSTER, *OPTIONAL) if kind in self.kinds)
        for kind in self._followed:
            self.cache.add(kind, namespace=namespace if kind.RESOURCE.namespaced else "")
            if kind.RESOURCE.namespaced:
                self.cache.add_index(kind, _SET, _set_of)
            self.cache.on_event(kind, self._note_change)

    @property
    def unreadable(self) -> list[str]:
        return sorted(kind.RESOURCE.plural for kind in (*OF_NAMESPACE, *OF_CLUSTER) if kind not in self.kinds)

    @property
    def is_everything(self) -> bool:
        """True if it has all namespaces and the nodes. Only its viewers get figures of the whole fleet."""
        return not self.namespace and Node in self.kinds

    def reader(self, own: Client) -> CachedClient:
        return CachedClient(self.cache, self._followed, self.namespace, own)

    @asynccontextmanager
    async def following(self, timeout_s: float = 30.0) -> AsyncIterator[Following]:
        """The ledger is complete when the block begins, and kept until it ends."""
        async with self.cache, asyncio.TaskGroup() as group:
            await self.cache.wait_synced(timeout_s)
            await self._look_after_processes()
            await self._bring_up_to_date()
            tasks = [group.create_task(self._keep())]
            if EngineFigures in self.kinds:
                tasks.append(group.create_task(self._read_engines()))
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()

    def _note_change(self, old: Any, new: Any) -> None:
        obj = new if new is not None else old
        if isinstance(obj, Node | ClusterTopologyBinding | Reservation):
            self._fleet = True
        else:
            self._sets.update(_set_of(obj))
            self._fleet |= isinstance(obj, Pod) and (old is None or new is None or _place(old) != _place(new))
            if isinstance(obj, PodGang):
                self._gangs.add(obj.metadata.key)
                self._fleet |= (held_for(old) if old else None) != (held_for(new) if new else None)
        self._changed.set()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        next_fleet_s = next_look_s = loop.time()
        while True:
            due_s = min(next_look_s, next_fleet_s) if self._fleet else next_look_s
            try:
                async with asyncio.timeout_at(due_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(BREATH_S)
            self._changed.clear()
            began_s = loop.time()
            draws = self._fleet and began_s >= next_fleet_s
            try:
                if began_s >= next_look_s:
                    next_look_s = began_s + PROCESSES_S
                    await self._look_after_processes()
                await self._bring_up_to_date(fleet=draws)
            except KubeError as error:
                log.warning("page not brought up to date", error=str(error))
            if draws:
                next_fleet_s = loop.time() + SHARE * (loop.time() - began_s)

    async def _look_after_processes(self) -> None:
        processes = await read_processes(self._client, self._clock.now())
        down, before = ([process.name for process in state.down] for state in (processes, self._processes))
        if down != before:
            self._sets.update(pcs.metadata.key for pcs in self.cache.list(PodCliqueSet))
        self._processes = processes
        self.ledger.replace({"processes": {process.name: process.sentence for process in processes.down}})

    async def _look_after_causes(self) -> None:
        """Why pods do not start is written on objects that are not followed. One read serves all viewers."""
        if not self._causes.is_due():
            return
        cliques = self._all(PodClique)
        pods = [pod for pod in self._all(Pod) if pod.metadata.labels.get(labels.MANAGED_BY) == labels.OPERATOR]
        seen = Seen(cliques=cliques, pods=pods)
        try:
            changed = await self._causes.read(seen)
        except KubeError as error:
            log.warning("causes not read", error=str(error))
            return
        if changed:
            self._sets.update(key for clique in cliques if is_broken(seen, clique) for key in _set_of(clique))

    async def _read_engines(self) -> None:
        """One task reads the figures of engines for all viewers."""
        engines = EngineReader(self._client, self.past)
        while True:
            pause_s = await engines.read({pcs.metadata.namespace for pcs in self.cache.list(PodCliqueSet)})
            self.ledger.replace({"engines": engines.found})
            await asyncio.sleep(pause_s)

    async def _bring_up_to_date(self, *, fleet: bool = True) -> None:
        if fleet and self._fleet:
            self._fleet = False
            self._draw_fleet()
        gangs, self._gangs = self._gangs, set()
        known = {str(key): self.cache.get(PodGang, key) for key in gangs}
        put = {key: gang_row(gang) for key, gang in known.items() if gang is not None}
        self.ledger.record({"gangs": put}, {"gangs": [key for key, gang in known.items() if gang is None]})
        self.ledger.replace({"about": {"unreadable": self.unreadable, "namespace": self.namespace}})
        await self._look_after_causes()
        sets, self._sets = sorted(self._sets), set()
        for first in range(0, len(sets), TOGETHER):
            keys = sets[first : first + TOGETHER]
            seen = self._causes.added_to(self._seen_of(keys))
            rows = set_rows(seen, self._clock.now(), self._processes, self._resource)
            gone = [str(key) for key in keys if str(key) not in rows]
            self.ledger.record({"sets": rows}, {"sets": gone})
            for key, row in rows.items():
                self.past.record(key, own_values(row), self._clock.now().timestamp())
            for key in gone:
                self.past.forget(key)
            await asyncio.sleep(0)  # a thousand sets at the start must not keep the others waiting
        if gangs or sets or fleet:
            self._record_fleet()

    def _record_fleet(self) -> None:
        self._counts.count({key: row["placed"] for key, row in self.ledger.table("gangs").items()})
        restarts = sum(row["gangRestarts"] for row in self.ledger.table("sets").values())
        values = self._counts.values(restarts, *self._used)
        self.past.record(FLEET, values, self._clock.now().timestamp())
        self.ledger.replace({"figures": {FLEET: values}})

    def _draw_fleet(self) -> None:
        seen = Seen(
            nodes=self._all(Node),
            pods=self._all(Pod),
            bindings=self._all(ClusterTopologyBinding),
            gangs=self._all(PodGang),
            reservations=self._all(Reservation),
        )
        layout = layout_of(seen)
        self._resource = layout.resource
        has_nodes = Node in self.kinds
        self._used = (layout.root.used, layout.root.total) if has_nodes else (None, None)
        self.ledger.replace(
            {"nodes": node_rows(layout) if has_nodes else {}, "fleet": fleet_rows(layout) if has_nodes else {}}
        )

    def _seen_of(self, keys: Sequence[Key]) -> Seen:
        """The cached objects of some sets, with the nodes of their pods."""

        def of_sets(kind: type[Any]) -> list[Any]:
            if kind not in self.kinds:
                return []
            return [obj for key in keys for obj in self.cache.by_index(kind, _SET, key)]

        pods: list[Pod] = of_sets(Pod)
        on = {pod.spec.node_name for pod in pods if pod.spec.node_name} if Node in self.kinds else set()
        nodes = [node for name in sorted(on) if (node := self.cache.get(Node, Key("", name))) is not None]
        return Seen(
            of_sets(PodCliqueSet),
            of_sets(PodCliqueScalingGroup),
            of_sets(PodClique),
            of_sets(PodGang),
            pods,
            nodes,
            self._all(ClusterTopologyBinding),
            unreadable=tuple(self.unreadable),
        )

    def _all(self, kind: type[Any]) -> list[Any]:
        return list(self.cache.list(kind)) if kind in self.kinds else []


def _place(pod: Pod) -> tuple[str, bool]:
    return pod.spec.node_name, pod.is_finished
