"""The cluster as the scheduler sees it, with the rights of the user. The scheduler's own code diagnoses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from grove.answers.settings import settings_of
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.client import Client
from grove.scheduler.explain.explanation import Diagnosis
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.scheduler.loop.hold_restorer import enter_recorded
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration


def diagnosed(scheduler: Scheduler, gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
    """The scheduler's present answer on these gangs."""
    view = scheduler.view
    answers = LiveDiagnosis(view, scheduler.config.node_policy, scheduler.config)
    answers.tell_queues()
    states = ((gang.metadata.key, view.units.gangs.get(str(gang.metadata.key))) for gang in gangs)
    return {
        key: answers.diagnose(state, most=most)
        for key, state in states
        if state is not None and view.concerns_us(state)
    }


@asynccontextmanager
async def looking(client: Client, given: SchedulerConfiguration | None = None) -> AsyncIterator[Scheduler]:
    """The cluster as the scheduler sees it, read once; nothing is decided or written."""
    scheduler = Scheduler(client, given or await settings_of(client), say=sentence)
    async with scheduler.following():
        enter_recorded(scheduler.view)
        yield scheduler
