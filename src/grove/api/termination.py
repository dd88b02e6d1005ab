"""When a part of a set that is below its minimum is restarted: what operator and pictures both read from the API."""

from __future__ import annotations

from datetime import datetime, timedelta

from grove.api.conditions import MIN_AVAILABLE_BREACHED, TRUE
from grove.api.duration import InvalidDuration, parse
from grove.api.meta import Conditions, find_condition
from grove.api.podcliqueset import PodCliqueSet

DEFAULT_DELAY = timedelta(hours=4)


def termination_delay(pcs: PodCliqueSet) -> timedelta:
    delay = pcs.spec.template.termination_delay
    try:
        return parse(delay) if delay else DEFAULT_DELAY
    except InvalidDuration:
        return DEFAULT_DELAY


def breached_since(conditions: Conditions, memory: str) -> datetime | None:
    """Since when a part is in breach, as its conditions say; None if it is not, or was never whole (`memory`)."""
    breach, whole = find_condition(conditions, MIN_AVAILABLE_BREACHED), find_condition(conditions, memory)
    if breach is None or breach.status != TRUE or whole is None or whole.status != TRUE:
        return None
    if breach.last_transition_time is None or whole.last_transition_time is None:
        return None
    return max(breach.last_transition_time, whole.last_transition_time)
