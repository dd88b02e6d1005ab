"""The history of a gang has what the scheduler decided, from its journal: also what no object says any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.asking import World
from tests.support.broken import nodes_added
from tests.support.situations import rack_too_small

from grove.answers.answer import Unanswered
from grove.answers.events import decided_about, events_answer
from grove.api.core import Event
from grove.diagnosis.reasons import sentence
from grove.diagnosis.seen import read
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.replay.journal import Journal, RecordedSnapshot
from grove.scheduler.replay.replay import replay
from grove.show.history import history_of

pytestmark = pytest.mark.simulated


async def recorded(world: World, directory: Path) -> None:
    """A gang is refused, gets a place after a node came, and every event is lost."""
    journal = Journal(directory, lambda: world.now.timestamp())

    async def scheduler() -> None:
        client, snapshot = world.cluster.sim.client(user="scheduler"), RecordedSnapshot(journal)
        await Scheduler(client, clock=world.cluster.clock, say=sentence, tape=journal, snapshot=snapshot).run()

    await world.stop("scheduler")
    world.make["scheduler"] = scheduler
    world.start("scheduler")
    await rack_too_small(world)
    await world.cluster.settle(60.0)
    await nodes_added(world)
    await world.available("chat")
    await world.stop("scheduler")
    journal.close()
    for event in (await world.client.list(Event, world.namespace)).items:
        await world.client.delete(Event, event.metadata.name, world.namespace)


async def test_refusal_and_place_are_in_the_timeline(world: World, tmp_path: Path) -> None:
    await recorded(world, tmp_path)
    assert all(one.is_same for one in replay(tmp_path)), "times and reasons do not disturb a replay"
    without = await events_answer(world.client, world.namespace, "chat")
    assert not [one for one in without.data if one.source == "journal"]
    found = await events_answer(world.client, world.namespace, "chat", tmp_path)
    refused, placed = (one for one in found.data if one.source == "journal")
    assert (refused.reason, placed.reason) == ("NoPlace", "PlaceFound")
    assert refused.message.startswith("no rack has capacity for")
    assert placed.message.startswith("5 pods on ")
    assert refused.at < placed.at

    seen = await read(world.client, world.namespace)
    decided = decided_about(tmp_path, seen, seen.gangs)
    marks = history_of(seen, seen.sets[0], (), world.now, gang="chat-0", decided=decided).marks
    assert next(one.kind for one in marks if one.kind in ("refused", "placed")) == "refused"
    assert any("5 pods on " in one.text for one in marks if one.kind == "placed")
    other = history_of(seen, seen.sets[0], (), world.now, gang="nothing", decided=decided).marks
    assert not [one for one in other if one.kind == "refused"]


async def test_a_folder_without_a_journal_is_named(world: World, tmp_path: Path) -> None:
    await world.apply(world.system("chat"))
    with pytest.raises(Unanswered, match=r"journal\.jsonl cannot be read: No such file"):
        await events_answer(world.client, world.namespace, "chat", tmp_path)
