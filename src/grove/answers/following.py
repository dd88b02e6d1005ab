"""The cluster as it is now, kept current by watches: what `-w` and `top` draw from, without asking again.

With the rights of a scheduler its view is followed too, so that waiting gangs are explained from the current cluster.
Without them one namespace is followed, and the explanation is what the scheduler wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from grove.answers.answer import Answer, Unanswered
from grove.answers.judged import Judged, judged_with
from grove.answers.referred import RecentCauses, with_causes
from grove.answers.settings import settings_of
from grove.answers.subjects import existing, set_named, subject
from grove.api import labels
from grove.api.core import Event, HorizontalPodAutoscaler, Node, Pod
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.processes import Processes, read_processes
from grove.diagnosis.reasons import sentence
from grove.diagnosis.seen import Seen
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from grove.scheduler.explain.explanation import Diagnosis
    from grove.scheduler.loop.live import Scheduler

BURST_S = 0.2
"""Changes come in bursts; one picture for each."""

IDLE_S = 10.0
"""Ages move on even when nothing happens."""

LEASES_S = 10.0
Picture = Callable[["Source"], Awaitable[Answer | None]]
"""The answer as things stand; None when there is nothing left to look at."""


class Source:
    def __init__(self, client: Client, cache: Cache, namespace: str, scheduler: Scheduler | None = None) -> None:
        self.client, self.cache, self.namespace, self.scheduler = client, cache, namespace, scheduler
        self.changed = asyncio.Event()
        self.note = ""
        self.has_autoscalers = False
        self._processes: tuple[float, Processes] | None = None
        self._recent = RecentCauses(client)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def seen(self, only_set: str = "", *, everything: bool = False) -> Seen:
        """The result of a read now. `everything` includes the pods of others, for pictures of nodes."""

        def mine(kind: type[Any], label: str = labels.PART_OF) -> list[Any]:
            objects = self.cache.list(kind, self.namespace or None)
            return [obj for obj in objects if not only_set or obj.metadata.labels.get(label) == only_set]

        sets = [
            pcs
            for pcs in self.cache.list(PodCliqueSet, self.namespace or None)
            if not only_set or pcs.metadata.name == only_set
        ]
        pods = (
            self.cache.list(Pod)
            if everything
            else [pod for pod in mine(Pod) if only_set or pod.metadata.labels.get(labels.MANAGED_BY) == labels.OPERATOR]
        )
        return Seen(
            sorted(sets, key=lambda pcs: pcs.metadata.key),
            mine(PodCliqueScalingGroup),
            mine(PodClique),
            mine(PodGang),
            pods,
            self.cache.list(Node),
            self.cache.list(ClusterTopologyBinding),
            now=self.now(),
        )

    def autoscalers(self) -> Sequence[HorizontalPodAutoscaler]:
        return self.cache.list(HorizontalPodAutoscaler, self.namespace or None) if self.has_autoscalers else []

    async def processes(self) -> Processes:
        """The state of operator and scheduler, at most a few seconds old."""
        now_s = asyncio.get_running_loop().time()
        if self._processes is None or now_s - self._processes[0] > LEASES_S:
            self._processes = (now_s, await read_processes(self.client, self.now()))
        return self._processes[1]

    async def diagnose(self, gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
        if self.scheduler is None:
            return {}
        # It imports numpy, which a list of running sets does not need.
        from grove.answers.scheduler_view import diagnosed  # noqa: PLC0415

        return await diagnosed(self.scheduler, gangs, most)

    async def judged(self, seen: Seen, *, advice: bool = False, only: Sequence[PodGang] | None = None) -> Judged:
        seen = await self.with_causes(replace(seen, others=self.cache.list(PodGang)))
        return await judged_with(
            seen,
            self.now(),
            await self.processes(),
            self.diagnose,
            advice=advice,
            only=only,
            note=self.note,
        )

    async def with_causes(self, seen: Seen) -> Seen:
        """A list is drawn often: what was read for it is good for a few seconds, as long as the clique is not ready."""
        if len(seen.sets) <= 1:
            return await with_causes(self.client, seen)
        if self._recent.is_due():
            await self._recent.read(seen)
        return self._recent.added_to(seen)


@asynccontextmanager
async def following(
    client: Client, namespace: str, timeout_s: float = 30.0, *, events: bool = False
) -> AsyncIterator[Source]:
    """A source that is in step with the cluster."""
    # Only a command that follows the cluster needs it.
    from grove.scheduler.loop.live import Scheduler  # noqa: PLC0415

    scheduler = Scheduler(client, await settings_of(client), say=sentence)
    source = Source(client, scheduler.cache, namespace, scheduler)
    source.has_autoscalers = has_autoscalers = await _may_read_autoscalers(client, namespace)
    _follow(source, namespace, everywhere=True, events=events)
    is_in_step = False
    try:
        async with scheduler.following():
            is_in_step = True
            yield source
            return
    except Forbidden as error:
        if is_in_step:
            raise  # a right that only the question itself needs
        note = f"you may not see what the scheduler sees ({error}); this is what it wrote on the objects"
    cache = Cache(client)
    source = Source(client, cache, namespace)
    source.note, source.has_autoscalers = note, has_autoscalers
    _follow(source, namespace, everywhere=False, events=events)
    async with cache:
        await cache.wait_synced(timeout_s)
        yield source


async def _may_read_autoscalers(client: Client, namespace: str) -> bool:
    """Without them, or without the right to see them, everything else can still be followed."""
    try:
        await client.list(HorizontalPodAutoscaler, namespace, limit=1)
    except (Forbidden, NotFound):
        return False
    return True


def _follow(source: Source, namespace: str, *, everywhere: bool, events: bool) -> None:
    def stir(old: object, new: object) -> None:
        source.changed.set()

    own: tuple[type[Any], ...] = (PodCliqueSet, PodCliqueScalingGroup, PodClique, *([Event] if events else ()))
    if source.has_autoscalers:
        own = (*own, HorizontalPodAutoscaler)
    if not everywhere:
        own = (*own, PodGang, Pod)
    for kind in own:
        source.cache.add(kind, namespace=namespace)
    kinds: tuple[type[Any], ...] = (*own, PodGang, Pod, Node, ClusterTopologyBinding)
    for kind in dict.fromkeys(kinds):
        source.cache.on_event(kind, stir)


async def _real_name(client: Client, namespace: str, name: str) -> str:
    """In all namespaces at once a name stands for every set that has it."""
    if "/" in name:
        owner = (await subject(client, namespace, name)).seen.sets
        if not owner:
            raise Unanswered(f"{name} belongs to no PodCliqueSet")
        return owner[0].metadata.name
    if namespace:
        return (await set_named(client, namespace, name)).metadata.name
    if not (await client.list(PodCliqueSet, fields=f"metadata.name={name}")).items:
        raise Unanswered(f"there is no PodCliqueSet {name}{await existing(client, PodCliqueSet, name=name)}")
    return name
