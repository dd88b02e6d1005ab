"""The API server's audit log, read as the story of who held which lease and who wrote when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
            "verbs": ["create", "update", "patch", "delete"],
        },
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Write:
    """One change that the API server was asked for, whether or not it made it."""

    user: str
    received: float
    done: float
    verb: str
    what: str
    """Resource with its subresource, such as pods/binding."""
    name: str
    status: int
    holder: str
    """After the write of a lease: its holder, empty if there is none."""

    @property
    def succeeded(self) -> bool:
        return self.status < 300


class AuditLog:
    """The log as it grows: each look reads only what is new, since the looking process has other things to do."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0
        self._rest = b""
        self._read: list[Write] = []

    @property
    def writes(self) -> list[Write]:
        """In the order in which they arrived."""
        with self._file.open("rb") as log:
            log.seek(self._at)
            *lines, self._rest = (self._rest + log.read()).split(b"\n")
            self._at = log.tell()
        if lines:
            self._read = sorted([*self._read, *_parsed(lines)], key=lambda one: one.received)
        return self._read


def _parsed(lines: Sequence[bytes]) -> Iterator[Write]:
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        where = event.get("objectRef") or {}
        lease = event.get("responseObject") or {}
        kept = event["verb"] != "delete" and lease.get("kind") == "Lease"
        yield Write(
            event["user"]["username"],
            _moment(event["requestReceivedTimestamp"]),
            _moment(event["stageTimestamp"]),
            event["verb"],
            "/".join(filter(None, (where.get("resource"), where.get("subresource")))),
            where.get("name", ""),
            (event.get("responseStatus") or {}).get("code", 0),
            (lease["spec"].get("holderIdentity") or "") if kept else "",
        )


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True)
class Trespass:
    """A write by a process that did not hold its lease when the write arrived."""

    write: Write
    holder: str
    late_s: float
    """How long before the write arrived the process had last held the lease; infinite if it never had."""


def trespasses(every: Sequence[Write], lease: str, users: Sequence[str]) -> list[Trespass]:
    """Writes of these processes outside the times in which the lease was theirs.

    A process holds the lease from when its own write of it arrived until another write of it was done.
    """
    identities = {one.holder: one.user for one in every if _is_of(one, lease) and one.user in users and one.holder}
    found, holder = [], ""
    held_until = dict.fromkeys(users, float("-inf"))
    moments = sorted(
        [
            (one.received if one.user in users and one.holder else one.done, 0, one)
            for one in every
            if _is_of(one, lease)
        ]
        + [(one.received, 1, one) for one in every if one.user in users and one.what != "leases"],
        key=lambda moment: moment[:2],
    )
    for at, is_work, one in moments:
        if is_work:
            if holder != one.user:
                found.append(Trespass(one, holder, at - held_until[one.user]))
            continue
        named = identities.get(one.holder, one.holder)
        if holder in held_until and named != holder:
            held_until[holder] = at
        holder = named
    return found


def _is_of(one: Write, lease: str) -> bool:
    return one.what == "leases" and one.name == lease and one.succeeded


def takes_turns(every: Sequence[Write], users: Sequence[str]) -> bool:
    """Whether no process ever writes again after another has begun: leaders one after the other, never two."""
    order = [one.user for one in every if one.user in users and one.what != "leases"]
    turns = [user for before, user in zip(["", *order], order, strict=False) if user != before]
    return len(turns) == len(set(turns))


def longest_silence(every: Sequence[Write], what: str, since: float, until: float) -> float:
    """The longest time without a successful write of that kind, in seconds; from `since`, to `until`."""
    moments = [since, *(one.done for one in every if one.what == what and one.succeeded and since < one.done < until)]
    return max(after - before for before, after in zip(moments, [*moments[1:], until], strict=True))
