"""What the serving process and the one that reads pages say to each other, over a pair of sockets.

A frame is its length in four bytes and a list of messages in msgpack: JSON has no infinity, which histograms need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from grove.metrics.numbers import PageNumbers
from grove.metrics.targets import Target

LONGEST_FRAME = 64 * 1024 * 1024
What = Literal["engine", "gpu"]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tagged with its own name."""


# To the reader


class Begin(Message, frozen=True):
    """The first message: the bounds of `scrape`."""

    interval_s: float
    timeout_s: float
    page_bytes: int
    concurrent: int


class Names(Message, frozen=True):
    """Raw names to look for, besides ours."""

    raw: tuple[str, ...]


class Follow(Message, frozen=True):
    what: What
    target: Target
    within_s: float | None = None


class Forget(Message, frozen=True):
    what: What
    namespace: str
    pod: str


class Hurry(Message, frozen=True):
    namespace: str
    pod: str


# From the reader


class PageRead(Message, frozen=True):
    """`at` is the time of the monotonic clock, which all processes of a machine share."""

    namespace: str
    pod: str
    at: float
    numbers: PageNumbers


class GpusRead(Message, frozen=True):
    """Shares by the namespace and name of the pod that uses the GPU."""

    at: float
    shares: tuple[tuple[str, str, float], ...]


class PageFault(Message, frozen=True):
    """Something that a person should know, once: `reason` is an Event's."""

    namespace: str
    pod: str
    reason: str
    message: str


class Counted(Message, frozen=True):
    """Pages since the last such message. It comes every second, so that silence means trouble."""

    read: int
    failed: int


ToReader = Begin | Names | Follow | Forget | Hurry
FromReader = PageRead | GpusRead | PageFault | Counted

_encoder = msgspec.msgpack.Encoder()
to_reader = msgspec.msgpack.Decoder(list[ToReader])
from_reader = msgspec.msgpack.Decoder(list[FromReader])


def frame(messages: Sequence[ToReader | FromReader]) -> bytes:
    body = _encoder.encode(messages)
    return len(body).to_bytes(4, "big") + body


async def read_frame(stream: asyncio.StreamReader) -> bytes:
    """The body of the next frame; raises `EOFError` when the other side is gone."""
    size = int.from_bytes(await stream.readexactly(4), "big")
    if size > LONGEST_FRAME:
        raise EOFError(f"a frame of {size} bytes")
    return await stream.readexactly(size)
