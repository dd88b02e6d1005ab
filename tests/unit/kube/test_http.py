"""The HTTP client against a loopback server: what is sent, what is retried, which error comes out."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest
from aiohttp import web
from tests.unit.kube.api import FakeApi, Thing, fail_times, serving, status
from yarl import URL

from grove.api.meta import Resource
from grove.kube import errors, transport
from grove.kube.client import Client
from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, CredentialSource, Fixed, TokenFile
from grove.kube.http import HttpClient
from grove.kube.rate import Rate
from grove.kube.transport import Answer, Silence
from grove.sim.loop import VirtualLoop
from grove.sim.loop import run as run_virtual

THINGS = Thing.RESOURCE


@pytest.fixture
async def client(api: FakeApi):
    async with HttpClient(api.config(), rng=random.Random(1)) as made:
        yield made


async def test_a_typed_get_decodes_what_the_kind_names(api: FakeApi, client: Client) -> None:
    api.put("a", colour="red")
    got = await client.get(Thing, "a", "ns")
    assert got == Thing(metadata=got.metadata, data={"colour": "red"})
    assert got.key == ("ns", "a")


async def test_a_get_by_resource_gives_the_whole_object(api: FakeApi, client: Client) -> None:
    api.put("a")
    got = await client.get(THINGS, "a", "ns")
    assert got["metadata"]["managedFields"] == [{"manager": "test"}]


async def test_a_list_is_paged_and_filtered(api: FakeApi, client: Client) -> None:
    for name in ("a", "b", "c"):
        api.put(name)
    first = await client.list(Thing, "ns", labels="app=x,tier in (a,b)", fields="metadata.name!=z", limit=2)
    second = await client.list(Thing, "ns", limit=2, next_page=first.next_page)
    assert [t.metadata.name for t in first.items] == ["a", "b"]
    assert [t.metadata.name for t in second.items] == ["c"]
    assert (first.resource_version, second.next_page) == ("103", "")
    assert api.requests[0].query["labelSelector"] == "app=x,tier in (a,b)"
    assert api.requests[0].query["fieldSelector"] == "metadata.name!=z"


@pytest.mark.parametrize(
    ("call", "method", "path", "content", "body"),
    [
        pytest.param(
            lambda c: c.create(Thing, {"metadata": {"name": "a", "namespace": "ns"}}),
            "POST",
            "/apis/test.grove.io/v1/namespaces/ns/things",
            "application/json",
            {"apiVersion": "test.grove.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "ns"}},
            id="a create is given its kind and goes to its namespace",
        ),
        pytest.param(
            lambda c: c.patch(Thing, "a", {"data": {"x": "1"}}, "ns", subresource="status"),
            "PATCH",
            "/apis/test.grove.io/v1/namespaces/ns/things/a/status",
            "application/merge-patch+json",
            {"data": {"x": "1"}},
            id="a mapping is a merge patch",
        ),
        pytest.param(
            lambda c: c.patch(Thing, "a", [{"op": "remove", "path": "/data/x"}], "ns"),
            "PATCH",
            "/apis/test.grove.io/v1/namespaces/ns/things/a",
            "application/json-patch+json",
            [{"op": "remove", "path": "/data/x"}],
            id="a sequence is a JSON patch",
        ),
        pytest.param(
            lambda c: c.delete(Thing, "a", "ns", uid="u1", propagation="Foreground", grace_period_s=0),
            "DELETE",
            "/apis/test.grove.io/v1/namespaces/ns/things/a",
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Foreground",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u1"},
            },
            id="a delete carries its preconditions",
        ),
        pytest.param(
            lambda c: c.bind("ns", "web", "n1", uid="u1"),
            "POST",
            "/api/v1/namespaces/ns/pods/web/binding",
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "web", "namespace": "ns", "uid": "u1"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            },
            id="a bind names pod, uid and node",
        ),
        pytest.param(
            lambda c: c.evict("ns", "web", uid="u1"),
            "POST",
            "/api/v1/namespaces/ns/pods/web/eviction",
            "application/json",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web", "namespace": "ns"},
                "deleteOptions": {"preconditions": {"uid": "u1"}},
            },
            id="an eviction is bound to a uid",
        ),
        pytest.param(
            lambda c: c.apply(THINGS, {"metadata": {"name": "a", "namespace": "ns"}}, field_manager="me"),
            "PATCH",
            "/apis/test.grove.io/v1/namespaces/ns/things/a",
            "application/apply-patch+yaml",
            {"apiVersion": "test.grove.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "ns"}},
            id="an apply names its manager",
        ),
    ],
)
async def test_what_is_sent(api: FakeApi, client: HttpClient, call, method, path, content, body) -> None:
    api.faults.append(lambda _: web.json_response({"metadata": {"name": "a"}}))
    await call(client)
    sent = api.requests[-1]
    assert (sent.method, sent.path, sent.content_type) == (method, path, content)
    assert json.loads(api.bodies[-1]) == body


async def test_a_name_or_a_namespace_stays_one_part_of_the_path(api: FakeApi, client: HttpClient) -> None:
    with pytest.raises(errors.NotFound):
        await client.get(Thing, "a#b", "n?x=1 y")
    assert api.requests[-1].raw_path == "/apis/test.grove.io/v1/namespaces/n%3Fx%3D1%20y/things/a%23b"


@pytest.mark.parametrize("part", ["a/b", "a%2Fb", ".", ".."])
async def test_what_cannot_be_one_part_of_a_path_is_not_sent(api: FakeApi, client: HttpClient, part: str) -> None:
    body = {"metadata": {"name": "a", "namespace": part}}
    for call in (
        client.get(Thing, "a", part),
        client.get(Thing, part, "ns"),
        client.list(Thing, part),
        client.create(Thing, body),
        client.patch(Thing, "a", {}, part),
        client.delete(Thing, part, "ns"),
        client.delete_collection(Thing, part),
        client.bind(part, "p", "n"),
        client.evict("ns", part),
    ):
        with pytest.raises(errors.BadRequest, match=f'"{part}" cannot be part of a path'):
            await call
    assert api.requests == []


async def test_a_dry_run_says_so(api: FakeApi, client: HttpClient) -> None:
    await client.create(Thing, {"metadata": {"name": "a", "namespace": "ns"}}, dry_run=True)
    assert api.requests[-1].query["dryRun"] == "All"


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        pytest.param(400, "BadRequest", errors.BadRequest, id="bad request"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, id="unauthorized"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="forbidden"),
        pytest.param(404, "NotFound", errors.NotFound, id="not found"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="name taken"),
        pytest.param(409, "Conflict", errors.Conflict, id="conflict"),
        pytest.param(410, "Expired", errors.Gone, id="gone"),
        pytest.param(422, "Invalid", errors.Invalid, id="invalid"),
        pytest.param(429, "TooManyRequests", errors.TooManyRequests, id="too many requests"),
        pytest.param(500, "InternalError", errors.Unavailable, id="server error"),
        pytest.param(418, "Teapot", errors.ApiError, id="anything else"),
    ],
)
async def test_a_status_becomes_its_own_error(api: FakeApi, code, reason, want) -> None:
    api.faults.append(lambda _: status(code, reason, f"it is {reason}"))
    async with HttpClient(api.config(), attempts=1) as client:
        with pytest.raises(want, match=f"it is {reason}") as raised:
            await client.get(Thing, "a", "ns")
    assert type(raised.value) is want
    assert (raised.value.code, raised.value.reason) == (code, reason)


async def test_a_page_of_html_from_a_proxy_becomes_a_short_error(api: FakeApi) -> None:
    api.faults.append(lambda _: web.Response(status=502, text="<html>\n  <b>Bad gateway</b>\n</html>"))
    async with HttpClient(api.config(), attempts=1) as client:
        with pytest.raises(errors.Unavailable, match="HTTP 502: <html> <b>Bad gateway</b> </html>"):
            await client.get(Thing, "a", "ns")


def busy() -> web.Response:
    return status(429, "TooManyRequests", headers={"Retry-After": "0"})


def broken() -> web.Response:
    return status(503, "ServiceUnavailable")


def versioned_patch(client: HttpClient):
    return client.patch(Thing, "a", {"metadata": {"resourceVersion": "7"}, "data": {"x": "1"}}, "ns")


@pytest.mark.parametrize(
    ("call", "fault", "requests"),
    [
        pytest.param(lambda c: c.get(Thing, "a", "ns"), busy, 3, id="a read waits for a busy server"),
        pytest.param(lambda c: c.get(Thing, "a", "ns"), broken, 3, id="a read is repeated on 5xx"),
        pytest.param(lambda c: c.patch(Thing, "a", {"data": {}}, "ns"), broken, 3, id="so is a merge patch"),
        pytest.param(lambda c: c.delete(Thing, "a", "ns"), broken, 3, id="a delete is repeated on 5xx"),
        pytest.param(versioned_patch, busy, 3, id="a patch with a version waits for a busy server"),
        pytest.param(versioned_patch, broken, 1, id="a patch with a version is not repeated on 5xx"),
        pytest.param(lambda c: c.patch(Thing, "a", [], "ns"), broken, 1, id="a JSON patch is not repeated on 5xx"),
        pytest.param(
            lambda c: c.create(Thing, {"metadata": {"name": "b", "namespace": "ns"}}),
            busy,
            3,
            id="a create waits for a busy server",
        ),
        pytest.param(
            lambda c: c.create(Thing, {"metadata": {"name": "b", "namespace": "ns"}}),
            broken,
            1,
            id="a create is not repeated on 5xx",
        ),
        pytest.param(lambda c: c.evict("ns", "a"), busy, 1, id="an eviction that a budget forbids is an answer"),
    ],
)
async def test_what_is_sent_again(api: FakeApi, client: HttpClient, call, fault, requests) -> None:
    api.put("a")
    api.faults.append(fail_times(2, fault))
    if requests == 1:
        with pytest.raises((errors.Unavailable, errors.TooManyRequests)):
            await call(client)
    else:
        await call(client)
    assert len(api.requests) == requests


class Scripted:
    """A transport that answers from a script, on virtual time, and remembers when it was asked."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self._answers = list(answers)
        self.asked_at: list[float] = []

    async def send(
        self, method: str, url: URL, body: bytes | None, content: str, leaving: Callable[[], None]
    ) -> Answer:
        leaving()
        self.asked_at.append(round(asyncio.get_running_loop().time(), 6))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(200, answer)

    def url(self, path: str) -> URL:
        return URL(path)


def times_asked(*answers: bytes | Exception, **options: Any) -> list[float]:
    """When each attempt of a get was sent, in virtual seconds; its last answer may be an error."""
    transport = Scripted(*answers)

    async def ask() -> None:
        client = HttpClient(ClusterConfig(server="http://nowhere"), **options)
        client._transport = transport  # type: ignore[assignment]
        with suppress(errors.KubeError):
            await client.get(Thing, "a", "ns")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(ask())
    return transport.asked_at


FOUND = b'{"metadata": {"name": "a"}}'


def test_retry_after_is_honoured() -> None:
    first, second = times_asked(errors.TooManyRequests("busy", retry_after_s=7.0), FOUND)
    assert first == 0.0
    assert 7.0 <= second <= 7.25, "spread over a quarter second, so that clients do not come back as one"


async def test_attempts_are_bounded(api: FakeApi) -> None:
    api.faults.append(lambda _: busy())
    async with HttpClient(api.config(), attempts=3) as client:
        with pytest.raises(errors.TooManyRequests):
            await client.get(Thing, "a", "ns")
    assert len(api.requests) == 3
    assert client.calls == {("get", "things"): 3}


def test_every_attempt_takes_its_turn_where_there_is_a_rate() -> None:
    busy_thrice = [errors.TooManyRequests("busy", retry_after_s=0.0)] * 3
    assert times_asked(*busy_thrice, attempts=3, rate=Rate(per_s=0.5, burst=1)) == [0.0, 2.0, 4.0]


async def test_a_delete_whose_answer_was_lost_succeeds_when_the_object_is_gone(
    api: FakeApi, client: HttpClient
) -> None:
    api.put("a")

    def lose_first_answer(request: web.Request) -> None:
        api.faults.clear()
        api.delete("a")
        assert request.transport is not None
        request.transport.abort()

    api.faults.append(lose_first_answer)
    await client.delete(Thing, "a", "ns")
    with pytest.raises(errors.NotFound):
        await client.delete(Thing, "a", "ns")


async def test_a_create_whose_answer_was_lost_is_not_sent_again(api: FakeApi, client: HttpClient) -> None:
    def hang_up(request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()

    api.faults.append(hang_up)
    with pytest.raises(errors.ConnectionLost) as raised:
        await client.create(Thing, {"metadata": {"name": "a", "namespace": "ns"}})
    assert not isinstance(raised.value, errors.Unreachable)
    assert len(api.requests) == 1


async def test_a_server_that_is_not_there_is_named_in_one_line() -> None:
    async with HttpClient(ClusterConfig(server="http://127.0.0.1:1"), attempts=2) as client:
        with pytest.raises(errors.Unreachable, match=r"^cannot reach http://127.0.0.1:1: Connection refused$"):
            await client.get(Thing, "a", "ns")
    assert client.calls == {("get", "things"): 2}


async def test_a_server_that_does_not_answer_is_given_up(api: FakeApi) -> None:
    api.hangs = True
    async with HttpClient(api.config(), timeout_s=0.1, attempts=1) as client:
        for asked in (client.get(Thing, "a", "ns"), anext(client.watch(Thing, initial_events=True))):
            with pytest.raises(errors.ConnectionLost, match="no answer in time"):
                await asked


async def test_a_refusal_of_a_watch_that_is_never_said_to_the_end_is_given_up(api: FakeApi) -> None:
    async def begin_to_refuse() -> AsyncIterator[bytes]:
        yield b'{"kind": "Status", '
        await asyncio.Event().wait()

    api.faults.append(lambda _: web.Response(status=500, body=begin_to_refuse()))
    async with HttpClient(api.config(), timeout_s=0.1, attempts=1) as client, asyncio.timeout(30):
        with pytest.raises(errors.ConnectionLost, match="no answer in time"):
            await anext(client.watch(Thing, initial_events=True))


async def test_a_watch_that_falls_silent_is_given_up(
    api: FakeApi, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grove.kube.http.WATCH_GRACE_S", 0.0)
    api.put("a")
    events = client.watch(Thing, initial_events=True, timeout_s=1.0)
    assert [(await anext(events)).type, (await anext(events)).type] == ["ADDED", "BOOKMARK"]
    with pytest.raises(errors.ConnectionLost, match="no answer in time"):
        await anext(events)


def test_every_word_of_a_stream_gives_it_the_whole_time_again() -> None:
    class Content:
        error: BaseException | None = None

        def set_exception(self, error: BaseException) -> None:
            self.error = error

    content: Any = Content()

    async def speak_at_9_and_18() -> list[bool]:
        ended = []
        with Silence(content, 10.0) as silence:
            for pause_s in (9.0, 9.0, 9.5, 1.0):
                await asyncio.sleep(pause_s)
                ended.append(isinstance(content.error, TimeoutError))
                if pause_s == 9.0:
                    silence.broken()
        return ended

    assert run_virtual(speak_at_9_and_18()) == [False, False, False, True]


async def test_writes_in_flight_are_bounded(api: FakeApi) -> None:
    now, most = 0, 0

    class Slow(FakeApi):
        async def serve(self, request: web.Request) -> web.StreamResponse:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            await asyncio.sleep(0.01)
            now -= 1
            return await super().serve(request)

    async with serving(Slow()) as slow, HttpClient(slow.config(), max_writes=3) as client:
        obj = {"metadata": {"name": "a", "namespace": "ns"}}
        await asyncio.gather(*(client.create(Thing, obj) for _ in range(12)))
        assert most == 3
        slow.put("a")
        await asyncio.gather(*(client.get(Thing, "a", "ns") for _ in range(12)))
        assert most > 3


async def test_no_write_leaves_once_the_guard_says_no(api: FakeApi) -> None:
    may = True
    api.put("a")
    async with HttpClient(api.config(), write_guard=lambda: may) as client:
        await client.patch(Thing, "a", {"data": {}}, "ns")
        may = False
        for write in (
            client.patch(Thing, "a", {"data": {}}, "ns"),
            client.create(Thing, {"metadata": {"name": "b", "namespace": "ns"}}),
            client.delete(Thing, "a", "ns"),
            client.bind("ns", "p", "n"),
            client.evict("ns", "p"),
        ):
            with pytest.raises(errors.NotLeader):
                await write
        await client.get(Thing, "a", "ns")
    assert [r.method for r in api.requests] == ["PATCH", "GET"]


async def test_a_write_that_waits_for_a_retry_is_held_back_too(api: FakeApi) -> None:
    answers = iter([True, False])
    api.faults.append(lambda _: busy())
    async with HttpClient(api.config(), write_guard=lambda: next(answers)) as client:
        with pytest.raises(errors.NotLeader):
            await client.patch(Thing, "a", {"data": {}}, "ns")
    assert len(api.requests) == 1


class SlowCredentials(CredentialSource):
    """A plugin that takes its time; what happens meanwhile is `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    async def current(self) -> Credential:
        await asyncio.sleep(0)
        self._meanwhile()
        return Credential("t")


class Waiting(Rate):
    """A turn that comes; what happens meanwhile is `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(per_s=1.0, burst=1)
        self._meanwhile = meanwhile

    async def turn(self) -> None:
        self._meanwhile()


@pytest.mark.parametrize("waits_for", ["its turn", "a credential", "a connection"])
async def test_a_write_is_held_back_when_the_lease_is_lost_while_it_waits(
    api: FakeApi, waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = True

    def lose() -> None:
        nonlocal leads
        leads = False

    def connect(address: Any) -> Any:
        lose()
        return made(address)

    made = transport._socket
    if waits_for == "a connection":
        monkeypatch.setattr(transport, "_socket", connect)
    config = api.config(SlowCredentials(lose) if waits_for == "a credential" else None)
    rate = Waiting(lose) if waits_for == "its turn" else None
    async with HttpClient(config, rate=rate, write_guard=lambda: leads) as client:
        with pytest.raises(errors.NotLeader):
            await client.patch(Thing, "a", {"data": {}}, "ns")
        assert client.calls == {}
    assert api.requests == []


async def test_a_rotated_token_is_read_again_after_a_401(api: FakeApi, tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.token = "old"
    api.put("a")
    async with HttpClient(api.config(TokenFile(file))) as client:
        await client.get(Thing, "a", "ns")
        api.token = "new"
        file.write_text("new\n")
        await client.get(Thing, "a", "ns")
        assert len(api.requests) == 3
        api.token = "newer"  # this time the file stays behind: no use in asking again
        with pytest.raises(errors.Unauthorized):
            await client.get(Thing, "a", "ns")
        assert len(api.requests) == 4


async def test_requests_that_were_on_their_way_when_a_token_was_rotated_are_sent_with_the_new_one(
    api: FakeApi, tmp_path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.token = "old"
    api.put("a")
    async with HttpClient(api.config(TokenFile(file))) as client:
        await client.get(Thing, "a", "ns")
        api.token = "new"
        file.write_text("new\n")
        found = await asyncio.gather(*(client.get(Thing, "a", "ns") for _ in range(5)), return_exceptions=True)
        assert [one for one in found if isinstance(one, Exception)] == []
        assert len(api.requests) == 11


async def test_clients_of_one_process_share_a_rotated_token(api: FakeApi, tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.token = "old"
    api.put("a")
    source = TokenFile(file)
    async with HttpClient(api.config(source)) as one, HttpClient(api.config(source)) as other:
        for client in (one, other):
            await client.get(Thing, "a", "ns")
        api.token = "new"
        file.write_text("new\n")
        await asyncio.gather(one.get(Thing, "a", "ns"), other.get(Thing, "a", "ns"))


async def test_a_new_credential_is_not_thrown_away_for_what_was_said_of_the_last(api: FakeApi) -> None:
    class Asked:
        """A plugin: each answer is another, and is good until it is rejected."""

        def __init__(self) -> None:
            self.held, self.asked = Credential("old"), 0

        async def current(self) -> Credential:
            return self.held

        def reject(self) -> bool:
            self.asked += 1
            self.held = Credential("new")
            return True

    api.put("a")
    source = Asked()
    async with HttpClient(api.config(source)) as client:
        api.token = "new"
        await asyncio.gather(*(client.get(Thing, "a", "ns") for _ in range(5)))
    assert source.asked == 1


async def test_a_watch_begins_again_with_a_rotated_token(api: FakeApi, tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.put("a")
    async with HttpClient(api.config(TokenFile(file))) as client:
        await client.get(Thing, "a", "ns")
        api.token = "new"
        file.write_text("new\n")
        async with aclosing(client.watch(Thing, initial_events=True)) as events:
            first = await anext(events)
        assert first.object is not None
        assert client.calls["watch", "things"] == 2


async def test_no_cookie_no_gzip_and_who_we_are(api: FakeApi) -> None:
    api.put("a")
    config = ClusterConfig(server=api.url, credentials=Fixed(Credential("t")), impersonate="jane")
    async with HttpClient(config, user_agent="grove-test/1") as client:
        await client.get(Thing, "a", "ns")
    headers = api.requests[0].headers
    assert headers["User-Agent"] == "grove-test/1"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Authorization"] == "Bearer t"
    assert headers["Impersonate-User"] == "jane"
    assert "Cookie" not in headers


async def test_serves_asks_discovery_each_time(api: FakeApi, client: HttpClient) -> None:
    served: list[dict[str, str]] = []
    api.faults.append(lambda _: web.json_response({"resources": served}) if served else status(404, "NotFound"))
    assert not await client.serves(Thing)
    served.append({"name": "others", "kind": "Other"})
    assert not await client.serves(Thing)
    served.append({"name": "things", "kind": "Thing"})
    assert await client.serves(Resource("test.grove.io", "v1", "Thing", "things"))
    assert await client.serves(Thing)
    served.clear()
    assert not await client.serves(Thing), "it was uninstalled"
    assert api.requests[0].path == "/apis/test.grove.io/v1"


async def test_an_object_that_does_not_decode_is_left_out_of_a_list(api: FakeApi, client: HttpClient) -> None:
    api.put("a")
    api.put("b")["data"] = {"x": 7}
    api.put("c")
    page = await client.list(Thing)
    assert [t.metadata.name for t in page.items] == ["a", "c"]


async def test_a_write_that_is_still_on_its_way_when_its_client_ends_does_not_arrive_later() -> None:
    """A leader that was cut off ends; its kernel must not go on sending what it wrote when the network comes back."""
    held: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda reader, writer: held.put_nowait((reader, writer)), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(ClusterConfig(f"http://127.0.0.1:{port}", Fixed(Credential())), attempts=1)
    writing = asyncio.create_task(client.create(Thing, {"metadata": {"name": "a", "namespace": "ns"}}))
    reader, writer = await held.get()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await client.close()
    with pytest.raises(ConnectionResetError):
        await reader.read()  # to the end, which is not one
    writer.close()
    server.close()
