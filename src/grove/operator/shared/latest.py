"""What we wrote last and the cache does not show yet.

A status is compared with the newest version we know of: else every event that arrives between our write and its echo
would write the same status again.
"""

from __future__ import annotations

from typing import TypeVar

from grove.api.meta import Object
from grove.kube.store import revision_of

T = TypeVar("T", bound=Object)


class Latest:
    """The answers to our own writes, by UID, until the cache has caught up with them."""

    def __init__(self) -> None:
        self._answers: dict[str, Object] = {}

    def wrote(self, answer: Object) -> None:
        self._answers[answer.metadata.uid] = answer

    def of(self, cached: T) -> T:
        """The newer of `cached` and our own last answer for the same object."""
        answer = self._answers.get(cached.metadata.uid)
        if answer is None or not isinstance(answer, type(cached)):
            return cached
        if _revision(answer) > _revision(cached):
            return answer
        del self._answers[cached.metadata.uid]
        return cached

    def is_echo(self, obj: Object) -> bool:
        """Whether this version is what our own last write answered: nothing new to us."""
        answer = self._answers.get(obj.metadata.uid)
        return answer is not None and answer.metadata.resource_version == obj.metadata.resource_version

    def forget(self, uid: str) -> None:
        self._answers.pop(uid, None)


def _revision(obj: Object) -> int:
    return revision_of(obj.metadata.resource_version)
