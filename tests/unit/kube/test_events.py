"""Events: written once, counted after that, combined when there are too many, and never waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.kube.api import Thing

from grove.api.core import Event
from grove.api.meta import ObjectMeta, OwnerReference
from grove.kube.errors import ConnectionLost
from grove.kube.events import SIBLINGS, UNSAID, Recorder
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run

Story = Callable[[SimCluster, SimClient, Recorder], Awaitable[None]]


def thing(name: str = "web", namespace: str = "default") -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}"))


def tell(story: Story, *, writing: bool = True) -> None:
    async def main() -> None:
        async with SimCluster(definitions=()) as cluster:
            client = cluster.client()
            recorder = Recorder(client, "grove-operator", clock=cluster.clock)
            task = asyncio.get_running_loop().create_task(recorder.run()) if writing else None
            await story(cluster, client, recorder)
            if task is not None:
                task.cancel()

    run(main(), limit_s=7200)


async def events_of(client: SimClient, namespace: str = "default") -> list[Event]:
    found = (await client.list(Event, namespace)).items
    return sorted(found, key=lambda e: (e.reason, e.message, -e.count))


def test_an_event_names_its_object_its_source_and_its_time() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        recorder.warn(thing(), "FailedCreate", "quota is used up; ask for more")
        await asyncio.sleep(1)
        (found,) = await events_of(client)
        stored: Any = cluster.json(Event, found.metadata.name, "default")
        del stored["metadata"]
        assert {k: v for k, v in stored.items() if k not in ("kind", "apiVersion", "eventTime")} == {
            "involvedObject": {
                "apiVersion": "test.grove.io/v1",
                "kind": "Thing",
                "name": "web",
                "namespace": "default",
                "uid": "uid-web",
            },
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "quota is used up; ask for more",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": {"component": "grove-operator"},
            "reportingComponent": "grove-operator",
            "reportingInstance": "grove-operator",
        }

    tell(story)


def test_the_same_words_are_counted_not_repeated() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for _ in range(4):
            recorder.normal(thing(), "Created", "made 3 pods")
            await asyncio.sleep(30)
        recorder.normal(thing("other"), "Created", "made 3 pods")
        await asyncio.sleep(1)
        found = await events_of(client)
        assert [(e.involved_object.name, e.count) for e in found] == [("web", 4), ("other", 1)]
        assert found[0].last_timestamp is not None
        assert found[0].first_timestamp is not None
        assert (found[0].last_timestamp - found[0].first_timestamp).total_seconds() == 90
        assert client.calls["create", "events"] == 2

    tell(story)


def test_a_burst_is_one_write() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for _ in range(500):
            recorder.normal(thing(), "Created", "made a pod")
        await asyncio.sleep(1)
        assert [e.count for e in await events_of(client)] == [500]
        assert client.calls["create", "events"] + client.calls["patch", "events"] == 1

    tell(story)


def test_after_the_window_a_new_event_is_made() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        recorder.normal(thing(), "Created", "made a pod")
        await asyncio.sleep(601)
        recorder.normal(thing(), "Created", "made a pod")
        await asyncio.sleep(1)
        assert [e.count for e in await events_of(client)] == [1, 1]

    tell(story)


def test_too_many_different_messages_are_combined() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for n in range(30):
            recorder.warn(thing(), "FailedCreate", f"pod {n:02} refused")
            await asyncio.sleep(1)
        recorder.warn(thing(), "FailedCreate", "pod 03 refused")  # one of those that stand for themselves
        await asyncio.sleep(1)
        found = await events_of(client)
        assert len(found) == 11
        assert [(e.message, e.count) for e in found if e.count > 1] == [
            ("(combined from similar events): pod 29 refused", 20),
            ("pod 03 refused", 2),
        ]

    tell(story)


def test_an_event_the_server_forgot_is_made_again() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        recorder.normal(thing(), "Created", "made a pod")
        await asyncio.sleep(1)
        await client.delete(Event, (await events_of(client))[0].metadata.name, "default")
        recorder.normal(thing(), "Created", "made a pod")
        await asyncio.sleep(1)
        assert [e.count for e in await events_of(client)] == [2]

    tell(story)


def test_events_of_cluster_scoped_objects_stand_in_default() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        recorder.normal(thing(namespace=""), "Ready", "ready")
        await asyncio.sleep(1)
        assert [e.reason for e in await events_of(client)] == ["Ready"]

    tell(story)


@pytest.mark.parametrize("words", ["x" * 5000, "ü" * 3000], ids=["ascii", "two-byte letters"])
def test_long_messages_are_cut_to_what_the_server_takes(words: str) -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        recorder.normal(thing(), "Created", words)
        await asyncio.sleep(1)
        (found,) = await events_of(client)
        assert 1000 < len(found.message.encode()) <= 1024

    tell(story)


def test_when_no_event_can_be_written_the_oldest_are_dropped_and_no_caller_waits() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for n in range(UNSAID + 5):
            recorder.normal(thing(f"t{n}"), "Created", "made")
        assert recorder.dropped == 5
        await recorder.flush()
        names = {e.involved_object.name for e in await events_of(client)}
        assert len(names) == UNSAID
        assert "t0" not in names

    tell(story, writing=False)


def test_a_server_that_fails_does_not_stop_the_recorder() -> None:
    class Failing(SimClient):
        broken = True

        async def create(self, *args: Any, **kw: Any) -> Any:
            if self.broken:
                raise ConnectionLost("down")
            return await super().create(*args, **kw)

    async def main() -> None:
        async with SimCluster(definitions=()) as cluster:
            client = Failing(cluster.server)
            recorder = Recorder(client, "grove", clock=cluster.clock)
            task = asyncio.get_running_loop().create_task(recorder.run())
            recorder.normal(thing(), "Created", "lost")
            await asyncio.sleep(1)
            client.broken = False
            recorder.normal(thing(), "Created", "lost")
            await asyncio.sleep(1)
            assert [(e.message, e.count) for e in await events_of(client)] == [("lost", 2)]
            task.cancel()

    run(main())


def owned(name: str) -> Thing:
    owner = OwnerReference(api_version="test.grove.io/v1", kind="Thing", name="all", uid="uid-all", controller=True)
    return Thing(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", owner_references=(owner,)))


def test_good_news_of_many_siblings_is_summed_up_on_their_owner() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for number in range(500):
            recorder.normal(owned(f"t{number}"), "Placed", f"on node {number}")
        await asyncio.sleep(60)
        found = await events_of(client)
        of_owner = [one for one in found if one.involved_object.name == "all"]
        assert len(found) == SIBLINGS + 1
        assert [one.message for one in of_owner] == [f"Thing t499: on node 499 (and {499 - SIBLINGS} more)"]

    tell(story)


def test_trouble_of_siblings_and_news_of_few_stand_for_themselves() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for number in range(50):
            recorder.warn(owned(f"t{number}"), "Lost", f"on node {number}")
        for minute in range(3):
            for number in range(SIBLINGS):
                recorder.normal(owned(f"t{number}"), "Placed", f"on node {number}, minute {minute}")
            await asyncio.sleep(61)
        found = await events_of(client)
        assert len(found) == 50 + 3 * SIBLINGS
        assert not any(one.involved_object.name == "all" for one in found)

    tell(story)


def test_what_is_to_be_summed_up_is_written_when_the_process_ends() -> None:
    async def story(cluster: SimCluster, client: SimClient, recorder: Recorder) -> None:
        for number in range(SIBLINGS + 1):
            recorder.normal(owned(f"t{number}"), "Placed", "well")
        await recorder.flush()
        assert len(await events_of(client)) == SIBLINGS + 1

    tell(story, writing=False)
