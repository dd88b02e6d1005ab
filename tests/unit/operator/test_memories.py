"""What the controllers keep in memory: when to write, what they wrote last, what went wrong, what to tell together."""

from __future__ import annotations

import asyncio

from grove.api.meta import Key, ObjectMeta, Resource
from grove.api.podclique import PodClique, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.errors import Forbidden, from_status
from grove.operator.shared import event_batching as digests
from grove.operator.shared.event_batching import Digest
from grove.operator.shared.latest import Latest
from grove.operator.shared.outcome import Outcome
from grove.operator.shared.reports import Reports
from grove.operator.shared.status_batching import Patience
from grove.operator.shared.trouble import namespace_ends

DEMO = Key("default", "demo")
HPA = Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def clique(version: int, ready: int = 0, uid: str = "u1") -> PodClique:
    meta = ObjectMeta(name="c", namespace="default", uid=uid, resource_version=str(version))
    return PodClique(metadata=meta, status=PodCliqueStatus(ready_replicas=ready))


def test_patience_counts_from_the_first_time_it_was_asked() -> None:
    time = Time()
    patience = Patience(time)
    assert patience.wait_s("a", 1.0) == 1.0
    time.now_s += 0.75
    assert patience.wait_s("a", 1.0) == 0.25
    assert patience.wait_s("b", 1.0) == 1.0
    time.now_s += 0.25
    assert patience.wait_s("a", 1.0) == 0.0


def test_patience_begins_anew_after_a_write() -> None:
    time = Time()
    patience = Patience(time)
    patience.wait_s("a", 1.0)
    time.now_s += 5.0
    patience.done("a")
    assert patience.wait_s("a", 1.0) == 1.0


def test_patience_for_something_shorter_is_counted_anew() -> None:
    time = Time()
    patience = Patience(time)
    assert patience.wait_s("a", 30.0) == 30.0
    time.now_s += 10.0
    assert patience.wait_s("a", 5.0) == 5.0
    time.now_s += 2.0
    assert patience.wait_s("a", 5.0) == 3.0


def test_what_yields_waits_longer_the_more_wait() -> None:
    time = Time()
    patience = Patience(time)
    assert patience.wait_s("first", 1.0, yields=True) == 1.0
    for number in range(99):
        patience.wait_s(number, 1.0, yields=True)
    time.now_s += 1.5
    assert patience.wait_s("first", 1.0, yields=True) == 3.5, "a hundred wait, each for five seconds"
    for number in range(99, 2000):
        patience.wait_s(number, 1.0, yields=True)
    assert patience.wait_s("first", 1.0, yields=True) == 28.5, "however many wait, half a minute is enough"
    assert patience.wait_s("first", 1.0) == 0.0, "what does not yield is due"
    for number in range(2000):
        patience.done(number)
    assert patience.wait_s("first", 1.0, yields=True) == 0.0


def test_our_own_answer_is_newer_than_a_lagging_cache() -> None:
    latest = Latest()
    latest.wrote(clique(8, ready=2))
    assert latest.of(clique(7)).status.ready_replicas == 2
    assert latest.of(clique(9, ready=1)).status.ready_replicas == 1


def test_an_answer_is_forgotten_once_the_cache_has_caught_up() -> None:
    latest = Latest()
    latest.wrote(clique(8, ready=2))
    latest.of(clique(8, ready=2))
    assert latest.of(clique(7)).status.ready_replicas == 0


def test_an_answer_says_nothing_about_a_later_object_of_the_same_name() -> None:
    latest = Latest()
    latest.wrote(clique(8, ready=2, uid="old"))
    assert latest.of(clique(5, uid="new")).status.ready_replicas == 0


def test_the_echo_of_a_write_is_known_as_such() -> None:
    latest = Latest()
    latest.wrote(clique(8))
    assert latest.is_echo(clique(8))
    assert not latest.is_echo(clique(9))
    assert not latest.is_echo(clique(8, uid="other"))


def test_reports_are_told_when_they_change_and_only_then() -> None:
    told: list[Key] = []
    reports = Reports(told.append)
    reports.put_outcome(DEMO, "u", 1, Outcome())
    reports.put_outcome(DEMO, "u", 1, Outcome())
    reports.put(DEMO, "u", "PodGang demo-0", [("CODE", "words")])
    reports.put(DEMO, "u", "PodGang demo-0", [("CODE", "words")])
    assert told == [DEMO, DEMO]


def test_a_set_shows_the_errors_of_all_its_parts_until_they_are_gone() -> None:
    reports = Reports(lambda key: None)
    reports.put_outcome(DEMO, "u", 1, Outcome(errors=(("A", "children"),)))
    reports.put(DEMO, "u", "PodGang demo-1", [("B", "gang")])
    assert reports.find("u", 1) == Outcome(errors=(("A", "children"), ("B", "gang")))
    reports.put(DEMO, "u", "PodGang demo-1", [])
    assert reports.find("u", 1) == Outcome(errors=(("A", "children"),))


def test_a_pass_over_an_older_generation_says_nothing_about_this_one() -> None:
    reports = Reports(lambda key: None)
    reports.put_outcome(DEMO, "u", 1, Outcome())
    assert reports.find("u", 2) is None


def test_what_the_cluster_lacks_is_remembered_with_the_outcome() -> None:
    reports = Reports(lambda key: None)
    reports.put_outcome(DEMO, "u", 1, Outcome(), (HPA,))
    assert reports.missing("u") == (HPA,)
    reports.forget("u")
    assert reports.missing("u") == ()


class Heard:
    """Stands in for the recorder."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def normal(self, about: object, reason: str, message: str) -> None:
        self.said.append(f"{reason}: {message}")


async def test_many_children_are_one_event() -> None:
    heard = Heard()
    digest = Digest(heard)  # type: ignore[arg-type]
    pcs = PodCliqueSet(metadata=ObjectMeta(name="demo", uid="u"))
    saved, digests.GATHER_S = digests.GATHER_S, 0.01
    try:
        for number in range(5):
            digest.add(pcs, "Made", "created PodGang", f"demo-{number}")
        digest.add(pcs, "Made", "created PodGang")
        digest.add(pcs, "Gone", "deleted PodGang", "demo-9")
        await asyncio.sleep(0.05)
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
