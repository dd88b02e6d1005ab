"""Status of cliques, groups and sets: counts, breaches, minimums, hashes, errors, and writing nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.support.manifests import clique, group, pcs
from tests.support.objects import conditions, gang
from tests.support.observed import NOW, all_cliques, clique_of, clique_seen, group_of, group_seen, pod, set_of, set_seen

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json, find_condition
from grove.api.pod import PodStatus
from grove.api.podclique import PodClique, PodCliqueStatus, PodCliqueUpdateProgress
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.operator.podclique.status import clique_status, count_pods
from grove.operator.podcliqueset.status import set_status
from grove.operator.scalinggroup.status import group_status
from grove.operator.shared.children import template_hashes
from grove.operator.shared.diff import status_patch
from grove.operator.shared.outcome import COMPLETE, Outcome, with_outcome
from grove.operator.shared.rollout import lost_all_scheduled

LATER = NOW + timedelta(minutes=5)
FQN = "d-0-w"
SET = set_of(pcs("d", clique("w", 3, min_available=2)), currentGenerationHash="gen")
HASH = template_hashes(SET)["w"]


def crashed(phase: str = "Running") -> Pod:
    last = {"terminated": {"exitCode": 1}}
    return pod(FQN, 8, node="n", phase=phase, containers=[{"name": "c", "lastState": last}])


def waiting(reason: str) -> Pod:
    return pod(FQN, 7, node="n", phase="Pending", containers=[{"name": "c", "state": {"waiting": {"reason": reason}}}])


def prepared_for(seconds: float) -> Pod:
    """A pod whose volumes, devices or network its node has prepared for so long, and has not finished."""
    since = (NOW - timedelta(seconds=seconds)).isoformat()
    condition = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": since}
    given = waiting("ContainerCreating")
    status = {
        **msgspec.to_builtins(given.status),
        "conditions": [{"type": "PodScheduled", "status": "True"}, condition],
    }
    return structs.replace(given, status=msgspec.convert(status, PodStatus, strict=False))


def unready() -> Pod:
    return pod(FQN, 9, node="n", phase="Running", containers=[{"name": "c", "started": True, "ready": False}])


def status_of(
    pods: list[Pod], replicas: int = 3, outcome: Outcome = COMPLETE, hash_: str = HASH, **before: Any
) -> PodCliqueStatus:
    return clique_status(
        clique_seen(SET, clique_of(SET, FQN, replicas, **before), pods, template_hash=hash_), outcome, NOW
    )


def said(status: Any, type_: str) -> tuple[str, str] | None:
    found = find_condition(status.conditions, type_)
    return (found.status, found.reason) if found else None


def test_pods_are_counted_by_what_they_are() -> None:
    pods = [
        pod(FQN, 0, ready=True),
        pod(FQN, 1, gated=True),
        pod(FQN, 2, node="n"),
        pod(FQN, 3, ready=True, deleting=True),
        crashed(),
        unready(),
        pod(FQN, 4, phase="Failed"),
    ]
    counts = count_pods(pods, NOW)
    assert (counts.present, counts.ready, counts.scheduled, counts.gated) == (6, 1, 4, 1)
    assert counts.up == 2, "the ready one and the one that starts"


@pytest.mark.parametrize(
    ("pods", "breached", "scheduled"),
    [
        pytest.param(
            [],
            ("True", "ScheduledReplicasBelowMinAvailable"),
            ("False", "InsufficientScheduledPods"),
            id="no pods",
        ),
        pytest.param(
            [pod(FQN, 0, node="n"), pod(FQN, 1, node="n")],
            ("False", "SufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="placed and still starting is not a breach",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), crashed()],
            ("True", "InsufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="one of two crashed",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), unready()],
            ("True", "InsufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="one of two is up but not ready",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), pod(FQN, 1, node="n", phase="Failed")],
            ("True", "InsufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="a failed pod counts as lost",
        ),
        *(
            pytest.param(
                [pod(FQN, 0, ready=True), waiting(reason)],
                ("True", "InsufficientReadyPods"),
                ("True", "SufficientScheduledPods"),
                id=f"one of two cannot start: {reason}",
            )
            for reason in ("ImagePullBackOff", "CreateContainerConfigError")
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), prepared_for(599)],
            ("False", "SufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="a mount may take ten minutes",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), prepared_for(600)],
            ("True", "InsufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="a mount that takes longer has failed",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), waiting("ContainerCreating")],
            ("False", "SufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="an image may be pulled as long as it takes",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), pod(FQN, 1, ready=True), crashed()],
            ("False", "SufficientReadyPods"),
            ("True", "SufficientScheduledPods"),
            id="one above the minimum may crash",
        ),
    ],
)
def test_clique_conditions(pods: list[Pod], breached: tuple[str, str], scheduled: tuple[str, str]) -> None:
    status = status_of(pods)
    assert said(status, "MinAvailableBreached") == breached
    assert said(status, "PodCliqueScheduled") == scheduled


def test_a_breach_is_not_judged_during_an_update() -> None:
    progress = {"updateStartedAt": NOW.isoformat(), "podCliqueSetGenerationHash": "g", "podTemplateHash": "h"}
    assert said(status_of([], updateProgress=progress), "MinAvailableBreached") == ("Unknown", "UpdateInProgress")


@pytest.mark.parametrize(
    ("pods", "in_flight", "breached"),
    [
        pytest.param([], [0, 1], ("Unknown", "UpdateInProgress"), id="the update replaces all that is missing"),
        pytest.param([], [0], ("True", "ScheduledReplicasBelowMinAvailable"), id="more is missing"),
        pytest.param(
            [pod(FQN, 1, ready=True), crashed(), pod(FQN, 2, node="n", phase="Failed")],
            [1],
            ("True", "InsufficientReadyPods"),
            id="the one that is replaced is back, and the others failed",
        ),
        pytest.param(
            [pod(FQN, 0, node="n")],
            [0],
            ("True", "ScheduledReplicasBelowMinAvailable"),
            id="a new pod that starts stands for itself only",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), pod(FQN, 1, ready=True)],
            [2],
            ("False", "SufficientReadyPods"),
            id="the minimum is there without the one that is replaced",
        ),
    ],
)
def test_in_a_pause_only_what_the_update_replaces_may_be_missing(
    pods: list[Pod], in_flight: list[int], breached: tuple[str, str]
) -> None:
    paused = set_of(pcs("d", clique("w", 3, min_available=2), metadata={"annotations": {key.ROLLOUT_PAUSED: "true"}}))
    progress = {
        "updateStartedAt": NOW.isoformat(),
        "podCliqueSetGenerationHash": "g",
        "podTemplateHash": HASH,
        "readyPodsSelectedToUpdate": {"current": "x", "indexes": in_flight},
    }
    seen = clique_seen(paused, clique_of(paused, FQN, 3, updateProgress=progress), pods, template_hash=HASH)
    assert said(clique_status(seen, COMPLETE, NOW), "MinAvailableBreached") == breached


@pytest.mark.parametrize(
    ("replicas", "limited", "breached"),
    [
        pytest.param(1, ("True", "ReplicasBelowMinAvailable"), "True", id="below the minimum it says so, needs one"),
        pytest.param(0, None, "False", id="zero is released and in no breach"),
        pytest.param(2, None, "True", id="at the minimum there is nothing to say"),
    ],
)
def test_scaling_below_the_minimum(replicas: int, limited: tuple[str, str] | None, breached: str) -> None:
    status = status_of([], replicas)
    assert said(status, "BelowMinAvailable") == limited
    found = said(status, "MinAvailableBreached")
    assert found is not None
    assert found[0] == breached


def test_clique_counts_selector_and_hashes() -> None:
    pods = [pod(FQN, index, ready=True, template_hash=HASH) for index in range(3)]
    status = status_of(pods)
    assert (status.replicas, status.ready_replicas, status.scheduled_replicas, status.updated_replicas) == (3, 3, 3, 3)
    assert status.schedule_gated_replicas == 0
    assert status.observed_generation == 1
    assert status.hpa_pod_selector == (
        "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=d,grove.io/podclique=d-0-w"
    )
    assert (status.current_pod_template_hash, status.current_pod_clique_set_generation_hash) == (HASH, "gen")


def test_hashes_wait_for_the_last_old_pod() -> None:
    pods = [pod(FQN, 0, ready=True, template_hash=HASH), pod(FQN, 1, ready=True, template_hash="old")]
    status = status_of(pods, currentPodTemplateHash="old", currentPodCliqueSetGenerationHash="gen0")
    assert status.updated_replicas == 1
    assert (status.current_pod_template_hash, status.current_pod_clique_set_generation_hash) == ("old", "gen0")


def test_hashes_stay_while_the_clique_has_not_got_its_new_template_yet() -> None:
    pods = [pod(FQN, 0, template_hash=HASH)]
    status = status_of(pods, hash_="newer", currentPodTemplateHash=HASH, currentPodCliqueSetGenerationHash="gen0")
    assert status.current_pod_clique_set_generation_hash == "gen0"


def test_a_finished_update_hands_its_hashes_over() -> None:
    progress = {
        "updateEndedAt": NOW.isoformat(),
        "podCliqueSetGenerationHash": "gen2",
        "podTemplateHash": "new",
    }
    status = status_of([pod(FQN, 0, template_hash="new")], hash_="new", updateProgress=progress)
    assert (status.current_pod_template_hash, status.current_pod_clique_set_generation_hash) == ("new", "gen2")


def test_a_member_publishes_no_selector() -> None:
    observed = set_of(pcs("d", clique("w"), groups=[group("g", "w")]))
    member = clique_of(observed, "d-0-g-0-w")
    assert clique_status(clique_seen(observed, member, template_hash="h"), COMPLETE, NOW).hpa_pod_selector == ""


def test_an_unfinished_pass_leaves_the_generation_and_names_the_errors() -> None:
    outcome = Outcome(errors=(("ERR_CREATE_POD", "quota"), ("ERR_CREATE_POD", "quota")))
    status = status_of([], outcome=outcome)
    assert status.observed_generation is None
    assert [(one.code, one.description, one.observed_at) for one in status.last_errors] == [
        ("ERR_CREATE_POD", "quota", NOW)
    ]
    assert status.last_operation is not None
    assert (status.last_operation.state, status.last_operation.description) == ("Error", "quota")


def test_the_same_error_again_changes_nothing_and_success_clears_it() -> None:
    outcome = Outcome(errors=(("ERR_CREATE_POD", "quota"),))
    first = status_of([], outcome=outcome)
    held = msgspec.structs.replace(clique_of(SET, FQN), status=first)
    again = clique_status(clique_seen(SET, held), outcome, LATER)
    assert status_patch(first, again) is None
    healed = clique_status(clique_seen(SET, held), COMPLETE, LATER)
    assert healed.last_errors == ()
    assert healed.last_operation is not None
    assert (healed.last_operation.state, healed.last_operation.last_update_time) == ("Succeeded", LATER)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        pytest.param((), None, id="all is made"),
        pytest.param((("ERR_CREATE_POD", "no"),), ("True", "FailedCreate"), id="a create is refused"),
        pytest.param((("ERR_DELETE_POD", "no"),), ("True", "FailedDelete"), id="a delete is refused"),
    ],
)
def test_what_is_refused_is_a_condition_until_it_is_not(
    errors: tuple[tuple[str, str], ...], told: tuple[str, str] | None
) -> None:
    before = status_of([], outcome=Outcome(errors=(("ERR_CREATE_POD", "before"),)))
    after = status_of([], outcome=Outcome(errors=errors), conditions=msgspec.to_builtins(before.conditions))
    assert said(before, "ReplicaFailure") == ("True", "FailedCreate")
    assert said(after, "ReplicaFailure") == told
    outcome, well = Outcome(errors=errors), set_status(set_seen(DEMO), NOW)
    assert said(with_outcome(well, DEMO.status, outcome, NOW), "ReplicaFailure") == told


def test_what_is_wrong_further_down_shows_further_up_the_first_five_of_it() -> None:
    refused = [{"code": "ERR_CREATE_POD", "description": "full", "observedAt": NOW.isoformat()}]
    cliques = [router(replica, lastErrors=refused) for replica in (1, 0)]
    status = with_outcome(set_status(set_seen(DEMO, cliques), NOW), DEMO.status, COMPLETE, NOW, cliques)
    assert [(one.code, one.description) for one in status.last_errors] == [
        ("ERR_CREATE_POD", "PodClique d-0-r: full"),
        ("ERR_CREATE_POD", "PodClique d-1-r: full"),
    ]
    assert said(status, "ReplicaFailure") == ("True", "FailedCreate")
    assert status.observed_generation == DEMO.metadata.generation, "its own children are all there"

    of_group = group_status_of([whole(name, lastErrors=refused) for name in ALL])
    assert [one.description for one in of_group.last_errors] == [f"PodClique {name}: full" for name in sorted(ALL)[:5]]
    assert group_status_of([whole(name) for name in ALL]).last_errors == ()


def test_waiting_is_processing() -> None:
    status = status_of([], outcome=Outcome(waiting_for="an older pod to go"))
    assert status.last_operation is not None
    assert (status.last_operation.type, status.last_operation.state) == ("Reconcile", "Processing")


def test_an_unchanged_clique_is_not_written_again() -> None:
    pods = [pod(FQN, 0, ready=True)]
    first = status_of(pods)
    held = msgspec.structs.replace(clique_of(SET, FQN), status=first)
    assert status_patch(first, clique_status(clique_seen(SET, held, pods), COMPLETE, LATER)) is None


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status_of([])
    held = msgspec.structs.replace(clique_of(SET, FQN), status=first)
    pods = [pod(FQN, 0, ready=True), crashed()]
    second = clique_status(clique_seen(SET, held, pods), COMPLETE, LATER)
    breach = find_condition(second.conditions, "MinAvailableBreached")
    placed = find_condition(second.conditions, "PodCliqueScheduled")
    assert breach is not None
    assert placed is not None
    assert (breach.reason, breach.last_transition_time) == ("InsufficientReadyPods", NOW)
    assert (placed.status, placed.last_transition_time) == ("True", LATER)


def test_other_peoples_conditions_stay() -> None:
    status = status_of([], conditions=[{"type": "Theirs", "status": "True"}])
    assert said(status, "Theirs") == ("True", "")


@pytest.mark.parametrize("kind", [PodCliqueStatus, PodCliqueScalingGroupStatus])
@pytest.mark.parametrize(("before", "after", "lost"), [(2, 0, True), (0, 0, False), (2, 1, False)])
def test_losing_the_last_scheduled_replica(
    kind: type[PodCliqueStatus | PodCliqueScalingGroupStatus], before: int, after: int, lost: bool
) -> None:
    assert lost_all_scheduled(2, kind(scheduled_replicas=before), kind(scheduled_replicas=after)) is lost


OPEN = PodCliqueUpdateProgress(update_started_at=NOW)
OVER = PodCliqueUpdateProgress(update_started_at=NOW, update_ended_at=LATER)


@pytest.mark.parametrize(
    ("replicas", "before", "after", "lost"),
    [
        pytest.param(1, {}, {"update_progress": OPEN}, False, id="an update takes them"),
        pytest.param(1, {"update_progress": OPEN}, {"update_progress": OVER}, False, id="an update took them"),
        pytest.param(1, {"update_progress": OVER}, {"update_progress": OVER}, True, id="lost long after an update"),
        pytest.param(1, {"incarnation": 1}, {"incarnation": 2}, False, id="their gang is restarted"),
        pytest.param(1, {"incarnation": 2}, {"incarnation": 2}, True, id="lost after a restart"),
        pytest.param(0, {}, {}, False, id="scaled to zero"),
    ],
)
def test_what_we_take_ourselves_is_no_loss(replicas: int, before: Json, after: Json, lost: bool) -> None:
    had, has = PodCliqueStatus(scheduled_replicas=1, **before), PodCliqueStatus(**after)
    assert lost_all_scheduled(replicas, had, has) is lost


# Scaling groups

PAIRS = set_of(
    pcs("d", clique("l"), clique("w", 2), groups=[group("g", "l", "w", replicas=3, min_available=2)]),
    currentGenerationHash="gen",
)
HASHES = template_hashes(PAIRS)


def whole(name: str, *, scheduled: bool = True, ready: bool = True, breached: str = "False", **more: Any) -> PodClique:
    """A member clique that is all right, unless said otherwise."""
    pods = 2 if name.endswith("-w") else 1
    hash_ = HASHES[name.rsplit("-", 1)[1]]
    status = {
        "readyReplicas": pods if ready else 0,
        "updatedReplicas": pods,
        "currentPodTemplateHash": hash_,
        "currentPodCliqueSetGenerationHash": "gen",
        "conditions": [
            {"type": "PodCliqueScheduled", "status": str(scheduled)},
            {"type": "MinAvailableBreached", "status": breached},
        ],
        **more,
    }
    return clique_of(PAIRS, name, **status)


ALL = [child["metadata"]["name"] for child in all_cliques(PAIRS)]


def group_status_of(members: list[PodClique], replicas: int = 3, **before: Any) -> PodCliqueScalingGroupStatus:
    observed = group_of(PAIRS, "d-0-g", replicas, **before)
    return with_outcome(
        group_status(group_seen(PAIRS, observed, members), NOW), observed.status, COMPLETE, NOW, members
    )


def test_a_group_that_is_all_right() -> None:
    status = group_status_of([whole(name) for name in ALL])
    assert (status.replicas, status.scheduled_replicas, status.available_replicas, status.updated_replicas) == (
        3,
        3,
        3,
        3,
    )
    assert said(status, "MinAvailableBreached") == ("False", "SufficientAvailablePodCliqueScalingGroupReplicas")
    assert status.current_pod_clique_set_generation_hash == "gen"
    assert status.selector.endswith(",grove.io/podcliquescalinggroup=d-0-g")


def with_pods(clique: PodClique, present: int, template: str | None = None) -> PodClique:
    """The clique with this number of pods, and, if said, of another template."""
    meta = clique.metadata
    labels = meta.labels if template is None else {**meta.labels, key.POD_TEMPLATE_HASH: template}
    status = structs.replace(clique.status, replicas=present)
    return structs.replace(clique, metadata=structs.replace(meta, labels=labels), status=status)


@pytest.mark.parametrize(
    ("last", "want"),
    [
        pytest.param(lambda found: with_pods(found, 2), "gen", id="all is from the templates as they are"),
        pytest.param(lambda found: with_pods(found, 3), "was", id="a clique has yet to count, its pods are right"),
        pytest.param(lambda found: None, "was", id="a replica is on its way: as it was"),
        pytest.param(
            lambda found: with_pods(whole(found.metadata.name, currentPodTemplateHash="old"), 3),
            "",
            id="a clique has a pod of another template",
        ),
        pytest.param(
            lambda found: with_pods(whole(found.metadata.name, currentPodTemplateHash="old"), 2, "old"),
            "",
            id="a clique is of another template",
        ),
    ],
)
def test_a_group_is_fully_what_nothing_of_it_departs_from(
    last: Callable[[PodClique], PodClique | None], want: str
) -> None:
    members = [with_pods(whole(name), 1) for name in ALL[:-1]]
    changed = last(whole(ALL[-1]))
    status = group_status_of([*members, *([changed] if changed else [])], currentPodCliqueSetGenerationHash="was")
    assert status.current_pod_clique_set_generation_hash == want


@pytest.mark.parametrize(
    ("changed", "counts", "breached"),
    [
        pytest.param({"scheduled": False}, (2, 2, 2), "False", id="not placed"),
        pytest.param({"ready": False}, (3, 2, 2), "False", id="placed, not ready"),
        pytest.param({"currentPodTemplateHash": "old"}, (3, 3, 2), "False", id="ready, not updated"),
        pytest.param({"breached": "True"}, (3, 3, 3), "False", id="one replica in breach leaves two"),
    ],
)
def test_one_group_replica_lags(changed: Json, counts: tuple[int, int, int], breached: str) -> None:
    members = [whole(name, **(changed if name == "d-0-g-2-w" else {})) for name in ALL]
    status = group_status_of(members)
    assert (status.scheduled_replicas, status.available_replicas, status.updated_replicas) == counts
    found = said(status, "MinAvailableBreached")
    assert found is not None
    assert found[0] == breached


@pytest.mark.parametrize(
    ("lost", "breached"),
    [
        pytest.param(["d-0-g-0-l"], "False", id="one replica incomplete leaves the minimum"),
        pytest.param(["d-0-g-0-l", "d-0-g-1-w"], "True", id="two replicas incomplete are a breach"),
    ],
)
def test_group_replicas_with_a_missing_clique_do_not_count(lost: list[str], breached: str) -> None:
    found = said(group_status_of([whole(name) for name in ALL if name not in lost]), "MinAvailableBreached")
    assert found is not None
    assert found[0] == breached


def test_a_clique_that_has_said_nothing_is_not_healthy() -> None:
    silent = [clique_of(PAIRS, name) for name in ALL]
    assert said(group_status_of(silent), "MinAvailableBreached") == (
        "True",
        "InsufficientAvailablePodCliqueScalingGroupReplicas",
    )


def test_the_termination_flag_goes_when_the_group_is_whole_again() -> None:
    flag = [{"type": "GangTerminationInProgress", "status": "True"}]
    assert said(group_status_of([], conditions=flag), "GangTerminationInProgress") is not None
    assert said(group_status_of([whole(name) for name in ALL], conditions=flag), "GangTerminationInProgress") is None


@pytest.mark.parametrize(
    ("replicas", "limited", "breached"),
    [
        pytest.param(1, ("True", "ReplicasBelowMinAvailable"), "False", id="below the minimum one is enough"),
        pytest.param(0, None, "False", id="zero asks for nothing"),
    ],
)
def test_a_group_below_its_minimum(replicas: int, limited: tuple[str, str] | None, breached: str) -> None:
    status = group_status_of([whole(name) for name in ALL], replicas)
    assert said(status, "BelowMinAvailable") == limited
    found = said(status, "MinAvailableBreached")
    assert found is not None
    assert found[0] == breached
    assert status.replicas == replicas
    assert status.available_replicas == replicas


# Sets

DEMO = set_of(
    pcs("d", clique("r", 2, min_available=1), clique("w"), groups=[group("g", "w", min_available=1)], replicas=2),
    currentGenerationHash="gen",
)


def router(replica: int, ready: int = 2, replicas: int | None = None, **more: Any) -> PodClique:
    hash_ = template_hashes(DEMO)["r"]
    status = {
        "readyReplicas": ready,
        "updatedReplicas": 2,
        "currentPodTemplateHash": hash_,
        "currentPodCliqueSetGenerationHash": "gen",
        **more,
    }
    return clique_of(DEMO, f"d-{replica}-r", replicas, **status)


def grp(replica: int, available: int = 1, hash_: str = "gen", replicas: int | None = None) -> PodCliqueScalingGroup:
    return group_of(
        DEMO, f"d-{replica}-g", replicas, availableReplicas=available, currentPodCliqueSetGenerationHash=hash_
    )


def set_status_of(
    cliques: list[PodClique], groups: list[PodCliqueScalingGroup], demo: PodCliqueSet = DEMO
) -> PodCliqueSetStatus:
    return set_status(set_seen(demo, cliques, groups), NOW)


@pytest.mark.parametrize(
    ("cliques", "groups", "available", "updated"),
    [
        pytest.param([router(0), router(1)], [grp(0), grp(1)], 2, 2, id="all right"),
        pytest.param([router(0, 1), router(1)], [grp(0), grp(1)], 2, 2, id="the minimum is enough"),
        pytest.param([router(0, 0), router(1)], [grp(0), grp(1)], 1, 1, id="a clique below its minimum"),
        pytest.param([router(0), router(1)], [grp(0, 0), grp(1)], 1, 1, id="a group below its minimum"),
        pytest.param([router(1)], [grp(0), grp(1)], 1, 1, id="a clique missing"),
        pytest.param([router(0), router(1)], [grp(1)], 1, 1, id="a group missing"),
        pytest.param([router(0), router(1)], [grp(0, hash_="old"), grp(1)], 2, 1, id="a group not updated"),
        pytest.param(
            [router(0, currentPodTemplateHash="old"), router(1)], [grp(0), grp(1)], 2, 1, id="a clique not updated"
        ),
        pytest.param([with_pods(router(0), 3), router(1)], [grp(0), grp(1)], 2, 1, id="a pod of a clique not updated"),
        pytest.param(
            [router(0, 0, replicas=0), router(1)], [grp(0, 0, replicas=0), grp(1)], 2, 2, id="zero is not missed"
        ),
        pytest.param([], [], 0, 0, id="nothing yet"),
    ],
)
def test_set_replicas(
    cliques: list[PodClique], groups: list[PodCliqueScalingGroup], available: int, updated: int
) -> None:
    status = set_status_of(cliques, groups)
    assert (status.replicas, status.available_replicas, status.updated_replicas) == (2, available, updated)


def test_the_first_pass_records_the_generation() -> None:
    fresh = set_of(pcs("d", clique("w")))
    status = set_status(set_seen(fresh), NOW)
    assert status.current_generation_hash
    assert status.observed_generation == 1
    assert status.hpa_pod_selector == (
        "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=d,grove.io/clique-name=w,"
        "grove.io/podclique-pod-index=0"
    )
    changed = set_of(pcs("d", clique("w", nodeName="n")), currentGenerationHash=status.current_generation_hash)
    after = set_status(set_seen(changed), NOW)
    assert after.current_generation_hash == status.current_generation_hash, "a change is for the update to act on"


def test_progress_counts_follow() -> None:
    demo = set_of(
        pcs("d", clique("r", 2, min_available=1), clique("w"), groups=[group("g", "w")], replicas=2),
        currentGenerationHash="gen",
        updateProgress={"updateStartedAt": NOW.isoformat()},
    )
    progress = set_status_of([router(0), router(1, currentPodTemplateHash="old")], [grp(0)], demo).update_progress
    assert progress is not None
    assert (progress.updated_pod_cliques_count, progress.total_pod_cliques_count) == (1, 2)
    assert (
        progress.updated_pod_clique_scaling_groups_count,
        progress.total_pod_clique_scaling_groups_count,
    ) == (1, 2)


def test_gangs_are_listed_with_what_is_wrong_with_them() -> None:
    gangs = [
        gang("d-1", status={"phase": "Running", "conditions": conditions(Initialized="True", Scheduled="True")}),
        gang("d-0", status={"phase": "Pending", "conditions": conditions(Initialized="True", Scheduled="False")}),
        gang("d-2"),
        gang("d-3", status={"phase": "of another scheduler"}),
    ]
    status = set_status(set_seen(DEMO, gangs=gangs), NOW)
    assert [(one.name, one.phase, [c.type for c in one.conditions]) for one in status.pod_gang_statuses] == [
        ("d-0", "Pending", ["Scheduled"]),
        ("d-1", "Running", []),
        ("d-2", "Pending", []),
        ("d-3", "Pending", []),
    ]


def test_an_unchanged_set_is_not_written_again() -> None:
    first = set_status_of([router(0)], [grp(0)])
    held = msgspec.structs.replace(DEMO, status=first)
    again = set_status(set_seen(held, [router(0)], [grp(0)]), LATER)
    assert status_patch(first, again) is None


@pytest.mark.parametrize(
    ("replicas", "pods", "want"),
    [
        pytest.param(1, 1, "at least 1 pod has a node", id="one of one"),
        pytest.param(1, 0, "fewer than 1 pod has a node", id="none of one"),
        pytest.param(2, 2, "at least 2 pods have a node", id="two of two"),
    ],
)
def test_a_clique_of_one_pod_is_named_in_the_singular(replicas: int, pods: int, want: str) -> None:
    status = status_of([pod(FQN, index, node="n") for index in range(pods)], replicas)
    found = find_condition(status.conditions, "PodCliqueScheduled")
    assert found is not None
    assert found.message == want
