"""The state of sets and its reason: what was read, whether operator and scheduler run, and why waiting gangs wait.

`status`, `tree`, `explain`, `queue`, `rollout status` and the console use this module, so they give the same answer.
The scheduler's view is read only for gangs that wait and for which the scheduler wrote no reason yet, or for advice.
It costs as much CPU as the rest of `status`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from grove.answers.referred import with_causes
from grove.api import conditions as words
from grove.api.meta import Key, find_condition, is_true
from grove.api.podgang import PodGang
from grove.diagnosis.processes import Processes, read_processes
from grove.diagnosis.seen import Seen
from grove.diagnosis.verdict import Judgement, is_ours, judge_all
from grove.kube.client import Client
from grove.kube.errors import Forbidden

if TYPE_CHECKING:
    from grove.scheduler.explain.explanation import Diagnosis
    from grove.scheduler.model.config import SchedulerConfiguration

MOST_CHANGES = 5
MOST_LOOKED = 64
"""Waiting gangs that are looked at one by one; what the scheduler wrote on the others has to do."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`note` says what could not be looked at for lack of rights."""

    sets: tuple[Judgement, ...]
    processes: Processes
    note: str = ""


Look = Callable[["Sequence[PodGang]", int], Awaitable["dict[Key, Diagnosis]"]]
"""Diagnoses of gangs, each with up to this number of changes that would help."""


async def judged(
    client: Client,
    seen: Seen,
    now: datetime,
    *,
    advice: bool = False,
    only: Sequence[PodGang] | None = None,
    settings: SchedulerConfiguration | None = None,
) -> Judged:
    """The sets that were read, judged. `advice` also asks what would help; `only` these gangs are looked at then."""
    seen = await with_causes(client, seen)
    others: list[PodGang] = []

    async def look(gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
        # They import numpy, which a list of running sets does not need.
        from grove.answers.scheduler_view import diagnosed, looking  # noqa: PLC0415

        async with looking(client, settings) as scheduler:
            others.extend(gang.podgang for gang in scheduler.view.units.gangs.values() if gang.has_object)
            return await diagnosed(scheduler, gangs, most)

    seen = replace(seen, others=others)  # filled as the scheduler's view is read: gangs that might free capacity
    return await judged_with(seen, now, await read_processes(client, now), look, advice=advice, only=only)


async def judged_with(
    seen: Seen,
    now: datetime,
    processes: Processes,
    look: Look,
    *,
    advice: bool = False,
    only: Sequence[PodGang] | None = None,
    note: str = "",
) -> Judged:
    diagnoses: dict[Key, Diagnosis] = {}
    asked = seen.gangs if only is None else only
    waiting = [
        gang for gang in asked if _waits(gang) or (advice and is_ours(gang) and _has_pods_without_node(seen, gang))
    ]
    if not advice and only is None:
        waiting = [gang for gang in waiting if not _is_written(gang)]
    if waiting:
        try:
            diagnoses = await look(waiting[:MOST_LOOKED], MOST_CHANGES if advice else 0)
        except Forbidden as error:
            note = f"you may not see what the scheduler sees ({error}); this is what it wrote on the objects"
    return Judged(judge_all(seen, now, processes, diagnoses), processes, note)


def _waits(gang: PodGang) -> bool:
    """True if one of our gangs does not report that it is placed."""
    return is_ours(gang) and not gang.metadata.is_deleting and not is_true(gang.status.conditions, words.SCHEDULED)


def _has_pods_without_node(seen: Seen, gang: PodGang) -> bool:
    """True if a pod of the gang is ready for the scheduler and waits: above the minimum, where the gang is placed."""
    return any(
        not pod.is_bound and not pod.is_gated and not pod.metadata.is_deleting
        for pod in seen.pods_of_gang.get(gang.metadata.key, ())
    )


def _is_written(gang: PodGang) -> bool:
    """True if the scheduler wrote on the gang why it waits."""
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    return condition is not None and bool(condition.message)
