"""Writes a status that has changed: news at once, progress after a short wait for more of it.

It also collects Events about many children. If 500 gangs are created for one set, it writes one Event with the count
and the first names, not 500.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from grove.api.meta import Condition, Conditions, Object, Struct, find_condition
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import NotFound
from grove.kube.events import Recorder
from grove.operator.shared.diff import status_patch
from grove.operator.shared.status_batching import LONGEST_CROWD_S, PROGRESS_S, StatusBatches

T = TypeVar("T", bound=Object)


class StatusWriter:
    """The one way a status leaves this process."""

    def __init__(self, cache: Cache, client: Client, batches: StatusBatches) -> None:
        self._cache, self._client, self._batches = cache, client, batches
        self._moments: dict[str, dict[str, datetime]] = {}
        self.on_written: Callable[[Object, Struct], None] | None = None
        """Called with the object as it was and the status that was written; None while no traces are recorded."""

    async def write(
        self,
        obj: T,
        status: Struct,
        *,
        news: bool,
        wait_s: float = PROGRESS_S,
        conditional: bool = False,
        may_flap: bool = False,
    ) -> float | None:
        """Writes `status` on `obj`, or returns the seconds after which to ask again; None when there is nothing left.

        `wait_s` is how long a status without news may wait. `conditional` is for statuses that others write too:
        a lost race is raised as Conflict. `may_flap`: the news is one that may go back and forth, and is damped.
        """
        before: Any = obj
        uid = obj.metadata.uid
        is_new = before.status != status
        yields = wait_s <= LONGEST_CROWD_S
        if is_new and not news and (left_s := self._batches.wait_s(uid, wait_s, yields=yields)):
            return left_s
        if is_new and news and may_flap:
            if left_s := self._batches.flap_wait_s(uid):
                return left_s
            self._batches.flapped(uid)
        version = obj.metadata.resource_version if conditional else ""
        patch = status_patch(before.status, status, resource_version=version) if is_new else None
        if patch is None:
            self._batches.done(uid)
            return None
        # Before the write: a handler of its watch event may ask.
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
        if self.on_written is not None:
            self.on_written(obj, status)
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
        self._batches.forget(uid)
        self._moments.pop(uid, None)

    def _remember(self, uid: str, before: Conditions, after: Conditions) -> None:
        for condition in after:
            old, turned = find_condition(before, condition.type), condition.last_transition_time
            if turned is not None and (old is None or old.last_transition_time != turned):
                self._moments.setdefault(uid, {})[condition.type] = turned


GATHER_S = 1.0
SHOWN = 3


class EventBatches:
    """Gathers names for events that are sent a moment later."""

    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._names: dict[tuple[str, str, str], tuple[Object, list[str]]] = {}
        """By uid, reason and verb: what it is about, and the names."""

    def add(self, about: Object, reason: str, verb: str, *names: str) -> None:
        """Records an event on `about`, soon: `verb` (such as "created PodGang") and the names of the objects."""
        if not names:
            return
        subject = (about.metadata.uid, reason, verb)
        if subject not in self._names:
            self._names[subject] = (about, [])
            asyncio.get_running_loop().call_later(GATHER_S, self._tell, subject)
        self._names[subject][1].extend(names)

    def _tell(self, subject: tuple[str, str, str]) -> None:
        about, names = self._names.pop(subject)
        _, reason, verb = subject
        shown = ", ".join(sorted(names)[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        self._events.normal(about, reason, f"{verb} {shown}{more}")
