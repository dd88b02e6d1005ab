"""The state of a set or of a gang in one word. Every command, the console and JSON take it from here. Pure.

- running: every pod is ready.
- degraded: the minimum serves; a pod above it failed or waits, or a required topology is not kept or not applied.
- updating: an update replaces pods, or the operator has not taken up the last change of the set yet.
- paused: an update is paused.
- starting: pods are created or start; nothing failed.
- waiting: the minimum never had nodes; the reason says what it waits for.
- broken: below the minimum after it had nodes.
- stopped: 0 replicas.
- deleting: the object is being deleted.

The exit code and the colour follow from the state alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RUNNING, DEGRADED, STARTING, WAITING = "running", "degraded", "starting", "waiting"
BROKEN, STOPPED, DELETING = "broken", "stopped", "deleting"
UPDATING, PAUSED = "updating", "paused"
WORST_FIRST = (BROKEN, WAITING, DEGRADED, DELETING, PAUSED, UPDATING, STARTING, STOPPED, RUNNING)

STUCK = (BROKEN, WAITING, DEGRADED)
"""States in which something failed or waits."""

WELL, COMING, DOWN, IMPAIRED = 0, 3, 4, 5
CODES = {
    RUNNING: WELL,
    STOPPED: WELL,
    UPDATING: COMING,
    PAUSED: COMING,
    STARTING: COMING,
    DELETING: COMING,
    WAITING: DOWN,
    BROKEN: DOWN,
    DEGRADED: IMPAIRED,
}
STYLES = {
    RUNNING: "green",
    STOPPED: "dim",
    UPDATING: "cyan",
    PAUSED: "cyan",
    STARTING: "yellow",
    DELETING: "dim",
    DEGRADED: "yellow",
    WAITING: "red",
    BROKEN: "bold red",
}
SHORT = 80
"""Characters of a reason in a list."""
LINE = 240
"""Characters of a reason that has the width of the screen for itself."""
LONG_NAME = 16
"""Characters from which a part of a word says more than nothing."""
SHORTER = (" nodes can take one of its pods (", " nodes fit (")
"""Words of a long reason and what a list says instead, so that what rules the nodes out is not cut off."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that decide the state of a set or of a gang.

    `serves`: its minimum is ready. `whole`: every pod is ready. `placed`: its minimum has or had nodes since its last
    restart. `trouble`: a pod failed, the API server refuses a pod, a scheduler found no node, or no operator or
    scheduler runs. `waits`: it has no place yet, and no scheduler refused it. `astray`: a required topology is not
    kept, or cannot be applied. `rollout` is `updating`, `paused` or empty. `behind`: the operator has not taken up the
    last change of the set.
    """

    wanted: int = 1
    serves: bool = False
    whole: bool = False
    placed: bool = False
    trouble: bool = False
    waits: bool = False
    astray: bool = False
    rollout: str = ""
    behind: bool = False
    deleting: bool = False


def state_of(facts: Facts) -> str:
    """The one decision. An update explains pods that wait, but not pods that fail or that no node can take."""
    stuck = DEGRADED if facts.serves else BROKEN if facts.placed else WAITING
    if facts.deleting:
        return DELETING
    if not facts.wanted:
        return STOPPED
    if facts.trouble:
        return stuck
    if facts.rollout:
        return facts.rollout
    if facts.waits:
        return stuck
    if not facts.whole:
        return STARTING
    if facts.astray:
        return DEGRADED
    return UPDATING if facts.behind else RUNNING


def worst_of(states: Iterable[str]) -> str:
    return min(states, key=WORST_FIRST.index, default=RUNNING)


def code_of(states: Iterable[str]) -> int:
    """The exit code of the worst of these states: 0 well, 3 on its way, 4 does not serve, 5 serves but is degraded."""
    return CODES[worst_of(states)]


def _cut(text: str, most: int) -> str:
    """Whole words from the start. Of a long name, such as a host or a path, it keeps the part that fits."""
    words, _, part = text[:most].rpartition(" ")
    return (words if len(part) < LONG_NAME else text[:most]).rstrip(" ,:(") + "…"


def brief(text: str, lead: str = "", fate: str = "", most: int = SHORT) -> str:
    """A reason of limited length: as many clauses as there is space for, or words of the first one.

    `lead` always stands before it. `fate` stands behind it if there is space, at most for one detail (", 2 restarts")
    of the first clause. Times in a list are UTC without saying so.
    """
    fate = fate.removesuffix(" UTC")
    first, *rest = text.split("\n")[0].split("; ")
    space = most - len(lead)
    if len(first) > space:
        first = first.replace(*SHORTER)
    if len(first) > space:
        first, rest = _cut(first, space - 1), []
    whole = f"{lead}{first}"
    shorter = f"{lead}{first.rpartition(', ')[0] or first}"
    if fate and len(whole) + len(fate) + 2 > most >= len(shorter) + len(fate) + 2:
        whole = shorter
    for clause in (*((fate,) if fate else ()), *rest):
        if len(whole) + len(clause) + 2 > most:
            break
        whole = f"{whole}; {clause}"
    return whole
