"""Why a gang of another scheduler waits, and a set without gangs: what is written on the objects, a row each."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime

import msgspec
import pytest

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.gangs import gang_verdict
from grove.diagnosis.refused import raised_quota
from grove.diagnosis.seen import Seen
from grove.diagnosis.verdict import Judgement, judge, judge_all

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
    assert ("delete the pod for a try at once" in found.next) is want


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
            ("waiting", "create", "pods of x-0-a cannot be created: admission webhook said no"),
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


def test_any_number_of_sets_share_one_index_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    index = Seen._pods_by
    monkeypatch.setattr(Seen, "_pods_by", lambda self, label: built.append(label) or index(self, label))
    clique = {"name": "a", "spec": {"roleName": "a", "replicas": 1, "podSpec": {"containers": []}}}
    spec = {"replicas": 1, "template": {"cliques": [clique]}}
    names = [f"s{n}" for n in range(5)]
    sets = [
        msgspec.convert({"metadata": {"name": one, "namespace": "ns"}, "spec": spec}, PodCliqueSet) for one in names
    ]
    gangs = [
        msgspec.convert({"metadata": {"name": f"{one}-0", "namespace": "ns", "labels": {labels.PART_OF: one}}}, PodGang)
        for one in names
    ]
    found = judge_all(Seen(sets=sets, gangs=gangs), datetime(2026, 1, 1, tzinfo=UTC))
    assert len(found) == len(sets)
    assert len(built) == len(set(built))


def clique_of(name: str, replicas: int, existing: int) -> PodClique:
    spec = {"roleName": "a", "replicas": replicas, "podSpec": {"containers": []}}
    meta = {"name": name, "namespace": "ns"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"replicas": existing}}, PodClique)


QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: {}, used: {}, limited: pods=1'


@pytest.mark.parametrize(
    ("refused", "want"),
    [
        pytest.param(
            [(clique_of("a", 3, 1), QUOTA.format("pods=1", "pods=1"))], {"pods": "3"}, id="what one clique lacks"
        ),
        pytest.param(
            [
                (clique_of("a", 2, 0), QUOTA.format("limits.memory=1Gi,pods=1", "limits.memory=0,pods=1")),
                (clique_of("b", 1, 0), QUOTA.format("limits.memory=4Gi,pods=1", "limits.memory=0,pods=1")),
            ],
            {"limits.memory": "6Gi", "pods": "4"},
            id="of two cliques together",
        ),
        pytest.param(
            [(clique_of("a", 2, 0), QUOTA.format("requests.cpu=500m", "requests.cpu=750m"))],
            {"requests.cpu": "1750m"},
            id="parts of a core",
        ),
        pytest.param([(clique_of("a", 1, 0), "insufficient quota to match these scopes")], None, id="another message"),
    ],
)
def test_the_quota_is_raised_by_what_the_missing_pods_ask_for(
    refused: list[tuple[PodClique, str]], want: dict[str, str] | None
) -> None:
    command = raised_quota(refused)
    if want is None:
        assert command == ""
        return
    *words, patch = shlex.split(command)
    assert words == ["kubectl", "-n", "ns", "patch", "resourcequota", "few", "-p"]
    assert json.loads(patch) == {"spec": {"hard": want}}
