"""The console's server: which users it admits, what a browser receives, and what a hostile request gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web

from grove.console import server
from grove.console.ledger import Ledger
from grove.console.server import LARGEST_BODY, Console
from grove.console.viewers import Owner, Question, Unanswerable, Watched
from grove.show.past import Past


class Onlooker:
    """A viewer of a ledger that the test writes."""

    def __init__(self) -> None:
        self.ledger, self.past, self.is_everything, self.may = Ledger(), Past(), True, True

    @asynccontextmanager
    async def watching(self, namespace: str) -> AsyncIterator[Watched]:
        yield self

    async def still_may(self, watched: Watched) -> bool:
        return self.may

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        return await question(None, namespace, asked)  # type: ignore[arg-type]


async def echo(client: object, namespace: str, asked: Mapping[str, Any]) -> Any:
    if asked.get("name") == "nobody":
        raise Unanswerable("there is no such set")
    return {"namespace": namespace, "waits_for": asked}


class Page:
    def __init__(self, port: int, http: ClientSession, viewer: Onlooker, owner: Owner) -> None:
        self.url, self.http, self.viewer, self.owner = f"http://127.0.0.1:{port}", http, viewer, owner
        self.session = owner.open(owner.new_link()) or ""

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(self.url + path, headers={"Authorization": f"Bearer {self.session}", **headers})

    def ask(self, question: str, asked: Any, **headers: str) -> Any:
        known = {"Authorization": f"Bearer {self.session}", **headers}
        return self.http.post(f"{self.url}/api/ask/{question}", data=json.dumps(asked), headers=known)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    viewer = Onlooker()
    owner = Owner(viewer, "local")
    app = Console(owner, {"echo": echo}, hosts=["console.example"]).application()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        yield Page(runner.addresses[0][1], http, viewer, owner)
    await runner.cleanup()


async def told(stream: Any) -> tuple[str, int, Any]:
    """The next event of a stream: its kind, its id, its data."""
    event: dict[str, str] = {}
    while True:
        line = (await stream.content.readline()).decode().rstrip("\n")
        if not line and "data" in event:
            return event["event"], int(event.get("id", -1)), json.loads(event["data"])
        name, _, value = line.partition(": ")
        event[name] = value


async def test_the_page_may_load_nothing_from_elsewhere_and_be_framed_by_no_page(page: Page) -> None:
    async with page.get("/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = await answer.text()
    assert "http://" not in text
    assert "https://" not in text
    assert "<script>" not in text
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({}, 200, id="its own page"),
        pytest.param({"Host": "console.example"}, 200, id="by a name it was given"),
        pytest.param({"Host": "evil.example"}, 403, id="by a name that a stranger's DNS made up"),
        pytest.param({"Host": "127.0.0.1.evil.example"}, 403, id="by a name that only begins well"),
        pytest.param({"Origin": "http://evil.example"}, 403, id="from another site"),
        pytest.param({"Origin": "null"}, 403, id="from a sandboxed frame"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="as the browser says, from another site"),
        pytest.param({"Authorization": "Bearer made-up"}, 401, id="with a made-up session"),
        pytest.param({"Authorization": ""}, 401, id="with none"),
    ],
)
async def test_a_question_is_answered_to(page: Page, headers: dict[str, str], want: int) -> None:
    async with page.ask("echo", {"namespace": "a"}, **headers) as answer:
        assert answer.status == want
        assert answer.headers["Content-Security-Policy"]


async def test_a_link_opens_one_session_and_a_new_one_is_said(page: Page) -> None:
    said: list[str] = []
    page.owner.said = said.append
    link = page.owner.new_link()

    async def opened(with_link: str) -> int:
        async with page.http.post(page.url + "/api/session", data=json.dumps({"link": with_link})) as answer:
            return int(answer.status)

    assert await opened(link) == 200
    assert await opened(link) == 401
    assert len(said) == 1
    assert await opened(said[0]) == 200


async def test_what_is_asked_is_answered_in_the_spelling_of_kubernetes(page: Page) -> None:
    async with page.ask("echo", {"namespace": "a", "name": "<img src=x onerror=alert(1)>"}) as answer:
        assert answer.content_type == "application/json"
        assert await answer.json() == {"namespace": "a", "waitsFor": {"name": "<img src=x onerror=alert(1)>"}}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param("", 400, id="nothing"),
        pytest.param("[1]", 400, id="a list"),
        pytest.param("{" * 5000, 400, id="a deep hole"),
        pytest.param('{"namespace": 3}', 400, id="a number for a namespace"),
        pytest.param('{"namespace": "a", "name": "nobody"}', 422, id="a question without an answer"),
        pytest.param('{"x": "' + "x" * (LARGEST_BODY + 10) + '"}', 413, id="more than a mebibyte"),
    ],
)
async def test_a_body_that_is_no_question(page: Page, body: str, want: int) -> None:
    headers = {"Authorization": f"Bearer {page.session}"}
    async with page.http.post(page.url + "/api/ask/echo", data=body, headers=headers) as answer:
        assert answer.status == want
        assert (await answer.json())["error"]


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/nothing.js", "/api/ask/it"]
)
async def test_there_is_nothing_else_to_be_had(page: Page, path: str) -> None:
    async with page.get(path) as answer:
        assert answer.status in (404, 405)


async def test_a_stream_tells_everything_first_and_then_what_changes(page: Page) -> None:
    page.viewer.ledger.record({"nodes": {"a": [1]}}, {})
    async with page.get("/api/stream") as stream:
        assert await told(stream) == ("whole", 1, {"put": {"nodes": {"a": [1]}}, "gone": {}, "behind": False})
        page.viewer.ledger.record({"nodes": {"b": [2]}}, {"nodes": ["a"]})
        assert await told(stream) == (
            "change",
            2,
            {"put": {"nodes": {"b": [2]}}, "gone": {"nodes": ["a"]}, "behind": False},
        )


async def test_who_comes_back_gets_what_was_missed_and_who_is_too_late_is_reported(page: Page) -> None:
    for number in range(3):
        page.viewer.ledger.record({"nodes": {"a": number}}, {})
    async with page.get("/api/stream", **{"Last-Event-ID": "2"}) as stream:
        assert await told(stream) == ("change", 3, {"put": {"nodes": {"a": 2}}, "gone": {}, "behind": False})
    async with page.get("/api/stream", **{"Last-Event-ID": "99"}) as stream:
        kind, _, data = await told(stream)
        assert (kind, data["behind"]) == ("whole", True)


async def test_a_slow_viewer_gets_changes_merged_and_costs_no_queue(page: Page) -> None:
    """Nothing is read for a while: what was written meanwhile arrives as a few changes, not as thousands."""
    ledger = page.viewer.ledger
    ledger.record({"nodes": {"a": ""}}, {})
    async with page.get("/api/stream") as stream:
        await told(stream)
        for number in range(3000):
            ledger.record({"nodes": {"a": f"{number} " + "x" * 4000}}, {})
            if number % 100 == 0:
                await asyncio.sleep(0)
        events = 0
        while True:
            _, revision, _ = await told(stream)
            events += 1
            if revision == ledger.revision:
                break
    assert events < 1500


async def test_a_viewer_whose_rights_were_taken_is_shown_no_more(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RIGHTS_S", 0.0)
    page.viewer.ledger.record({"nodes": {"a": 1}}, {})
    async with page.get("/api/stream") as stream:
        await told(stream)
        page.viewer.may = False
        page.viewer.ledger.record({"nodes": {"secret": 1}}, {})
        kind, _, data = await told(stream)
        assert (kind, "secret" in json.dumps(data)) == ("ended", False)
        assert await stream.content.read() == b""


async def test_a_console_on_a_cluster_changes_nothing(page: Page) -> None:
    headers = {"Authorization": f"Bearer {page.session}"}
    async with page.http.post(page.url + "/api/act", data='{"verb": "failNode"}', headers=headers) as answer:
        assert answer.status == 404


async def test_the_past_of_a_figure_has_its_points_and_how_to_show_them(page: Page) -> None:
    page.viewer.past.record("a/chat", {"ready": 2}, 100.0)
    page.viewer.past.record("a/chat", {"ready": 3}, 130.0)
    async with page.get("/api/series?key=a/chat") as answer:
        found = await answer.json()
    want = {"name": "ready", "title": "pods ready", "unit": "", "counts": False, "points": [[100.0, 2], [130.0, 3]]}
    assert found["figures"] == [want]


@pytest.mark.parametrize("last", ["0", "-1", "a", "99999999"])
async def test_a_time_that_makes_no_sense_is_refused(page: Page, last: str) -> None:
    async with page.get(f"/api/series?last={last}") as answer:
        assert answer.status == 400


async def test_the_past_is_for_those_who_signed_in(page: Page) -> None:
    async with page.http.get(f"{page.url}/api/series") as answer:
        assert answer.status == 401
