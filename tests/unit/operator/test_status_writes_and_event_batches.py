"""What the controllers keep in memory: when to write, what went wrong, what to tell together."""

from __future__ import annotations

import asyncio

from grove.api.meta import Key, ObjectMeta
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.errors import Forbidden, from_status
from grove.kube.writes import namespace_ends
from grove.operator.shared.cluster import status_writer as digests
from grove.operator.shared.cluster.status_writer import EventBatches
from grove.operator.shared.outcome import Outcome, SetErrors
from grove.operator.shared.status_batching import StatusBatches

DEMO = Key("default", "demo")


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_wait_counts_from_the_first_time_it_was_asked() -> None:
    time = Time()
    batches = StatusBatches(time)
    assert batches.wait_s("a", 1.0) == 1.0
    time.now_s += 0.75
    assert batches.wait_s("a", 1.0) == 0.25
    assert batches.wait_s("b", 1.0) == 1.0
    time.now_s += 0.25
    assert batches.wait_s("a", 1.0) == 0.0


def test_a_wait_begins_again_after_a_write() -> None:
    time = Time()
    batches = StatusBatches(time)
    batches.wait_s("a", 1.0)
    time.now_s += 5.0
    batches.done("a")
    assert batches.wait_s("a", 1.0) == 1.0


def test_a_wait_for_something_shorter_is_counted_again() -> None:
    time = Time()
    batches = StatusBatches(time)
    assert batches.wait_s("a", 30.0) == 30.0
    time.now_s += 10.0
    assert batches.wait_s("a", 5.0) == 5.0
    time.now_s += 2.0
    assert batches.wait_s("a", 5.0) == 3.0


def test_what_yields_waits_longer_the_more_wait() -> None:
    time = Time()
    batches = StatusBatches(time)
    assert batches.wait_s("first", 1.0, yields=True) == 1.0
    for number in range(99):
        batches.wait_s(number, 1.0, yields=True)
    time.now_s += 1.5
    assert batches.wait_s("first", 1.0, yields=True) == 3.5, "a hundred wait, each for five seconds"
    for number in range(99, 2000):
        batches.wait_s(number, 1.0, yields=True)
    assert batches.wait_s("first", 1.0, yields=True) == 28.5, "however many wait, half a minute is enough"
    assert batches.wait_s("first", 1.0) == 0.0, "what does not yield is due"
    for number in range(2000):
        batches.done(number)
    assert batches.wait_s("first", 1.0, yields=True) == 0.0


def test_reports_are_written_when_they_change_and_only_then() -> None:
    told: list[Key] = []
    reports = SetErrors(told.append)
    reports.put_outcome("u", 1, Outcome())
    reports.put_outcome("u", 1, Outcome())
    reports.put(DEMO, "u", "PodGang demo-0", [("CODE", "words")])
    reports.put(DEMO, "u", "PodGang demo-0", [("CODE", "words")])
    assert told == [DEMO]


def test_a_set_shows_the_errors_of_all_its_parts_until_they_are_gone() -> None:
    reports = SetErrors(lambda key: None)
    reports.put_outcome("u", 1, Outcome(errors=(("A", "children"),)))
    reports.put(DEMO, "u", "PodGang demo-1", [("B", "gang")])
    assert reports.find("u", 1) == Outcome(errors=(("A", "children"), ("B", "gang")))
    reports.put(DEMO, "u", "PodGang demo-1", [])
    assert reports.find("u", 1) == Outcome(errors=(("A", "children"),))


def test_a_pass_over_an_older_generation_says_nothing_about_this_one() -> None:
    reports = SetErrors(lambda key: None)
    reports.put_outcome("u", 1, Outcome())
    assert reports.find("u", 2) is None


class Heard:
    """Stands in for the recorder."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def normal(self, about: object, reason: str, message: str) -> None:
        self.said.append(f"{reason}: {message}")


async def test_many_children_are_one_event() -> None:
    heard = Heard()
    digest = EventBatches(heard)  # type: ignore[arg-type]
    pcs = PodCliqueSet(metadata=ObjectMeta(name="demo", uid="u"))
    saved, digests.GATHER_S = digests.GATHER_S, 0.01
    try:
        for number in range(5):
            digest.add(pcs, "Made", "created PodGang", f"demo-{number}")
        digest.add(pcs, "Made", "created PodGang")
        digest.add(pcs, "Gone", "deleted PodGang", "demo-9")
        async with asyncio.timeout(60):
            while len(heard.said) < 2:  # noqa: ASYNC110 - events are sent by a timer
                await asyncio.sleep(0.01)
    finally:
        digests.GATHER_S = saved
    assert heard.said == [
        "Made: created PodGang demo-0, demo-1, demo-2 and 2 more",
        "Gone: deleted PodGang demo-9",
    ]


def test_a_namespace_that_goes_away_is_no_trouble() -> None:
    causes = {"causes": [{"reason": "NamespaceTerminating", "message": "it is", "field": "metadata.namespace"}]}
    ends = from_status(403, {"reason": "Forbidden", "message": "being terminated", "details": causes})
    assert namespace_ends(ends)
    assert not namespace_ends(Forbidden("exceeded quota"))
