"""Caches against a loopback server that fails in all the ways networks and API servers do."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.unit.kube.api import FakeApi, Thing, serving, status

from grove.api.meta import Key
from grove.kube import errors
from grove.kube.cache import Cache
from grove.kube.credentials import TokenFile
from grove.kube.http import HttpClient
from grove.kube.informer import StaleList
from grove.local.ports import free_ports

LONG_S = 60.0
"""A limit for what is waited for; the machine may be busy with something else."""
A, B = Key("ns", "a"), Key("ns", "b")


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[HttpClient]:
    async with HttpClient(api.config(), rng=random.Random(1)) as made:
        yield made


class Follower:
    """A handler that builds its own picture and insists that it never goes back."""

    def __init__(self) -> None:
        self.picture: dict[Key, Thing] = {}
        self.seen: list[tuple[str, str]] = []
        self._newest: dict[Key, int] = {}

    def __call__(self, old: Thing | None, new: Thing | None) -> None:
        subject = new or old
        assert subject is not None
        version = int(subject.metadata.resource_version)
        assert version >= self._newest.get(subject.key, 0)
        self._newest[subject.key] = version
        self.seen.append((subject.metadata.name, "gone" if new is None else new.data.get("v", "")))
        if new is None:
            del self.picture[subject.key]
        else:
            self.picture[subject.key] = new


def picture(api: FakeApi) -> dict[Key, str]:
    return {Key(*key): obj["metadata"]["resourceVersion"] for key, obj in api.objects.items()}


async def until(holds: Callable[[], bool]) -> None:
    """Returns when it holds; what is waited for here has no event of its own."""
    async with asyncio.timeout(LONG_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def settled(api: FakeApi, cache: Cache, follower: Follower | None = None) -> None:
    """Returns when the cache and its follower equal the server."""

    def equal() -> bool:
        held = {t.key: t.metadata.resource_version for t in cache.list(Thing)}
        told = {k: t.metadata.resource_version for k, t in follower.picture.items()} if follower else held
        return held == picture(api) == told

    await until(equal)


@pytest.fixture(params=[True, False], ids=["streamed lists", "paged lists"])
def streams(request: pytest.FixtureRequest, api: FakeApi) -> bool:
    api.streams_lists = request.param
    return bool(request.param)


def make(client: HttpClient, **options: float) -> tuple[Cache, Follower]:
    cache = Cache(client, page=2, rng=random.Random(1), **options)  # type: ignore[arg-type]
    follower = Follower()
    cache.on_event(Thing, follower)
    return cache, follower


async def test_it_syncs_and_follows(api: FakeApi, client: HttpClient, streams: bool) -> None:
    for n in range(5):
        api.put(f"t{n}", v="1")
    cache, follower = make(client)
    async with cache:
        assert not cache.is_synced
        await cache.wait_synced(LONG_S)
        assert cache.is_synced
        assert len(cache.list(Thing)) == 5
        api.put("t0", v="2")
        api.delete("t1")
        api.put("t5", v="1")
        await settled(api, cache, follower)
    lists = api.count(watch=False)
    assert lists == (0 if streams else 3)


async def test_a_dropped_connection_is_resumed_without_a_list(api: FakeApi, client: HttpClient, streams: bool) -> None:
    api.put("a", v="1")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.put("a", v="2")
        await settled(api, cache, follower)
        before = api.count(watch=False)
        api.drop_watches()
        api.put("b", v="1")
        api.delete("b")
        api.put("a", v="3")
        await settled(api, cache, follower)
        assert api.count(watch=False) == before
        assert cache.informer(Thing).lists == 1
        resumed = [r for r in api.requests if r.query.get("watch")][-1]
        assert resumed.query["resourceVersion"] == "102"
    assert follower.seen[-3:] == [("b", "1"), ("b", "gone"), ("a", "3")]


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
async def test_a_connection_cut_in_the_middle_of_a_line_loses_nothing(
    api: FakeApi, client: HttpClient, cut: int
) -> None:
    api.put("a", v="1")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.cut_after_bytes = cut
        api.put("a", v="2")
        api.put("b", v="1")
        await settled(api, cache, follower)
        assert cache.informer(Thing).lists == 1


async def test_a_list_that_is_cut_off_is_not_taken_for_the_whole(api: FakeApi, client: HttpClient) -> None:
    for n in range(5):
        api.put(f"t{n}")
    api.cut_after_bytes = 200
    cache, _ = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        assert len(cache.list(Thing)) == 5


async def test_gone_in_the_stream_lists_again(api: FakeApi, client: HttpClient, streams: bool) -> None:
    api.put("a", v="1")
    api.put("b", v="1")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.fail_watches(410, "Expired")
        api.delete("a")
        api.put("b", v="2")
        api.compact()
        await settled(api, cache, follower)
        assert cache.informer(Thing).lists == 2
    assert ("a", "gone") in follower.seen


async def test_gone_when_resuming_lists_again(api: FakeApi, client: HttpClient, streams: bool) -> None:
    api.put("a", v="1")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.drop_watches()
        api.delete("a")
        api.put("b", v="1")
        api.compact()
        await settled(api, cache, follower)
        assert cache.informer(Thing).lists == 2
    assert follower.seen == [("a", "1"), ("a", "gone"), ("b", "1")]


async def test_a_bookmark_moves_the_place_to_resume_from(api: FakeApi, client: HttpClient) -> None:
    cache, _ = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.revision = 500
        api.bookmark()
        await until(lambda: cache.informer(Thing)._resume_at == "500")
        api.compacted = 400
        api.drop_watches()
        api.put("a")
        await settled(api, cache)
        assert cache.informer(Thing).lists == 1


async def test_a_second_list_has_what_a_silent_watch_did_not_bring(
    api: FakeApi, client: HttpClient, streams: bool
) -> None:
    api.put("a", v="1")
    api.put("b", v="1")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.silent = True
        api.put("a", v="2")
        api.delete("b")
        await until(lambda: api.stuck == 1)
        api.silent = False  # the stuck stream stays stuck
        await cache.relist()
        assert {thing.key: thing.data["v"] for thing in cache.list(Thing)} == {A: "2"}
        api.put("b", v="3")
        await settled(api, cache, follower)


async def test_a_kind_that_was_uninstalled_holds_up_no_second_list(api: FakeApi, client: HttpClient) -> None:
    api.put("a", v="1")
    cache, _ = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.faults.append(lambda request: status(404, "NotFound"))
        async with asyncio.timeout(LONG_S):
            await cache.relist()


async def test_a_watch_that_falls_silent_is_replaced(api: FakeApi, client: HttpClient) -> None:
    api.put("a", v="1")
    cache, follower = make(client, stall_s=0.2)
    async with cache:
        await cache.wait_synced(LONG_S)
        api.silent = True
        api.put("a", v="2")
        await until(lambda: api.stuck >= 1)
        api.silent = False  # the stuck stream stays stuck; a new one works
        await settled(api, cache, follower)
        assert cache.informer(Thing).lists == 1


async def test_a_quiet_watch_is_connected_again_in_silence(api: FakeApi, client: HttpClient) -> None:
    """The API server sends no bookmark while nothing is newer than where the watch began: silence is no failure."""
    api.put("a", v="1")
    cache, follower = make(client, stall_s=0.05)
    async with cache:
        await cache.wait_synced(LONG_S)
        with capture_logs() as said:
            await until(lambda: api.count(watch=True) >= 4)
        informer = cache.informer(Thing)
        assert (informer.error, informer._failures, informer.lists) == (None, 0, 1)
        assert [entry for entry in said if entry["log_level"] != "debug"] == []
        api.put("a", v="2")
        await settled(api, cache, follower)


async def test_a_server_that_hangs_is_trouble_and_not_quiet(api: FakeApi) -> None:
    api.put("a", v="1")
    async with HttpClient(api.config(), timeout_s=0.05) as client:
        cache, follower = make(client, stall_s=0.1)
        async with cache:
            await cache.wait_synced(LONG_S)
            api.hangs = True
            await until(lambda: isinstance(cache.informer(Thing).error, errors.ConnectionLost))
            api.hangs = False
            api.put("a", v="2")
            await settled(api, cache, follower)
            assert cache.informer(Thing).lists == 1


async def test_a_restarted_server_is_found_again() -> None:
    api, (port,) = FakeApi(), free_ports(1)
    api.put("a", v="1")
    async with serving(api, port):
        client = HttpClient(api.config())
        cache, follower = make(client)
        cache.start()
        await cache.wait_synced(LONG_S)
        api.drop_watches()
    api.put("a", v="2")
    await until(lambda: isinstance(cache.informer(Thing).error, errors.Unreachable))
    async with serving(api, port):
        await settled(api, cache, follower)
        assert cache.informer(Thing).lists == 1
        await cache.stop()
        await client.close()


async def test_a_server_that_lags_never_takes_us_back(api: FakeApi, client: HttpClient) -> None:
    api.put("a", v="1")
    api.put("a", v="2")
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        newest, held = api.revision, api.objects["ns", "a"]
        # Another server of the same cluster answers now, behind the first one; the watch cannot be resumed there.
        api.objects["ns", "a"] = {
            **held,
            "metadata": {**held["metadata"], "resourceVersion": "101"},
            "data": {"v": "1"},
        }
        api.revision = 101
        api.fail_watches(410, "Expired")
        api.compacted = 150
        await until(lambda: isinstance(cache.informer(Thing).error, StaleList))
        found = cache.get(Thing, A)
        assert found is not None
        assert found.data == {"v": "2"}
        api.objects["ns", "a"], api.revision, api.compacted = held, newest, 0
        api.history.clear()
        api.put("a", v="3")
        await settled(api, cache, follower)
    assert follower.seen == [("a", "2"), ("a", "3")]


async def test_a_cluster_restored_from_a_backup_is_believed_in_the_end(
    api: FakeApi, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grove.kube.informer.BACKOFF_S", 0.001)
    api.revision = 1000
    api.put("a", v="late")
    cache, _ = make(client)
    plain: dict[Key, str] = {}
    async with cache:
        await cache.wait_synced(LONG_S)
        api.objects.clear()
        api.revision = 50
        api.put("b", v="early")
        api.fail_watches(410, "Expired")
        api.compacted = 2000
        await until(lambda: cache.get(Thing, B) is not None)
        plain = {t.key: t.data["v"] for t in cache.list(Thing)}
    assert plain == {B: "early"}


async def test_a_selected_cache_asks_for_its_part_only(api: FakeApi, client: HttpClient) -> None:
    cache = Cache(client)
    cache.add(Thing, namespace="ns", labels="app=x", fields="metadata.name=a")
    with pytest.raises(ValueError, match="another selection"):
        cache.add(Thing, labels="app=y")
    async with cache:
        await cache.wait_synced(LONG_S)
    query = api.requests[0].query
    assert (query["labelSelector"], query["fieldSelector"]) == ("app=x", "metadata.name=a")
    assert api.requests[0].path == "/apis/test.grove.io/v1/namespaces/ns/things"


async def test_a_kind_added_later_is_followed_at_once(api: FakeApi, client: HttpClient) -> None:
    api.put("a")
    cache = Cache(client)
    async with cache:
        cache.add(Thing)
        await cache.wait_synced(LONG_S)
        assert cache.get(Thing, A) is not None


@pytest.mark.parametrize(
    ("code", "reason", "want", "words"),
    [
        pytest.param(404, "NotFound", errors.NotFound, "things.test.grove.io .*CRD installed", id="no such kind"),
        pytest.param(403, "Forbidden", errors.Forbidden, "Forbidden", id="no rights"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, "Unauthorized", id="unknown to the server"),
    ],
)
async def test_waiting_ends_when_waiting_cannot_help(
    api: FakeApi, client: HttpClient, code, reason, want, words
) -> None:
    api.faults.append(lambda _: status(code, reason))
    cache, _ = make(client)
    async with cache:
        with pytest.raises(want, match=words):
            await cache.wait_synced(LONG_S)
        api.faults.clear()  # rights were given: the same cache gets there
        await until(lambda: cache.is_synced)


async def test_waiting_tells_what_stood_in_the_way(api: FakeApi, client: HttpClient) -> None:
    api.faults.append(lambda _: status(503, "ServiceUnavailable", "the server is starting"))
    cache, _ = make(client)
    async with cache:
        await until(lambda: cache.informer(Thing).error is not None)
        with pytest.raises(errors.Unavailable, match="the server is starting"):
            await cache.wait_synced(0.1)


async def test_a_token_that_is_rotated_under_a_running_cache(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    api.token = "old"
    api.put("a", v="1")
    async with HttpClient(api.config(TokenFile(file))) as client:
        cache, follower = make(client)
        async with cache:
            await cache.wait_synced(LONG_S)
            file.write_text("new")
            api.token = "new"
            api.drop_watches()
            api.put("a", v="2")
            await settled(api, cache, follower)
            assert cache.informer(Thing).lists == 1
    assert follower.seen == [("a", "1"), ("a", "2")]


async def test_many_faults_in_a_row(api: FakeApi, client: HttpClient, streams: bool) -> None:
    """A seeded storm: changes, cut lines, drops, compactions. The end state is the server's, whatever was missed."""
    rng = random.Random(7)
    cache, follower = make(client)
    async with cache:
        await cache.wait_synced(LONG_S)
        for n in range(120):
            name = f"t{rng.randrange(6)}"
            if ("ns", name) in api.objects and rng.random() < 0.3:
                api.delete(name)
            else:
                api.put(name, v=str(n))
            what = rng.random()
            if what < 0.05:
                api.drop_watches()
            elif what < 0.1:
                api.cut_after_bytes = rng.randrange(300)
            elif what < 0.15:
                api.compact()
                api.drop_watches()
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.02)
        api.cut_after_bytes = None
        await settled(api, cache, follower)
