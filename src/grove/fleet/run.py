"""Runs a fleet file: builds the world, plays machines and work in it, measures and judges until time is over.

    result = run_fleet(fleet)

Virtual time makes a month a matter of minutes. After the time of the file everything from outside stops, and
`grove.fleet.ending` judges the cluster at rest. That time is not part of the figures.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from grove.api import labels
from grove.api.core import Event
from grove.api.meta import Json, Object, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.fleet.amounts import Amount, stream
from grove.fleet.batch import BatchWork, Gang, arrivals
from grove.fleet.ending import SETTLE_S, MemorySample, held, judge_emptied, judge_memory, judge_rest
from grove.fleet.figures import Figures
from grove.fleet.file import Fleet, Part
from grove.fleet.machines import Machines, node_objects
from grove.fleet.manifests import BAD, priority_name, standing_objects
from grove.fleet.promises import Broken, Promises
from grove.fleet.serving import Service
from grove.fleet.strict_order import StrictOrder
from grove.kube.collector import Collector
from grove.plan.world import World, binding
from grove.scheduler.loop.metrics import TRIMMED
from grove.sim.client import READS, SimClient
from grove.sim.kubelet import RunPod
from grove.sim.loop import run as run_virtual
from grove.sim.store import Change, Store

MEMORY_SAMPLES = 48
"""Moments at which memory is measured, at least; at least once a day."""
SAMPLES = 720
"""Moments at which the fleet is measured; a month has one an hour."""
EVENT_TTL_S = 3600.0
"""The API server forgets Events after an hour."""
SWEEP_S = 600.0
START_S = 5.0
"""Operator and scheduler have read the empty cluster when the run begins."""
PATIENCE_FACTOR = 4.0
PATIENCE_LEAST_S = 2 * 86400.0

Progress = Callable[[float], None]
"""Takes the share of the run that is done."""


@dataclass(slots=True)
class Run:
    """A finished run: what was measured and what was broken. CPU times depend on the machine, all else does not."""

    fleet: Fleet
    figures: Figures
    services: list[Service]
    finished: list[Gang]
    unfinished: list[Gang]
    broken: list[Broken]
    past: list[tuple[float, Resource, Change]]
    """The writes of the last hour before a promise was broken."""
    writes: dict[str, dict[str, int]]
    """API writes of operator and scheduler, by verb and kind."""
    excused: dict[str, float]
    """By set, the share of its instances that something from outside had taken, weighed by time."""
    below_budgets: dict[str, float]
    """By set with a disruption budget, the seconds with fewer ready pods."""
    trimmed: int
    """Pods above the minimum of their gang that the scheduler evicted."""
    ended_s: float
    cpu_s: float
    scheduler_cpu_s: float
    """CPU time of the scheduler's turns."""


def run_fleet(fleet: Fleet, progress: Progress = lambda _share: None) -> Run:
    """Plays the whole file; stops at the first broken promise."""
    limit_s = fleet.lasts.s + 4 * SETTLE_S
    return run_virtual(_play(fleet, progress), seed=fleet.seed, limit_s=limit_s)


async def _play(fleet: Fleet, progress: Progress) -> Run:
    nodes = [node for kind in fleet.cluster.nodes for node in node_objects(kind, alone=len(fleet.cluster.nodes) == 1)]
    objects: list[tuple[type[Object], Json]] = [(ClusterTopologyBinding, binding()), *standing_objects(fleet)]
    world = World(
        nodes,
        seed=fleet.seed,
        objects=objects,
        now=fleet.begins,
        settings=fleet.scheduler_settings(),
        config=fleet.operator_settings(),
    )
    if fleet.settings.order == "strict":
        view = world.scheduler.view
        view.snapshot.use(view.snapshot.seams.joined(policies=[StrictOrder(view, world.scheduler.queue)]))
    played = _Played(world, fleet, nodes)
    collector = Collector()
    try:
        async with world, asyncio.TaskGroup() as group:
            collector.settle()
            sweeping = group.create_task(_forget_events(world.cluster.server.store, world))
            run = await played.play(progress)
            sweeping.cancel()
    finally:
        collector.release()
    return run


class _Played:
    """The parts of one run."""

    def __init__(self, world: World, fleet: Fleet, nodes: list[Json]) -> None:
        self.world, self.fleet = world, fleet
        self.figures = Figures(
            {priority_name(value): value for value in fleet.priorities},
            {team.name: team.quota for team in fleet.teams if team.quota is not None},
        )
        self._is_broken = asyncio.Event()
        longest_s = max((gang.lasts_s for gang in arrivals(fleet)), default=0.0)
        self.promises = Promises(
            self.figures,
            limits={team.name: team.limit for team in fleet.teams if team.limit is not None},
            deadline_s=fleet.scheduler_settings().gang_timeout,
            patience_s=max(PATIENCE_LEAST_S, PATIENCE_FACTOR * longest_s),
            budgets={
                serving.name: serving.pods_available
                for serving in fleet.work.serving
                if serving.pods_available is not None
            },
            stop=self._is_broken.set,
        )
        teams = {team.name: team for team in fleet.teams}
        self.machines = Machines(world, fleet.cluster, nodes, fleet.seed, self.figures.note)
        hit, note = self.promises.hits.crash, self.figures.note
        self.services = [
            Service(world, serving, teams[serving.team], fleet.seed, fleet.begins, hit, note)
            for serving in fleet.work.serving
        ]
        self.batch = BatchWork(world, teams)
        self._starts = {serving.name: {part.name: part for part in serving.parts} for serving in fleet.work.serving}
        self._delays: dict[str, float] = {}
        self._memory: list[MemorySample] = []
        self._memory_every = max(1, round(SAMPLES / max(MEMORY_SAMPLES, fleet.lasts.s / 86400)))
        world.cluster.server.store.listeners.append(self._see)
        world.cluster.nodes.start_s = self._start_delay
        world.cluster.nodes.hold = _is_bad

    def _see(self, resource: Resource, change: Change) -> None:
        self.figures.see(resource, change, self.world.time_s)
        self.promises.see(resource, change)

    async def play(self, progress: Progress) -> Run:
        began = time.process_time()
        await asyncio.sleep(START_S)
        held_before, trimmed_before = held(self.world), _trimmed()
        await self._play_all(progress)
        excused = self.promises.hits.excused()
        figures = copy.deepcopy(self.figures)
        figures.close(self.world.time_s)
        run = Run(
            fleet=self.fleet,
            figures=figures,
            services=[copy.copy(service) for service in self.services],
            finished=self.batch.finished,
            unfinished=list(self.batch.gangs.values()),
            broken=self.promises.broken,
            past=[],
            writes={"operator": _writes(self.world.operator_client), "scheduler": _writes(self.world.scheduler_client)},
            excused=excused,
            below_budgets=self.promises.below_budgets(),
            trimmed=round(_trimmed() - trimmed_before),
            ended_s=self.world.time_s,
            cpu_s=0.0,
            scheduler_cpu_s=0.0,
        )
        judge_memory(self._memory, self.promises.report)
        if not run.broken:
            await self._come_to_rest(held_before)
        run.past, run.cpu_s = list(self.promises.past), time.process_time() - began
        run.scheduler_cpu_s = self.world.deciding.spent_s
        return run

    async def _play_all(self, progress: Progress) -> None:
        work: list[Coroutine[Any, Any, None]] = [
            self.machines.run(),
            self.batch.run(arrivals(self.fleet)),
            *(service.run() for service in self.services),
        ]
        tasks = [asyncio.ensure_future(piece) for piece in work]
        try:
            await self._watch_over(tasks, progress)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _come_to_rest(self, held_before: int) -> None:
        """Stops everything from outside, then judges what is left."""
        self.batch.freeze()
        await self.machines.restore()
        for service in self.services:
            await service.undo()
        if await judge_rest(self.world, self.promises.report) and not self.promises.broken:
            await judge_emptied(self.world, self.figures, held_before, self.promises.report)

    async def _watch_over(self, tasks: Sequence[asyncio.Future[None]], progress: Progress) -> None:
        """Samples until the time is over, a promise is broken or a part of the run fails."""
        lasts_s = self.fleet.lasts.s
        for number in range(SAMPLES + 1):
            at_s = lasts_s * number / SAMPLES
            try:
                async with asyncio.timeout(max(0.0, at_s - self.world.time_s)):
                    await self._is_broken.wait()
                return
            except TimeoutError:
                pass
            for task in tasks:
                if task.done():
                    task.result()  # an error in a part of the run ends it
            self.figures.sample(self.world.time_s)
            self.promises.look()
            if number % self._memory_every == 0:
                self._memory.append(self._measure_memory())
            progress(number / SAMPLES)

    def _measure_memory(self) -> MemorySample:
        figures = self.figures
        return MemorySample(held(self.world), len(figures.pods), len(figures.gangs), len(figures.ended_gangs))

    def _start_delay(self, pod: RunPod) -> float:
        """Seconds from bound to ready; each pod draws once."""
        uid = pod.metadata.uid
        if uid not in self._delays:
            amount = self._starts_in(pod)
            drawn = amount.draw(stream(self.fleet.seed, f"start-{pod.metadata.name}")) if amount is not None else 1.0
            self._delays[uid] = round(drawn, 1)
            if len(self._delays) > 100_000:
                del self._delays[next(iter(self._delays))]
        return self._delays[uid]

    def _starts_in(self, pod: RunPod) -> Amount | None:
        marks = pod.metadata.labels
        set_name = marks.get(labels.PART_OF, "")
        gang = self.batch.gangs.get(set_name)
        if gang is not None:
            return gang.starts_in
        part = _part_of(self._starts.get(set_name, {}), marks.get(labels.SCALING_GROUP, ""))
        return part.starts_in.amount if part is not None else None


def _part_of(parts: dict[str, Part], group: str) -> Part | None:
    """The part whose scaling group is called `<set>-<replica>-<part>`."""
    return next((part for name, part in parts.items() if group.endswith(f"-{name}")), None)


def _writes(client: SimClient) -> dict[str, int]:
    return {f"{verb} {kind}": count for (verb, kind), count in client.calls.items() if verb not in READS}


def _trimmed() -> float:
    """The counter of this process: a run is what it grew by."""
    return sum(sample.value for sample in next(iter(TRIMMED.collect())).samples if sample.name.endswith("_total"))


def _is_bad(pod: RunPod) -> bool:
    return any(box.image.startswith(BAD) for box in pod.spec.containers)


async def _forget_events(store: Store, world: World) -> None:
    """Removes Events an hour after they were written, as the API server does."""
    written: dict[str, tuple[int, float]] = {}
    while True:
        await asyncio.sleep(SWEEP_S)
        events = store.collection(Event.RESOURCE).objects
        for key, version in list(events.items()):
            revision, since_s = written.get(version.uid, (0, 0.0))
            if revision != version.revision:
                written[version.uid] = (version.revision, world.time_s)
            elif world.time_s - since_s >= EVENT_TTL_S:
                del written[version.uid]
                store.remove(Event.RESOURCE, key)
