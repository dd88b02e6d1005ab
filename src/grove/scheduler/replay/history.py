"""What a journal says about some gangs: when each was placed or refused, and what was evicted for it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from grove.scheduler.model.reasons import Reason
from grove.scheduler.replay.journal import JOURNAL
from grove.scheduler.replay.replay import BadJournal


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision. `gang` is `namespace/name`. It is a refusal if there are no `nodes`; then `why` says why."""

    at: datetime
    gang: str
    pods: int = 0
    nodes: tuple[str, ...] = ()
    why: Reason | None = None
    evicted: tuple[str, ...] = ()


class _Gang(msgspec.Struct):
    name: str


class _Answer(msgspec.Struct):
    nodes: dict[str, str] = {}
    found: bool = True
    gangs: list[str] = []
    pods: list[str] = []


class _Line(msgspec.Struct):
    op: str
    gang: _Gang
    answer: _Answer
    at: float = 0.0
    why: Reason | None = None


_DECISIONS = (b'"op":"place"', b'"op":"preempt"')


def decisions_on(journal: Path, gangs: Container[str]) -> Iterator[Decided]:
    """The decisions on these gangs, oldest first; raises BadJournal. Journals before times were recorded give none."""
    path = journal / JOURNAL if journal.is_dir() else journal
    decode = msgspec.json.Decoder(_Line).decode
    try:
        with path.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                if not text.endswith(b"\n") or not any(mark in text for mark in _DECISIONS):
                    continue  # a change of the cluster, or a line that is being written
                try:
                    line = decode(text)
                except msgspec.DecodeError as error:
                    raise BadJournal(f"{path}:{number}: not a decision of a journal: {error}") from error
                if line.at and line.gang.name in gangs and (line.op == "place" or line.answer.found):
                    yield _decided(line)
    except OSError as error:
        raise BadJournal(f"the journal {path} cannot be read: {error.strerror}") from error


def _decided(line: _Line) -> Decided:
    at, nodes = datetime.fromtimestamp(line.at, UTC), tuple(sorted(set(line.answer.nodes.values())))
    evicted = tuple(line.answer.gangs) or tuple(line.answer.pods) if line.op == "preempt" else ()
    return Decided(at, line.gang.name, len(line.answer.nodes), nodes, line.why, evicted)
