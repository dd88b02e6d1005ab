"""The console in a real browser, in front of a real API server where operator and scheduler are at work."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.browser.conftest import Opened, Tab, serving
from tests.support.asking import World, asking, server

from grove.api.core import Namespace, Node
from grove.api.podcliqueset import PodCliqueSet
from grove.console.questions import questions
from grove.console.server import Console
from grove.console.viewers import ClusterViewer, Followings, Owner, TokenViewers
from grove.kube.config import load_config
from grove.kube.credentials import Credential, Fixed

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.soak


@pytest.fixture
async def world(cluster: Any, real_plane: Any) -> AsyncIterator[World]:
    """`chat` runs, `wide` fits nowhere; on a real API server."""
    if real_plane is None:
        pytest.skip("these tests are about a real API server; the tour's are in test_pages.py")
    async with asking(cluster) as found:
        await found.apply(found.system("chat"))
        await found.available("chat")
        await found.apply(found.system("wide", cliques=[server("worker", 5, 8)]))
        await found.refused("wide-0")
        yield found


@asynccontextmanager
async def console(plane: Any) -> AsyncIterator[tuple[str, Owner]]:
    """The console of a user who may see everything."""
    config = load_config(plane.kubeconfig)
    followings = Followings(config)
    viewer = ClusterViewer(config, followings)
    try:
        async with serving(viewer, "local") as found:
            yield found
    finally:
        await followings.close()
        await viewer.close()


async def printed(plane: Any, world: World, *words: str) -> Any:
    """What a command prints with -o json."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "grove.cli.kubectl",
        *words,
        "-o",
        "json",
        "-n",
        world.namespace,
        "--kubeconfig",
        str(plane.kubeconfig),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return json.loads(out)


async def cells(tab: Tab) -> list[dict[str, str]]:
    """The first table of the page, a row each, by the titles of its columns."""
    code = """() => {
      const table = document.querySelector("main table");
      const titles = [...table.querySelectorAll("th")].map((one) => one.textContent);
      return [...table.querySelectorAll("tbody tr")].map((row) =>
        Object.fromEntries([...row.children].map((cell, index) => [titles[index], cell.textContent])));
    }"""
    found: list[dict[str, str]] = await tab.page.evaluate(code)
    return found


async def test_every_page_shows_what_the_command_line_prints(world: World, real_plane: Any, opened: Opened) -> None:
    async with console(real_plane) as (url, owner):
        tab = await opened(url, owner)
        space = world.namespace

        sets = {one["name"]: one for one in await printed(real_plane, world, "status")}
        await tab.go("sets")
        await tab.page.fill("#search", space)
        await tab.page.locator("tr", has_text="waiting").first.wait_for()
        assert {
            row["Name"]: (row["State"], row["Available"], row["Pods ready"], row["GPUs held"], row["Why"])
            for row in await cells(tab)
        } == {
            name: (
                one["state"],
                f"{one['available']}/{one['replicas']}",
                f"{one['ready']}/{one['pods']}",
                f"{one['held']}/{one['asked']}",
                one["why"],
            )
            for name, one in sets.items()
        }
        assert list(sets) == [row["Name"] for row in await cells(tab)], "the worst is first in both"

        tree = await printed(real_plane, world, "tree", "chat")
        await tab.go(f"set/{space}/chat")
        await tab.page.locator("ul.tree").first.wait_for()
        names = await tab.page.eval_on_selector_all(".tree b", "all => all.map((one) => one.textContent)")
        assert names == [one["name"] for one in walked(tree)]
        rollout = await printed(real_plane, world, "rollout", "status", "chat")
        await tab.page.get_by_text(rollout["sentence"]).wait_for()
        assert [line.split(":")[0].split()[0] for line in rollout["lines"]] == ["revision", "budgets"]
        for line in rollout["lines"]:
            await tab.page.get_by_text(line, exact=True).wait_for()
        assert await tab.page.locator(".piece.new").count() == sum(role["updated"] for role in rollout["roles"])
        await tab.page.locator(".wide-picture svg.picture").wait_for()
        label = await tab.page.get_attribute(".wide-picture svg.picture", "aria-label")
        assert [word for word in ("created", "placed", "ready") if word not in label] == []
        events = await printed(real_plane, world, "events", "chat")
        await tab.page.locator(".events td").first.wait_for()
        assert await tab.page.locator(".events tbody tr").count() == min(100, len(events))

        why = (await printed(real_plane, world, "explain", "wide"))["gangs"][0]
        await tab.go(f"why/{space}/wide")
        await tab.page.locator(".layers .stopped").wait_for()
        said = await tab.text()
        wanted = [why["gang"], why["state"], why["reason"], *why["evidence"], why["next"]]
        wanted += [help_["text"] for help_ in why["advice"]]
        assert [words for words in wanted if words not in said] == []
        assert await tab.page.get_attribute(".layers [aria-current]", "class") == "stopped"

        queue = await printed(real_plane, world, "queue")
        await tab.go("queue")
        await tab.page.get_by_text("wide-0").first.wait_for()
        mine = [row for row in await cells(tab) if row["Namespace"] == space]
        assert [(row["Gang"], row["Waits for"]) for row in mine] == [(one["name"], one["waitsFor"]) for one in queue]

        topology = await printed(real_plane, world, "topology", "--topology-name", space)
        for spot in spots(topology["root"]):
            row = await tab.row("nodes", spot["node"])
            gangs = [[who.removeprefix(f"{space}/"), count] for who, count in row[4]]
            assert (row[1], row[2], row[3], gangs) == (spot["total"], spot["used"], spot["note"], spot["taken"])
        await tab.go(f"gang/{space}/chat-0")
        await tab.page.locator("aside", has_text="24 GPUs on 3 nodes").wait_for()

        await tab.go(f"object/PodCliqueSet/{space}/chat")
        await tab.page.get_by_text("kind: PodCliqueSet").wait_for()

        manifest = json.dumps({"kind": "PodCliqueSet", **world.system("more")})
        await tab.go("plan")
        await tab.page.fill("#plan-namespace", space)
        await tab.page.fill("#manifest", manifest)
        await tab.page.click("text=Try it")
        await tab.page.locator("#result", has_text="more-0").wait_for()
        assert [(row["Gang"], row["Answer"], row["Pods"]) for row in await cells(tab)] == [("more-0", "fits", "3/3")]
        planned = await tab.page.evaluate("[...document.querySelector('canvas').fleet.planned].length")
        assert planned == 3
        kept = await world.client.list(PodCliqueSet, space)
        assert sorted(one.metadata.name for one in kept.items) == ["chat", "wide"], "a plan writes nothing"


def walked(one: Any) -> Any:
    yield one
    for child in one.get("children", ()):
        yield from walked(child)


def spots(domain: Any) -> Any:
    yield from domain.get("spots", ())
    for inner in domain.get("domains", ()):
        yield from spots(inner)


async def test_a_node_that_falls_silent_is_crossed_out_within_a_second(
    world: World, real_plane: Any, opened: Opened
) -> None:
    async with console(real_plane) as (url, owner):
        tab = await opened(url, owner)
        await tab.go("fleet")
        await tab.page.wait_for_selector("canvas[data-frame]")
        node = sorted(world.nodes.names)[-1]
        loop = asyncio.get_running_loop()
        now = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": None}
        await world.client.patch(Node, node, {"status": {"conditions": [now]}}, subresource="status")
        began_s = loop.time()
        while (await tab.row("nodes", node))[3] != "does not answer":
            assert loop.time() - began_s < 30
        print(f"from the API server's word to the page: {loop.time() - began_s:.2f} s")


async def test_a_viewer_of_one_namespace_is_never_sent_a_name_of_another(
    world: World, real_plane: Any, opened: Opened
) -> None:
    other = f"{world.namespace}-other"
    await world.client.create(Namespace, {"metadata": {"name": other}})
    secret = {"metadata": {"name": "secretive", "namespace": other}, "spec": world.system("x")["spec"]}
    await world.client.create(PodCliqueSet, secret)

    def kubectl(*words: str) -> str:
        done = subprocess.run(
            [real_plane.kubectl, "--kubeconfig", real_plane.kubeconfig, "-n", world.namespace, *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    kubectl("create", "serviceaccount", "viewer")
    kinds = "podcliquesets.grove.io,podcliques.grove.io,podcliquescalinggroups.grove.io,podgangs.scheduler.grove.io,"
    kubectl("create", "role", "look", "--verb=get,list,watch", f"--resource={kinds}pods,events")
    kubectl("create", "rolebinding", "look", "--role=look", f"--serviceaccount={world.namespace}:viewer")
    token = kubectl("create", "token", "viewer")
    config = replace(load_config(real_plane.kubeconfig), credentials=Fixed(Credential()))
    followings = Followings(config)
    guests = TokenViewers(config, followings)
    runner = web.AppRunner(Console(guests, questions()).application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        tab = await opened(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
        tab.may_be_refused = True
        bodies: list[str] = []

        async def heard(response: Any) -> None:
            if "/api/" in response.url and "/stream" not in response.url:
                bodies.append(await response.text())

        tab.page.on("response", heard)
        await tab.page.fill("#token", token)
        await tab.page.fill("#where", world.namespace)
        await tab.page.click("button:has-text('Look')")
        await tab.page.wait_for_selector(".connection.live")

        async def all_there_is(*paths: str) -> str:
            said = ""
            for path in paths:
                await tab.go(path)
                await tab.page.wait_for_timeout(800)
                said += await tab.text()
            tables = """() => import("/static/store.js").then((store) => JSON.stringify(
              ["sets", "gangs", "nodes", "fleet", "about"].map((table) => [...store.rows(table)])))"""
            return said + "".join(bodies) + str(await tab.page.evaluate(tables))

        own = (f"set/{world.namespace}/chat", f"why/{world.namespace}/wide")
        said = await all_there_is("sets", "fleet", *own, "queue", "plan")
        assert [name for name in ("chat-0", "wide-0") if name not in said] == []
        assert [name for name in (other, "secretive") if name in said] == []
        said = await all_there_is(f"set/{other}/guess", f"why/{other}/guess", f"object/PodCliqueSet/{other}/guess")
        assert "secretive" not in said
        await tab.page.fill("#namespace", other)
        await tab.page.press("#namespace", "Enter")
        await tab.page.get_by_text("you may not list and watch PodCliqueSets in namespace").wait_for()
        stored = await tab.page.evaluate("JSON.stringify([Object.keys(localStorage), document.cookie, location.href])")
        assert token not in stored
    finally:
        await runner.cleanup()
        await followings.close()
        await guests.close()
        await world.client.delete(Namespace, other)
