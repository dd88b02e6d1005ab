"""Carries out a repack plan step by step: one gang is moved and complete again before the next one is asked to move.

Each step begins with a new plan on the cluster as it is then. The work stops if there is no plan any more, if it
restarts more pods than the limit, or if the scheduler refuses a move. `kubectl grove repack --apply` and the
scheduler itself (`self_repack`) both move gangs this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from grove.api.core import Pod
from grove.api.draining import is_draining
from grove.api.move_request import MoveRequest
from grove.kube.clock import Clock
from grove.scheduler.evict.repack import Move, Repack

PATIENCE_S = 900.0
"""How long one gang may take until its pods are ready in their new place, after they have drained."""
BEGIN_S = 60.0
"""The scheduler has to begin a move within this time."""
LOOK_S = 1.0


class Stopped(Exception):
    """The work on the plan ends here; the text says why."""


class Gangs(Protocol):
    """The gangs of a cluster, by `namespace/name`, as far as moves need them."""

    async def pods(self, gang: str) -> Sequence[Pod]: ...

    async def refusals(self, gang: str) -> Mapping[str, int]:
        """What the scheduler said against moves of this gang, and how often."""

    async def is_placed(self, gang: str) -> bool: ...

    async def request(self, gang: str, move: MoveRequest | None) -> None:
        """Asks the scheduler for a move; None withdraws the request."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done. `why` is empty if the waiting gang has its place."""

    gang: str
    moved: tuple[str, ...]
    restarts: int
    why: str = ""


async def carry_out(
    gangs: Gangs,
    plan: Callable[[], Awaitable[Repack | str]],
    gang: str,
    agreed: int,
    clock: Clock,
    *,
    begins: Callable[[Move], None] = lambda _: None,
) -> Applied:
    """Moves gangs until `gang` has its place, with at most `agreed` pods that restart.

    `plan` makes a plan on the cluster as it is now, or says why there is none. `begins` runs before each move.
    """
    moved: list[str] = []
    restarts = 0
    try:
        while True:
            repack = await plan()
            if isinstance(repack, str):
                if moved and await _gets_its_place(gangs, gang):
                    return Applied(gang, tuple(moved), restarts)
                raise Stopped(repack)
            if repack.gang != gang:
                raise Stopped(f"{repack.gang} is the first that waits now, and not {gang}")
            if restarts + repack.cost[0] > agreed:
                before = f"{agreed} were agreed to"
                raise Stopped(f"the cluster changed: {restarts + repack.cost[0]} pods would restart, {before}")
            move = repack.moves[0]
            begins(move)
            restarts += len(move.unit.pods)
            moved.append(move.unit.name)
            await move_gang(gangs, move.unit.name, move.places, gang, clock)
    except Stopped as stopped:
        return Applied(gang, tuple(moved), restarts, str(stopped))


async def _gets_its_place(gangs: Gangs, gang: str) -> bool:
    """Whether the waiting gang gets its place now that it fits."""
    for _ in range(int(BEGIN_S / LOOK_S)):
        if await gangs.is_placed(gang):
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def move_gang(gangs: Gangs, gang: str, places: Mapping[str, tuple[str, ...]], purpose: str, clock: Clock) -> None:
    """Asks the scheduler for one move, and waits until the gang is complete in its new place."""
    old = {pod.metadata.uid for pod in await gangs.pods(gang)}
    updated = await gangs.refusals(gang)
    until = clock.now() + timedelta(seconds=BEGIN_S)
    await gangs.request(gang, MoveRequest(places=dict(places), until=until, purpose=purpose))
    try:
        await _until_moved(gangs, gang, sorted(node for nodes in places.values() for node in nodes), old, updated)
    finally:
        await gangs.request(gang, None)


async def _until_moved(
    gangs: Gangs, gang: str, target: Sequence[str], old: set[str], updated: Mapping[str, int]
) -> None:
    waited_s = 0.0
    while True:
        pods = await gangs.pods(gang)
        fresh = [pod for pod in pods if pod.metadata.uid not in old and not pod.metadata.is_deleting]
        if not old.intersection(pod.metadata.uid for pod in pods) and len(fresh) >= len(target):
            if all(pod.is_bound for pod in fresh) and sorted(pod.spec.node_name for pod in fresh) != target:
                raise Stopped(f"{gang} has restarted, and is not on the nodes of the plan")
            if all(pod.is_ready for pod in fresh):
                return
        for message, count in (await gangs.refusals(gang)).items():
            if count > updated.get(message, 0):
                raise Stopped(f"{gang}: {message}")
        drains = any(map(is_draining, pods))
        waits = all(pod.metadata.uid in old and not pod.metadata.is_deleting for pod in pods)
        if waited_s >= BEGIN_S and waits and not drains:
            raise Stopped(f"the scheduler did not begin to move {gang}; is it running?")
        if waited_s >= PATIENCE_S:
            raise Stopped(f"{gang} is not ready in its new place after {PATIENCE_S:.0f} s")
        await asyncio.sleep(LOOK_S)
        waited_s += 0.0 if drains else LOOK_S
