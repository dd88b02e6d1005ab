"""`repack --apply`: asks a running scheduler for the moves of a plan, by annotations of PodGangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from grove.answers.answer import NO_FIT, RUNNING, Answer
from grove.answers.repack import planned
from grove.api import conditions
from grove.api.conditions import EventReason
from grove.api.core import Event, Pod
from grove.api.labels import MOVE_TO, POD_GANG
from grove.api.meta import is_true
from grove.api.move_request import MoveRequest
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import NotFound
from grove.scheduler.evict.repack import Move, NoRepack, Repack
from grove.scheduler.loop.moving.repack_steps import carry_out
from grove.scheduler.model.config import SchedulerConfiguration
from grove.show.repacking import RepackShown


class GangsByClient:
    """Gangs as a user sees them on the API server. A request is an annotation."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pods(self, gang: str) -> Sequence[Pod]:
        namespace, _, name = gang.partition("/")
        return list((await self._client.list(Pod, namespace, labels=f"{POD_GANG}={name}")).items)

    async def refusals(self, gang: str) -> Mapping[str, int]:
        namespace, _, name = gang.partition("/")
        fields = f"involvedObject.name={name},reason={EventReason.GANG_NOT_MOVED}"
        items = (await self._client.list(Event, namespace, fields=fields)).items
        return {event.message: max(1, event.count or 0) for event in items}

    async def is_placed(self, gang: str) -> bool:
        namespace, _, name = gang.partition("/")
        podgang = await self._client.get(PodGang, name, namespace)
        return is_true(podgang.status.conditions, conditions.SCHEDULED)

    async def request(self, gang: str, move: MoveRequest | None) -> None:
        namespace, _, name = gang.partition("/")
        patch = {"metadata": {"annotations": {MOVE_TO: move.text() if move is not None else None}}}
        try:
            await self._client.patch(PodGang, name, patch, namespace)
        except NotFound:
            if move is not None:
                raise


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
    async def plan() -> Repack | str:
        answer = await planned(client, namespace, name, settings)
        if answer is None:
            return f"no gang of {name} waits for a place"
        return sentence(answer.why) if isinstance(answer, NoRepack) else answer

    def begins(move: Move) -> None:
        say(f"moving {move.unit.name} ({len(move.unit.pods)} pods)")

    done = await carry_out(GangsByClient(client), plan, agreed.gang, agreed.restarts, clock, begins=begins)

    def paint(width: int) -> RenderableType:
        end = f"stopped: {done.why}" if done.why else f"{agreed.gang} has its place"
        return Text(f"{', '.join(done.moved)} moved; {end}" if done.moved else end, style="yellow" if done.why else "")

    return Answer(done, paint, NO_FIT if done.why else RUNNING)
