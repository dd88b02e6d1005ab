"""Why a gang of another scheduler waits, and a set without gangs: what is written on the objects, a row each."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.show.gangs import Verdict, gang_verdict
from grove.show.seen import Seen
from grove.show.verdict import Judgement, judge

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
            verdict(), ("starting", "gate", "its pods are still being created", (), ""), id="pods are being made"
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
                {
                    "type": "SchedulerObjectsReady",
                    "status": "False",
                    "reason": "SchedulerNotInstalled",
                    "message": "podgroups.scheduling.run.ai is not served",
                },
            ),
            (
                "waiting",
                "gate",
                "podgroups.scheduling.run.ai is not served",
                ("kai-scheduler: SchedulerNotInstalled",),
                "kai-scheduler does not know the gang yet; docs/backends.md says what SchedulerNotInstalled asks for",
            ),
            id="a scheduler that is not installed",
        ),
        pytest.param(
            verdict(
                COMPLETE,
                {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
                pod_says="0/3 nodes are available",
            ),
            ("waiting", "gang", "no room", ("kai-scheduler: Unschedulable", "0/3 nodes are available"), ""),
            id="no room, in both their words",
        ),
    ],
)
def test_a_gang_of_another_scheduler(found: Verdict, want: tuple[object, ...]) -> None:
    assert (found.state, found.level, found.reason, found.evidence, found.next) == want


@pytest.mark.parametrize(
    ("scheduler", "required", "node", "want"),
    [
        pytest.param("koord-scheduler", "rack", "n1", True, id="a replacement in a gang with topology"),
        pytest.param("koord-scheduler", "", "n1", False, id="a replacement without topology is tried again"),
        pytest.param("koord-scheduler", "rack", "", False, id="a whole gang is tried all the time"),
        pytest.param("volcano", "rack", "n1", False, id="another scheduler"),
    ],
)
def test_a_replacement_that_koordinator_tried_once(scheduler: str, required: str, node: str, want: bool) -> None:
    meta = {"name": "x-0", "namespace": "ns", "labels": {labels.SCHEDULER_NAME: scheduler, labels.PART_OF: "x"}}
    spec = {"topologyConstraint": {"packConstraint": {"required": required}}} if required else {}
    said = [COMPLETE, {"type": "Scheduled", "status": "False", "reason": "MinimumNotPlaced", "message": "x-0-a"}]
    gang = msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": said}}, PodGang)
    own = {"name": "x-0-a-1", "namespace": "ns", "labels": {labels.POD_GANG: "x-0"}}
    pod = msgspec.convert({"metadata": own, "spec": {"nodeName": node}}, Pod)
    found = gang_verdict(Seen(gangs=[gang], pods=[pod]), gang, None)
    assert ("delete the pod to have it tried at once" in found.next) is want


def judged(refusal: str = "", clumsy: str = "", **meta: object) -> Judgement:
    """A set that has no gangs: the API server refuses pods of its clique, or the operator stumbles."""
    own = {"name": "x", "namespace": "ns", "generation": 2, **meta}
    errors = [{"code": "ERR", "description": clumsy}] if clumsy else []
    manifest = {
        "metadata": own,
        "spec": {"replicas": 1, "template": {"cliques": []}},
        "status": {"observedGeneration": 2, "lastErrors": errors},
    }
    clique = {
        "metadata": {"name": "x-0-a", "namespace": "ns", "labels": {labels.PART_OF: "x"}},
        "spec": {"replicas": 1},
        "status": {"lastErrors": [{"code": "ERR", "description": refusal}] if refusal else []},
    }
    seen = Seen(sets=[msgspec.convert(manifest, PodCliqueSet)], cliques=[msgspec.convert(clique, PodClique)])
    return judge(seen, seen.sets[0], datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            judged(
                'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
            ),
            ("waiting", "create", "pods of x-0-a cannot be created: the namespace's Pod Security level forbids them"),
            id="a namespace with a Pod Security level",
        ),
        pytest.param(
            judged("no PriorityClass with name urgent was found"),
            ("waiting", "create", "pods of x-0-a cannot be created: there is no PriorityClass urgent"),
            id="a priority that is not there",
        ),
        pytest.param(
            judged("admission webhook said no"),
            ("waiting", "create", "pods of x-0-a cannot be created"),
            id="a refusal nobody knows",
        ),
        pytest.param(
            judged(clumsy="services is forbidden"),
            ("waiting", "operator", "ERR: services is forbidden"),
            id="the operator stumbles",
        ),
        pytest.param(judged(), ("starting", "operator", "it has no PodGangs yet"), id="nothing said yet"),
        pytest.param(
            judged(generation=3), ("starting", "operator", "the operator has not seen it yet"), id="not seen yet"
        ),
        pytest.param(
            judged(deletionTimestamp="2026-01-01T00:00:00Z"),
            ("deleting", "operator", "is being deleted"),
            id="it is going",
        ),
    ],
)
def test_a_set_without_gangs(found: Judgement, want: tuple[str, str, str]) -> None:
    assert (found.state, found.level, found.reason) == want
