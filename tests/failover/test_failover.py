"""The leader ends in every possible way: how long no process decides, and that only the leader writes.

The API server's audit log is the witness: every write with the process it came from, beside who held the lease when.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.failover import audit
from tests.failover.house import DECIDES, House, Replica, Times, house

pytestmark = [pytest.mark.soak, pytest.mark.real]

ROOT = Path(__file__).parents[2]
SUGGESTED = Times(3, 2, 0.5)
"""As docs/install.md suggests for those who cannot wait."""
NOTICE_S = 1.0
"""How long a leader may take to see that its lease was edited; no other process writes meanwhile."""


def of_the_chart() -> Times:
    """The times that Grove is installed with."""
    for one in yaml.safe_load_all((ROOT / "charts/install.yaml").read_text()):
        if one and one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("grove-operator-cm"):
            election = yaml.safe_load(one["data"]["config.yaml"])["leaderElection"]
            return Times(*(int(election[key][:-1]) for key in ("leaseDuration", "renewDeadline", "retryPeriod")))
    raise AssertionError("no configuration of the operator in charts/install.yaml")


async def killed(on: House, leader: Replica, standby: Replica) -> None:
    leader.child.signal(signal.SIGKILL)


async def stopped(on: House, leader: Replica, standby: Replica) -> None:
    leader.child.signal(signal.SIGTERM)


async def cut_off(on: House, leader: Replica, standby: Replica) -> None:
    leader.link.cut()


async def cleared(on: House, leader: Replica, standby: Replica) -> None:
    await on.edit_lease(leader.role, {"holderIdentity": ""})


async def given_to_a_stranger(on: House, leader: Replica, standby: Replica) -> None:
    await on.edit_lease(leader.role, {"holderIdentity": "somebody-else"})


async def given_to_the_standby(on: House, leader: Replica, standby: Replica) -> None:
    await on.edit_lease(leader.role, {"holderIdentity": standby.identity})


async def deleted(on: House, leader: Replica, standby: Replica) -> None:
    await on.edit_lease(leader.role, None)


@dataclass(frozen=True)
class Fault:
    name: str
    happens: Callable[[House, Replica, Replica], Awaitable[None]]
    is_edit: bool = False


FAULTS = (
    Fault("kill -9", killed),
    Fault("SIGTERM", stopped),
    Fault("network lost", cut_off),
    Fault("lease cleared by hand", cleared, is_edit=True),
    Fault("lease given to a stranger", given_to_a_stranger, is_edit=True),
    Fault("lease given to the standby", given_to_the_standby, is_edit=True),
    Fault("lease deleted", deleted, is_edit=True),
)


async def suffered(on: House, role: str, fault: Fault) -> tuple[float, float]:
    """Longest silence around the fault, and how long after it the former leader wrote last (negative: before)."""
    leader, standby = await on.pair(role)
    what = DECIDES[role]

    def decided(by: Replica, since: float) -> bool:
        return any(one.user == by.user and one.what == what and one.received > since for one in on.writes)

    began = time.time()
    await on.until(f"{leader.user} decides", lambda: decided(leader, began), leader)
    moment = time.time()
    await fault.happens(on, leader, standby)
    await on.until(f"{standby.user} decides after: {fault.name}", lambda: decided(standby, moment), standby)
    await on.until(f"{leader.user} ends", lambda: not leader.child.alive(), leader)
    leader.link.mend()
    every = on.writes
    last = max(one.received for one in every if one.user == leader.user and one.what != "leases")
    return audit.longest_silence(every, what, moment - 1, time.time()), last - moment


@pytest.mark.parametrize(
    ("times", "limit_s"),
    [
        pytest.param(of_the_chart(), 15.0, id="as installed"),
        pytest.param(SUGGESTED, 5.0, id="as suggested"),
    ],
)
async def test_whatever_happens_to_a_leader_another_process_decides_again_and_none_writes_without_the_lease(
    times: Times, limit_s: float, tmp_path: Path
) -> None:
    print(f"\nlease {times.lease_s:g} s, renewed every {times.retry_s:g} s, given up after {times.renew_s:g} s")
    silences: dict[str, float] = {}
    async with house(tmp_path, times) as on:
        for role in DECIDES:
            for fault in FAULTS:
                silence, last = await suffered(on, role, fault)
                print(f"  {role:9}  {fault.name:26}  {silence:5.1f} s without decisions; its last write {last:+.3f} s")
                silences[f"{role}: {fault.name}"] = silence
                assert fault.is_edit or fault.name == "network lost" or last <= times.renew_s
        every = on.writes
        for role in DECIDES:
            users = [one.user for one in on.every if one.role == role]
            assert audit.takes_turns(every, users), "two leaders wrote at once"
            # An edit cannot arrive before it is made: only this long, and while no other process works.
            work = [one for one in every if one.user in users and one.what != "leases"]
            late = audit.trespasses(every, on.lease(role), users)
            print(f"  {role}: {len(work)} writes by {len(users)} processes, {len(late)} of them just after an edit")
            assert [one for one in late if one.late_s > NOTICE_S] == []
    over = {name: silence for name, silence in silences.items() if silence > limit_s}
    assert over == {}, f"longer than {limit_s:g} s without decisions"
