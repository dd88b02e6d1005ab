"""Carries out a repack plan step by step: one gang is moved and complete again before the next one is asked to move.

Each step begins with a new plan on the cluster as it is then. The work stops if that plan restarts more pods than the
user agreed to, if there is none any more, or if the scheduler refuses a move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from grove.cli.access import NO_FIT, RUNNING, Answer
from grove.kube.clock import SYSTEM, Clock

if TYPE_CHECKING:
    from rich.console import RenderableType

    from grove.api.core import Pod
    from grove.kube.client import Client
    from grove.scheduler.model.config import SchedulerConfiguration
    from grove.show.repacking import MoveShown, RepackShown

PATIENCE_S = 900.0
"""How long one gang may take until its pods are ready in their new place."""
BEGIN_S = 60.0
"""The scheduler has to begin a move within this time."""
LOOK_S = 1.0


class Stopped(Exception):
    """The plan is not carried out any further; the text says why."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done. `why` is empty if the waiting gang has its place."""

    gang: str
    moved: tuple[str, ...]
    restarts: int
    why: str = ""


async def apply_answer(
    client: Client,
    namespace: str,
    name: str,
    agreed: RepackShown,
    settings: SchedulerConfiguration | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    clock: Clock = SYSTEM,
) -> Answer:
    from grove.cli.repack import repack_answer

    moved: list[str] = []
    restarts = 0
    why = ""
    try:
        while True:
            found = (await repack_answer(client, namespace, name, settings)).data
            if not getattr(found, "moves", ()):
                if moved and await _is_placed(client, agreed.gang):
                    break
                raise Stopped(getattr(found, "why", "") or found["note"])
            if found.gang != agreed.gang:
                raise Stopped(f"{found.gang} is the first that waits now, and not {agreed.gang}")
            if restarts + found.restarts > agreed.restarts:
                before = f"{agreed.restarts} were agreed to"
                raise Stopped(f"the cluster changed: {restarts + found.restarts} pods would restart, {before}")
            move = found.moves[0]
            say(f"moving {move.gang} ({move.pods} pods)")
            restarts += move.pods
            moved.append(move.gang)
            await move_gang(client, move, agreed.gang, clock)
    except Stopped as stopped:
        why = str(stopped)
    done = Applied(agreed.gang, tuple(moved), restarts, why)

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        end = f"stopped: {why}" if why else f"{agreed.gang} has its place"
        return Text(f"{', '.join(moved)} moved; {end}" if moved else end, style="yellow" if why else "")

    return Answer(done, paint, NO_FIT if why else RUNNING)


async def _is_placed(client: Client, gang: str) -> bool:
    """Whether the waiting gang gets its place now that it fits."""
    from grove.api import conditions
    from grove.api.meta import is_true
    from grove.api.podgang import PodGang

    namespace, _, name = gang.partition("/")
    for _ in range(int(BEGIN_S / LOOK_S)):
        found = await client.get(PodGang, name, namespace)
        if is_true(found.status.conditions, conditions.SCHEDULED):
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def move_gang(client: Client, move: MoveShown, purpose: str, clock: Clock) -> None:
    """Asks the scheduler for one move, and waits until the gang is complete in its new place."""
    from grove.api.labels import MOVE_TO
    from grove.api.move_request import MoveRequest
    from grove.api.podgang import PodGang
    from grove.kube.errors import NotFound

    namespace, _, name = move.gang.partition("/")
    old = {pod.metadata.uid for pod in await _pods(client, namespace, name)}
    heard = await _refusals(client, namespace, name)
    until = clock.now() + timedelta(seconds=BEGIN_S)
    request = MoveRequest(places=dict(move.target), until=until, purpose=purpose)
    await client.patch(PodGang, name, {"metadata": {"annotations": {MOVE_TO: request.text()}}}, namespace)
    try:
        await _until_moved(client, move, old, heard)
    finally:
        try:
            await client.patch(PodGang, name, {"metadata": {"annotations": {MOVE_TO: None}}}, namespace)
        except NotFound:
            pass


async def _until_moved(client: Client, move: MoveShown, old: set[str], heard: dict[str, int]) -> None:
    namespace, _, name = move.gang.partition("/")
    target = sorted(node for nodes in move.target.values() for node in nodes)
    waited_s = 0.0
    while True:
        pods = await _pods(client, namespace, name)
        fresh = [pod for pod in pods if pod.metadata.uid not in old and not pod.metadata.is_deleting]
        if not old.intersection(pod.metadata.uid for pod in pods) and len(fresh) >= move.pods:
            if all(pod.is_bound for pod in fresh) and sorted(pod.spec.node_name for pod in fresh) != target:
                raise Stopped(f"{move.gang} has restarted, and is not on the nodes of the plan")
            if all(pod.is_ready for pod in fresh):
                return
        for message, count in (await _refusals(client, namespace, name)).items():
            if count > heard.get(message, 0):
                raise Stopped(f"{move.gang}: {message}")
        if waited_s >= BEGIN_S and all(pod.metadata.uid in old and not pod.metadata.is_deleting for pod in pods):
            raise Stopped(f"the scheduler did not begin to move {move.gang}; is it running?")
        if waited_s >= PATIENCE_S:
            raise Stopped(f"{move.gang} is not ready in its new place after {PATIENCE_S:.0f} s")
        await asyncio.sleep(LOOK_S)
        waited_s += LOOK_S


async def _pods(client: Client, namespace: str, gang: str) -> list[Pod]:
    from grove.api.core import Pod
    from grove.api.labels import POD_GANG

    return list((await client.list(Pod, namespace, labels=f"{POD_GANG}={gang}")).items)


async def _refusals(client: Client, namespace: str, gang: str) -> dict[str, int]:
    """What the scheduler said against moves of this gang, and how often."""
    from grove.api.conditions import EventReason
    from grove.api.core import Event

    fields = f"involvedObject.name={gang},reason={EventReason.GANG_NOT_MOVED}"
    found = (await client.list(Event, namespace, fields=fields)).items
    return {one.message: max(1, one.count or 0) for one in found}
