"""The life of a set as a picture: what its pods went through, and the moments that changed it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from tests.support import objects

from grove.api import labels
from grove.api.core import ControllerRevision, Event, Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.seen import Seen
from grove.show.history import History, history_of

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def said(**when: float) -> list[dict[str, str]]:
    return [{"type": type_, "status": "True", "lastTransitionTime": at(second)} for type_, second in when.items()]


def meta(name: str, created: float, **more: str) -> dict[str, Any]:
    own = {labels.PART_OF: "chat", **more}
    return {"name": name, "namespace": "a", "creationTimestamp": at(created), "labels": own}


def pod_of_clique(
    name: str, clique: str, created: float, *, restarts: int = 0, ended: dict[str, Any] | None = None, **when: float
) -> Pod:
    container = {"name": "c", "restartCount": restarts, "lastState": {"terminated": ended} if ended else {}}
    status = {"conditions": said(**when), "containerStatuses": [container]}
    return objects.pod(status=status, **meta(name, created, **{labels.POD_CLIQUE: clique}))


def clique_of_set(name: str) -> PodClique:
    return objects.clique(spec={"replicas": 1}, **meta(name, 0))


def gang_with_times(name: str, created: float, base: str = "", **when: float) -> PodGang:
    own = {labels.BASE_POD_GANG: base} if base else {}
    return objects.gang(status={"conditions": said(**when)}, **meta(name, created, **own))


def event(about: str, second: float, reason: str, *, warning: bool = False, message: str = "") -> Event:
    raw = {
        "metadata": {"name": "e", "namespace": "a"},
        "involvedObject": {"kind": "Pod", "name": about},
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "lastTimestamp": at(second),
    }
    return msgspec.convert(raw, Event)


def story(
    *events: Event,
    status: dict[str, Any] | None = None,
    kept: Sequence[ControllerRevision] = (),
    only: str = "",
    ended: dict[str, Any] | None = None,
) -> History:
    template = {"cliques": [{"name": "leader", "spec": {"podSpec": {"containers": []}}}]}
    raw = {"metadata": meta("chat", 0), "spec": {"replicas": 1, "template": template}, "status": status or {}}
    pcs = msgspec.convert(raw, PodCliqueSet)
    seen = Seen(
        sets=[pcs],
        cliques=[clique_of_set("chat-0-worker"), clique_of_set("chat-0-leader")],
        gangs=[
            gang_with_times("chat-0", 0, Scheduled=1, Ready=9),
            gang_with_times("chat-0-g-0", 0.5, "chat-0", Scheduled=2),
            gang_with_times("chat-0-g-1", 60, "chat-0"),
        ],
        pods=[
            pod_of_clique("chat-0-worker-a", "chat-0-worker", 0.2, ended=ended, PodScheduled=1.1, Ready=9),
            pod_of_clique("chat-0-worker-b", "chat-0-worker", 0.4, PodScheduled=1.3, Ready=9),
            pod_of_clique("chat-0-worker-c", "chat-0-worker", 60, restarts=2),
            pod_of_clique("chat-0-leader-a", "chat-0-leader", 0, PodScheduled=1, Ready=4),
        ],
    )
    return history_of(seen, pcs, events, START + timedelta(seconds=100), kept, only)


def test_lanes_are_in_the_order_of_their_start_and_pods_that_went_together_are_one_span() -> None:
    lanes = story().lanes
    assert [lane.clique for lane in lanes] == ["chat-0-leader", "chat-0-worker"]
    worker = lanes[1].spans
    assert [(span.pods, span.placed is not None, span.ready is not None, span.failed) for span in worker] == [
        (2, True, True, False),
        (1, False, False, True),
    ]


def test_marks_tell_of_creation_placement_readiness_and_scaling() -> None:
    assert [(mark.kind, mark.text) for mark in story().marks] == [
        ("created", "chat is created"),
        ("placed", "chat-0 is placed"),
        ("placed", "chat-0-g-0 is placed"),
        ("ready", "chat-0 is ready"),
        ("scaled", "chat-0-g-1 is added"),
    ]


def test_a_gang_that_was_there_before_its_base_was_placed_is_no_scaling() -> None:
    assert "chat-0-g-0 is added" not in [mark.text for mark in story().marks]


def test_an_update_has_its_beginning_and_its_end() -> None:
    progress = {"updateProgress": {"updateStartedAt": at(30), "updateEndedAt": at(50)}}
    updated = [(mark.at, mark.text) for mark in story(status=progress).marks if mark.kind == "updated"]
    assert updated == [
        (START + timedelta(seconds=30), "an update begins"),
        (START + timedelta(seconds=50), "the update is over"),
    ]


def test_events_tell_of_failures_and_autoscalers_also_of_pods_that_are_gone() -> None:
    told = story(
        event("chat-0-worker-gone1", 40, "BackOff", warning=True, message="it crashes"),
        event("chat", 20, "ScaledByAutoscaler", message="from 1 to 2"),
        event("chat", 21, "Pulled"),
        event("other-0-w-1", 40, "BackOff", warning=True),
    )
    marks = [(mark.kind, mark.text) for mark in told.marks if mark.kind in ("failed", "scaled")]
    assert marks == [
        ("scaled", "from 1 to 2"),
        ("failed", "chat-0-worker-gone1: it crashes"),
        ("scaled", "chat-0-g-1 is added"),
    ]


def test_events_of_an_earlier_set_of_the_same_name_are_left_out() -> None:
    earlier = event("chat-0-worker-gone1", -40, "BackOff", warning=True, message="it crashes")
    placed = event("chat-0", -60, "GangScheduled")
    assert story(earlier, placed).marks == story().marks


def revision(number: int, second: float, image: str) -> ControllerRevision:
    template = {"cliques": [{"name": "leader", "podSpec": {"containers": [{"name": "c", "image": image}]}}]}
    raw = {"metadata": meta(f"chat-{number}", second), "revision": number, "data": template}
    return msgspec.convert(raw, ControllerRevision)


def test_templates_that_are_kept_tell_of_updates_and_their_images() -> None:
    kept = [revision(1, 0, "engine:1"), revision(2, 30, "engine:2"), revision(3, 50, "engine:2")]
    updated = [(mark.at, mark.text) for mark in story(kept=kept).marks if mark.kind == "updated"]
    assert updated == [
        (START + timedelta(seconds=30), "revision 2: leader: engine:1 → engine:2"),
        (START + timedelta(seconds=50), "revision 3"),
    ]


def test_losses_restarts_and_earlier_placements_have_their_causes() -> None:
    told = story(
        event("chat-0-worker", 20, "PodDeleteSuccessful", message="deleted pod chat-0-worker-x: NodeGone"),
        event("chat-0-worker", 21, "PodDeleteSuccessful", message="deleted pod chat-0-worker-y: ScaleIn"),
        event(
            "chat", 25, "PodCliqueSetReplicaDeleteSuccessful", message="restarted replica 0 as a gang (restart 1): w"
        ),
        event("chat-0", 30, "GangScheduled", message="8 pods"),
        event("chat-0", 1, "GangScheduled", message="8 pods"),
        ended={"exitCode": 137, "reason": "OOMKilled", "finishedAt": at(40), "message": "loading\nno memory\n"},
    )
    assert [(mark.kind, mark.text, mark.what) for mark in told.marks if (mark.at - START).total_seconds() >= 15] == [
        ("lost", "deleted pod chat-0-worker-x: NodeGone", "NodeGone"),
        ("restarted", "restarted replica 0 as a gang (restart 1): w", ""),
        ("placed", "chat-0 is placed", ""),
        (
            "restarted",
            "chat-0-worker-a: container c ended with exit code 137 (OOMKilled): no memory",
            "ContainerEnded",
        ),
        ("scaled", "chat-0-g-1 is added", ""),
    ]
    assert [mark.text for mark in told.marks].count("chat-0 is placed") == 2


def test_the_history_of_one_gang_leaves_out_the_others() -> None:
    found = story(event("chat-0-worker-gone1", 40, "BackOff", warning=True), only="chat-0-g-1")
    assert [mark.text for mark in found.marks] == ["chat is created", "chat-0-g-1 is added"]
    assert found.lanes == ()
