"""What went wrong while working on a set, gathered from everyone who works on its parts.

Kept in memory: whoever failed tries again and reports again, and after a restart everything is tried once. The set's
status shows all of it as `lastErrors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grove.api.meta import Key
from grove.operator.shared.outcome import Outcome

Errors = tuple[tuple[str, str], ...]


class SetErrors:
    """How the last pass over a set's children went, by the UID of the set, and errors of its gangs by their name."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._outcomes: dict[str, tuple[int, Outcome]] = {}
        self._errors: dict[str, dict[str, Errors]] = {}

    def put_outcome(self, uid: str, generation: int, outcome: Outcome) -> None:
        """How the last pass over the children of this generation of the set went."""
        self._outcomes[uid] = (generation, outcome)

    def put(self, key: Key, uid: str, part: str, errors: Sequence[tuple[str, str]]) -> None:
        """What is wrong with one part of the set; nothing clears it. A change wakes the set."""
        known = self._errors.get(uid, {})
        if known.get(part, ()) == tuple(errors):
            return
        known = {name: found for name, found in known.items() if name != part}
        if errors:
            known[part] = tuple(errors)
        self._errors[uid] = known
        self._changed(key)

    def find(self, uid: str, generation: int) -> Outcome | None:
        """Everything known about a set; None before a pass over this generation of it ended."""
        over, outcome = self._outcomes.get(uid, (-1, None))
        if outcome is None or over != generation:
            return None
        parts = self._errors.get(uid, {})
        others = tuple(error for part in sorted(parts) for error in parts[part])
        return replace(outcome, errors=outcome.errors + others) if others else outcome

    def forget(self, uid: str) -> None:
        self._outcomes.pop(uid, None)
        self._errors.pop(uid, None)
