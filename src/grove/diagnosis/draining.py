"""Pods that drain, in words: how many seconds they have left. Pure."""

from __future__ import annotations

import math
from datetime import datetime

from grove.api.core import Pod
from grove.api.draining import draining_until, is_draining
from grove.api.podcliqueset import PodCliqueSet
from grove.api.words import many
from grove.diagnosis.seen import Seen
from grove.diagnosis.words import listed

MOST_NAMED = 3


def drain_words(pod: Pod, now: datetime | None) -> str:
    """`draining, 12 s left`; the end itself where the time of now is not known."""
    end = draining_until(pod)
    if end is None:
        return "draining"
    if now is None:
        return f"draining until {end:%H:%M:%S} UTC"
    return f"draining, {max(0, math.ceil((end - now).total_seconds()))} s left"


def drain_lines(seen: Seen, pcs: PodCliqueSet, now: datetime) -> tuple[str, ...]:
    """One line for each PodClique that has pods which drain."""
    lines = []
    for clique in seen.of_set(seen.cliques, pcs):
        draining = [pod for pod in seen.pods_of_clique.get(clique.metadata.key, ()) if is_draining(pod)]
        pods = sorted((pod for pod in draining if not pod.metadata.is_deleting), key=lambda pod: pod.metadata.name)
        if pods:
            names = listed([pod.metadata.name for pod in pods], MOST_NAMED)
            lines.append(f"{clique.metadata.name}: {many(len(pods), 'pod')} {drain_words(pods[0], now)}: {names}")
    return tuple(lines)
