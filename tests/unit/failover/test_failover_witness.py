"""The witness of `make test-failover` sees what it is there to see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.failover.audit import AuditLog, Write, longest_silence, takes_turns, trespasses

LEASE = "grove-operator-leader-election"
USERS = ("one", "two")


def lease(user: str, at: float, holder: str) -> Write:
    return Write(user, at, at + 0.01, "patch", "leases", LEASE, 200, holder)


def work(user: str, at: float, status: int = 200) -> Write:
    return Write(user, at, at + 0.01, "create", "pods", "", status, "")


@pytest.mark.parametrize(
    ("writes", "late"),
    [
        pytest.param([lease("one", 0, "one_1"), work("one", 1), work("one", 2)], [], id="the holder writes"),
        pytest.param([work("one", 1)], [("one", float("inf"))], id="nobody holds it"),
        pytest.param(
            [lease("one", 0, "one_1"), lease("two", 5, "two_1"), work("one", 6), work("two", 7)],
            [("one", 1.0)],
            id="a former leader writes",
        ),
        pytest.param(
            [lease("one", 0, "one_1"), lease("admin", 5, ""), work("one", 5.005), work("one", 5.5)],
            [("one", 0.49)],
            id="after an edit, counted from when the edit was done",
        ),
        pytest.param(
            [lease("one", 0, "one_1"), lease("admin", 5, "two_1"), work("one", 6), lease("two", 8, "two_1")],
            [("one", 0.99)],
            id="given to the other by hand",
        ),
        pytest.param(
            [lease("one", 0, "one_1"), lease("two", 5, "two_1"), work("one", 6, status=409)],
            [("one", 1.0)],
            id="a refused write is a write too",
        ),
    ],
)
def test_writes_without_the_lease_are_found(writes: list[Write], late: list[tuple[str, float]]) -> None:
    found = trespasses(writes, LEASE, USERS)
    assert [(one.write.user, pytest.approx(one.late_s)) for one in found] == late


@pytest.mark.parametrize(
    ("users", "in_turn"),
    [
        pytest.param(["one", "one", "two", "two"], True, id="one after the other"),
        pytest.param(["one", "two", "one"], False, id="the former leader comes back"),
        pytest.param([], True, id="nobody"),
    ],
)
def test_leaders_write_one_after_the_other(users: list[str], in_turn: bool) -> None:
    assert takes_turns([work(user, at) for at, user in enumerate(users)], USERS) is in_turn


def test_silence_is_between_decisions_that_were_made() -> None:
    every = [work("one", 1), work("one", 2), work("one", 4, status=403), work("two", 9)]
    assert longest_silence(every, "pods", 0.5, 10) == pytest.approx(7)


def test_the_log_is_read_as_it_grows(tmp_path: Path) -> None:
    def event(at: int, **fields: Any) -> bytes:
        moment = f"2026-01-01T00:00:{at:02}.000000Z"
        whole = {
            "user": {"username": "one"},
            "verb": "patch",
            "requestReceivedTimestamp": moment,
            "stageTimestamp": moment,
            "responseStatus": {"code": 200},
            **fields,
        }
        return json.dumps(whole).encode() + b"\n"

    file = tmp_path / "audit.log"
    second = event(
        1,
        objectRef={"resource": "leases", "name": LEASE},
        responseObject={"kind": "Lease", "spec": {"holderIdentity": "one_1"}},
    )
    file.write_bytes(event(2, objectRef={"resource": "pods", "subresource": "binding"}) + second[:20])
    log = AuditLog(file)
    assert [one.what for one in log.writes] == ["pods/binding"]
    with file.open("ab") as more:
        more.write(second[20:])
    assert [(one.what, one.holder) for one in log.writes] == [("leases", "one_1"), ("pods/binding", "")]
