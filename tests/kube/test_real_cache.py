"""Caches over a real API server that is restarted, frozen and robbed of its history under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Self
from urllib.parse import urlsplit

import pytest
from tests.unit.kube.api import Thing

from grove.api.core import ConfigMap, Namespace, Pod
from grove.api.meta import Key, ObjectMeta, Resource
from grove.kube.cache import Cache
from grove.kube.config import load_config
from grove.kube.errors import Forbidden, NotFound
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of our own: what these tests do to it must not meet the others'."""
    with ControlPlane(tmp_path_factory.mktemp("kube-cache"), "1.36.3") as started:
        yield started


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(plane.kubeconfig)) as made:
        yield made


@pytest.fixture
async def ns(admin: HttpClient, fresh_name: str) -> str:
    await admin.create(Namespace, {"metadata": {"name": fresh_name}})
    return fresh_name


class Follower:
    """Builds a picture from the events of handlers and records when it would go back in time."""

    def __init__(self) -> None:
        self.picture: dict[Key, str] = {}
        self.newest: dict[Key, int] = {}
        self.went_back: list[Key] = []

    def __call__(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        subject = new or old
        assert subject is not None
        version = int(subject.metadata.resource_version)
        if version < self.newest.get(subject.key, 0):
            self.went_back.append(subject.key)
        self.newest[subject.key] = version
        if new is None:
            self.picture.pop(subject.key)
        else:
            self.picture[subject.key] = new.data.get("v", "")


class Followed:
    """A synced cache of one namespace's labelled ConfigMaps, and helpers to change and compare."""

    def __init__(self, admin: HttpClient, ns: str, *, through: HttpClient | None = None, **options: float) -> None:
        self._admin, self._ns = admin, ns
        self.cache = Cache(through or admin, page=3, **options)  # type: ignore[arg-type]
        self.cache.add(ConfigMap, namespace=ns, labels="test=yes")
        self.follower = Follower()
        self.cache.on_event(ConfigMap, self.follower)

    async def put(self, name: str, v: str) -> None:
        try:
            await self._admin.patch(ConfigMap, name, {"data": {"v": v}}, self._ns)
        except NotFound:
            meta = {"name": name, "namespace": self._ns, "labels": {"test": "yes"}}
            await self._admin.create(ConfigMap, {"metadata": meta, "data": {"v": v}})

    async def drop(self, name: str) -> None:
        await self._admin.delete(ConfigMap, name, self._ns)

    async def settle(self, timeout_s: float = 60.0) -> None:
        """Returns when cache and follower equal a fresh list; the test's own failure shows both when they never do."""
        listed = (await self._admin.list(ConfigMap, self._ns, labels="test=yes")).items
        want = {m.key: m.data["v"] for m in listed}
        news = asyncio.Event()
        self.cache.on_event(ConfigMap, lambda _, __: news.set())
        try:
            async with asyncio.timeout(timeout_s):
                while self._held() != want:
                    news.clear()
                    await news.wait()
        except TimeoutError:
            assert self._held() == want
        assert self.follower.picture == want
        assert self.follower.went_back == []

    def _held(self) -> dict[Key, str]:
        return {m.key: m.data["v"] for m in self.cache.list(ConfigMap)}

    @property
    def lists(self) -> int:
        return self.cache.informer(ConfigMap).lists


async def test_it_streams_its_first_list_and_follows(admin: HttpClient, ns: str) -> None:
    followed = Followed(admin, ns)
    for n in range(5):
        await followed.put(f"m{n}", "1")
    async with followed.cache:
        await followed.cache.wait_synced(60)
        await followed.put("m0", "2")
        await followed.drop("m1")
        await followed.settle()
    assert followed.lists == 1
    assert followed.cache.informer(ConfigMap)._streams_lists


class Cable:
    """A TCP connection to the API server that the test can break, at once or after a number of further bytes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self.cut_after: int | None = None
        self.hold = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.pull()

    def pull(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.hold:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, far_writer}
        await asyncio.gather(
            self._copy(reader, far_writer, counted=False),
            self._copy(far_reader, writer, counted=True),
            return_exceptions=True,
        )
        self._open -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        while data := await reader.read(1 << 16):
            if counted and self.cut_after is not None:
                writer.write(data[: self.cut_after])
                await writer.drain()
                self.cut_after = None
                self.pull()
                return
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def followed_by_cable(
    plane: ControlPlane, admin: HttpClient, ns: str
) -> AsyncIterator[tuple[Cable, HttpClient, Followed]]:
    """A cache that reads five objects over a cable, and the client at its end."""
    config = load_config(plane.kubeconfig)
    port = urlsplit(config.server).port
    assert port is not None
    async with Cable(port) as cable, HttpClient(replace(config, server=f"https://127.0.0.1:{cable.port}")) as shaky:
        followed = Followed(admin, ns, through=shaky)
        for n in range(5):
            await followed.put(f"m{n}", "1")
        yield cable, shaky, followed


@pytest.mark.parametrize("cut_after", [None, 700], ids=["pulled", "cut in the middle of what is sent"])
async def test_a_lost_connection_is_resumed_without_a_list(
    plane: ControlPlane, admin: HttpClient, ns: str, cut_after: int | None
) -> None:
    async with followed_by_cable(plane, admin, ns) as (cable, shaky, followed), followed.cache:
        await followed.cache.wait_synced(60)
        await followed.put("m0", "2")
        await followed.settle()
        if cut_after is None:
            cable.pull()
        cable.cut_after = cut_after
        await followed.put("m1", "2" * 1500)
        await followed.drop("m2")
        await followed.put("m5", "1")
        await followed.settle()
        assert shaky.calls["watch", "configmaps"] >= 2
        assert followed.lists == 1


async def test_an_api_server_that_restarts_loses_and_brings_back_nothing(
    plane: ControlPlane, admin: HttpClient, ns: str
) -> None:
    """A fresh API server has no history and answers 410 to a resumed watch, so a second list is in order."""
    followed = Followed(admin, ns)
    for n in range(5):
        await followed.put(f"m{n}", "1")
    async with followed.cache:
        await followed.cache.wait_synced(60)
        await followed.put("m0", "2")
        await followed.settle()
        await asyncio.to_thread(plane.restart_apiserver)
        await followed.put("m1", "2")
        await followed.drop("m2")
        await followed.put("m5", "1")
        await followed.settle()
        assert followed.lists <= 2


async def test_history_that_is_compacted_away_is_listed_again(plane: ControlPlane, admin: HttpClient, ns: str) -> None:
    """The cache is cut off, the world moves on, and then etcd forgets how: the place to resume from is gone."""
    async with followed_by_cable(plane, admin, ns) as (cable, _, followed), followed.cache:
        await followed.cache.wait_synced(60)
        await followed.put("m0", "2")
        await followed.settle()
        await asyncio.to_thread(plane.stop_apiserver)
        cable.hold = True
        await asyncio.to_thread(plane.start_apiserver)
        await followed.put("m1", "2")
        await followed.drop("m2")
        await asyncio.to_thread(plane.compact_etcd)
        await asyncio.to_thread(plane.restart_apiserver)
        await followed.drop("m3")
        cable.hold = False
        await followed.settle()
        assert followed.lists == 2


async def test_an_api_server_that_freezes_is_noticed(plane: ControlPlane, admin: HttpClient, ns: str) -> None:
    async with HttpClient(admin.config, timeout_s=2.0) as client:
        followed = Followed(admin, ns, through=client, stall_s=4.0)
        await followed.put("a", "1")
        async with followed.cache:
            await followed.cache.wait_synced(60)
            plane.pause_apiserver()
            try:
                async with asyncio.timeout(60):
                    while followed.cache.informer(ConfigMap).error is None:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
            finally:
                plane.resume_apiserver()
            await followed.put("a", "2")
            await followed.settle()
            assert followed.lists == 1


async def test_pages_when_streamed_lists_are_not_served(admin: HttpClient, ns: str) -> None:
    followed = Followed(admin, ns)
    for n in range(7):
        await followed.put(f"m{n}", "1")
    followed.cache.informer(ConfigMap)._streams_lists = False
    async with followed.cache:
        await followed.cache.wait_synced(60)
        assert followed.lists == 1
        assert admin.calls["list", "configmaps"] >= 3
        await followed.put("m0", "2")
        await followed.settle()


async def test_what_stands_in_the_way_is_said(plane: ControlPlane, admin: HttpClient) -> None:
    cache = Cache(admin)
    cache.add(Thing)
    async with cache:
        with pytest.raises(NotFound, match=r"does not know things.test.grove.io .*: is its CRD installed\?"):
            await cache.wait_synced(60)
    async with HttpClient(load_config(plane.client_kubeconfig("jane"))) as jane:
        cache = Cache(jane)
        cache.add(Pod)
        async with cache:
            with pytest.raises(Forbidden, match=r'"jane" cannot .* resource "pods"'):
                await cache.wait_synced(60)


async def test_owners_are_indexed_and_managed_fields_are_not_kept(admin: HttpClient, ns: str) -> None:
    owner = await admin.create(ConfigMap, {"metadata": {"name": "owner", "namespace": ns}})
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    for name in ("a", "b"):
        await admin.create(ConfigMap, {"metadata": {"name": name, "namespace": ns, "ownerReferences": [ref]}})
    cache = Cache(admin)
    cache.add(ConfigMap, namespace=ns)
    async with cache:
        await cache.wait_synced(60)
        owned = cache.owned(ConfigMap, by=owner.metadata.uid)
        assert sorted(m.metadata.name for m in owned) == ["a", "b"]
        whole = await admin.get(Resource("", "v1", "ConfigMap", "configmaps"), "a", ns)
        assert "managedFields" in whole["metadata"]
        assert "managed_fields" not in ObjectMeta.__struct_fields__
