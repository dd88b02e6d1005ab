"""Pods of a clique: indexes, replacement, scale-in, minimums, timers; and what a new pod looks like."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, clique_of, clique_seen, pod, set_of

from grove.api.core import Pod
from grove.api.meta import Condition, Json
from grove.api.podclique import PodCliqueUpdateProgress, PodsSelectedToUpdate
from grove.api.podcliqueset import IN_ORDER
from grove.api.podgang import PodGang
from grove.backends import koord
from grove.backends.base import Backend
from grove.backends.grove import GroveBackend
from grove.backends.kai import KaiBackend
from grove.backends.kube import KubeBackend
from grove.operator.podclique.pod import build_pod
from grove.operator.podclique.pods import PodPlan, free_indexes, plan_pods
from grove.operator.podclique.removals import scale_in_order
from grove.operator.podclique.rollout import CliqueStep
from grove.operator.podclique.status import ObservedClique
from grove.operator.shared.layout import pod_index

FQN = "d-0-w"


def observed(
    replicas: int = 3,
    min_available: int = 1,
    manifest: Json | None = None,
    fqn: str = FQN,
    backend: Backend | None = None,
) -> ObservedClique:
    wanted = set_of(manifest or pcs("d", clique("w", 3, min_available=min_available)))
    return clique_seen(
        wanted, clique_of(wanted, fqn, replicas), backend=backend or GroveBackend(), startup_image="initc:1"
    )


def build(seen: ObservedClique, index: int, name: str) -> Json:
    assert seen.backend is not None
    return build_pod(seen, seen.backend, 0, index, name)


def plan(
    seen: ObservedClique, pods: list[Pod], now: datetime = NOW, taken: frozenset[str] = frozenset(), **facts: Any
) -> PodPlan:
    seen = replace(seen, pods=pods, **facts)
    assert seen.backend is not None
    return plan_pods(seen, seen.backend, CliqueStep(replace=taken), now, Random(7))


def created(found: PodPlan) -> list[str]:
    return [one["spec"]["hostname"] for one in found.create]


def removed(found: PodPlan) -> list[tuple[str, str]]:
    return [(one.pod.spec.hostname, one.reason) for one in found.delete]


HALF_DEAD: list[Json] = [
    {"name": "engine", "state": {"terminated": {"exitCode": 1}}},
    {"name": "proxy", "ready": True, "started": True, "state": {"running": {}}},
]


@pytest.mark.parametrize(
    ("replicas", "pods", "new", "gone"),
    [
        pytest.param(3, [], ["d-0-w-0", "d-0-w-1", "d-0-w-2"], [], id="a new clique gets all its pods"),
        pytest.param(3, [pod(FQN, 0), pod(FQN, 1), pod(FQN, 2)], [], [], id="nothing to do"),
        pytest.param(3, [pod(FQN, 0), pod(FQN, 2)], ["d-0-w-1"], [], id="the hole is filled"),
        pytest.param(
            3,
            [pod(FQN, 0), pod(FQN, 1, deleting=True), pod(FQN, 2)],
            ["d-0-w-1"],
            [],
            id="a leaving pod gives up its index",
        ),
        pytest.param(
            3,
            [pod(FQN, 0), pod(FQN, 1, phase="Failed"), pod(FQN, 2)],
            ["d-0-w-1"],
            [("d-0-w-1", "Failed")],
            id="a failed pod is replaced under its own index",
        ),
        pytest.param(
            2,
            [pod(FQN, 1), pod(FQN, 2, phase="Failed")],
            ["d-0-w-2"],
            [("d-0-w-2", "Failed")],
            id="and not under a lower one that scaling left free",
        ),
        pytest.param(
            3, [pod(FQN, 0), pod(FQN, 1, phase="Succeeded"), pod(FQN, 2)], [], [], id="a finished pod keeps its place"
        ),
        pytest.param(
            2,
            [pod(FQN, 0), pod(FQN, 1, phase="Running", node="n", restart_policy="Never", containers=HALF_DEAD)],
            ["d-0-w-1"],
            [("d-0-w-1", "Failed")],
            id="a container that is dead for good costs the pod",
        ),
        pytest.param(
            2,
            [pod(FQN, 0, ready=True), pod(FQN, 1, ready=True), pod(FQN, 2)],
            [],
            [("d-0-w-2", "ScaleIn")],
            id="scale-in takes the least useful",
        ),
        pytest.param(
            1,
            [pod(FQN, 0), pod(FQN, 1, ready=True)],
            [],
            [("d-0-w-0", "ScaleIn")],
            id="survivors may have any index",
        ),
        pytest.param(
            0,
            [pod(FQN, 0, ready=True), pod(FQN, 1)],
            [],
            [("d-0-w-1", "ScaleIn"), ("d-0-w-0", "ScaleIn")],
            id="zero takes all",
        ),
        pytest.param(
            2,
            [pod(FQN, 0, ready=True), pod(FQN, 0, name="d-0-w-twin", uid="twin"), pod(FQN, 1, ready=True)],
            [],
            [("d-0-w-0", "DuplicateIndex")],
            id="of two pods with one index the better stays",
        ),
        pytest.param(
            2,
            [pod(FQN, 0), pod(FQN, 0, name="d-0-w-twin", uid="twin")],
            ["d-0-w-1"],
            [("d-0-w-0", "DuplicateIndex")],
            id="the freed place gets a new index",
        ),
        pytest.param(
            2,
            [pod(FQN, 0), pod(FQN, 0, hostname="odd", uid="odd", age_s=1)],
            ["d-0-w-1"],
            [("odd", "DuplicateIndex")],
            id="the label tells the index where the hostname does not",
        ),
    ],
)
def test_plan(replicas: int, pods: list[Pod], new: list[str], gone: list[tuple[str, str]]) -> None:
    found = plan(observed(replicas), pods)
    assert created(found) == new
    assert removed(found) == gone


@pytest.mark.parametrize(
    ("replicas", "have"),
    [
        pytest.param(1, 3, id="below the minimum"),
        pytest.param(2, 3, id="at the minimum"),
        pytest.param(0, 3, id="zero releases"),
        pytest.param(1, 0, id="below the minimum from nothing"),
    ],
)
def test_a_clique_has_what_it_was_scaled_to(replicas: int, have: int) -> None:
    pods = [pod(FQN, index, ready=True) for index in range(have)]
    found = plan(observed(replicas, min_available=2), pods)
    assert have - len(found.delete) + len(found.create) == replicas


@pytest.mark.parametrize(
    ("edited", "patch"),
    [
        pytest.param({}, [], id="as it was made"),
        pytest.param({"mine": "x", "grove.io/pod-template-hash": "old"}, [], id="labels that tell no place"),
        pytest.param({"grove.io/podgang": "x"}, [{"grove.io/podgang": "d-0-g-0"}], id="another gang"),
        pytest.param(
            {"grove.io/base-podgang": "", "app.kubernetes.io/part-of": "e"},
            [{"app.kubernetes.io/part-of": "d", "grove.io/base-podgang": "d-0"}],
            id="another set, no base gang",
        ),
        pytest.param(
            {"grove.io/podclique-pod-index": "3"}, [{"grove.io/podclique-pod-index": "0"}], id="another index"
        ),
    ],
)
def test_labels_that_tell_a_place_are_put_right(edited: dict[str, str], patch: list[Json]) -> None:
    made = observed(1, manifest=pcs("d", clique("w"), groups=[group("g", "w", replicas=2)]), fqn="d-0-g-1-w")
    body = build(made, 0, "d-0-g-1-w-abcde")
    body["metadata"] |= {"uid": "u", "labels": {**body["metadata"]["labels"], **edited}}
    found = plan(made, [msgspec.convert(body, Pod)])
    assert [changes for _, changes in found.relabel] == patch
    assert found.is_settled is (not patch)


def test_a_pod_that_waits_in_vain_is_made_again_under_its_index() -> None:
    found = plan(observed(2), [pod(FQN, 0, uid="stuck"), pod(FQN, 1)], stuck=frozenset({"stuck"}))
    assert (created(found), removed(found)) == (["d-0-w-0"], [("d-0-w-0", "ParentAtZero")])


def test_a_pod_that_fails_at_once_is_not_replaced_at_once() -> None:
    young = pod(FQN, 0, phase="Failed", age_s=4)
    waiting = plan(observed(1), [young])
    assert (waiting.create, waiting.delete, waiting.next_look_s) == ([], [], 6.0)
    later = plan(observed(1), [young], now=NOW + timedelta(seconds=6))
    assert removed(later) == [("d-0-w-0", "Failed")]
    assert created(later) == ["d-0-w-0"]


def test_the_clique_looks_again_when_the_time_to_prepare_a_pod_is_over() -> None:
    mounting = pod(FQN, 0, node="n")
    condition = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": NOW.isoformat()}
    status = structs.replace(mounting.status, conditions=(msgspec.convert(condition, Condition, strict=False),))
    mounting = structs.replace(mounting, status=status)
    assert plan(observed(1), [mounting], now=NOW + timedelta(seconds=4)).next_look_s == 596.0
    assert plan(observed(1), [mounting], now=NOW + timedelta(seconds=600)).next_look_s is None


def test_a_pod_on_a_vanished_node_is_given_up_after_a_moment() -> None:
    lost = pod(FQN, 0, ready=True, node="gone")
    fine = pod(FQN, 1, ready=True, node="here")
    early = plan(observed(2), [lost, fine], now=NOW + timedelta(seconds=4), gone_since={"gone": NOW})
    assert (created(early), removed(early)) == ([], [])
    assert early.next_look_s == 6.0
    late = plan(observed(2), [lost, fine], now=NOW + timedelta(seconds=10), gone_since={"gone": NOW})
    assert removed(late) == [("d-0-w-0", "NodeGone")]
    assert [one.force for one in late.delete] == [True]
    assert created(late) == ["d-0-w-0"]


def test_a_pod_stuck_in_deletion_on_a_vanished_node_is_forced_out() -> None:
    stuck = pod(FQN, 0, node="gone", deleting=True)
    new = pod(FQN, 0, name="new", uid="new")
    found = plan(observed(1), [stuck, new], gone_since={"gone": NOW - timedelta(60)})
    assert [(one.pod.metadata.name, one.force) for one in found.delete] == [("d-0-w-0-abcde", True)]
    assert found.create == []


def test_an_update_takes_pods_and_they_come_back_under_their_index() -> None:
    pods = [pod(FQN, index, ready=True, uid=f"u{index}") for index in range(3)]
    found = plan(observed(3), pods, taken=frozenset({"u1"}))
    assert removed(found) == [("d-0-w-1", "Outdated")]
    assert created(found) == ["d-0-w-1"]


def test_a_pod_that_an_update_waits_for_is_made_under_its_index_though_a_lower_one_is_free() -> None:
    selection = PodsSelectedToUpdate(indexes=(3,))
    waits = CliqueStep(PodCliqueUpdateProgress(ready_pods_selected_to_update=selection))
    seen = replace(observed(2), pods=[pod(FQN, 2)])
    found = plan_pods(seen, GroveBackend(), waits, NOW, Random(7))
    assert created(found) == ["d-0-w-3"]


def test_gates_come_off_only_from_pods_that_stay() -> None:
    pods = [pod(FQN, 0, gated=True), pod(FQN, 1, gated=True)]
    listed = {"name": FQN, "podReferences": [{"namespace": "default", "name": one.metadata.name} for one in pods]}
    status = {"conditions": [{"type": "Initialized", "status": "True"}]}
    gang = msgspec.convert({"metadata": {}, "spec": {"podgroups": [listed]}, "status": status}, PodGang)
    found = plan(observed(1, backend=KubeBackend()), pods, gang=gang)
    assert len(found.delete) == 1
    assert [one.metadata.name for one in found.ungate] == ["d-0-w-0-abcde"]


def test_indexes_are_those_that_stay_or_come() -> None:
    found = plan(observed(3), [pod(FQN, 0, phase="Failed"), pod(FQN, 5), pod(FQN, 2, deleting=True)])
    assert found.indexes == {0, 1, 5}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(pod(FQN, 0), pod(FQN, 1, node="n"), id="without a node before with one"),
        pytest.param(pod(FQN, 0, node="n"), pod(FQN, 1, node="n", phase="Unknown"), id="pending before unknown"),
        pytest.param(
            pod(FQN, 0, node="n", phase="Unknown"), pod(FQN, 1, node="n", phase="Running"), id="unknown before running"
        ),
        pytest.param(pod(FQN, 0, node="n", phase="Running"), pod(FQN, 1, ready=True), id="not ready before ready"),
        pytest.param(
            pod(FQN, 0, ready=True, template_hash="old"),
            pod(FQN, 1, ready=True, template_hash="new"),
            id="old template before new",
        ),
        pytest.param(pod(FQN, 0, ready=True, age_s=1), pod(FQN, 1, ready=True, age_s=9), id="young before old"),
        pytest.param(pod(FQN, 3, ready=True), pod(FQN, 1, ready=True), id="of equals the higher index"),
        pytest.param(
            pod(FQN, 0, ready=True, template_hash="old", age_s=9),
            pod(FQN, 1, ready=True, template_hash="new", age_s=1),
            id="the template weighs more than age",
        ),
    ],
)
def test_scale_in_order(first: Pod, second: Pod) -> None:
    assert scale_in_order([second, first], "new") == [first, second]


def costing(one: Pod, cost: str) -> Pod:
    meta = structs.replace(one.metadata, annotations={"controller.kubernetes.io/pod-deletion-cost": cost})
    return structs.replace(one, metadata=meta)


LOADS = {"d-0-w-0-abcde": 5.0, "d-0-w-1-abcde": 1.0, "d-0-w-2-abcde": 3.0}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            [pod(FQN, 0, ready=True, age_s=1), pod(FQN, 1, ready=True, age_s=9), pod(FQN, 2, ready=True)],
            [1, 2, 0],
            id="the least to do first, whatever the age",
        ),
        pytest.param(
            [pod(FQN, 0, ready=True), pod(FQN, 3, ready=True, age_s=1)],
            [0, 3],
            id="one of which nothing is known may be busy",
        ),
        pytest.param(
            [costing(pod(FQN, 1, ready=True), "10"), pod(FQN, 0, ready=True)],
            [0, 1],
            id="a deletion cost weighs more than work",
        ),
        pytest.param(
            [costing(pod(FQN, 0, ready=True), "-1"), pod(FQN, 1, ready=True)],
            [0, 1],
            id="and may invite deletion",
        ),
        pytest.param(
            [costing(pod(FQN, 0, ready=True), "dear"), pod(FQN, 1, ready=True)],
            [1, 0],
            id="nonsense costs nothing",
        ),
        pytest.param(
            [pod(FQN, 1, ready=True), pod(FQN, 0, node="n", phase="Running")],
            [0, 1],
            id="not ready goes before the idle",
        ),
    ],
)
def test_a_scale_in_takes_those_with_the_least_to_do(pods: list[Pod], want: list[int]) -> None:
    assert [pod_index(one) for one in scale_in_order(pods, "", LOADS)] == want
    assert [pod_index(one) for one in scale_in_order(reversed(pods), "", LOADS)] == want


def test_the_pod_that_stands_for_a_replica_stays_among_its_equals() -> None:
    idle = {"d-0-w-0-abcde": 0.0, "d-0-w-1-abcde": 9.0}
    found = plan(observed(1), [pod(FQN, 0, ready=True), pod(FQN, 1, ready=True)], loads=idle)
    assert removed(found) == [("d-0-w-1", "ScaleIn")]
    found = plan(observed(1), [pod(FQN, 0, node="n", phase="Running"), pod(FQN, 1, ready=True)], loads=idle)
    assert removed(found) == [("d-0-w-0", "ScaleIn")], "not if it is not well"


def test_in_a_clique_that_is_not_measured_pod_0_goes_like_any_other() -> None:
    other = pcs("d", clique("first"), clique("w", 3, min_available=1))
    idle = {"d-0-w-0-abcde": 0.0, "d-0-w-1-abcde": 9.0}
    found = plan(observed(1, manifest=other), [pod(FQN, 0, ready=True), pod(FQN, 1, ready=True)], loads=idle)
    assert removed(found) == [("d-0-w-0", "ScaleIn")]


def test_free_indexes_fill_holes_first() -> None:
    assert free_indexes({0, 2, 5}, 4) == [1, 3, 4, 6]


phases = st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown"])
pods_lists = st.lists(
    st.tuples(st.integers(0, 5), phases, st.booleans(), st.booleans(), st.integers(0, 30)), max_size=8
).map(
    lambda rows: [
        pod(
            FQN,
            index,
            phase=phase,
            deleting=leaving,
            ready=ready and phase == "Running",
            age_s=age,
            name=f"p{at}",
            uid=f"u{at}",
        )
        for at, (index, phase, leaving, ready, age) in enumerate(rows)
    ]
)


@given(pods_lists, st.integers(0, 5), st.integers(1, 3))
def test_laws_of_a_plan(pods: list[Pod], replicas: int, min_available: int) -> None:
    seen = observed(replicas, min_available)
    found = plan(seen, pods)
    gone = {one.pod.metadata.uid for one in found.delete}
    stay = [one for one in pods if not one.metadata.is_deleting and one.metadata.uid not in gone]
    fresh = [int(one["metadata"]["labels"]["grove.io/podclique-pod-index"]) for one in found.create]
    indexes = [pod_index(one) for one in stay] + fresh
    assert len(indexes) == len(set(indexes)), "no index twice"
    assert found.indexes == set(indexes)
    assert len(indexes) == replicas
    assert not (gone & {one.metadata.uid for one in pods if one.metadata.is_deleting}), "nobody is deleted twice"
    names = [one["metadata"]["name"] for one in found.create]
    assert len(names) == len(set(names))


def test_a_new_pod() -> None:
    manifest = pcs(
        "d",
        clique(
            "w",
            labels={"team": "a"},
            annotations={"note": "b", "grove.io/topology-name": "t"},
            initContainers=[{"name": "prepare", "env": [{"name": "GROVE_PCS_NAME", "value": "mine"}]}],
            schedulingGates=[{"name": "users"}],
            hostname="users",
        ),
        clique("x"),
        groups=[group("g", "w", replicas=2)],
        priorityClassName="high",
    )
    made = build(observed(1, manifest=manifest, fqn="d-0-g-1-w", backend=KubeBackend()), 4, "d-0-g-1-w-abcde")
    meta, spec = made["metadata"], made["spec"]
    assert (meta["name"], meta["generateName"], meta["namespace"]) == ("d-0-g-1-w-abcde", "d-0-g-1-w-", "default")
    assert meta["labels"]["team"] == "a"
    assert meta["labels"]["grove.io/podgang"] == "d-0-g-0"
    assert meta["labels"]["grove.io/base-podgang"] == "d-0"
    assert meta["labels"]["grove.io/podclique"] == "d-0-g-1-w"
    assert meta["labels"]["grove.io/podclique-pod-index"] == "4"
    assert meta["annotations"] == {"note": "b"}
    assert [(one["kind"], one["name"], one["uid"]) for one in meta["ownerReferences"]] == [
        ("PodClique", "d-0-g-1-w", "uid-of-d-0-g-1-w")
    ]
    assert (spec["hostname"], spec["subdomain"]) == ("d-0-g-1-w-4", "d-0")
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["schedulingGates"] == [{"name": "grove.io/podgang-pending-creation"}], "replaces the template's"
    assert spec["priorityClassName"] == "high"
    for container in (*spec["containers"], *spec["initContainers"]):
        assert [one["name"] for one in container["env"]] == [
            "GROVE_PCS_NAME",
            "GROVE_PCS_INDEX",
            "GROVE_PCLQ_NAME",
            "GROVE_HEADLESS_SERVICE",
            "GROVE_PCLQ_POD_INDEX",
            "GROVE_REVISION",
            "GROVE_PCSG_NAME",
            "GROVE_PCSG_TEMPLATE_NUM_PODS",
            "GROVE_PCSG_INDEX",
        ]
        assert container["env"][0] == {"name": "GROVE_PCS_NAME", "value": "d"}


def test_a_scheduler_that_waits_by_itself_needs_no_gate() -> None:
    manifest = pcs("d", clique("w", schedulingGates=[{"name": "users"}]))
    made = build(observed(1, manifest=manifest), 0, "n")
    assert "schedulingGates" not in made["spec"]
    assert made["spec"]["schedulerName"] == "grove-scheduler"


def test_with_kai_the_sets_priority_is_the_gangs_alone() -> None:
    queue = {"labels": {"kai.scheduler/queue": "q"}}
    manifest = pcs("d", clique("w"), priorityClassName="high", metadata=queue)
    assert "priorityClassName" not in build(observed(1, manifest=manifest, backend=KaiBackend()), 0, "n")["spec"]
    own = pcs("d", clique("w", priorityClassName="low"), priorityClassName="high", metadata=queue)
    built = build(observed(1, manifest=own, backend=KaiBackend()), 0, "n")
    assert built["spec"]["priorityClassName"] == "low", "what a clique asks for itself stays"


def test_a_pods_own_priority_stays() -> None:
    manifest = pcs("d", clique("w", priorityClassName="low"), priorityClassName="high")
    assert build(observed(1, manifest=manifest), 0, "n")["spec"]["priorityClassName"] == "low"


def test_the_start_container_gets_neither_variables_nor_claims() -> None:
    sharing = [{"name": "gpu", "scope": "AllReplicas"}]
    manifest = pcs("d", clique("a"), clique("w", sharing=sharing), startup=IN_ORDER)
    spec = build(observed(1, manifest=manifest), 0, "n")["spec"]
    (ours,) = spec["initContainers"]
    assert ours["name"] == "grove-initc"
    assert ours["image"] == "initc:1"
    assert "env" not in ours
    assert "claims" not in ours.get("resources", {})
    assert spec["resourceClaims"] == [{"name": "d-0-w-all-gpu", "resourceClaimName": "d-0-w-all-gpu"}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "d-0-w-all-gpu"}]


def test_names_stay_within_what_a_label_may_hold() -> None:
    manifest = pcs("p" * 40, clique("w" * 20))
    seen = observed(1, manifest=manifest, fqn=f"{'p' * 40}-0-{'w' * 20}")
    (made,) = plan(seen, []).create
    assert len(made["metadata"]["name"]) == 63


def test_building_a_pod_leaves_the_clique_as_it_is() -> None:
    seen = observed(2)
    before = str(seen.clique)
    plan(seen, [])
    assert str(seen.clique) == before


@pytest.mark.parametrize("backend", [GroveBackend(), KubeBackend(), koord.KoordBackend()], ids=lambda one: one.name)
def test_what_a_set_says_of_quality_and_queue_is_on_all_its_pods_for_every_scheduler(backend: Backend) -> None:
    said = {
        "koordinator.sh/qosClass": "LS",
        "koordinator.sh/priority": "9100",
        "quota.scheduling.koordinator.sh/name": "team",
        "team": "red",
    }
    manifest = pcs("d", clique("w", labels={"quota.scheduling.koordinator.sh/name": "own"}), metadata={"labels": said})
    labels = build(observed(manifest=manifest, backend=backend), 0, "d-0-w-x")["metadata"]["labels"]
    assert labels["koordinator.sh/qosClass"] == "LS"
    assert labels["koordinator.sh/priority"] == "9100"
    assert labels["quota.scheduling.koordinator.sh/name"] == "own", "a clique's own word stays"
    assert "team" not in labels
