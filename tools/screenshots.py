"""Takes the pictures of the console for README and docs: `python tools/screenshots.py`, part of `make docs`.

Needs Chromium and playwright (requirements/browser.txt). The pages are the real ones, on the simulated cluster. One is
the guided tour where a gang does not fit, the others are a fleet that five teams share.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import yaml  # noqa: E402
from aiohttp import web  # noqa: E402
from playwright.async_api import Browser, Page, async_playwright  # noqa: E402

from grove.api.core import Node  # noqa: E402
from grove.console.questions import questions  # noqa: E402
from grove.console.server import Console  # noqa: E402
from grove.console.tour import Tour  # noqa: E402
from grove.console.viewers import Owner  # noqa: E402
from grove.demo.scenario import Scenario, load_scenario, read_scenario  # noqa: E402
from grove.kube.logs import configure_logs  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
DEMO = ROOT / "src" / "grove" / "demo"
WIDTH, HEIGHT = 1280, 800
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def chat(name: str, prefill: int) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((DEMO / "chat.yaml").read_text())
    manifest["metadata"]["name"] = name
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["replicas"] = prefill
    return manifest


def trainer(name: str, pods: int, gpus: int = 8, *, sets: int = 1) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((DEMO / "wide.yaml").read_text())
    manifest["metadata"]["name"] = name
    manifest["spec"]["replicas"] = sets
    spec = manifest["spec"]["template"]["cliques"][0]["spec"]
    spec["replicas"] = spec["minAvailable"] = pods
    spec["podSpec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = gpus
    return manifest


def busy() -> Scenario:
    """Five teams on 64 nodes: most of it is taken, one node is silent, one cordoned, and a gang waits for a rack."""
    systems = [
        chat("chat", 5),
        chat("code", 3),
        chat("search", 1),
        trainer("tune", 3, sets=3),
        trainer("eval", 2, 6, sets=6),
    ]
    steps: list[Any] = []
    for system in systems:
        steps += [{"apply": system}, {"wait": system["metadata"]["name"]}]
    steps += [
        {"cordon": "z1-b1-r3-n1"},
        {"failNode": "z1-b1-r3-n0"},
        {"apply": trainer("train", 4, sets=2)},
        {"after": "400s"},
    ]
    steps += [{"update": {"set": "code", "image": "example/engine:2"}}, {"after": "6s"}]
    return read_scenario({"cluster": {"nodes": 64}, "steps": steps}, lambda name: {})


@asynccontextmanager
async def showing(tour: Tour, browser: Browser, theme: str) -> AsyncIterator[Page]:
    """The page of a tour; its time stands still after the story."""
    owner = Owner(tour, "tour")
    runner = web.AppRunner(Console(owner, questions(), act=tour.act).application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        context = await browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if theme == "dark" else "light"
        )
        page = await context.new_page()
        await page.goto(f"http://127.0.0.1:{runner.addresses[0][1]}/#link={owner.new_link()}")
        await page.wait_for_selector(".connection.live")
        yield page
    finally:
        await tour.stop()
        await runner.cleanup()


async def tour_over(tour: Tour) -> None:
    async with asyncio.timeout(120):
        while tour.ledger.table("story").get("state") not in ("over", "failed"):
            await tour.ledger.moved(tour.ledger.revision)
    assert tour.ledger.table("story")["state"] == "over", list(tour.ledger.table("notes").values())[-1]
    await tour.act({"verb": "pause"})


async def take(page: Page, name: str, path: str = "", *, height: int = HEIGHT, wait_for: str = "h1") -> None:
    await page.set_viewport_size({"width": WIDTH, "height": height})
    if path:
        await page.evaluate("path => { location.hash = path }", f"#/{path}")
    await page.wait_for_selector(wait_for)
    await page.wait_for_timeout(700)
    await page.screenshot(path=PICTURES / f"console-{name}.png")


async def main() -> None:
    configure_logs("error", "text")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("there is no Chromium on this machine (Debian: apt-get install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        guided = Tour(load_scenario(DEMO / "tour.yaml"), speed=4.0)
        async with showing(guided, browser, "light") as page:
            await page.get_by_text("would make it fit").wait_for()
            await guided.act({"verb": "pause"})
            await take(page, "tour")
            await take(page, "why", "why/default/wide", wait_for=".layers")
        shared = Tour(busy(), speed=20.0)
        async with showing(shared, browser, "dark") as page:
            await tour_over(shared)
            node = "z1-b0-r0-n3"
            status = {"status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}}
            await shared.answer(lambda client, *_: client.patch(Node, node, status, subresource="status"), "", {})
            await take(page, "fleet", "fleet", height=840)
            await take(page, "set", "set/default/code", height=900, wait_for="svg.picture")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
