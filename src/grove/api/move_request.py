"""A request to move a gang, as an annotation of its PodGang: a new node for each pod, and how long it counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from grove.api.meta import Struct


class InvalidMove(ValueError):
    """The annotation cannot be read."""


class MoveRequest(Struct, frozen=True):
    places: dict[str, tuple[str, ...]]
    """Nodes by pod group, one for each pod."""
    until: datetime
    """The scheduler begins the move before this time, or not at all."""
    purpose: str = ""
    """The gang that fits then."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def read_move(text: str) -> MoveRequest:
    try:
        request: Any = msgspec.json.decode(text, type=MoveRequest)
    except msgspec.MsgspecError as error:
        raise InvalidMove(str(error)) from error
    if request.until.tzinfo is None:
        raise InvalidMove("until: a time zone is missing")
    return request  # type: ignore[no-any-return]
