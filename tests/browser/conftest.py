"""A real browser in front of the console: Chromium, driven by playwright. Without either, tests say what is missing.

`make test-browser` installs playwright; Chromium is the machine's own (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from grove.console.ledger import Ledger
from grove.console.questions import questions
from grove.console.server import Console
from grove.console.viewers import Owner, Question, Viewer, Watched
from grove.show.past import Past

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    pytest.importorskip("playwright", reason="playwright is not installed: make test-browser installs it")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    return found


class Tab:
    """One tab: what it complained of is part of every test's end."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        self.may_be_refused = False
        """Whether questions that the server refuses are part of the test; a browser complains of each."""
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    async def go(self, path: str) -> None:
        """An address of the page, as if it were clicked."""
        await self.page.evaluate("path => { location.hash = path }", f"#/{path}")
        await self.page.wait_for_selector(f'main[data-page="{path.split("/")[0]}"] h1')

    async def text(self) -> str:
        return str(await self.page.inner_text("main"))

    async def row(self, table: str, key: str) -> Any:
        """A row as the page has it."""
        code = "([table, key]) => import('/static/store.js').then((store) => store.row(table, key) ?? null)"
        return await self.page.evaluate(code, [table, key])


class Painted:
    """A viewer of rows that the test wrote; every question has the same answer."""

    def __init__(self) -> None:
        self.ledger, self.past, self.is_everything = Ledger(), Past(), True
        self.answers: Any = {}

    @asynccontextmanager
    async def watching(self, namespace: str) -> AsyncIterator[Watched]:
        yield self

    async def still_may(self, watched: Watched) -> bool:
        return True

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        return self.answers


Opened = Callable[..., Awaitable[Tab]]


@asynccontextmanager
async def serving(viewer: Viewer, mode: str, act: Any = None) -> AsyncIterator[tuple[str, Owner]]:
    """The console for one viewer, on a port of its own."""
    owner = Owner(viewer, mode)
    runner = web.AppRunner(Console(owner, questions(), act=act).application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", owner
    finally:
        await runner.cleanup()


@pytest.fixture
async def opened(chromium: str) -> AsyncIterator[Opened]:
    """Opens a console in a new tab, signed in by its link."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 (only where Chromium is)

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tabs: list[Tab] = []

        async def opens(url: str, owner: Owner | None, *, width: int = 1280, theme: str = "light") -> Tab:
            context = await browser.new_context(viewport={"width": width, "height": 860}, color_scheme=theme)
            tab = Tab(await context.new_page(), url)
            tabs.append(tab)
            if owner is None:
                await tab.page.goto(url)
                await tab.page.wait_for_selector("#token")
                return tab
            await tab.page.goto(f"{url}/#link={owner.new_link()}")
            await tab.page.wait_for_selector(".connection.live")
            return tab

        yield opens
        await browser.close()
        # The server of a test is gone before its browser, which complains of the broken line.
        said = [(tab, one) for tab in tabs for one in tab.complaints if "net::ERR_" not in one]
        assert [one for tab, one in said if not (tab.may_be_refused and re.search(r"status of (403|422)", one))] == []
