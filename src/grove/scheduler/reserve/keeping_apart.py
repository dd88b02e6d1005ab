"""Gangs whose pods have to be kept apart: what to try next when a source cannot give what was counted on.

The search counts for each kind of pod alone what sources have, and never too little. If two kinds meet on a node, one
may take what the search counted for the other. Then the source names pods that cannot be there together. In every valid
placement, one kind of them has fewer pods there. The search tries each of these possibilities, so it misses no
placement while its tries last.
"""

from __future__ import annotations

from collections.abc import Iterator

from grove.api.selector import Requirement
from grove.scheduler.model.facts import NodeTerm, PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.seams import Refusal
from grove.scheduler.reserve.reservation_slots import without_reservations

Kept = frozenset[tuple[str, str]]
"""Pods by uid, each with a node that it is kept off."""


class KeepApartAttempts:
    """The gang as it is to be tried, one way after the other: iterate, and report why the last one was refused.

    `tried` is why the gang as it is was refused, if that is known already.
    """

    def __init__(self, gang: Gang, most: int, tried: Refusal | None = None) -> None:
        self._last: tuple[Gang, Kept] = gang, frozenset()
        self._waiting, self._left = [self._last], most
        self._seen: set[Kept] = set()
        if tried is not None:
            next(iter(self))
            self.note_refused(tried)

    def __iter__(self) -> Iterator[Gang]:
        while self._waiting and self._left:
            self._left -= 1
            self._last = self._waiting.pop()
            yield self._last[0]

    def note_refused(self, refusal: Refusal) -> None:
        """A source cannot give what pods were to have on a node: the ways around that come next."""
        if not refusal.node:
            return
        gang, kept = self._last
        pods = {pod.uid: pod for group in gang.groups() for pod in group.pods}
        for uids in reversed(_to_keep_off(gang, refusal)):
            now = kept.union((uid, refusal.node) for uid in uids)
            if now not in self._seen:
                self._seen.add(now)
                apart = gang.with_pods({uid: _kept_off(pods[uid], refusal.node) for uid in uids})
                self._waiting.append((apart, now))


def ways_apart(gang: Gang, tried: Refusal, most: int) -> Iterator[KeepApartAttempts]:
    """The attempts for a refused gang: its pods apart, then without reservations. At most `most` of each."""
    yield KeepApartAttempts(gang, most, tried)
    outside = without_reservations(gang)
    if outside is not gang:
        yield KeepApartAttempts(outside, most)


def _to_keep_off(gang: Gang, refusal: Refusal) -> list[list[str]]:
    """Pods to keep off the node, one choice for each kind of those that cannot be there together, last first.

    Pods of a group that are alike can stand for each other, so all but one fewer than were there are kept off.
    """
    kinds: dict[tuple[str, object], list[str]] = {}
    for group in gang.groups():
        for pod in group.pods:
            kinds.setdefault((group.name, pod.shape), []).append(pod.uid)
    if not refusal.together:
        return [[uid for uids in kinds.values() for uid in uids]]
    together = set(refusal.together)
    many = [(uids, sum(uid in together for uid in uids)) for uids in kinds.values()]
    last = {uid: number for number, uid in enumerate(refusal.together)}
    choices = [uids[count - 1 :] for uids, count in many if count]
    return sorted(choices, key=lambda uids: -max(last.get(uid, -1) for uid in uids))


def _kept_off(pod: PodFacts, node: str) -> PodFacts:
    other = NodeTerm(names=(Requirement("metadata.name", "NotIn", frozenset((node,))),))
    return pod.asking(volumes=(*pod.shape.volumes, (other,)))
