"""Finds the wanted samples in a page of Prometheus text, without parsing the rest of it.

A page of an engine has hundreds of families, and we need a dozen. The scan jumps from one `# TYPE` line to the next,
looks up the name, and reads lines only inside wanted families. Its time grows with the page at the speed of a
substring search, plus the wanted lines.

Samples without a `# TYPE` line are legal. The scan searches for them by name if the page has no such line at all, or
if the caller asks for a thorough scan. `Scan.untyped` then lists them for the next scan.

A bad line costs only that line and is listed in `Scan.faults`. A page never raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_TYPE = b"# TYPE "
_SUFFIXES = ("_bucket", "_count", "_sum", "_total", "_created")
_LE = re.compile(rb'[{,]\s*le="([^"]*)"')
_LABELS = re.compile(rb'\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
_LABEL = re.compile(rb'[{,]\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"')
MOST_BUCKETS = 256
"""Of one histogram; a page with more is not an engine's."""


@dataclass(slots=True)
class Total:
    """A gauge's or counter's label sets put together."""

    sum: float = 0.0
    highest: float = -math.inf

    def add(self, value: float) -> None:
        self.sum += value
        self.highest = max(self.highest, value)


@dataclass(slots=True)
class Scan:
    """The content of a page: totals by sample name, and histograms by family as cumulative counts by upper bound."""

    totals: dict[str, Total] = field(default_factory=dict)
    histograms: dict[str, dict[float, float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    untyped: frozenset[str] = frozenset()

    def fault(self, text: str) -> None:
        if len(self.faults) < 3:
            self.faults.append(text)


class Wanted:
    """Names to look for: `samples` by their exact name, `histograms` by their family.

    `of_samples` are families that may hold a wanted sample: a counter's or a histogram's is named without its ending.
    """

    def __init__(self, samples: Collection[str], histograms: Collection[str]) -> None:
        self.samples, self.histograms = frozenset(samples), frozenset(histograms)
        ends = ((name, end) for name in self.samples for end in ("", *_SUFFIXES) if name.endswith(end))
        self.of_samples = frozenset(name.removesuffix(end).encode() for name, end in ends)
        self.of_histograms = frozenset(family.encode() for family in self.histograms)
        self.typed = _typed(self.of_samples | self.of_histograms)


def scan(page: bytes, wanted: Wanted, *, untyped: Collection[str] = (), thorough: bool = False) -> Scan:
    """The wanted samples of a page; `untyped` are names that an earlier scan found without a `# TYPE` line."""
    scanned = Scan()
    seen: set[str] = set()
    for family, block in _families(page, wanted.typed):
        if family in wanted.of_histograms:
            seen.add(family.decode())
            _read_buckets(block, family.decode(), scanned)
        if family in wanted.of_samples:
            _read_samples(block, wanted.samples, scanned)
    is_typed = page.startswith(_TYPE) or b"\n" + _TYPE in page
    missing = (wanted.samples | wanted.histograms) - seen - scanned.totals.keys()
    candidates = missing if thorough or not is_typed else missing & frozenset(untyped)
    scanned.untyped = frozenset(name for name in sorted(candidates) if _read_untyped(page, name, wanted, scanned))
    return scanned


def labelled(page: bytes, name: str, visit: Callable[[dict[str, str], float], None]) -> None:
    """Calls `visit(labels, value)` for every sample of one name; for pages whose labels name the subject of a value."""
    for _, block in _families(page, _typed((name.encode(),))):
        for line in block.split(b"\n"):
            value = _value(line)
            if line.startswith(name.encode() + b"{") and value is not None and math.isfinite(value):
                pairs = _LABEL.findall(line[: line.rfind(b"}") + 1])
                visit({key.decode(): text.decode(errors="replace") for key, text in pairs}, value)


@lru_cache(maxsize=8)
def _typed(families: Collection[bytes]) -> re.Pattern[bytes]:
    """Matches the `# TYPE` line of any of these families; its first group is the name."""
    names = b"|".join(sorted(map(re.escape, families)))
    # No anchor: with a literal at its beginning the pattern runs at the speed of a substring search.
    return re.compile(rb"# TYPE (" + names + rb")[ \t][^\n]*")


def _families(page: bytes, typed: re.Pattern[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Names and lines of the families that match the pattern, each up to the next `# TYPE` line."""
    for match in typed.finditer(page):
        if match.start() and page[match.start() - 1 : match.start()] != b"\n":
            continue  # words inside a HELP line
        following = page.find(b"\n" + _TYPE, match.end())
        yield match[1], page[match.end() : following if following >= 0 else len(page)]


def _read_samples(block: bytes, names: Collection[str], scanned: Scan) -> None:
    for line in block.split(b"\n"):
        if not line or line.startswith(b"#"):
            continue
        name = re.split(rb"[{ \t]", line, maxsplit=1)[0].decode(errors="replace")
        if name in names:
            _add(name, line, scanned)


def _add(name: str, line: bytes, scanned: Scan) -> None:
    value = _value(line)
    if value is None or not math.isfinite(value) or value < 0:
        scanned.fault(f"{name} has the value {_shown(line)}")
    else:
        scanned.totals.setdefault(name, Total()).add(value)


def _read_buckets(block: bytes, family: str, scanned: Scan) -> None:
    prefix = family.encode() + b"_bucket"
    counts = scanned.histograms.setdefault(family, {})
    for line in block.split(b"\n"):
        if not line.startswith(prefix):
            continue
        bound = _LE.search(line)
        upper, value = _number(bound[1]) if bound else None, _value(line)
        if upper is None or math.isnan(upper) or value is None or not math.isfinite(value) or value < 0:
            scanned.fault(f"{family} has the bucket {_shown(line)}")
        elif upper not in counts and len(counts) >= MOST_BUCKETS:
            scanned.fault(f"{family} has more than {MOST_BUCKETS} buckets")
            counts.clear()
            return
        else:
            counts[upper] = counts.get(upper, 0.0) + value


def _read_untyped(page: bytes, name: str, wanted: Wanted, scanned: Scan) -> bool:
    """Reads a family line by line from its first one on; whether there was any."""
    is_histogram = name in wanted.histograms
    first = name.encode() + (b"_bucket{" if is_histogram else b"")
    at = 0 if page.startswith(first) else page.find(b"\n" + first) + 1
    if at == 0 and not page.startswith(first):
        return False
    lines = []
    while page.startswith(first, at):
        end = page.find(b"\n", at)
        end = len(page) if end < 0 else end
        lines.append(page[at:end])
        at = end + 1
    if is_histogram:
        _read_buckets(b"\n".join(lines), name, scanned)
        return bool(scanned.histograms.get(name))
    _read_samples(b"\n".join(lines), (name,), scanned)
    return name in scanned.totals


def _value(line: bytes) -> float | None:
    """The number of a sample line; a timestamp or an exemplar after it is not looked at."""
    begin = line.find(b"{")
    labels = _LABELS.match(line, begin) if begin >= 0 else None
    if begin >= 0 and labels is None:
        return None
    words = line[labels.end() :].split(None, 1) if labels is not None else line.split(None, 2)[1:]
    return _number(words[0]) if words else None


def _number(text: bytes) -> float | None:
    try:
        return float(text) if b"_" not in text else None
    except ValueError:
        return None


def _shown(line: bytes) -> str:
    return repr(line[-80:].decode(errors="replace"))
