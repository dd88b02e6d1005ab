"""Turns errors of the API server into messages that a person can act on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from grove.answers.answer import Unanswered
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.client import Client
from grove.kube.errors import NotFound

T = TypeVar("T")


async def explained(client: Client, work: Awaitable[T]) -> T:
    """The answer. A cluster without Grove gets a message that says so, not one about a missing path."""
    try:
        try:
            return await work
        except BaseExceptionGroup as group:
            raise _first(group) from group
    except NotFound as error:
        if not error.details.get("name") and not await client.serves(PodCliqueSet):
            what = "Grove is not installed on this cluster (no PodCliqueSet); `grove crds --apply` installs its kinds"
            raise Unanswered(what) from error
        raise


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
