"""Leader election, in virtual time against the simulated API server."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from grove.api.core import Lease
from grove.kube.errors import ConnectionLost, KubeError, NotLeader
from grove.kube.lease import Leadership, LeadershipLost, process_identity
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run

NS, NAME = "kube-system", "grove-operator"


class Flaky(SimClient):
    """A client whose connection to the server can be cut."""

    cut: KubeError | None = None
    deaf = False
    """Whether watches say nothing any more."""
    answers_late_s = 0.0

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.unanswered = asyncio.Event()

    async def watch(self, *args: Any, **kw: Any) -> Any:
        async for event in super().watch(*args, **kw):
            if self.deaf:
                await asyncio.Event().wait()
            yield event

    async def patch(self, *args: Any, **kw: Any) -> Any:
        if self.cut is not None:
            raise self.cut
        answer = await super().patch(*args, **kw)
        if self.answers_late_s:
            self.unanswered.set()
            await asyncio.sleep(self.answers_late_s)
        return answer


class Candidate:
    """A process that takes part; notes when it led."""

    def __init__(self, cluster: SimCluster, identity: str) -> None:
        self.client = Flaky(cluster.server, user=identity)
        self.leadership = Leadership(self.client, NS, NAME, identity, clock=cluster.clock)
        self.led: list[float] = []
        self.ended: list[float] = []
        self.task = asyncio.get_running_loop().create_task(self.leadership.lead(self._work))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        self.led.append(loop.time())
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(loop.time())

    async def stop(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    def crash(self) -> None:
        """Ends without a word: whatever it would still write does not arrive."""
        self.client.cut = ConnectionLost("the process is gone")
        self.task.cancel()


async def leader_and_standby(cluster: SimCluster) -> tuple[Candidate, Candidate]:
    one = Candidate(cluster, "one")
    await asyncio.sleep(1)
    return one, Candidate(cluster, "two")


def in_cluster(story: Any) -> None:
    async def main() -> None:
        async with SimCluster(definitions=()) as cluster:
            await story(cluster)

    coroutine: Coroutine[Any, Any, None] = main()
    run(coroutine, limit_s=600)


async def lease_of(cluster: SimCluster) -> dict[str, Any]:
    found = cluster.json(Lease, NAME, NS)
    assert found is not None
    return dict(found["spec"])


def test_the_first_one_leads_and_writes_client_gos_fields() -> None:
    async def story(cluster: SimCluster) -> None:
        one = Candidate(cluster, "one")
        await asyncio.sleep(1)
        assert one.leadership.may_write()
        spec = await lease_of(cluster)
        assert spec == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.001000Z",
            "renewTime": "2026-01-01T00:00:00.001000Z",
        }
        await asyncio.sleep(60)
        spec = await lease_of(cluster)
        assert (spec["acquireTime"], spec["renewTime"] > "2026-01-01T00:00:58") == ("2026-01-01T00:00:00.001000Z", True)
        assert one.leadership.may_write()
        await one.stop()

    in_cluster(story)


def test_a_stopped_leader_releases_and_the_next_takes_over_at_once() -> None:
    async def story(cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        one, two = await leader_and_standby(cluster)
        await asyncio.sleep(30)
        assert (len(one.led), two.led) == (1, [])
        stopped = loop.time()
        await one.stop()
        assert not one.leadership.may_write()
        await asyncio.sleep(1)
        assert two.led[0] - stopped < 0.1
        assert (await lease_of(cluster))["leaseTransitions"] == 1
        await two.stop()

    in_cluster(story)


def test_a_leader_stopped_between_a_renewal_and_its_answer_releases_the_lease() -> None:
    async def story(cluster: SimCluster) -> None:
        one, two = await leader_and_standby(cluster)
        await asyncio.sleep(5)
        one.client.deaf = True
        one.client.answers_late_s = 1.0
        await one.client.unanswered.wait()
        stopped = asyncio.get_running_loop().time()
        await one.stop()
        await asyncio.sleep(2)
        assert two.led, "a standby that was told does not wait until the lease is up"
        assert two.led[0] < stopped + 1
        await two.stop()

    in_cluster(story)


def test_a_crashed_leader_is_replaced_when_its_time_is_up_and_not_before() -> None:
    async def story(cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        one, two = await leader_and_standby(cluster)
        await asyncio.sleep(31)
        crashed = loop.time()
        one.crash()
        await asyncio.sleep(30)
        assert 13 <= two.led[0] - crashed <= 15.1
        await two.stop()

    in_cluster(story)


def test_a_leader_that_cannot_renew_stops_before_anyone_else_starts() -> None:
    async def story(cluster: SimCluster) -> None:
        one, two = await leader_and_standby(cluster)
        await asyncio.sleep(31)
        one.client.cut = ConnectionLost("network is down")
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await one.task
        await asyncio.sleep(30)
        assert one.ended[0] <= two.led[0] - 4.9
        await two.stop()

    in_cluster(story)


def test_a_leader_whose_answer_was_lost_keeps_the_lease() -> None:
    async def story(cluster: SimCluster) -> None:
        one = Candidate(cluster, "one")
        await asyncio.sleep(5)
        # Its renewal arrived; it does not know. The next one meets a newer version of its own making.
        await cluster.client().patch(Lease, NAME, {"spec": {"renewTime": "2026-01-01T00:00:05.000000Z"}}, NS)
        await asyncio.sleep(60)
        assert one.leadership.may_write()
        assert one.ended == []
        await one.stop()

    in_cluster(story)


def test_the_late_answer_to_a_renewal_does_not_bring_a_lost_lease_back() -> None:
    """The renewal was there first, then another client's edit; the watch brought the edit before the answer came."""

    async def story(cluster: SimCluster) -> None:
        one = Candidate(cluster, "one")
        await asyncio.sleep(1)
        renew, led = one.client.patch, []

        async def note_turns() -> None:
            for _ in range(10):
                led.append(one.leadership.may_write())
                await asyncio.sleep(0)

        async def answered_late(*args: Any, **kw: Any) -> Any:
            answer = await renew(*args, **kw)
            await edit_lease(cluster, {"spec": {"holderIdentity": "two"}})
            await asyncio.sleep(0.5)
            noting.append(asyncio.ensure_future(note_turns()))
            return answer

        noting: list[asyncio.Future[None]] = []
        one.client.patch = answered_late  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert led == [False] * 10
        with pytest.raises(LeadershipLost, match="held by two"):
            await one.task

    in_cluster(story)


def test_a_lease_that_was_edited_before_the_answer_came_is_not_led() -> None:
    async def story(cluster: SimCluster) -> None:
        one = Candidate(cluster, "one")
        take = one.client.create

        async def answered_late(*args: Any, **kw: Any) -> Any:
            answer = await take(*args, **kw)
            await edit_lease(cluster, {"spec": {"holderIdentity": "two"}})
            await asyncio.sleep(0.5)
            return answer

        one.client.create = answered_late  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert one.led == []
        assert not one.leadership.may_write()
        await asyncio.sleep(20)
        assert len(one.led) == 1, "when the time of the one who is named is over"
        await one.stop()

    in_cluster(story)


RELEASE_BY_HAND = {"holderIdentity": ""}
"""Patches by which people make another process lead: a leader's own release also shortens the lease."""


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        pytest.param({"spec": {"holderIdentity": "usurper"}}, "held by usurper", id="another name"),
        pytest.param({"spec": RELEASE_BY_HAND}, "held by no process", id="no name"),
        pytest.param(None, "deleted", id="no lease"),
    ],
)
def test_a_leader_whose_lease_is_edited_notices_it_at_once(edit: dict[str, Any] | None, said: str) -> None:
    async def story(cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        one = Candidate(cluster, "one")
        await asyncio.sleep(5)
        edited = loop.time()
        await edit_lease(cluster, edit)
        with pytest.raises(LeadershipLost, match=said):
            await one.task
        assert one.ended[0] - edited < 0.1, "not only at the next renewal"
        assert not one.leadership.may_write()

    in_cluster(story)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"spec": {"holderIdentity": "usurper"}}, id="another name"),
        pytest.param({"spec": {"holderIdentity": "two"}}, id="the standby's own name"),
        pytest.param({"spec": RELEASE_BY_HAND}, id="no name"),
        pytest.param(None, id="no lease"),
    ],
)
def test_a_standby_grants_the_holder_its_time_whatever_is_done_to_the_lease(edit: dict[str, Any] | None) -> None:
    """The holder may not have received the edit. Cut off from the server, it relies on its own last write."""

    async def story(cluster: SimCluster) -> None:
        one, two = await leader_and_standby(cluster)
        await asyncio.sleep(31)
        one.client.deaf = True
        one.client.cut = ConnectionLost("network is down")
        await edit_lease(cluster, edit)
        with pytest.raises(LeadershipLost):
            await one.task
        await asyncio.sleep(40)
        assert one.ended[0] <= two.led[0] - 4.9
        assert two.led[0] - one.ended[0] <= 15
        await two.stop()

    in_cluster(story)


def test_a_lease_made_longer_by_hand_is_put_right_by_the_next_renewal() -> None:
    """Otherwise a standby would wait an hour for a leader that dies."""

    async def story(cluster: SimCluster) -> None:
        one = Candidate(cluster, "one")
        await asyncio.sleep(5)
        await edit_lease(cluster, {"spec": {"leaseDurationSeconds": 3600}})
        await asyncio.sleep(5)
        assert (await lease_of(cluster))["leaseDurationSeconds"] == 15
        assert one.ended == []
        await one.stop()

    in_cluster(story)


async def edit_lease(cluster: SimCluster, edit: dict[str, Any] | None) -> None:
    """A patch of another client; None is a deletion."""
    if edit is None:
        await cluster.client().delete(Lease, NAME, NS)
    else:
        await cluster.client().patch(Lease, NAME, edit, NS)


def test_a_paused_leader_may_not_write_when_it_wakes() -> None:
    """The loop's clock goes on while a stopped process does not run: the first thing it can do is be refused."""

    async def story(cluster: SimCluster) -> None:
        loop: Any = asyncio.get_running_loop()
        one = Candidate(cluster, "one")
        await asyncio.sleep(5)
        assert one.leadership.may_write()
        loop._virtual_s += (
            10.1  # SIGSTOP, and SIGCONT ten seconds later, with everybody else's tasks standing still too
        )
        assert not one.leadership.may_write()
        with pytest.raises(LeadershipLost):
            await one.task

    in_cluster(story)


def test_two_that_start_together_agree_on_one() -> None:
    async def story(cluster: SimCluster) -> None:
        candidates = [Candidate(cluster, f"c{n}") for n in range(5)]
        await asyncio.sleep(60)
        assert sum(len(one.led) for one in candidates) == 1
        for one in candidates:
            await one.stop()

    in_cluster(story)


def test_work_that_ends_releases_the_lease_and_work_that_fails_says_so() -> None:
    async def story(cluster: SimCluster) -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise NotLeader("anything")

        one = Leadership(cluster.client(), NS, NAME, "one", clock=cluster.clock)
        with pytest.raises(NotLeader):
            await one.lead(fail)
        assert (await lease_of(cluster))["holderIdentity"] == ""
        await one.lead(lambda: asyncio.sleep(1))
        assert (await lease_of(cluster))["holderIdentity"] == ""

    in_cluster(story)


def test_no_two_processes_have_one_name_not_even_with_one_host_and_one_id() -> None:
    assert process_identity() != process_identity()


def test_times_that_cannot_be_safe_are_refused() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Leadership(None, NS, NAME, "one", lease_s=10, renew_s=10)  # type: ignore[arg-type]
