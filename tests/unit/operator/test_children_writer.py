"""Children are written once: a second look before the watch shows the first write finds nothing to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from grove.api.core import Service
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.kube.errors import Conflict, NotFound
from grove.operator.shared.cluster.children_writer import Changes, ChildrenWriter

MANAGED = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "web"}


def owner(**metadata: str) -> PodCliqueSet:
    meta = {"name": "web", "namespace": "default", "uid": "set-1", **metadata}
    return msgspec.convert({"metadata": meta}, PodCliqueSet)


OWNER = owner()


def service(version: int, team: str) -> Json:
    owner = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "name": "web",
        "uid": "set-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta = {"name": "web-0", "namespace": "default", "labels": {"team": team}, "ownerReferences": [owner]}
    stored = {"uid": "svc-1", "resourceVersion": str(version)} if version else {}
    return {"metadata": {**meta, **stored}, "spec": {"clusterIP": "None"}}


def seen(version: int, team: str) -> Service:
    return msgspec.convert(service(version, team), Service)


class Lagging:
    """A server whose watch shows nothing by itself; `watch` is where the test shows it."""

    def __init__(self, *shown: Service) -> None:
        self.cache = Cache(self)  # type: ignore[arg-type]
        self.watch = self.cache.add(Service)
        for one in shown:
            self.watch.put(one)
        self.children = ChildrenWriter(self.cache, self)  # type: ignore[arg-type]
        self.patches: list[Json] = []
        self.created: list[Json] = []
        self.deleted: list[str] = []
        self.version, self.is_gone = 10, False
        self.quicker_than_the_answer: Any = lambda made: None

    async def look(self, *teams: str) -> Changes:
        return await self.children.sync(
            Service, OWNER, lambda: [service(0, team) for team in teams], version=teams, code="E"
        )

    async def patch(self, kind: type[Service], name: str, patch: Json, namespace: str) -> Service:
        self.patches.append(patch)
        if self.is_gone:
            raise NotFound("somebody deleted it")
        self.version += 1
        return seen(self.version, patch["metadata"].get("labels", {}).get("team", "red"))

    async def create(self, kind: type[Service], obj: Json) -> Service:
        self.created.append(obj)
        self.version += 1
        made = seen(self.version, "red")
        self.quicker_than_the_answer(made)
        return made

    async def delete(self, kind: type[Service], name: str, namespace: str, *, uid: str) -> None:
        self.deleted.append(name)
        raise NotFound("somebody was quicker")


async def test_a_patch_that_the_watch_does_not_show_yet_is_not_written_again() -> None:
    there = Lagging(seen(1, "red"))
    await there.look("red")
    assert there.patches == []
    await there.look("blue")
    await there.look("blue")
    assert there.patches == [{"metadata": {"labels": {"team": "blue"}}}]


async def test_a_later_change_of_another_client_is_corrected() -> None:
    there = Lagging(seen(1, "red"))
    await there.look("blue")
    there.watch.put(seen(70, "green"))
    there.version = 70
    await there.look("blue")
    assert [one["metadata"]["labels"]["team"] for one in there.patches] == ["blue", "blue"]


async def test_a_child_that_the_watch_does_not_show_yet_is_made_once() -> None:
    there = Lagging()
    await there.look("red")
    await there.look("red")
    assert len(there.created) == 1


async def test_a_child_that_a_person_deletes_before_we_hear_that_it_was_made_is_made_again() -> None:
    there = Lagging()

    def come_and_go(made: Service) -> None:
        there.watch.put(made)
        there.version += 1
        there.watch.remove(seen(there.version, "red"))

    there.quicker_than_the_answer = come_and_go
    await there.look("red")
    await there.look("red")
    assert len(there.created) == 2


async def test_a_child_that_was_deleted_is_not_deleted_again_while_the_watch_still_shows_it() -> None:
    there = Lagging(seen(1, "red"))
    await there.look()
    await there.look()
    assert there.deleted == ["web-0"]


async def test_a_child_that_is_gone_before_it_is_put_right_is_made_again_when_the_watch_says_so() -> None:
    there = Lagging(seen(1, "green"))
    there.is_gone = True
    first = await there.look("red")
    assert (first.errors, first.error) == ([], None), "no trouble to tell of"
    await there.look("red")
    assert (len(there.patches), there.created) == (1, []), "it is on its way out"
    there.watch.remove(seen(20, "green"))
    there.version = 20
    await there.look("red")
    assert len(there.created) == 1


def nobodys(version: int) -> Service:
    """What a set of the name left when it was deleted without its children."""
    there = service(version, "red")
    del there["metadata"]["ownerReferences"]
    there["metadata"]["labels"] |= MANAGED
    return msgspec.convert(there, Service)


async def adopted_by(*owners: PodCliqueSet) -> tuple[list[Json], Changes]:
    """What is written about an orphan when a question about the owner is answered with one of these, or with none."""
    there = Lagging(nobodys(1))

    async def get(kind: type[PodCliqueSet], name: str, namespace: str) -> PodCliqueSet:
        if not owners:
            raise NotFound("there is no such set")
        return owners[0]

    there.get = get  # type: ignore[attr-defined]
    wanted = service(0, "red")
    wanted["metadata"]["labels"] |= MANAGED
    return there.patches, await there.children.sync(Service, OWNER, lambda: [wanted], version=1, code="E")


async def test_a_child_without_an_owner_that_was_made_for_a_set_of_the_name_is_adopted() -> None:
    patches, changes = await adopted_by(OWNER)

    owners = service(0, "red")["metadata"]["ownerReferences"]
    assert patches == [{"metadata": {"resourceVersion": "1", "ownerReferences": owners}}]
    assert (changes.patched, changes.blocked, changes.errors) == (["web-0"], [], [])


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="gone"),
        pytest.param([owner(uid="set-2")], id="another of the same name"),
        pytest.param([owner(deletionTimestamp="2026-01-01T00:00:00Z")], id="on its way out"),
    ],
)
async def test_nothing_is_adopted_by_a_set_that_the_server_says_is_going(owners: list[PodCliqueSet]) -> None:
    """The cache shows children that their set is deleted without before it shows that the set is deleted. Adopted then
    they would be deleted after it, with their pods."""
    patches, changes = await adopted_by(*owners)

    assert patches == []
    assert changes.errors == [], "a lost race is no news to anybody"
    assert isinstance(changes.error, Conflict)
