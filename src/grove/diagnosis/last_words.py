"""How a container ended: the line of its last output that says why, and the signal that an exit code means. Pure.

The kubelet keeps the last 80 lines, or 2 kB, of a log. The last line is often the least useful one: llama-server ends
with `exiting due to model loading error`, and six lines above it names the file.
"""

from __future__ import annotations

import re
import signal

_FAULT = re.compile(
    r"\b(\w*(error|exception)|fail(ed|ure|s)?|cannot|can't|could not|unable|no such|not found"
    r"|denied|refused|invalid|fatal|panic)\b",
    re.IGNORECASE,
)
_DETAIL = re.compile(r"'([^']+)'|\"([^\"]+)\"|(/[\w.@+/-]+)|\b([\w.-]+:\d+)\b")
"""What a line is about: words in quotes, a path, or an address with its port."""
_EXCEPTION = re.compile(r"\b\w*(Error|Exception): \S")
_POINTS_UP = re.compile(r"root cause above|see above|errors? above", re.IGNORECASE)
_CLOCK = re.compile(r"^\[?\d[\d-]*(T|[.:]\d\d[.:]| \d\d:\d\d:)[\d:.,]*Z?\]?\s+([A-Z] )?(?=\S)")
"""The time, and a level in one letter, which loggers write before a line."""
_FRAME = re.compile(r'^\W*(\(.*\)\s*)?File "')
"""A line of a Python traceback that names code, not a cause."""


def exit_words(code: int, reason: str = "") -> str:
    """`exit code 139 (SIGSEGV)`: codes above 128 are of a signal. A reason such as OOMKilled says more than it."""
    if reason not in ("", "Error"):
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(code - 128, "")
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def telling_line(message: str) -> str:
    """The line that says why, without the time that its logger wrote; empty if there is none.

    It is the last line about a fault that has a name or an exception. If earlier lines have the same name, it is the
    first of them, because programs repeat a fault with fewer words when they end.
    """
    lines = [_CLOCK.sub("", line.strip()) for line in message.splitlines() if line.strip()]
    faults = [line for line in lines if _FAULT.search(line) and not _POINTS_UP.search(line) and not _FRAME.match(line)]
    last = next((line for line in reversed(faults) if _details(line) or _EXCEPTION.search(line)), "")
    if last:
        return next((line for line in faults if _details(line) & _details(last)), last)
    if faults:
        return faults[-1]
    return lines[-1] if lines else ""


def _details(line: str) -> set[str]:
    return {next(filter(None, groups)) for groups in _DETAIL.findall(line)}
