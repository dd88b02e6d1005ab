"""How a pass over an object went, and its status: errors, a condition, the last operation, generation.

`SetErrors` gathers what went wrong with the parts of a set. It is kept in memory: a part that failed tries again and
reports again, and after a restart every part is tried once.

Times move only with what they date, so that an error that repeats does not rewrite the status at every retry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple, TypeVar

from msgspec import structs

from grove.api.conditions import TRUE, with_condition, without_condition
from grove.api.meta import Conditions, Key, Object, Resource, find_condition
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSetStatus
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.status import DELETE, ERROR, PROCESSING, RECONCILE, SUCCEEDED, LastError, LastOperation

REPLICA_FAILURE = "ReplicaFailure"
"""The condition, named as on a ReplicaSet: something asked for could not be made or removed."""
FAILED_CREATE, FAILED_DELETE = "FailedCreate", "FailedDelete"
PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
_NO_PRIORITY_CLASS = "no PriorityClass with name"
"""The API server's words when it refuses a pod for that; it has no reason of its own for it."""


UNKNOWN_SCHEDULER = "the scheduler that the set names is not enabled in the operator's configuration"

Errors = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Errors of a pass as (code, description), and what it still waits for in words; neither means it is complete.

    `missing` are kinds that were asked for and that the cluster does not serve.
    """

    errors: Errors = ()
    waiting_for: str = ""
    deleting: bool = False
    missing: tuple[Resource, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.errors and not self.waiting_for


COMPLETE = Outcome()


class Notice(NamedTuple):
    """An Event that was decided on and is to be recorded."""

    about: Object
    reason: str
    message: str
    warning: bool = False


def appeared(about: Object, before: Conditions, after: Conditions, types: Iterable[str]) -> list[Notice]:
    """A warning for each of these conditions that is there now and was not before."""
    new = (find_condition(after, type_) for type_ in types if find_condition(before, type_) is None)
    return [
        Notice(about, condition.reason, condition.message, warning=True) for condition in new if condition is not None
    ]


MOST_ERRORS = 5
"""Errors of children that their owner repeats: one full quota may stop a thousand cliques."""


def outcome_of(errors: Iterable[tuple[str, str]], blocked: Iterable[str], missing: Iterable[Resource] = ()) -> Outcome:
    """The outcome of writing children: what went wrong, and which names wait for an older object to go."""
    names = sorted(blocked)[:3]
    waiting = f"waiting for older objects to go: {', '.join(names)}" if names else ""
    return Outcome(errors=tuple(errors), waiting_for=waiting, missing=tuple(missing))


def _with_children(outcome: Outcome, children: Iterable[PodClique | PodCliqueScalingGroup]) -> Outcome:
    """The outcome with what is wrong further down, so that it shows where people look first."""
    troubled = (child for child in children if child.status.last_errors and not child.metadata.is_deleting)
    errors = (
        (error.code, f"{child.RESOURCE.kind} {child.metadata.name}: {error.description}")
        for child in sorted(troubled, key=lambda child: child.metadata.name)
        for error in child.status.last_errors
    )
    shown = tuple(islice(errors, MOST_ERRORS))
    return replace(outcome, errors=outcome.errors + shown) if shown else outcome


def _last_errors(before: tuple[LastError, ...], outcome: Outcome, now: datetime) -> tuple[LastError, ...]:
    """The errors of this pass and no older ones; one that was there already keeps its time."""
    since = {(error.code, error.description): error.observed_at for error in before}
    return tuple(
        LastError(code=code, description=text, observed_at=since.get((code, text)) or now)
        for code, text in dict.fromkeys(outcome.errors)
    )


def _last_operation(before: LastOperation | None, outcome: Outcome, now: datetime) -> LastOperation:
    """The last operation of the operator; the former value if nothing changed."""
    if outcome.errors:
        state, description = ERROR, outcome.errors[0][1]
    elif outcome.waiting_for:
        state, description = PROCESSING, outcome.waiting_for
    else:
        state, description = SUCCEEDED, "everything asked for is there"
    kind = DELETE if outcome.deleting else RECONCILE
    if before is not None and (before.type, before.state, before.description) == (kind, state, description):
        return before
    return LastOperation(type=kind, state=state, description=description, last_update_time=now)


def _with_failure(conditions: Conditions, outcome: Outcome, now: datetime) -> Conditions:
    """The conditions with `ReplicaFailure` among them while something is refused, and without it otherwise."""
    if not outcome.errors:
        return without_condition(conditions, REPLICA_FAILURE)
    code, message = outcome.errors[0]
    reason = FAILED_DELETE if "_DELETE_" in code else FAILED_CREATE
    if _NO_PRIORITY_CLASS in message:
        reason = PRIORITY_CLASS_NOT_FOUND
    return with_condition(conditions, REPLICA_FAILURE, TRUE, reason, message, now)


S = TypeVar("S", PodCliqueStatus, PodCliqueScalingGroupStatus, PodCliqueSetStatus)


def with_outcome(
    status: S, before: S, outcome: Outcome, now: datetime, children: Iterable[PodClique | PodCliqueScalingGroup] = ()
) -> S:
    """A status as it is after a pass that went like `outcome`.

    What is wrong with `children` is shown too, and does not hold the generation back.
    """
    shown = _with_children(outcome, children)
    return structs.replace(
        status,
        observed_generation=status.observed_generation if outcome.is_complete else before.observed_generation,
        conditions=_with_failure(status.conditions, shown, now),
        last_errors=_last_errors(before.last_errors, shown, now),
        last_operation=_last_operation(before.last_operation, shown, now),
    )


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
        """Records the errors of one part of the set; an empty list clears them. A change wakes the set."""
        known = self._errors.get(uid, {})
        if known.get(part, ()) == tuple(errors):
            return
        known = {name: errors_of for name, errors_of in known.items() if name != part}
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
