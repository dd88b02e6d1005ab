"""Seeded fleets put before a referee."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from grove.sim.loop import run
from tests.support.running import without_logs

Verdicts = Callable[[int], Coroutine[Any, Any, list[str]]]
"""What the referee finds wrong with the fleet of a seed."""


def judged(verdicts: Verdicts, seeds: Iterable[int]) -> dict[int, list[str]]:
    """What is wrong, by seed; seeds with nothing wrong are left out. Fleets tell no log meanwhile."""
    with without_logs():
        return {seed: wrong for seed in seeds if (wrong := run(verdicts(seed), seed=seed))}
