"""Writes a status when it says something new: news at once, progress after a short wait for more of it."""

from __future__ import annotations

from typing import Any, TypeVar

from grove.api.meta import Object, Struct
from grove.controllers.latest import Latest
from grove.controllers.patience import PROGRESS_S, Patience
from grove.decide.diff import status_patch
from grove.kube.client import Client
from grove.kube.errors import NotFound

T = TypeVar("T", bound=Object)


class StatusWriter:
    """The one way a status leaves this process. Compares with the newest version we know, not with the cache's."""

    def __init__(self, client: Client, latest: Latest, patience: Patience) -> None:
        self._client, self._latest, self._patience = client, latest, patience

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
            self._patience.done(uid)
            return None
        if not news and (left_s := self._patience.wait_s(uid, wait_s)):
            return left_s
        try:
            answer = await self._client.patch(
                type(obj), obj.metadata.name, patch, obj.metadata.namespace, subresource="status"
            )
        except NotFound:
            self.forget(uid)
            return None
        self._latest.wrote(answer)
        self._patience.done(uid)
        return None

    def forget(self, uid: str) -> None:
        self._latest.forget(uid)
        self._patience.done(uid)
