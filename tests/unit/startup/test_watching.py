"""What the init container sees of its parents through pages, watches that end and versions that expire."""

from __future__ import annotations

import io
import json
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from grove.local.pki import Authority
from grove.startup.pods import PAGE, CannotStart, PodWatch

Json = dict[str, Any]


def pod_of_version(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def page(version: int, *pods: Json, more: str = "") -> tuple[int, list[Json]]:
    return 200, [{"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(pods)}]


def watch(*events: tuple[str, Json]) -> tuple[int, list[Json]]:
    """Events, and then the server ends the watch."""
    return 200, [{"type": kind, "object": obj} for kind, obj in events]


SILENT = (200, [])
"""A watch that begins and then says nothing, until its reader goes away."""


@contextmanager
def api_server(answers: list[tuple[int, list[Json]]], folder: Path) -> Iterator[tuple[int, list[Json]]]:
    """Gives the answers one after the other; its port, and the queries that came."""
    queries: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            queries.append({key: value for key, [value] in parse_qs(urlsplit(self.path).query).items()})
            status, lines = answers[len(queries) - 1]
            self.send_response(status)
            self.end_headers()
            if answers[len(queries) - 1] is SILENT:
                self.connection.recv(1)
            self.wfile.write("".join(json.dumps(line) + "\n" for line in lines).encode())

        def log_message(self, format: str, *args: object) -> None: ...

    authority = Authority("test")
    certificate, key = authority.server("server").write(folder, "server")
    (folder / "ca.crt").write_bytes(authority.pair.certificate)
    (folder / "token").write_text("secret\n")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, queries
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Started = Callable[..., tuple[list[str], list[Json], list[str]]]


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    def see(*answers: tuple[int, list[Json]], until: str) -> tuple[list[str], list[Json], list[str]]:
        """Events up to the one that is waited for, the queries, and what was said."""
        told: list[str] = []
        said: list[str] = []
        with api_server([*answers, page(99, pod_of_version("end", 99))], tmp_path) as (port, queries):
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
            monkeypatch.setattr("grove.startup.pods.time.sleep", lambda _s: None)
            for kind, one in PodWatch("ns", "a=b", say=said.append, account=tmp_path).events():
                told.append(f"{kind} {one['metadata']['name']}" if one else kind)
                if told[-1] == until:
                    return told, queries, said
        raise AssertionError(told)

    return see


def test_a_long_list_is_read_page_by_page(seen: Started) -> None:
    told, queries, _ = seen(
        page(5, pod_of_version("a", 1), more="next"), page(5, pod_of_version("b", 2)), watch(), until="LISTED"
    )
    assert told == ["LIST", "ADDED a", "ADDED b", "LISTED"]
    assert [query.get("continue") for query in queries] == [None, "next"]


def large_pod(name: str, kb: int) -> Json:
    """A pod with that much in its spec, in many small pieces, as environments are."""
    env = [
        {"name": f"VARIABLE_{i}", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{i}']"}}}
        for i in range(kb * 11)
    ]
    return {**pod_of_version(name, 1), "spec": {"containers": [{"env": env}]}}


def test_pages_of_large_pods_fit_into_the_memory_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB, of which Python takes 21 MB: what a gang asks for by the environment of its pods must not kill it."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    watching, asked = PodWatch("ns", "a=b", say=print, account=tmp_path), 0
    items = [large_pod(f"p{i}", 60) for i in range(PAGE)]
    body = json.dumps({"metadata": {"resourceVersion": "5", "continue": "next"}, "items": items}).encode()
    del items

    def answer(query: Json, **_: Any) -> io.BytesIO:
        nonlocal asked
        asked += 1
        if asked > 4:
            raise CannotStart("that was enough")
        return io.BytesIO(body)

    monkeypatch.setattr(watching, "_get", answer)
    tracemalloc.start()
    try:
        with pytest.raises(CannotStart, match="enough"):
            for _ in watching.events():
                pass
        peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert len(body) / 1e6 + peak_mb < 30


def test_a_watch_that_ended_goes_on_where_it_was(seen: Started) -> None:
    told, queries, said = seen(
        page(5),
        watch(("BOOKMARK", pod_of_version("", 7))),
        watch(("DELETED", pod_of_version("a", 8))),
        until="DELETED a",
    )
    assert told == ["LIST", "LISTED", "QUIET", "DELETED a"]
    assert [query.get("resourceVersion") for query in queries] == [None, "5", "7"]
    assert said == []


def test_a_quiet_watch_is_begun_again_without_a_word(seen: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a new connection shows whether a silent server is lost."""
    monkeypatch.setattr("grove.startup.pods.SILENCE_S", 0.2)
    told, queries, said = seen(page(5), SILENT, SILENT, watch(("ADDED", pod_of_version("a", 6))), until="ADDED a")
    assert told == ["LIST", "LISTED", "QUIET", "QUIET", "ADDED a"]
    assert [query.get("resourceVersion") for query in queries] == [None, "5", "5", "5"]
    assert said == []


@pytest.mark.parametrize("step", ["list", "watch"])
def test_a_server_that_does_not_pick_up_is_left_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr("grove.startup.pods.CONNECT_S", 0.2, raising=False)
    (tmp_path / "ca.crt").write_bytes(Authority("test").pair.certificate)
    (tmp_path / "token").write_text("secret\n")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(mute.getsockname()[1]))
        watching = PodWatch("ns", "a=b", say=print, account=tmp_path)
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            next(iter(watching._pages() if step == "list" else watching._watch("5")))
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    "expired",
    [
        pytest.param(watch(("ERROR", {"code": 410})), id="told in the watch"),
        pytest.param((410, []), id="told at its beginning"),
    ],
)
def test_a_version_that_expired_means_a_list(seen: Started, expired: tuple[int, list[Json]]) -> None:
    told, _, said = seen(page(5, pod_of_version("a", 1)), expired, page(9, pod_of_version("b", 2)), until="ADDED b")
    assert told == ["LIST", "ADDED a", "LISTED", "LIST", "ADDED b"]
    assert said == []


def test_any_other_refusal_is_reported_and_waited_out(seen: Started) -> None:
    refused = watch(("ERROR", {"code": 500, "message": "etcd is away"}))
    told, _, said = seen(page(5), refused, watch(("ADDED", pod_of_version("a", 6))), until="ADDED a")
    assert told == ["LIST", "LISTED", "ADDED a"]
    [line] = said
    assert line.startswith("cannot watch pods yet: the API server answered 500: etcd is away; trying again in 0.2 s")


def test_outside_a_pod_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CannotStart, match="inside a pod only"):
        PodWatch("ns", "a=b", say=print)


def test_a_cluster_authority_that_is_not_strict_is_trusted(seen: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 checks certificates strictly; those of many private authorities do not pass."""
    made: list[ssl.SSLContext] = []
    default = ssl.create_default_context

    def strict(**options: str) -> ssl.SSLContext:
        context = default(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        made.append(context)
        return context

    monkeypatch.setattr("grove.startup.pods.ssl.create_default_context", strict)
    seen(page(5, pod_of_version("a", 1)), watch(), until="LISTED")
    assert [bool(one.verify_flags & ssl.VERIFY_X509_STRICT) for one in made] == [False]
