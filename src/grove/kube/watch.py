"""Reads a watch: chunks in, events out. Lines are split here because an HTTP library's line reader has a length limit.

A stream ends normally when the server's time is up. How long one may be silent before that is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from grove.kube.client import WatchEvent
from grove.kube.wire import Codec

T = TypeVar("T")


class LineSplitter:
    """Cuts a byte stream into lines; what follows the last newline is kept for the next chunk.

    Parts of a long line are joined once, when it ends: a 1 MB object in 64 kB chunks costs one copy, not sixteen.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line]


class EventReader(Generic[T]):
    """Decodes a watch's chunks into events. A line that is cut off was never one: the resumed watch brings it again."""

    def __init__(self, codec: Codec[T]) -> None:
        self._codec, self._splitter = codec, LineSplitter()

    def feed(self, chunk: bytes) -> Iterator[WatchEvent[T]]:
        decode = self._codec.event
        for line in self._splitter.feed(chunk):
            event = decode(line)
            if event is not None:
                yield event
