"""Writes a status when it says something new: news at once, progress after a short wait for more of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

from grove.api.meta import Condition, Object, Struct, find_condition
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import NotFound
from grove.operator.shared.diff import status_patch
from grove.operator.shared.status_batching import PROGRESS_S, StatusBatches

T = TypeVar("T", bound=Object)

Conditions = tuple[Condition, ...]


class StatusWriter:
    """The one way a status leaves this process."""

    def __init__(self, cache: Cache, client: Client, batches: StatusBatches) -> None:
        self._cache, self._client, self._batches = cache, client, batches
        self._moments: dict[str, dict[str, datetime]] = {}

    async def write(
        self, obj: T, status: Struct, *, news: bool, wait_s: float = PROGRESS_S, conditional: bool = False
    ) -> float | None:
        """Writes `status` on `obj`, or returns the seconds after which to ask again; None when there is nothing left.

        `wait_s` is how long a status without news may wait. `conditional` is for statuses that others write too:
        a lost race is raised as Conflict.
        """
        before: Any = obj
        version = obj.metadata.resource_version if conditional else ""
        patch = status_patch(before.status, status, resource_version=version)
        uid = obj.metadata.uid
        if patch is None:
            self._batches.done(uid)
            return None
        if not news and (left_s := self._batches.wait_s(uid, wait_s, yields=True)):
            return left_s
        # Before the write: whoever sees its echo may ask.
        self._remember(uid, getattr(before.status, "conditions", ()), getattr(status, "conditions", ()))
        try:
            answer = await self._client.patch(
                type(obj), obj.metadata.name, patch, obj.metadata.namespace, subresource="status"
            )
        except NotFound:
            self.forget(uid)
            return None
        self._cache.wrote(answer, echo=True)
        self._batches.done(uid)
        return None

    def moment(self, uid: str, condition: Condition) -> datetime | None:
        """When a condition turned, to the microsecond if we wrote it.

        On the wire times are cut to seconds. What an earlier process wrote counts from the end of its second: nothing
        that waits for a delay shall come early.
        """
        written = condition.last_transition_time
        exact = self._moments.get(uid, {}).get(condition.type)
        if written is None or (exact is not None and exact.replace(microsecond=0) == written.replace(microsecond=0)):
            return exact
        return written.replace(microsecond=0) + timedelta(seconds=1)

    def forget(self, uid: str) -> None:
        self._batches.done(uid)
        self._moments.pop(uid, None)

    def _remember(self, uid: str, before: Conditions, after: Conditions) -> None:
        for condition in after:
            old, turned = find_condition(before, condition.type), condition.last_transition_time
            if turned is not None and (old is None or old.last_transition_time != turned):
                self._moments.setdefault(uid, {})[condition.type] = turned
