"""Changes that would make a gang fit, as values: what `explain` finds, and `show.advice` has words for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNCORDON, UNTAINT, RELAX, FEWER_PODS = "uncordon", "untaint", "relax", "fewer-pods"
SMALLER_PODS, END_OTHER, ADD_NODES, RESTART = "smaller-pods", "end-other", "add-nodes", "restart"
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
        """Whether it can be made while the set lives."""
        return self.kind not in NEEDS_NEW_SET
