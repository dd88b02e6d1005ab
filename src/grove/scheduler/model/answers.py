"""What the pure functions answer with: placements, refusals, changes that would help; and the work allowed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.reasons import BUDGET_ENDED, Reason


class SecondOpinion(Protocol):
    """A second opinion on a problem that the search did not decide."""

    def ask(self, problem: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Work allowed for one search, counted in steps so that a decision replays the same on any machine.

    A step is one look at up to 1,024 nodes, or one state of the exact search; some 10 to 50 microseconds. So the worst
    gang holds the scheduler up for a fraction of a second, and gangs that need a tenth of this are rare.
    """

    steps: int = 20_000
    referee: SecondOpinion | None = None
    """Asked when the steps have ended and nothing is known; may take seconds."""


STEPS_A_SEARCH = 10
"""What a search costs beside the steps it takes: the problem is built again for each."""


class DecisionSteps:
    """The steps of one decision. All its searches take from them.

    One search gets at most the steps of its budget. A decision has twice as many: if the search for free capacity uses
    all of its steps, as many are left to look for victims.
    """

    def __init__(self, budget: Budget, *, searches: int = 2) -> None:
        self._budget, self.left = budget, budget.steps * searches

    @property
    def are_over(self) -> bool:
        return self.left <= 0

    def next_search(self) -> Budget:
        """The budget of the next search: the steps that are left."""
        return replace(self._budget, steps=max(0, min(self.left, self._budget.steps)))

    def take(self, steps: int) -> None:
        """Subtracts the steps of a search that ended."""
        self.work(steps + STEPS_A_SEARCH)

    def work(self, steps: int) -> None:
        """Subtracts the steps of work that is not a search."""
        self.left -= steps

    def refusal(self, gang: str, version: int) -> NoFit:
        """The answer where no steps are left."""
        return NoFit(gang, Reason(BUDGET_ENDED, numbers={"steps": self._budget.steps}), False, version=version)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where pods go. `pods` carry their node; core pods come first, in an order that may be bound one by one."""

    gang: str
    pods: tuple[PodFacts, ...]
    core: int
    """How many of `pods` are core: without all of them the gang does not count as placed."""
    score: float
    """Best possible number of domains over the number used, 0 to 1."""
    domain: str = ""
    """The domain the whole gang went to, if it is under one constraint."""
    domain_key: str = ""
    unplaced: tuple[PodFacts, ...] = ()
    """Surplus pods for which there was no capacity."""
    steps: int = 0
    version: int = 0

    @property
    def nodes(self) -> dict[str, str]:
        """Node by pod uid."""
        return {pod.uid: pod.node for pod in self.pods}

    def is_better_than(self, other: Placement) -> bool:
        """Whether it has a higher score, or leaves fewer pods without a place."""
        return self.score > other.score or len(self.unplaced) < len(other.unplaced)


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a gang has no place. `proven` says no placement exists; otherwise the work budget ended before the search."""

    gang: str
    why: Reason
    proven: bool
    steps: int = 0
    version: int = 0

    @property
    def reason(self) -> str:
        return self.why.kind

    def is_better_than(self, _: Placement) -> bool:
        """No place is never better."""
        return False


UNCORDON, UNTAINT, RELAX, FEWER_PODS = "uncordon", "untaint", "relax", "fewer-pods"
SMALLER_PODS, END_OTHER, ADD_NODES, RESTART = "smaller-pods", "end-other", "add-nodes", "restart"
MOVE_OTHERS = "move-others"
OPENS_NODES = frozenset({UNCORDON, UNTAINT})
"""What restarts no pod: it comes before every other change."""
NEEDS_NEW_SET = frozenset({RELAX, FEWER_PODS})
"""What admission refuses to change on a set that lives."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as a value; `show.advice` has the words and the command.

    `subject` is what is changed: a node, a group, a part under a constraint, a gang; `size` is how much of it.
    """

    kind: str
    size: int
    subject: str = ""
    nodes: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_place(self) -> bool:
        """True if the change is possible without deleting the set."""
        return self.kind not in NEEDS_NEW_SET
