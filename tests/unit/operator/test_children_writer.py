"""Children are written once: a second look before the cache shows the first write finds nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from grove.api.core import Service
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.shared.children_writer import Children

OWNER = msgspec.convert({"metadata": {"name": "web", "namespace": "default", "uid": "set-1"}}, PodCliqueSet)


def service(version: int, team: str) -> Json:
    owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "web", "uid": "set-1",
             "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    meta = {"name": "web-0", "namespace": "default", "labels": {"team": team}, "ownerReferences": [owner]}
    stored = {"uid": "svc-1", "resourceVersion": str(version)} if version else {}
    return {"metadata": {**meta, **stored}, "spec": {"clusterIP": "None"}}


class Lagging:
    """A cache and a client in one: what is patched is answered at once, and seen in the cache when `show` says so."""

    def __init__(self) -> None:
        self.seen = msgspec.convert(service(1, "red"), Service)
        self.patches: list[Json] = []
        self._watchers: list[Callable[[Any, Any], None]] = []

    def owned(self, kind: type[Service], by: str) -> list[Service]:
        return [self.seen]

    def get(self, kind: type[Service], key: Key) -> None:
        return None

    def on_event(self, kind: type[Service], call: Callable[[Any, Any], None]) -> None:
        self._watchers.append(call)

    def show(self, new: Service | None) -> None:
        for call in self._watchers:
            call(self.seen, new)
        self.seen = new or self.seen

    async def patch(self, kind: type[Service], name: str, patch: Json, namespace: str) -> Service:
        self.patches.append(patch)
        return msgspec.convert(service(1 + len(self.patches), patch["metadata"]["labels"]["team"]), Service)


async def look(children: Children, team: str) -> None:
    await children.sync(Service, OWNER, lambda: [service(0, team)], version=team, code="E")


async def test_a_patch_that_the_cache_does_not_show_yet_is_not_written_again() -> None:
    there = Lagging()
    children = Children(there, there)  # type: ignore[arg-type]
    await look(children, "red")
    assert there.patches == []
    await look(children, "blue")
    await look(children, "blue")
    assert there.patches == [{"metadata": {"labels": {"team": "blue"}}}]


async def test_somebody_elses_later_change_is_put_right() -> None:
    there = Lagging()
    children = Children(there, there)  # type: ignore[arg-type]
    await look(children, "blue")
    there.show(msgspec.convert(service(7, "green"), Service))
    await look(children, "blue")
    assert [one["metadata"]["labels"]["team"] for one in there.patches] == ["blue", "blue"]


async def test_what_is_gone_is_not_remembered() -> None:
    there = Lagging()
    children = Children(there, there)  # type: ignore[arg-type]
    await look(children, "blue")
    there.show(None)
    await look(children, "blue")
    assert len(there.patches) == 2


class Hasty(Lagging):
    """The watch is quicker than the answer to a create: by then the child has come, and gone again if `deleted`."""

    def __init__(self, *, deleted: bool) -> None:
        super().__init__()
        self.created: list[Json] = []
        self._deleted = deleted

    def owned(self, kind: type[Service], by: str) -> list[Service]:
        return []

    async def create(self, kind: type[Service], obj: Json) -> Service:
        self.created.append(obj)
        made = msgspec.convert(service(1, "red"), Service)
        if self._deleted:
            for call in self._watchers:
                call(None, made)
                call(made, None)
        return made


async def test_a_child_that_somebody_deletes_before_we_hear_that_it_was_made_is_made_again() -> None:
    there = Hasty(deleted=True)
    children = Children(there, there)  # type: ignore[arg-type]
    await look(children, "red")
    await look(children, "red")
    assert len(there.created) == 2


async def test_a_child_that_the_cache_does_not_show_yet_is_made_once() -> None:
    there = Hasty(deleted=False)
    children = Children(there, there)  # type: ignore[arg-type]
    await look(children, "red")
    await look(children, "red")
    assert len(there.created) == 1
