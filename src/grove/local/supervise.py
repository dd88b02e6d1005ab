"""Keeps the programs beside a local control plane running: `grove up --foreground` stays here until it receives a
signal.

A program that ends is started again: at once the first time, then after longer and longer pauses. The control plane
itself is not restarted. Without etcd or its API server the cluster's data is gone, and the message says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grove.local.binaries import Say
from grove.local.controlplane import ControlPlaneError, accompany, only_one
from grove.local.process import Child
from grove.local.state import CORE, State

LOOK_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Who has run so long is started again at once when it ends."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a program was started again in a row, and when the last time."""

    count: int = 0
    last_s: float = float("-inf")

    def due_s(self) -> float:
        """From when on it may be started again."""
        return self.last_s + (min(2.0 ** (self.count - 1), LONGEST_PAUSE_S) if self.count else 0.0)

    def after(self, now_s: float) -> Restarts:
        """With one more, at `now_s`."""
        return Restarts(1 if now_s - self.last_s > STEADY_S else self.count + 1, now_s)


def supervise(
    directory: Path,
    commands: Mapping[str, Sequence[str]],
    say: Say,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when another command took the cluster down. Raises ControlPlaneError when a part of the control plane
    ended.
    """
    restarts: dict[str, Restarts] = {}
    while True:
        state = State.load(directory)
        if state is None or not all(child.alive() for child in state.children):
            with only_one(directory):  # the process that takes it down holds the lock until all of it is gone
                state = State.load(directory)
            if state is None:
                return
            _refuse_without_plane(state)
            for child in state.children:
                known = restarts.get(child.name, Restarts())
                if child.name in commands and not child.alive() and clock() >= known.due_s():
                    restarts[child.name] = known.after(clock())
                    accompany(directory, child.name, commands[child.name])
                    say(f"{child.name} ended ({_last_words(child)}); started again")
        sleep(LOOK_S)


def _refuse_without_plane(state: State) -> None:
    for child in state.children:
        if child.name in CORE and not child.alive():
            raise ControlPlaneError(f"{child.name} ended; {child.log} says:\n{child.log_tail()}")


def _last_words(child: Child) -> str:
    return f"its log, {child.log}, ends with: {' '.join(child.log_tail(1).split())}"
