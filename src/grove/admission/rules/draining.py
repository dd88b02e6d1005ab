"""Rules for draining times: the annotation on a set, a scaling group or a clique template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grove.admission.rules.view import SetView
from grove.api import duration
from grove.api.draining import LONGEST_DRAIN_S, drain_s
from grove.api.faults import Fault, invalid
from grove.api.fields import mapping, natural, text
from grove.api.labels import DRAIN_SECONDS


def drain_faults(path: str, annotations: Mapping[str, Any]) -> Iterator[Fault]:
    """A draining time that is no number of seconds, or that is longer than an hour."""
    value = annotations.get(DRAIN_SECONDS)
    if value is None:
        return
    seconds = natural(text(value).strip())
    if seconds is None:
        yield invalid(f"{path}.{DRAIN_SECONDS}", value, "must be a whole number of seconds, 0 or more")
    elif seconds > LONGEST_DRAIN_S:
        detail = f"must not be longer than an hour ({LONGEST_DRAIN_S}): pods that drain keep their GPUs all the time"
        yield invalid(f"{path}.{DRAIN_SECONDS}", value, detail)


def drain_notes(new: SetView) -> Iterator[str]:
    """Warnings about a draining time without effect, and about updates that cannot meet their deadline."""
    members = {name for group in new.groups for name in group.clique_names}
    for clique in new.cliques:
        if clique.name in members and DRAIN_SECONDS in clique.annotations:
            yield (
                f"{clique.path}.annotations[{DRAIN_SECONDS}]: no effect, because a replica of a scaling group drains "
                "whole; put the annotation on the scaling group or on the set"
            )
    alone = (clique.annotations for clique in new.cliques if clique.name not in members)
    parts = [*(group.annotations for group in new.groups), *alone]
    longest_s = max((drain_s(annotations, new.annotations) for annotations in parts), default=0)
    deadline = text(mapping(new.spec.get("updateStrategy")).get("progressDeadline"))
    try:
        deadline_s = duration.parse(deadline).total_seconds()
    except duration.InvalidDuration:
        return  # no deadline, or one that only an earlier version admitted: the operator ignores it
    if longest_s and deadline_s <= longest_s:
        yield (
            f"spec.updateStrategy.progressDeadline: {deadline} is not longer than the draining time of {longest_s} s, "
            "so every update is reported as stalled"
        )
