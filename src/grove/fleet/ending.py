"""The end of a run: everything from outside stops, and then operator and scheduler must come to rest.

Stable: within `SETTLE_S` there is an hour without a write. Leases and Events do not count. Convergent: afterwards every
set is complete, or one of its gangs waits with a reason. When all sets are deleted, none of their objects is left.
Memory: operator and scheduler hold as much for the empty cluster after the run as before it. During the run they do not
hold more for the same number of pods and gangs.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from grove.api import labels
from grove.api.conditions import SCHEDULED
from grove.api.core import Event, HorizontalPodAutoscaler, Lease, Pod, Service
from grove.api.meta import Object, Resource, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.figures import Figures
from grove.kube.events import Recorder
from grove.plan.world import NAMESPACE, World
from grove.sim.store import Change

QUIET_S = 3600.0
SETTLE_S = 86400.0
SPARE_ENTRIES = 500
"""Entries that may be added in a run of any length: pools that fill once."""
SPARE_SHARE = 0.2
"""Entries for each gang of the run that may remain; a leak leaves at least one."""
LEAST_SAMPLES, LEAST_GANGS = 12, 100
"""Fewer samples or gangs say nothing about what each gang leaves."""
_MADE = (Pod, PodGang, PodClique, PodCliqueScalingGroup, Service, HorizontalPodAutoscaler)
"""Kinds that exist only for sets."""


class MemorySample(NamedTuple):
    """What operator and scheduler hold at a moment, and what they hold it for."""

    entries: int
    pods: int
    gangs: int
    ended_gangs: int


Report = Callable[[str, str], None]
"""Takes a promise and how it was broken."""


async def judge_rest(world: World, report: Report) -> bool:
    """Waits for a quiet hour and looks at every set; False if a promise is broken."""
    if last := await _restless(world):
        hours = SETTLE_S / 3600
        report("Stable", f"no quiet hour within {hours:.0f} h after the last change from outside; last write: {last}")
        return False
    faults = [text for text in (_unsettled(world, pcs) for pcs in world.all(PodCliqueSet)) if text]
    if faults:
        report("Convergent", "; ".join(faults[:5]))
    return not faults


async def judge_emptied(world: World, figures: Figures, held_before: int, report: Report) -> None:
    """Deletes every set; nothing of them may be left, neither in the cluster nor in memory."""
    for pcs in world.all(PodCliqueSet):
        await world.client.delete(PodCliqueSet, pcs.metadata.name, NAMESPACE)
    await _restless(world)
    left = [f"{kind.RESOURCE.kind} {obj.metadata.name}" for kind in _MADE for obj in _some(world, kind)]
    if left:
        report("Convergent", f"{len(left)} objects are left after every set was deleted: {', '.join(left[:5])}")
        return
    more, gangs = held(world) - held_before, len(figures.ended_gangs)
    if more > SPARE_ENTRIES + SPARE_SHARE * gangs:
        report("Memory", f"operator and scheduler hold {more} more entries than before, after {gangs} gangs")


async def _restless(world: World) -> str:
    """Waits for an hour without a write; what was written last if there is none within `SETTLE_S`, else nothing."""
    end_s, last, since_s = world.time_s + SETTLE_S, "", world.time_s

    def see(resource: Resource, change: Change) -> None:
        nonlocal last, since_s
        if resource not in (Event.RESOURCE, Lease.RESOURCE):
            last, since_s = f"{change.type} {resource.kind} {change.version.key}", world.time_s

    listeners = world.cluster.server.store.listeners
    listeners.append(see)
    try:
        while (left_s := since_s + QUIET_S - world.time_s) > 0:
            if world.time_s >= end_s:
                return last
            await asyncio.sleep(max(1.0, left_s))  # a rounded rest may be too short for the clock to move
        return ""
    finally:
        listeners.remove(see)


def _unsettled(world: World, pcs: PodCliqueSet) -> str:
    """The part that a set lacks although none of its gangs waits for a node; empty if it is complete."""
    name = pcs.metadata.name
    if world.is_settled(name):
        return ""
    gangs = [gang for gang in world.all(PodGang) if gang.metadata.labels.get(labels.PART_OF) == name]
    scheduled = [find_condition(gang.status.conditions, SCHEDULED) for gang in gangs]
    if any(condition is not None and condition.status == "False" and condition.reason for condition in scheduled):
        return ""
    status = pcs.status
    return f"set {name} has {status.available_replicas} of {pcs.spec.replicas} replicas and waits for nothing"


def _some(world: World, kind: type[Object]) -> Iterator[Object]:
    """Objects of a kind that belong to a set."""
    for obj in world.all(kind):
        if labels.PART_OF in obj.metadata.labels:
            yield obj


def held(world: World) -> int:
    """Entries in all containers that operator and scheduler reach; the simulated cluster is not counted."""
    server, loop, view = world.cluster.server, asyncio.get_running_loop(), world.scheduler.view
    # Recorders of events and places of gone gangs have a limit of their own, and fill up to it. Labels of nodes are
    # read when a gang first asks for them; they are as many as the nodes.
    bounded = [view.units.places, view.snapshot.nodes]
    return entries([world.operator, world.scheduler], [server, server.store, world.cluster, loop, *bounded])


def judge_memory(samples: Sequence[MemorySample], report: Report) -> None:
    """Reports entries that gangs leave behind although pods and gangs do not become more."""
    least = least_growth(samples)
    ended = samples[-1].ended_gangs if samples else 0
    if least * ended > SPARE_ENTRIES + SPARE_SHARE * ended:
        report("Memory", f"operator and scheduler hold {least:.1f} more entries for each of {ended} gangs that ended")


def least_growth(samples: Sequence[MemorySample]) -> float:
    """The entries that each ended gang leaves at least, by least squares over pods, gangs and ended gangs.

    Three standard errors below the estimate: where the samples do not tell ended gangs from living ones, it is 0. The
    first quarter is left out, because pools fill.
    """
    rows = samples[len(samples) // 4 :]
    if len(rows) < LEAST_SAMPLES or rows[-1].ended_gangs - rows[0].ended_gangs < LEAST_GANGS:
        return 0.0
    facts = np.array([(1.0, row.pods, row.gangs, row.ended_gangs) for row in rows])
    held_then = np.array([row.entries for row in rows], dtype=float)
    inverse = np.linalg.pinv(facts.T @ facts)
    answer = inverse @ facts.T @ held_then
    spread = float(((held_then - facts @ answer) ** 2).sum()) / (len(rows) - facts.shape[1])
    error = math.sqrt(max(0.0, spread * inverse[3, 3]))
    return max(0.0, float(answer[3]) - 3 * error)


def entries(roots: Iterable[Any], outside: Iterable[Any]) -> int:
    """Entries of the lists, sets, queues and dictionaries that are reachable from `roots` and not through `outside`."""
    seen = {id(obj) for obj in outside}
    stack, count = list(roots), 0
    while stack:
        obj = stack.pop()
        if id(obj) in seen or isinstance(obj, type | ModuleType | BuiltinFunctionType | Recorder):
            continue
        seen.add(id(obj))
        if isinstance(obj, dict | list | set | deque):
            count += len(obj)
        if isinstance(obj, FunctionType):
            stack += [obj.__closure__, obj.__defaults__]  # not its globals: every module would be counted
        else:
            stack += gc.get_referents(obj)
    return count
