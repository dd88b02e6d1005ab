"""What goes wrong with engines, as `kubectl grove tree` and `explain` show it: a container's message, what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.seeing import Page, Seen, Terminal, eventually, pods_of, served
from tests.support.manifests import clique, pcs

SEEN_S = 240.0


def engine(*arguments: str, **fields: Any) -> Json:
    """Fields of a pod spec: the tests' server with these arguments; an error that it ends with becomes its message."""
    spec = served()
    container = spec["containers"][0]
    container |= {"args": list(arguments), "terminationMessagePolicy": "FallbackToLogsOnError"}
    container["env"] = [{"name": "READY_AFTER", "value": "0s"}]
    container |= fields
    return spec


async def shown(terminal: Terminal, command: str, *words: str) -> str:
    """The output of a command, once all the words are in it."""

    async def output() -> str:
        _, out, _ = await terminal.run(command)
        return " ".join(out.replace("\u2502", " ").split())

    return await _until_said(output, words)


async def on_page(page: Page, *words: str) -> str:
    """The console's answer to `why`, once all the words are in it."""
    return await _until_said(lambda: page.ask("why", "web"), words)


async def _until_said(look: Callable[[], Awaitable[str]], words: Sequence[str]) -> str:
    last = ""

    async def says() -> bool:
        nonlocal last
        last = await look()
        return all(word in last for word in words)

    try:
        await eventually(says, SEEN_S)
    except AssertionError:
        raise AssertionError(f"{words} not said within {SEEN_S:.0f} s, but\n{last}") from None
    return last


WRONG_PORT = {"httpGet": {"path": "/ready", "port": 9999}, "periodSeconds": 1, "failureThreshold": 1}


@pytest.mark.parametrize(
    ("spec", "tree", "explain"),
    [
        pytest.param(
            engine("fail", "cannot open /models/tiny.gguf"),
            ("exit code 1", "cannot open /models/tiny.gguf", "next: kubectl logs", "--previous"),
            ("broken", "cannot open /models/tiny.gguf", "--previous"),
            id="the model file is missing",
        ),
        pytest.param(
            engine(image="nowhere.invalid/engine:1", imagePullPolicy="IfNotPresent"),
            ("image nowhere.invalid/engine:1", "next: check the registry"),
            ("broken", "image nowhere.invalid/engine:1", "check the registry"),
            id="the image is not there",
        ),
        pytest.param(
            engine(readinessProbe=WRONG_PORT),
            ("starting", "readiness probe on port 9999 refused", "next: kubectl logs"),
            ("readiness probe on port 9999 refused", "does the server listen on port 9999?"),
            id="the probe has a wrong port",
        ),
    ],
)
async def test_a_fault_of_one_container_is_shown_with_its_own_message(
    nodes: RealCluster,
    client: HttpClient,
    namespace: str,
    terminal: Terminal,
    page: Page,
    spec: Json,
    tree: tuple[str, ...],
    explain: tuple[str, ...],
) -> None:
    await client.create(PodCliqueSet, pcs("web", clique("engine", 1, **spec), namespace=namespace))
    await shown(terminal, "tree web", *tree)
    print("\n" + await shown(terminal, "explain web", *explain))
    await on_page(page, *explain)


async def test_a_worker_that_never_becomes_ready_is_named_by_who_waits_for_it(
    nodes: RealCluster, client: HttpClient, namespace: str, terminal: Terminal, page: Page
) -> None:
    parts = [clique("worker", 1, **engine(env=[])), clique("leader", 1, starts_after=["worker"], **engine())]
    await client.create(PodCliqueSet, pcs("web", *parts, namespace=namespace, startup="CliqueStartupTypeExplicit"))
    await shown(terminal, "tree web", "waits for web-0-worker 0/1", "next: look at web-0-worker first")
    await shown(terminal, "explain web", "web-0-leader starts after web-0-worker", "look at web-0-worker first")
    await on_page(page, "web-0-leader starts after web-0-worker", "look at web-0-worker first")


async def test_an_engine_that_needs_a_name_says_so_while_dns_is_down_and_comes_up_afterwards(
    nodes: RealCluster, client: HttpClient, namespace: str, terminal: Terminal, page: Page
) -> None:
    name = "kubernetes.default.svc.cluster.local"  # not its own name: the kubelet writes that into /etc/hosts
    nodes.hold("coredns")
    try:
        await client.create(PodCliqueSet, pcs("web", clique("engine", 1, **engine("need", name)), namespace=namespace))
        await shown(terminal, "tree web", "exit code 1", "lookup kubernetes", "next: kubectl logs", "--previous")
        await shown(terminal, "explain web", "broken", f"lookup {name}", "--previous")
        await on_page(page, f"lookup {name}", "--previous")
    finally:
        nodes.unhold("coredns")

    async def ready() -> list[Seen]:
        return [one for one in await pods_of(client, namespace, "web-0-engine") if one.is_ready]

    (pod,) = await eventually(ready, SEEN_S)
    restarts = pod.pod["status"]["containerStatuses"][0]["restartCount"]
    assert restarts > 0, "it failed while names were not resolved"
