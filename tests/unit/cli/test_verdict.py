"""Why a gang of another scheduler waits, from what is written on the objects: one row a situation."""

from __future__ import annotations

import msgspec
import pytest

from grove.api import labels
from grove.api.core import Pod
from grove.api.podgang import PodGang
from grove.show.gangs import Verdict, gang_verdict
from grove.show.seen import Seen

COMPLETE = {"type": "Initialized", "status": "True"}


def verdict(*conditions: dict[str, str], scheduler: str = "kai-scheduler", pod_says: str = "") -> Verdict:
    meta = {"name": "x-0", "namespace": "ns", "labels": {labels.SCHEDULER_NAME: scheduler, labels.PART_OF: "x"}}
    gang = msgspec.convert({"metadata": meta, "status": {"conditions": list(conditions)}}, PodGang)
    said = [{"type": "PodScheduled", "status": "False", "message": pod_says}] if pod_says else []
    own = {"name": "x-0-a-1", "namespace": "ns", "labels": {labels.POD_GANG: "x-0"}}
    pod = msgspec.convert({"metadata": own, "spec": {}, "status": {"conditions": said}}, Pod)
    return gang_verdict(Seen(gangs=[gang], pods=[pod]), gang, None)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            verdict(), ("waiting", "gate", "its pods are still being created", (), ""), id="pods are being made"
        ),
        pytest.param(
            verdict(COMPLETE),
            ("waiting", "gang", "kai-scheduler has not said anything about it yet", (), "is kai-scheduler running?"),
            id="the other scheduler is silent",
        ),
        pytest.param(
            verdict(COMPLETE, scheduler="grove-scheduler"),
            ("waiting", "gang", "grove-scheduler has not said anything about it yet", (), "kubectl grove doctor"),
            id="ours is silent",
        ),
        pytest.param(
            verdict(COMPLETE, pod_says="queue serving does not exist"),
            ("waiting", "gang", "queue serving does not exist", (), "is kai-scheduler running?"),
            id="a queue that is missing is told on the pods",
        ),
        pytest.param(
            verdict(
                COMPLETE,
                {"type": "SchedulerObjectsReady", "status": "False", "reason": "SchedulerNotInstalled",
                 "message": "podgroups.scheduling.run.ai is not served"},
            ),
            (
                "waiting", "gate", "podgroups.scheduling.run.ai is not served",
                ("kai-scheduler: SchedulerNotInstalled",),
                "kai-scheduler does not know the gang yet; docs/backends.md says what SchedulerNotInstalled asks for",
            ),
            id="a scheduler that is not installed",
        ),
        pytest.param(
            verdict(
                COMPLETE, {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
                pod_says="0/3 nodes are available",
            ),
            ("cannot fit", "gang", "no room", ("kai-scheduler: Unschedulable", "0/3 nodes are available"), ""),
            id="no room, in both their words",
        ),
    ],
)  # fmt: skip
def test_a_gang_of_another_scheduler(found: Verdict, want: tuple[object, ...]) -> None:
    assert (found.state, found.level, found.reason, found.evidence, found.next) == want
