"""`make audit`: known vulnerabilities of the pinned wheels, as the package index that pip uses reports them.

It asks the index once for each pinned release: for its JSON page, or that of the project if it is the newest release.
Mirrors often have only the page of the project. Releases without an answer are listed. Exit codes: 0 no vulnerability
is known, 1 one is known, 2 the index answers for no release, or with `--strict` not for all.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).parent.parent / "requirements"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)

Page = Mapping[str, Any]
Ask = Callable[[str], Page | None]
"""A JSON page of the index by its path; None if there is none."""


@dataclass(frozen=True, order=True)
class Pin:
    name: str
    version: str


@dataclass(frozen=True)
class Verdict:
    """What is known about a release; `known` is None if the index does not say."""

    pin: Pin
    known: tuple[str, ...] | None


def pins(files: Iterable[Path]) -> list[Pin]:
    """Every release that some requirements file pins, once."""
    found_pins = {Pin(*match) for file in files for match in _PIN.findall(file.read_text())}
    return sorted(found_pins)


def judge(pin: Pin, ask: Ask) -> Verdict:
    page = ask(f"pypi/{pin.name}/{pin.version}/json")
    if page is None:
        page = ask(f"pypi/{pin.name}/json")
        if page is not None and page["info"]["version"] != pin.version:
            page = None  # what it says is about another release
    if page is None or "vulnerabilities" not in page:
        return Verdict(pin, None)
    live = (entry for entry in page["vulnerabilities"] if not entry.get("withdrawn"))
    return Verdict(pin, tuple(_words(entry) for entry in live))


def _words(page: Page) -> str:
    names = ", ".join(dict.fromkeys((page["id"], *(page.get("aliases") or ()))))
    mended = ", ".join(page.get("fixed_in") or ()) or "no release"
    return f"{names}: mended in {mended}. {(page.get('summary') or '').strip()}".rstrip()


def report(verdicts: Iterable[Verdict]) -> Iterator[str]:
    verdicts = list(verdicts)
    for verdict in verdicts:
        for vulnerability in verdict.known or ():
            yield f"{verdict.pin.name} {verdict.pin.version}: {vulnerability}"
    silent = [verdict.pin for verdict in verdicts if verdict.known is None]
    if silent:
        yield f"the index does not say: {', '.join(f'{pin.name} {pin.version}' for pin in silent)}"
    clean = sum(verdict.known == () for verdict in verdicts)
    yield f"{len(verdicts)} pinned releases: {clean} with nothing known against them"


def exit_code(verdicts: Iterable[Verdict], *, strict: bool = False) -> int:
    verdicts = list(verdicts)
    if any(verdict.known for verdict in verdicts):
        return 1
    silent = [verdict.known is None for verdict in verdicts]
    return 2 if (any(silent) if strict else all(silent)) else 0


def pip_index() -> str:
    """The index as pip is configured, without its `/simple`; pip's own default if nothing is configured."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    stdout = subprocess.run(pip, capture_output=True, text=True, check=False).stdout
    addresses = re.findall(r"^\S*\.index-url='([^']+)'", stdout, re.MULTILINE)
    if addresses:
        return str(addresses[-1]).rstrip("/").removesuffix("/simple")
    from pip._internal.models.index import PyPI  # noqa: PLC0415 (a part of pip that may change its place)

    return str(PyPI.url).rstrip("/")


def asking(index: str) -> Ask:
    parts = urllib.parse.urlsplit(index)
    if parts.scheme not in ("https", "http"):
        raise SystemExit(f"{index} is not an index with pages")
    headers = {"Accept": "application/json"}
    if parts.username:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        index = index.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)

    def ask(path: str) -> Page | None:
        request = urllib.request.Request(f"{index}/{path}", headers=headers)  # noqa: S310 - the scheme was looked at
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                page: Page = json.load(answer)
                return page
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    return ask


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", default="", help="the index to ask; pip's own if not given")
    parser.add_argument("--strict", action="store_true", help="fail if the index does not say of some release")
    parser.add_argument("files", nargs="*", type=Path, default=sorted(REQUIREMENTS.glob("*.txt")))
    options = parser.parse_args()
    ask = asking(options.index.rstrip("/") or pip_index())
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda pin: judge(pin, ask), pins(options.files)))
    print(*report(verdicts), sep="\n")
    return exit_code(verdicts, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
