"""`make audit`: which pinned releases have something known against them, from what an index says."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tools.audit import Pin, judge, pins

ROOT = Path(__file__).parents[3]
FLAW = {"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fixed_in": ["2.1"], "summary": "a header is believed"}
OLD, NEW, LONE, SILENT = Pin("old", "2.0"), Pin("new", "3.0"), Pin("lone", "1.0"), Pin("silent", "1.0")
PAGES: dict[str, Any] = {
    "/pypi/old/2.0/json": {"info": {"version": "2.0"}, "vulnerabilities": [FLAW]},
    "/pypi/new/3.0/json": {"info": {"version": "3.0"}, "vulnerabilities": [{**FLAW, "withdrawn": "2026-01-01"}]},
    "/pypi/lone/json": {"info": {"version": "1.0"}, "vulnerabilities": []},
    "/pypi/silent/json": {"info": {"version": "9.0"}, "vulnerabilities": []},
}


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = PAGES.get(self.path)
            self.send_response(200 if page is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("pin", "known"),
    [
        pytest.param(OLD, ("PYSEC-1, CVE-2026-1: mended in 2.1. a header is believed",), id="a flaw and its cure"),
        pytest.param(NEW, (), id="a report that was withdrawn is none"),
        pytest.param(LONE, (), id="the page of the project speaks for its newest release"),
        pytest.param(SILENT, None, id="and for no other"),
        pytest.param(Pin("unheard-of", "1"), None, id="of what the index does not have nothing is known"),
    ],
)
def test_one_release(pin: Pin, known: tuple[str, ...] | None) -> None:
    assert judge(pin, lambda path: PAGES.get(f"/{path}")).known == known


@pytest.mark.parametrize(
    ("pinned", "options", "code"),
    [
        pytest.param([NEW, LONE], [], 0, id="nothing known"),
        pytest.param([NEW, OLD], [], 1, id="a flaw fails"),
        pytest.param([NEW, SILENT], [], 0, id="what the index does not say is listed"),
        pytest.param([NEW, SILENT], ["--strict"], 2, id="and fails when asked to"),
        pytest.param([SILENT], [], 2, id="an index that says nothing is no audit"),
    ],
)
def test_the_command(index: str, tmp_path: Path, pinned: list[Pin], options: list[str], code: int) -> None:
    file = tmp_path / "pins.txt"
    file.write_text("".join(f"{pin.name}=={pin.version} \\\n    --hash=sha256:00\n    # via x\n" for pin in pinned))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/audit.py"), "--index", index, *options, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    for pin in pinned:
        mentioned = f"{pin.name} {pin.version}" in done.stdout
        assert mentioned == (pin in (OLD, SILENT))


def test_every_release_that_is_installed_is_asked_about() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    found = pins(files)
    lines = [line for file in files for line in file.read_text().splitlines() if "==" in line and line[0].isalpha()]
    assert {f"{pin.name}=={pin.version}" for pin in found} == {line.split()[0].split(";")[0] for line in lines}
    assert len(found) > 40
