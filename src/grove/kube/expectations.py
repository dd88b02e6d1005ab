"""What we wrote and the cache does not show yet, so that a second look does not write it again.

Kept by the UID of what was written, under the UID of its owner: a recreated owner inherits nothing, and an event that
overtakes the answer to our own request does no harm, because `settled` compares with what the cache shows, not with
counted events. An entry lives `ttl_s` at most: something created and removed unseen must not block its owner for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from grove.api.meta import Object

TTL_S = 60.0


@dataclass(slots=True)
class _Open:
    created: dict[str, float] = field(default_factory=dict)  # uid -> when it expires
    deleted: dict[str, float] = field(default_factory=dict)


class Expectations:
    """Creations and deletions the cache has yet to show. `now` is any clock that only goes forward, in seconds."""

    def __init__(self, now: Callable[[], float], *, ttl_s: float = TTL_S) -> None:
        self._now, self._ttl_s = now, ttl_s
        self._open: dict[str, _Open] = {}

    def created(self, owner: str, uid: str) -> None:
        """We created `uid` for `owner`; call it with the server's answer in hand."""
        self._open.setdefault(owner, _Open()).created[uid] = self._now() + self._ttl_s

    def deleted(self, owner: str, uid: str) -> None:
        """We deleted `uid`; until the cache shows it leaving it must not count as there."""
        entry = self._open.setdefault(owner, _Open())
        entry.created.pop(uid, None)
        entry.deleted[uid] = self._now() + self._ttl_s

    def gone(self, owner: str, uid: str) -> None:
        """The cache saw `uid` go for good; for the handler of deletions."""
        entry = self._open.get(owner)
        if entry is not None:
            entry.created.pop(uid, None)
            entry.deleted.pop(uid, None)

    def settled(self, owner: str, shown: Iterable[Object]) -> bool:
        """Whether everything we wrote for `owner` is among, or gone from, what the cache shows of it now."""
        entry = self._open.get(owner)
        if entry is None:
            return True
        now = self._now()
        present: set[str] = set()
        staying: set[str] = set()
        for obj in shown:
            present.add(obj.metadata.uid)
            if not obj.metadata.is_deleting:
                staying.add(obj.metadata.uid)
        entry.created = {uid: t for uid, t in entry.created.items() if uid not in present and t > now}
        entry.deleted = {uid: t for uid, t in entry.deleted.items() if uid in staying and t > now}
        if entry.created or entry.deleted:
            return False
        del self._open[owner]
        return True

    def unseen(self, owner: str) -> frozenset[str]:
        """UIDs we created and the last `settled` did not find."""
        entry = self._open.get(owner)
        return frozenset(entry.created) if entry is not None else frozenset()

    def leaving(self, owner: str) -> frozenset[str]:
        """UIDs we deleted that the last `settled` still found staying."""
        entry = self._open.get(owner)
        return frozenset(entry.deleted) if entry is not None else frozenset()

    def next_expiry_s(self, owner: str) -> float | None:
        """Seconds until the oldest entry of `owner` gives up, for the caller's timer; None when nothing is open."""
        entry = self._open.get(owner)
        times = [*entry.created.values(), *entry.deleted.values()] if entry is not None else []
        return max(0.0, min(times) - self._now()) if times else None

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        self._open.pop(owner, None)
