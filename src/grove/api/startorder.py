"""`startsAfterCondition`: what the pods of a clique must be before the pods of another clique start after them."""

from __future__ import annotations

from collections.abc import Iterable

from grove.api.meta import Condition, is_true
from grove.api.pod import ContainerStatus

READY, STARTED, CREATED = "Ready", "Started", "Created"
START_CONDITIONS = (READY, STARTED, CREATED)
"""From the strictest to the weakest: the pod is Ready, all its containers run, it has a node."""
CONDITION_ARGUMENT = "--condition="
"""Argument of the start-order container; absent for Ready, so that those pods look as they always did."""


def reached(
    node: str, phase: str, containers: Iterable[ContainerStatus], conditions: tuple[Condition, ...]
) -> tuple[str, ...]:
    """The start conditions that a pod satisfies now; a pod that satisfies one satisfies the weaker ones too."""
    if not node or phase in ("Succeeded", "Failed"):
        return ()
    if is_true(conditions, "Ready"):
        return START_CONDITIONS
    states = [container.state.running is not None for container in containers]
    return START_CONDITIONS[1:] if states and all(states) else START_CONDITIONS[2:]
