"""Batch gangs of a fleet: they arrive, wait, run for their duration and go.

A gang makes progress while all its pods are ready. When a pod is lost, the work since the last checkpoint is lost too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grove.api.meta import Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.amounts import Amount, stream
from grove.fleet.file import Batch, Fleet, NodeType, Pack, Team
from grove.fleet.manifests import batch_set
from grove.kube.errors import NotFound
from grove.plan.world import NAMESPACE, World
from grove.sim.store import Change

MOST_GANGS = 1_000_000
"""Gangs of one source; more do not fit in memory. A month has 2.6 million seconds."""


@dataclass(slots=True)
class Gang:
    """One batch gang in a running fleet; times are seconds since the beginning."""

    name: str
    team: str
    pods: int
    gpus: int
    lasts_s: float
    checkpoint_s: float
    starts_in: Amount
    arrived_s: float
    priority: int | None = None
    pack: Pack = ""
    done_s: float = 0.0
    """Work that is safe: it ended before the last checkpoint."""
    since_s: float | None = None
    """Since when the gang has been whole; None while it is not."""
    ended_s: float | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def all_gpus(self) -> int:
        return self.pods * self.gpus


def arrivals(fleet: Fleet) -> Iterator[Gang]:
    """Every batch gang that arrives while the fleet runs, of all sources, in order of arrival."""
    gangs = [gang for batch in fleet.work.batch for gang in _drawn(batch, fleet.seed, fleet.lasts.s)]
    for trace in fleet.work.traces:
        gangs += [
            Gang(
                name=f"{trace.stem}-{number}",
                team=job.team,
                pods=job.pods,
                gpus=job.gpus,
                lasts_s=job.lasts_s,
                checkpoint_s=trace.checkpoint.s,
                starts_in=trace.starts_in.amount,
                arrived_s=job.arrival_s,
                priority=job.priority,
                pack=trace.pack,
            )
            for number, job in enumerate(fleet.jobs[trace.file])
        ]
    yield from sorted(gangs, key=lambda gang: (gang.arrived_s, gang.name))


def too_large(fleet: Fleet) -> list[str]:
    """Work that no run can do: too many gangs, or sets and gangs that never fit, not even on the empty cluster."""
    return list(_too_many_gangs(fleet)) or [*_too_large_sets(fleet), *_too_large_gangs(fleet)]


def _too_many_gangs(fleet: Fleet) -> Iterator[str]:
    for batch in fleet.work.batch:
        if (count := fleet.lasts.s / batch.every.s) > MOST_GANGS:
            yield f"{batch.name}: about {count:,.0f} gangs arrive in {fleet.lasts}; at most {MOST_GANGS:,} are allowed"


def _too_large_gangs(fleet: Fleet) -> list[str]:
    faults: dict[str, str] = {}
    limits = {team.name: team.limit for team in fleet.teams}
    for gang in arrivals(fleet):
        source = gang.name.rpartition("-")[0]
        if source in faults:
            continue
        what = f"{source}: gang {gang.name} has {gang.pods} pods of {gang.gpus} GPUs"
        most, limit = largest_gang(fleet.cluster.nodes, gang.gpus, gang.pack), limits[gang.team]
        if gang.pods > most:
            where = f"one {gang.pack}" if gang.pack else "the cluster"
            faults[source] = f"{what}; {where} takes at most {most} of them, so it would wait for ever"
        elif limit is not None and gang.all_gpus > limit:
            faults[source] = f"{what}; team {gang.team} may use at most {limit} GPUs, so it would wait for ever"
    return list(faults.values())


def _too_large_sets(fleet: Fleet) -> Iterator[str]:
    limits = {team.name: team.limit for team in fleet.teams}
    for serving in fleet.work.serving:
        for part in serving.parts:
            pack = part.pack or serving.pack
            most = largest_gang(fleet.cluster.nodes, part.gpus, pack)
            if part.pods > most:
                where = f"one {pack}" if pack else "the cluster"
                what = f"{serving.name}: an instance of {part.name} has {part.pods} pods of {part.gpus} GPUs"
                yield f"{what}; {where} takes at most {most} of them, so it would wait for ever"
        least = sum(part.min_available * part.pods * part.gpus for part in serving.parts)
        capacities = [kind.nodes_in(serving.pack) * kind.gpus for kind in fleet.cluster.nodes]
        where = f"one {serving.pack}" if serving.pack else "the cluster"
        bounds = [(f"{where} has", max(capacities) if serving.pack else sum(capacities))]
        if (limit := limits[serving.team]) is not None:
            bounds.append((f"team {serving.team} may use", limit))
        for who, most in bounds:
            if least > most:
                yield f"{serving.name}: its minimum is {least} GPUs; {who} at most {most}, so it would wait for ever"


def largest_gang(kinds: Sequence[NodeType], gpus: int, pack: Pack) -> int:
    """How many pods with this number of GPUs an empty domain takes. Each type of node has domains of its own."""
    if not gpus:
        return sys.maxsize
    sizes = [kind.nodes_in(pack) * (kind.gpus // gpus) for kind in kinds]
    return max(sizes) if pack else sum(sizes)


def _drawn(batch: Batch, seed: int, until_s: float) -> Iterator[Gang]:
    rng = stream(seed, f"batch-{batch.name}")
    pods, gpus, lasts, starts_in = batch.pods.amount, batch.gpus.amount, batch.lasts.amount, batch.starts_in.amount
    at_s, number = rng.expovariate(1.0 / batch.every.s), 0
    while at_s < until_s:
        yield Gang(
            name=f"{batch.name}-{number}",
            team=batch.team,
            pods=max(1, round(pods.draw(rng))),
            gpus=max(0, round(gpus.draw(rng))),
            lasts_s=max(1.0, lasts.draw(rng)),
            checkpoint_s=batch.checkpoint.s,
            starts_in=starts_in,
            arrived_s=at_s,
            priority=batch.priority,
            pack=batch.pack,
        )
        at_s += rng.expovariate(1.0 / batch.every.s)
        number += 1


class BatchWork:
    """The batch gangs of a world. It follows the availability of their sets and deletes what has finished."""

    def __init__(self, world: World, teams: dict[str, Team]) -> None:
        self._world, self._teams = world, teams
        self.gangs: dict[str, Gang] = {}
        self.finished: list[Gang] = []
        self._over: asyncio.Queue[Gang] = asyncio.Queue()
        world.cluster.server.store.listeners.append(self._follow)

    async def run(self, coming: Iterator[Gang]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._arrive(coming))
            group.create_task(self._end())

    def freeze(self) -> None:
        """No gang ends any more; call it after `run` was cancelled."""
        self._world.cluster.server.store.listeners.remove(self._follow)
        for gang in self.gangs.values():
            if gang.timer is not None:
                gang.timer.cancel()

    async def _arrive(self, coming: Iterator[Gang]) -> None:
        for gang in coming:
            await asyncio.sleep(max(0.0, gang.arrived_s - self._world.time_s))
            self.gangs[gang.name] = gang
            body = batch_set(
                gang.name,
                self._teams[gang.team],
                pods=gang.pods,
                gpus=gang.gpus,
                priority=gang.priority,
                pack=gang.pack,
            )
            await self._world.client.create(PodCliqueSet.RESOURCE, body)

    async def _end(self) -> None:
        while True:
            gang = await self._over.get()
            gang.ended_s = self._world.time_s
            self.finished.append(gang)
            del self.gangs[gang.name]
            try:
                await self._world.client.delete(PodCliqueSet, gang.name, NAMESPACE)
            except NotFound:
                continue

    def _follow(self, resource: Resource, change: Change) -> None:
        if resource != PodCliqueSet.RESOURCE or change.type == "DELETED":
            return
        gang = self.gangs.get(change.version.key.name)
        if gang is not None and gang.ended_s is None:
            self._note(gang, is_whole=(change.version.json.get("status") or {}).get("availableReplicas", 0) > 0)

    def _note(self, gang: Gang, *, is_whole: bool) -> None:
        now_s = self._world.time_s
        if is_whole and gang.since_s is None:
            gang.since_s = now_s
            left_s = gang.lasts_s - gang.done_s
            gang.timer = asyncio.get_running_loop().call_later(left_s, self._over.put_nowait, gang)
        elif not is_whole and gang.since_s is not None:
            worked_s = now_s - gang.since_s
            gang.done_s += worked_s // gang.checkpoint_s * gang.checkpoint_s
            gang.since_s = None
            if gang.timer is not None:
                gang.timer.cancel()
