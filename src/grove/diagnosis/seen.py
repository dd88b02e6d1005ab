"""What a picture is made of: the objects that were read at one moment, and the ways to find one among them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from grove.api import labels
from grove.api.core import Event, Node, Pod
from grove.api.koordinator import Reservation
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.causes import Cause
from grove.diagnosis.kueue import KueueSeen
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound

T = TypeVar("T", bound=Object)

PAGE = 500
HOST_KEY = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Seen:
    """Objects of one moment. `unreadable` names the kinds that the user may not list."""

    sets: Sequence[PodCliqueSet] = ()
    groups: Sequence[PodCliqueScalingGroup] = ()
    cliques: Sequence[PodClique] = ()
    gangs: Sequence[PodGang] = ()
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    bindings: Sequence[ClusterTopologyBinding] = ()
    events: Sequence[Event] = ()
    others: Sequence[PodGang] = ()
    """Gangs of other sets, if the caller asked which could free capacity."""
    causes: Sequence[Cause] = ()
    """Faults of objects that pods refer to. Only questions about one set fill it."""
    kueue: Mapping[str, KueueSeen] = field(default_factory=dict)
    """What Kueue says of pod groups that wait, by name. Only questions about one set fill it."""
    reservations: Sequence[Reservation] = ()
    now: datetime | None = None
    unreadable: tuple[str, ...] = field(default=())

    @cached_property
    def node_of(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def gang_of(self) -> dict[Key, PodGang]:
        return {gang.metadata.key: gang for gang in self.gangs}

    @cached_property
    def clique_of(self) -> dict[Key, PodClique]:
        return {clique.metadata.key: clique for clique in self.cliques}

    @cached_property
    def pods_of_clique(self) -> dict[Key, list[Pod]]:
        return self._pods_by(labels.POD_CLIQUE)

    @cached_property
    def pods_of_gang(self) -> dict[Key, list[Pod]]:
        return self._pods_by(labels.POD_GANG)

    def _pods_by(self, label: str) -> dict[Key, list[Pod]]:
        by_name: dict[Key, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if name := pod.metadata.labels.get(label):
                by_name[Key(pod.metadata.namespace, name)].append(pod)
        return by_name

    def of_set(self, kind: Sequence[T], pcs: PodCliqueSet) -> list[T]:
        """Those of a kind that belong to a set, by name."""
        index = self._by_set.get(id(kind))
        if index is None:
            index = self._by_set[id(kind)] = defaultdict(list)
            for obj in kind:
                index[Key(obj.metadata.namespace, obj.metadata.labels.get(labels.PART_OF, ""))].append(obj)
        mine: list[T] = index.get(pcs.metadata.key, [])  # type: ignore[assignment]
        return sorted(mine, key=lambda obj: obj.metadata.name)

    @cached_property
    def _by_set(self) -> dict[int, dict[Key, list[Object]]]:
        """By list of this moment: what belongs to which set."""
        return {}

    def find_set(self, key: Key) -> PodCliqueSet | None:
        return next((pcs for pcs in self.sets if pcs.metadata.key == key), None)

    def levels(self, topology: str = "", *, with_host: bool = False) -> tuple[tuple[str, str], ...]:
        """Domain names and label keys, broad to narrow, of the named binding, else of the first.

        The host is left out unless `with_host` is set.
        """
        bindings = sorted(self.bindings, key=lambda binding: (binding.metadata.name != topology, binding.metadata.name))
        if not bindings:
            return ()
        return tuple(
            (level.domain, level.key) for level in bindings[0].spec.levels if with_host or level.key != HOST_KEY
        )

    def path(self, node: str, levels: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """The domains a node is in, broad to narrow; empty where its label is missing."""
        seen_node = self.node_of.get(node)
        return tuple(seen_node.metadata.labels.get(key, "") if seen_node else "" for _, key in levels)


async def read(
    client: Client, namespace: str = "", *, only_set: str = "", selector: str = "", events: bool = False
) -> Seen:
    """Reads what pictures need, in parallel. Kinds the user may not list are left out and named in `unreadable`.

    `only_set` asks for the children of one set alone, which the server filters by label; `selector` for sets by theirs.
    """
    mine = f"{labels.PART_OF}={only_set}" if only_set else ""
    managed = mine or f"{labels.MANAGED_BY}={labels.OPERATOR}"
    unreadable: list[str] = []

    async def listed(kind: type[T], where: str, selector: str = "") -> list[T]:
        try:
            return await every(client, kind, where, labels=selector)
        except Forbidden:
            if kind is PodCliqueSet:
                raise  # without the sets there is nothing to show
            unreadable.append(kind.RESOURCE.plural)
            return []

    async def sets() -> list[PodCliqueSet]:
        if only_set:
            return [await client.get(PodCliqueSet, only_set, namespace)]
        return await listed(PodCliqueSet, namespace, selector)

    async with asyncio.TaskGroup() as group:
        start = group.create_task
        tasks = (
            start(sets()),
            start(listed(PodCliqueScalingGroup, namespace, mine)),
            start(listed(PodClique, namespace, mine)),
            start(listed(PodGang, namespace, mine)),
            start(listed(Pod, namespace, managed)),
            start(listed(Node, "")),
            start(listed(ClusterTopologyBinding, "")),
        )
        happened = start(listed(Event, namespace)) if events else None
    return Seen(
        tasks[0].result(),
        tasks[1].result(),
        tasks[2].result(),
        tasks[3].result(),
        tasks[4].result(),
        tasks[5].result(),
        tasks[6].result(),
        happened.result() if happened else (),
        unreadable=tuple(sorted(unreadable)),
    )


async def read_layout(client: Client) -> Seen:
    """Reads what a picture of the nodes needs: nodes, all pods, the topology, and held capacity.

    A user without rights to pods gets none. Few clusters have Reservations.
    """
    unreadable: list[str] = []

    async def listed(kind: type[T]) -> list[T]:
        try:
            return await every(client, kind)
        except Forbidden:
            unreadable.append(kind.RESOURCE.plural)
        except NotFound:
            pass  # the kind is not installed
        return []

    async with asyncio.TaskGroup() as group:
        nodes, pods = group.create_task(listed(Node)), group.create_task(listed(Pod))
        bindings, gangs = group.create_task(listed(ClusterTopologyBinding)), group.create_task(listed(PodGang))
        reservations = group.create_task(listed(Reservation))
    return Seen(
        nodes=nodes.result(),
        pods=pods.result(),
        bindings=bindings.result(),
        gangs=gangs.result(),
        reservations=reservations.result(),
        unreadable=tuple(sorted(unreadable)),
    )


async def every(client: Client, kind: type[T], namespace: str = "", *, labels: str = "") -> list[T]:
    """A whole list, page by page."""
    objects: list[T] = []
    page = ""
    while True:
        got = await client.list(kind, namespace, labels=labels, limit=PAGE, next_page=page)
        objects += got.items
        page = got.next_page
        if not page:
            return objects
