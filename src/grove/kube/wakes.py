"""What wakes a controller, as a table: each row is a source, a mapping to keys and a predicate.

    wakes = (
        Wake(Pod, owner_keys, queue.add),
        Wake(Node, keys_on_node, queue.add, when=is_gone),
    )
    for one in wakes:
        cache.on_event(one.source, one)

A row is the handler of its own source. It decides nothing but whose turn it is: the reconcile reads everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from grove.api.meta import Key, Object

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Hashable)
Predicate = Callable[[T | None, T | None], bool]
Keys = Callable[[T | None, T | None], Iterable[K]]


def always(old: Object | None, new: Object | None) -> bool:
    return True


def never(old: Object | None, new: Object | None) -> bool:
    return False


def is_gone(old: Object | None, new: Object | None) -> bool:
    return new is None


def is_spec_changed(old: Any, new: Any) -> bool:
    """True if an object is new, is deleted, or has another spec."""
    return old is None or new is None or old.spec != new.spec


def changed(differs: Callable[[T, T], bool]) -> Predicate[T]:
    """A predicate for changes of an object that was there before and is there after, if `differs` says so."""
    return lambda old, new: old is not None and new is not None and differs(old, new)


def own_key(old: Object | None, new: Object | None) -> tuple[Key, ...]:
    """The key of the object itself. An object that is gone needs no look."""
    return (new.key,) if new is not None else ()


def latest(keys: Callable[[T], Iterable[K]]) -> Keys[T, K]:
    """Maps the object as it is now, or as it was last."""

    def of_latest(old: T | None, new: T | None) -> Iterable[K]:
        shown = new if new is not None else old
        return keys(shown) if shown is not None else ()

    return of_latest


def each(key: Callable[[T], K | None]) -> Keys[T, K]:
    """Maps the object before and after the event: its labels or its owner may have been changed."""

    def of_each(old: T | None, new: T | None) -> Iterable[K]:
        # Without generators: every event of a pod comes here several times.
        before = key(old) if old is not None else None
        after = key(new) if new is not None else None
        if before is None or before == after:
            return (after,) if after is not None else ()
        return (before, after) if after is not None else (before,)

    return of_each


def forgetting(forget: Callable[[str], object]) -> Callable[[Any, Any], None]:
    """A handler that drops what is remembered of an object, by its uid, when the object is gone."""

    def on_gone(old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            forget(old.metadata.uid)

    return on_gone


@dataclass(frozen=True, slots=True)
class Wake(Generic[T, K]):
    """A change of `source` that `when` accepts adds the keys that `keys` finds.

    `hurry` is used instead of `add` for a change that is `urgent`: one that a step waits for.
    """

    source: type[T]
    keys: Keys[T, K]
    add: Callable[[K], None]
    when: Predicate[T] = always
    hurry: Callable[[K], None] | None = None
    urgent: Predicate[T] = never

    def __call__(self, old: T | None, new: T | None) -> None:
        if not self.when(old, new):
            return
        wake = self.hurry if self.hurry is not None and self.urgent(old, new) else self.add
        for key in self.keys(old, new):
            wake(key)
