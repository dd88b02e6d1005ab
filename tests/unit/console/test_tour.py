"""The tour behind a page: the demo's own engine in a thread, at the page's pace, with buttons that break things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from grove.console.questions import questions
from grove.console.tour import Tour
from grove.console.viewers import Unanswerable
from grove.demo.scenario import Scenario, read_scenario

MANIFEST = {
    "apiVersion": "grove.io/v1alpha1",
    "kind": "PodCliqueSet",
    "metadata": {"name": "small"},
    "spec": {
        "replicas": 1,
        "template": {
            "cliques": [
                {
                    "name": "w",
                    "spec": {
                        "roleName": "w",
                        "replicas": 2,
                        "podSpec": {
                            "containers": [
                                {"name": "m", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
                            ]
                        },
                    },
                }
            ]
        },
    },
}


def story(*steps: object) -> Scenario:
    return read_scenario({"cluster": {"nodes": 8}, "steps": list(steps)}, lambda name: {})


@pytest.fixture
async def tour() -> AsyncIterator[Tour]:
    plot = story({"chapter": "One", "text": "It comes up."}, {"apply": MANIFEST}, {"wait": "small"}, {"chapter": "Two"})
    showing = Tour(plot, speed=20.0)
    async with showing.watching(""):
        yield showing
    await showing.stop()


@pytest.fixture
async def chaptered() -> AsyncIterator[Tour]:
    """Chapters that are too long to read while a test waits."""
    chapters = [{"chapter": name, "text": "word " * 10_000} for name in ("One", "Two")]
    plot = story(chapters[0], {"apply": MANIFEST}, chapters[1], {"wait": "small"}, {"chapter": "Three"})
    showing = Tour(plot, speed=1.0)
    async with showing.watching(""):
        yield showing
    await showing.stop()


async def seen(tour: Tour, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            revision = tour.ledger.revision
            await tour.ledger.moved(revision)


async def over(tour: Tour) -> None:
    await seen(tour, lambda: tour.ledger.table("story").get("state") in ("over", "failed"))
    assert tour.ledger.table("story")["state"] == "over", list(tour.ledger.table("notes").values())[-1]


async def test_the_story_is_played_to_its_end_and_the_set_stands_on_the_fleet(tour: Tour) -> None:
    await over(tour)
    await seen(tour, lambda: tour.ledger.table("sets").get("default/small", {}).get("ready") == 2)
    taken = [row for row in tour.ledger.table("nodes").values() if row[4]]
    assert [row[4] for row in taken] == [[["default/small-0", 8]], [["default/small-0", 8]]]
    assert [one["title"] for one in tour.ledger.table("story")["chapters"]] == ["One", "Two"]
    assert any("is placed whole" in note["text"] for note in tour.ledger.table("notes").values())


async def test_questions_are_answered_while_the_story_stands_still(tour: Tour) -> None:
    await over(tour)
    await tour.act({"verb": "pause"})
    await seen(tour, lambda: tour.ledger.table("story")["paused"] is True)
    tree = await tour.answer(questions()["tree"], "default", {"name": "small"})
    assert tree["wanted"] == 2
    plan = await tour.answer(questions()["plan"], "default", {"scale": ["small=2"]})
    assert {gang.answer for gang in plan.gangs} == {"fits"}
    with pytest.raises(Unanswerable, match="no PodCliqueSet nobody"):
        await tour.answer(questions()["plan"], "default", {"scale": ["nobody=2"]})


GIVEN = """
apiVersion: v1
kind: Secret
metadata: {name: hf-token}
stringData: {token: x}
---
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: beside}
spec:
  replicas: 1
  template:
    cliques:
      - name: worker
        spec:
          roleName: worker
          replicas: 1
          podSpec:
            containers:
              - {name: c, image: x, env: [{name: T, valueFrom: {secretKeyRef: {name: hf-token, key: token}}}]}
"""


@pytest.mark.parametrize(
    ("manifest", "missing"),
    [
        pytest.param(GIVEN, (), id="with the Secret"),
        pytest.param(
            GIVEN.partition("---")[2],
            ("Secret hf-token does not exist: create the Secret hf-token, or correct the pod template",),
            id="without it",
        ),
    ],
)
async def test_a_plan_counts_every_object_of_a_manifest(tour: Tour, manifest: str, missing: tuple[str, ...]) -> None:
    await over(tour)
    plan = await tour.answer(questions()["plan"], "default", {"manifest": manifest})
    assert plan.missing == missing


async def test_a_plan_of_a_manifest_that_admission_refuses_names_its_faults(tour: Tour) -> None:
    await over(tour)
    manifest = GIVEN.replace("replicas: 1\n          podSpec", "replicas: -1\n          podSpec")
    with pytest.raises(Unanswerable, match=r"would be refused: .*replicas"):
        await tour.answer(questions()["plan"], "default", {"manifest": manifest})


async def test_a_node_that_is_failed_by_hand_is_shown_broken_and_comes_back(tour: Tour) -> None:
    await over(tour)
    node = next(name for name, row in tour.ledger.table("nodes").items() if row[4])
    await tour.act({"verb": "failNode", "node": node})
    await seen(tour, lambda: tour.ledger.table("nodes")[node][3] == "does not answer")
    await tour.act({"verb": "restoreNode", "node": node})
    await seen(tour, lambda: not tour.ledger.table("nodes")[node][3])


@pytest.mark.parametrize(
    "asked",
    [{"verb": "delete", "set": "small"}, {"verb": "failNode", "node": "nowhere"}, {"verb": "speed", "speed": "x"}, {}],
)
async def test_there_is_no_such_button(tour: Tour, asked: dict[str, object]) -> None:
    await over(tour)
    with pytest.raises(Unanswerable):
        await tour.act(asked)


async def test_a_chapter_gives_time_to_read_which_the_next_button_skips(chaptered: Tour) -> None:
    table = chaptered.ledger.table
    await seen(chaptered, lambda: table("story").get("chapter") == 0)
    assert not table("notes"), "nothing happens before it was read"
    await chaptered.act({"verb": "next"})
    await seen(chaptered, lambda: table("story")["chapter"] == 1)
    assert not any("is running" in note["text"] for note in table("notes").values())
    await chaptered.act({"verb": "next"})
    await seen(chaptered, lambda: table("story")["chapter"] == 2)
    await over(chaptered)


async def test_the_tour_starts_again_from_the_beginning(tour: Tour) -> None:
    await over(tour)
    await tour.act({"verb": "restart"})
    await seen(tour, lambda: tour.ledger.table("story")["state"] == "playing")
    await over(tour)
    assert tour.ledger.table("sets")["default/small"]["ready"] == 2


async def test_the_page_gets_what_may_be_scaled(tour: Tour) -> None:
    await over(tour)
    assert tour.ledger.table("story")["groups"] == []
    assert tour.ledger.table("story")["now"].endswith("Z")
