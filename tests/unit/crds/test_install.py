"""Installing the CRDs: applied, waited for, and a clear word when it cannot be done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from grove import crds
from grove.api.core import CustomResourceDefinition, CustomResourceDefinitionStatus
from grove.api.meta import Condition, Json, ObjectMeta
from grove.crds.install import InstallError, install
from grove.kube.client import Client, Page, WatchEvent
from grove.kube.errors import Forbidden, Gone

NAMES = [document["metadata"]["name"] for document in crds.load()]
ESTABLISHED = Condition(type="Established", status="True", reason="InitialNamesAccepted")
TAKEN = Condition(type="NamesAccepted", status="False", reason="ShortNamesConflict", message='"pg" is already in use')


def definition(name: str, *conditions: Condition) -> CustomResourceDefinition:
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=name), status=CustomResourceDefinitionStatus(conditions=conditions)
    )


class Server:
    """Answers each list with the next of `lists` (the last one for ever) and each watch with the next of `watches`.

    A watch that has nothing left to say stays open, as a server's does; one that ends in an error raises it.
    """

    def __init__(self, *lists: Sequence[CustomResourceDefinition], watches: Sequence[Sequence[Any]] = ()) -> None:
        self.lists, self.watches = list(lists), list(watches)
        self.applied: list[Json] = []
        self.watched_from: list[str] = []
        self.refuses: Exception | None = None

    async def apply(self, kind: Any, obj: Json, *, field_manager: str, force: bool = True) -> Json:
        if self.refuses:
            raise self.refuses
        self.applied.append(obj)
        return obj

    async def list(self, kind: Any) -> Page[CustomResourceDefinition]:
        found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return Page(items=found, resource_version="7")

    async def watch(self, kind: Any, *, resource_version: str) -> AsyncIterator[WatchEvent[CustomResourceDefinition]]:
        self.watched_from.append(resource_version)
        for said in self.watches.pop(0) if self.watches else ():
            if isinstance(said, Exception):
                raise said
            yield WatchEvent("MODIFIED" if said else "BOOKMARK", said, "8")
        await asyncio.Event().wait()


async def installed(server: Server, timeout_s: float = 5) -> list[str]:
    said: list[str] = []
    await install(cast(Client, server), said.append, timeout_s)
    return said


async def test_all_five_are_applied_and_each_is_announced_once() -> None:
    server = Server([definition(name, ESTABLISHED) for name in NAMES])
    assert await installed(server) == [f"{name} is served" for name in NAMES]
    assert server.applied == crds.load()


async def test_it_waits_for_those_that_are_not_served_yet() -> None:
    last = NAMES[-1]
    server = Server(
        [definition(name, ESTABLISHED) for name in NAMES[:-1]] + [definition(last)],
        watches=[[None, definition("widgets.example.com", ESTABLISHED), definition(last, ESTABLISHED)]],
    )
    assert (await installed(server))[-1] == f"{last} is served"
    assert server.watched_from == ["7"]


async def test_a_watch_that_fell_behind_starts_over_with_a_list() -> None:
    server = Server(
        [definition(name) for name in NAMES],
        [definition(name, ESTABLISHED) for name in NAMES],
        watches=[[Gone("too old")]],
    )
    assert len(await installed(server)) == 5


async def test_a_name_taken_by_another_crd_is_reported() -> None:
    server = Server([definition(name, ESTABLISHED) for name in NAMES[:-1]] + [definition(NAMES[-1], TAKEN)])
    with pytest.raises(InstallError, match=r'0\.05 s: podgangs\.scheduler\.grove\.io \("pg" is already in use\)'):
        await installed(server, timeout_s=0.05)


async def test_missing_rights_are_reported_without_waiting() -> None:
    server = Server([])
    server.refuses = Forbidden('User "eve" cannot patch resource "customresourcedefinitions"', code=403)
    with pytest.raises(
        InstallError, match=r'not allowed to install clustertopologybindings\.grove\.io: User "eve" cannot'
    ):
        await installed(server)
