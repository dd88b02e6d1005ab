"""Logs and exec by role: who is meant, whose line it is, and what kubectl is asked to do."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from rich.console import Console

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.access import Options
from grove.cli.log_stream import failure_lines, labels_of, say
from grove.cli.logs import exec_, exec_argv
from grove.cli.main import run
from grove.diagnosis.roles import NoSuchRole, players
from grove.diagnosis.seen import Seen
from grove.kube.config import load_config
from grove.kube.http import HttpClient

TEMPLATE = {
    "cliques": [
        {"name": "front", "spec": {"replicas": 1}},
        {"name": "leader", "spec": {"replicas": 1}},
        {"name": "worker", "spec": {"replicas": 2}},
    ],
    "podCliqueScalingGroups": [{"name": "decode", "cliqueNames": ["leader", "worker"]}],
}
PCS = msgspec.convert({"metadata": {"name": "chat", "namespace": "ns"}, "spec": {"template": TEMPLATE}}, PodCliqueSet)


def seen() -> Seen:
    cliques, pods = [], []

    def add(name: str, count: int, **own: str) -> None:
        mine = {labels.PART_OF: "chat", labels.REPLICA_INDEX: "0", **own}
        cliques.append(msgspec.convert({"metadata": {"name": name, "namespace": "ns", "labels": mine}}, PodClique))
        for index in range(count):
            of = {labels.POD_CLIQUE: name, labels.POD_INDEX: str(index), labels.PART_OF: "chat"}
            meta = {"name": f"{name}-{index}x", "namespace": "ns", "labels": of}
            pods.append(msgspec.convert({"metadata": meta, "spec": {"containers": [{"name": "c"}]}}, Pod))

    add("chat-0-front", 1)
    for copy in ("0", "1"):
        group = {labels.SCALING_GROUP: "chat-0-decode", labels.SCALING_GROUP_REPLICA_INDEX: copy}
        add(f"chat-0-decode-{copy}-leader", 1, **group)
        add(f"chat-0-decode-{copy}-worker", 2, **group)
    return Seen(sets=[PCS], cliques=cliques, pods=pods)


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(("front",), ["front-0"], id="a clique"),
        pytest.param(("decode", 1), ["decode/1/leader-0", "decode/1/worker-0", "decode/1/worker-1"], id="one replica"),
        pytest.param(("decode", None, "leader"), ["decode/0/leader-0", "decode/1/leader-0"], id="a clique of all"),
        pytest.param(("decode", 0, "worker"), ["decode/0/worker-0", "decode/0/worker-1"], id="a clique of one replica"),
        pytest.param(("worker", 1), ["decode/0/worker-1", "decode/1/worker-1"], id="one pod of a clique, by index"),
    ],
)
def test_a_role_means_these_pods(asked: tuple[Any, ...], want: list[str]) -> None:
    assert labels_of(players(seen(), PCS, *asked)) == want
    assert len(players(seen(), PCS)) == 7


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("nobody",), "chat has no group or clique nobody; it has decode, front, leader, worker"),
        (("decode", 7), "no pod of chat is there for that"),
        (("decode", None, "nobody"), "chat has no clique nobody; it has front, leader, worker"),
    ],
)
def test_a_role_that_does_not_exist_is_reported_with_those_there_are(asked: tuple[Any, ...], words: str) -> None:
    with pytest.raises(NoSuchRole, match=words):
        players(seen(), PCS, *asked)


def test_a_line_says_whose_it_is_and_is_never_cut() -> None:
    out = io.StringIO()
    console = Console(file=out, width=20, force_terminal=True, color_system="standard")
    say(console, "decode/0/leader-0", "x" * 200, "cyan")
    assert "x" * 200 in out.getvalue()
    assert "\x1b[36mdecode/0/leader-0 │" in out.getvalue()


def test_exec_asks_kubectl_for_the_pod_with_your_flags() -> None:
    [leader] = players(seen(), PCS, "decode", 0, "leader")
    argv = exec_argv(
        Options(Path("kc"), "there", impersonate="me"), leader, ["ls", "-v"], with_stdin=True, tty=True, container="c"
    )
    assert argv == [
        "kubectl",
        "--kubeconfig=kc",
        "--context=there",
        "--as=me",
        "exec",
        "-n",
        "ns",
        "chat-0-decode-0-leader-0x",
        "-c",
        "c",
        "-i",
        "-t",
        "--",
        "ls",
        "-v",
    ]


def test_exec_without_a_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(exec_, ["chat/front"])
    assert "give a command after --" in capsys.readouterr().err


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    async def log(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in (b"one\ntw", b"o ", json.dumps(dict(request.query)).encode(), b"\nlast"):
            await answer.write(part)
        return answer

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/p/log", log)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    yield path
    await runner.cleanup()


async def test_lines_come_whole_however_they_arrive(server: Path) -> None:
    async with HttpClient(load_config(server, "")) as client:
        lines = [line async for line in client.log_lines("ns", "p", {"tailLines": "5"})]
    assert lines == ["one", 'two {"tailLines": "5"}', "last"]


def test_pods_without_a_log_for_the_same_reason_are_one_line() -> None:
    failed = {"no preferred addresses found; known addresses: []": ["a", "b", "c"], "container c is waiting": ["d"]}
    assert list(failure_lines(failed)) == [
        "a and 2 other pods: no preferred addresses found; known addresses: []; its node has no kubelet that could be "
        "asked, as fake nodes have none",
        "d: container c is waiting",
    ]
