"""What a set says of gangs that its scheduler was not told of as they are. Where all is told, it says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from grove.api.conditions import FALSE, SCHEDULER_OBJECTS_READY, with_condition, without_condition
from grove.api.meta import Condition, find_condition
from grove.api.podgang import PodGang
from grove.backends import base

SHOWN = 3
_ON_ITS_WAY = frozenset({base.TOLD, base.PODS_HELD, base.REPLACING})


def is_trouble(reason: str) -> bool:
    """Whether a reason of `SchedulerObjectsReady` is one that somebody should know of."""
    return reason not in _ON_ITS_WAY


def with_untold_condition(
    conditions: tuple[Condition, ...], gangs: Iterable[PodGang], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The set's conditions with the worst of its gangs' `SchedulerObjectsReady`, and how many have the same trouble."""
    found = [
        (one.status != FALSE, gang.metadata.name, one)
        for gang in gangs
        if (one := find_condition(gang.status.conditions, SCHEDULER_OBJECTS_READY)) is not None
        and is_trouble(one.reason)
        and not gang.metadata.is_deleting
    ]
    if not found:
        return without_condition(conditions, SCHEDULER_OBJECTS_READY)
    _, _, worst = min(found, key=lambda one: one[:2])
    alike = sorted(name for _, name, one in found if one.reason == worst.reason)
    more = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
    message = f"{', '.join(alike[:SHOWN])}{more}: {worst.message}"
    return with_condition(conditions, SCHEDULER_OBJECTS_READY, worst.status, worst.reason, message, now, generation)
