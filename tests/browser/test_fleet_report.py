"""The report of `grove fleet` in a real browser: it opens without a network, and axe-core finds no fault in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.browser.conftest import FLAGS
from tests.support.running import without_logs

from grove.fleet.file import Time, load
from grove.fleet.report import page
from grove.fleet.results import results
from grove.fleet.run import run_fleet

AXE = Path(os.environ["GROVE_AXE"]).read_text() if os.environ.get("GROVE_AXE") else ""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hours of the lab, with a gang that still waits at the end, and the same with a broken promise."""
    with without_logs():
        found = results(run_fleet(msgspec.structs.replace(load("lab"), lasts=Time("6h"))))
    assert found["stillWaiting"]
    folder = tmp_path_factory.mktemp("report")
    (folder / "good.html").write_text(page(found))
    broken = {"at": 60.0, "promise": "Exact", "text": "a <pod> overfills a node"}
    (folder / "broken.html").write_text(page({**found, "promises": [broken]}))
    return folder


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright  # noqa: PLC0415 (only where Chromium is)

    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield found
        await found.close()


@pytest.mark.parametrize("name", ["good", "broken"])
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
async def test_the_report_opens_offline_and_is_accessible(
    chromium: str, browser: Any, report: Path, name: str, theme: str, width: int
) -> None:
    context = await browser.new_context(viewport={"width": width, "height": 860}, color_scheme=theme, offline=True)
    tab = await context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    address = (report / f"{name}.html").as_uri()
    await tab.goto(address)
    assert asked == [address]
    assert await tab.locator("svg").count() == 3
    assert (await tab.locator("svg").first.bounding_box())["width"] > 200
    assert "A small lab" in await tab.inner_text("h1")
    if not AXE:
        pytest.skip("opened; axe-core is not here: make test-browser brings it")
    await tab.evaluate(AXE + "\n;0")
    found = await tab.evaluate("axe.run({ resultTypes: ['violations'] })")
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]] == []
    assert found["passes"]
