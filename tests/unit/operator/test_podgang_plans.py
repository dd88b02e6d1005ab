"""PodGangs: their content, topology at all levels, completeness, gates and derived progress."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.observed import NOW, all_cliques, binding, clique_of, pod, set_of
from tests.support.puregraph import gang_layouts, wanted_gangs

from grove.api.core import Pod
from grove.api.meta import Json, find_condition
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import Backend
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend
from grove.operator.podgang.gangs import (
    ObservedGang,
    WantedGang,
    find_gang_layout,
    gate_removal,
    is_scheduled,
    may_be_ungated,
)
from grove.operator.podgang.status import gang_status
from grove.operator.shared.layout import find_replica, live_replicas
from grove.sim.patch import json_patch

PAIR = pcs("d", clique("a", 2, min_available=1), clique("b"))


def gangs_of(
    manifest: Json,
    pods: Iterable[Pod] = (),
    *,
    topology: ClusterTopologyBinding | None = None,
    enabled: bool = True,
    existing: PodGang | None = None,
    backend: Backend | None = None,
    without: tuple[str, ...] = (),
    **replicas: int,
) -> dict[str, WantedGang]:
    observed = set_of(manifest)
    cliques = {}
    for child in all_cliques(observed):
        name = child["metadata"]["name"]
        if name not in without:
            cliques[name] = clique_of(observed, name, replicas.get(name.replace("-", "_")))
    pods = list(pods)

    def pods_of(fqn: str) -> list[Pod]:
        return [one for one in pods if one.metadata.labels["grove.io/podclique"] == fqn]

    seen = ObservedGang(observed, backend or GroveBackend(), None, None, cliques, pods_of, topology, enabled)
    known = {existing.metadata.name: existing} if existing is not None else {}
    return {one.name: one for one in wanted_gangs(seen, live_replicas([]), known)}


def pods_of_pair(*, gang: str = "d-0", **facts: bool) -> list[Pod]:
    places = (("d-0-a", 0), ("d-0-a", 1), ("d-0-b", 0))
    return [pod(fqn, index, gang=gang, **facts) for fqn, index in places]  # type: ignore[arg-type]


def observed_gang(wanted: WantedGang, **status: object) -> PodGang:
    return msgspec.convert({**wanted.object, "status": status}, PodGang)


def test_the_worked_example() -> None:
    found = gangs_of(worked_example())
    assert {
        name: [(one["name"], one["minReplicas"]) for one in gang.object["spec"]["podgroups"]]
        for name, gang in found.items()
        if name.startswith("demo-0")
    } == {
        "demo-0": [("demo-0-router", 1), ("demo-0-grp-0-lead", 1), ("demo-0-grp-0-work", 2)],
        "demo-0-grp-0": [("demo-0-grp-1-lead", 1), ("demo-0-grp-1-work", 2)],
        "demo-0-grp-1": [("demo-0-grp-2-lead", 1), ("demo-0-grp-2-work", 2)],
    }
    assert len(found) == 6


def test_references_are_the_pods_that_stay_by_name() -> None:
    pods = [
        pod("d-0-a", 1, gang="d-0", name="z"),
        pod("d-0-a", 0, gang="d-0", name="y"),
        pod("d-0-a", 2, gang="d-0", name="leaving", deleting=True),
        pod("d-0-a", 3, gang="d-0", name="failed", phase="Failed"),
        pod("d-0-a", 4, gang="other", name="strange"),
    ]
    (first, second) = gangs_of(PAIR, pods)["d-0"].object["spec"]["podgroups"]
    assert first["podReferences"] == [{"namespace": "default", "name": "y"}, {"namespace": "default", "name": "z"}]
    assert second["podReferences"] == []


@pytest.mark.parametrize(
    ("pods", "without", "incomplete"),
    [
        pytest.param(pods_of_pair(), (), "", id="all there"),
        pytest.param(pods_of_pair()[1:], (), "d-0-a 1/2 pods", id="a pod is missing, though the minimum is there"),
        pytest.param([], (), "d-0-a 0/2 pods, d-0-b 0/1 pods", id="nothing yet"),
        pytest.param(pods_of_pair(), ("d-0-b",), "PodClique d-0-b", id="a clique is missing"),
        pytest.param(pods_of_pair(gang="x"), (), "d-0-a 0/2 pods, d-0-b 0/1 pods", id="pods of another gang"),
    ],
)
def test_completeness(pods: list[Pod], without: tuple[str, ...], incomplete: str) -> None:
    assert gangs_of(PAIR, pods, without=without)["d-0"].incomplete == incomplete


def test_a_clique_at_zero_is_left_out() -> None:
    (only,) = gangs_of(PAIR, d_0_b=0)["d-0"].object["spec"]["podgroups"]
    assert only["name"] == "d-0-a"


def test_a_gang_with_nothing_in_it_is_not_wanted() -> None:
    assert gangs_of(PAIR, d_0_a=0, d_0_b=0) == {}


def test_metadata_is_mirrored_from_the_set() -> None:
    manifest = pcs(
        "d",
        clique("a"),
        metadata={"labels": {"team": "x", "grove.io/own": "no"}, "annotations": {"note": "y", "grove.io/z": "no"}},
        priorityClassName="high",
    )
    before = msgspec.convert(
        {
            "metadata": {
                "name": "d-0",
                "labels": {"grove.io/kept": "1", "gone": "1"},
                "annotations": {"grove.io/kept": "2", "gone": "2"},
            }
        },
        PodGang,
    )
    made = gangs_of(manifest, existing=before)["d-0"].object
    assert made["metadata"]["labels"] == {
        "grove.io/kept": "1",
        "team": "x",
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "d",
        "app.kubernetes.io/component": "podgang",
        "grove.io/scheduler-name": "grove-scheduler",
    }
    assert made["metadata"]["annotations"] == {"grove.io/kept": "2", "note": "y"}
    assert made["spec"]["priorityClassName"] == "high"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "PodCliqueSet"


def packed(required: str = "", preferred: str = "", name: str = "") -> Json:
    pack = {key: value for key, value in (("required", required), ("preferred", preferred)) if value}
    return {"pack": pack, **({"topologyName": name} if name else {})}


def key_of(required: str = "", preferred: str = "") -> Json:
    return {"packConstraint": packed(required, preferred)["pack"]}


THREE_LEVELS = pcs(
    "demo",
    clique("router"),
    clique("lead"),
    clique("work", 2, topology=packed(preferred="host")),
    groups=[group("grp", "lead", "work", replicas=2, topologyConstraint=packed("rack"))],
    topologyConstraint=packed("block", name="topo"),
)


def test_topology_at_three_levels() -> None:
    found = gangs_of(THREE_LEVELS, topology=binding())
    base, scaled = found["demo-0"].object, found["demo-0-grp-0"].object
    assert base["spec"]["topologyConstraint"] == key_of("example.com/block")
    assert base["spec"]["topologyConstraintGroupConfigs"] == [
        {
            "name": "demo-0-grp-0",
            "podGroupNames": ["demo-0-grp-0-lead", "demo-0-grp-0-work"],
            "topologyConstraint": key_of("example.com/rack"),
        }
    ]
    assert [one.get("topologyConstraint") for one in base["spec"]["podgroups"]] == [
        None,
        None,
        key_of(preferred="kubernetes.io/hostname"),
    ]
    assert scaled["spec"]["topologyConstraint"] == key_of("example.com/rack"), "the group's takes the set's place"
    assert "topologyConstraintGroupConfigs" not in scaled["spec"]
    assert base["metadata"]["annotations"] == {"grove.io/topology-name": "topo"}


def test_spread_at_three_levels() -> None:
    manifest = pcs(
        "demo",
        {**clique("router", 3), "spreadConstraint": {"domain": "host", "whenUnsatisfiable": "ScheduleAnyway"}},
        clique("work", 2),
        groups=[group("grp", "work", replicas=2, spreadConstraint={"domain": "rack", "maxSkew": 2})],
        spreadConstraint={"topologyName": "topo", "domain": "block"},
    )
    found = gangs_of(manifest, topology=binding())
    hard = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    of_set = {
        **hard,
        "topologyKey": "example.com/block",
        "matchLabels": {"app.kubernetes.io/part-of": "demo"},
        "unitLabel": "grove.io/podcliqueset-replica-index",
    }
    of_group = {
        **hard,
        "maxSkew": 2,
        "topologyKey": "example.com/rack",
        "matchLabels": {"grove.io/podcliquescalinggroup": "demo-0-grp"},
        "unitLabel": "grove.io/podcliquescalinggroup-replica-index",
    }
    of_clique = {
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "topologyKey": "kubernetes.io/hostname",
        "matchLabels": {"grove.io/podclique": "demo-0-router"},
        "podGroupNames": ["demo-0-router"],
    }
    assert found["demo-0"].object["spec"]["spreadConstraints"] == [
        of_set,
        {**of_group, "podGroupNames": ["demo-0-grp-0-work"]},
        of_clique,
    ]
    assert found["demo-0-grp-0"].object["spec"]["spreadConstraints"] == [
        of_set,
        {**of_group, "podGroupNames": ["demo-0-grp-1-work"]},
    ]
    assert found["demo-0"].object["metadata"]["annotations"] == {"grove.io/topology-name": "topo"}
    assert "spreadConstraints" not in gangs_of(manifest, topology=None)["demo-0"].object["spec"]


def test_a_scaled_gang_of_an_unconstrained_group_has_the_sets_constraint() -> None:
    manifest = pcs(
        "d", clique("w"), groups=[group("g", "w", replicas=2)], topologyConstraint=packed("rack", "host", "topo")
    )
    scaled = gangs_of(manifest, topology=binding())["d-0-g-0"].object
    assert scaled["spec"]["topologyConstraint"] == key_of("example.com/rack", "kubernetes.io/hostname")


UNCONSTRAINED = [{"name": "demo-0-grp-0", "podGroupNames": ["demo-0-grp-0-lead", "demo-0-grp-0-work"]}]


@pytest.mark.parametrize(
    ("topology", "enabled", "configs"),
    [
        pytest.param(binding(), False, None, id="switched off"),
        pytest.param(None, True, UNCONSTRAINED, id="binding missing: the group stays, without a level"),
        pytest.param(binding("topo", ("zone", "z")), True, UNCONSTRAINED, id="none of the levels known"),
    ],
)
def test_what_cannot_be_translated_is_not_said(
    topology: ClusterTopologyBinding | None, enabled: bool, configs: list[Json] | None
) -> None:
    base = gangs_of(THREE_LEVELS, topology=topology, enabled=enabled)["demo-0"].object
    assert "topologyConstraint" not in base["spec"]
    assert base["spec"].get("topologyConstraintGroupConfigs") == configs
    assert base["metadata"]["annotations"] == {}


def test_an_unknown_level_is_dropped_alone() -> None:
    manifest = pcs("d", clique("w"), topologyConstraint=packed("nosuch", "rack", "topo"))
    made = gangs_of(manifest, topology=binding())["d-0"].object
    assert made["spec"]["topologyConstraint"] == key_of(preferred="example.com/rack")


def initialised(gang: WantedGang, **status: object) -> PodGang:
    return observed_gang(gang, conditions=[{"type": "Initialized", "status": "True"}], **status)


@pytest.mark.parametrize(
    ("pods", "before", "status"),
    [
        pytest.param([], None, "False", id="pods are still missing"),
        pytest.param(pods_of_pair(), None, "True", id="all pods exist"),
        pytest.param(pods_of_pair()[1:], "True", "True", id="a missing surplus pod does not stop a whole gang"),
        pytest.param(pods_of_pair()[1:], "False", "False", id="but it keeps a new one waiting"),
        pytest.param(pods_of_pair()[:2], "True", "False", id="below the minimum it is not whole any more"),
    ],
)
def test_initialized(pods: list[Pod], before: str | None, status: str) -> None:
    wanted = gangs_of(PAIR, pods)["d-0"]
    conditions = [{"type": "Initialized", "status": before}] if before else []
    after = gang_status(observed_gang(wanted, conditions=conditions), wanted, GroveBackend(), lambda fqn: [], NOW)
    condition = find_condition(after.conditions, "Initialized")
    assert condition is not None
    assert condition.status == status
    assert after.phase == "Pending"


def test_what_a_scheduler_reports_is_left_alone() -> None:
    wanted = gangs_of(PAIR, pods_of_pair())["d-0"]
    theirs = {"type": "Scheduled", "status": "True", "reason": "GangScheduled"}
    gang = observed_gang(wanted, conditions=[theirs], phase="Running", placementScore=0.5)
    after = gang_status(gang, wanted, GroveBackend(), lambda fqn: [], NOW)
    assert (after.phase, after.placement_score) == ("Running", 0.5)
    found = find_condition(after.conditions, "Scheduled")
    assert found is not None
    assert found.reason == "GangScheduled"


@pytest.mark.parametrize(
    ("facts", "phase", "scheduled", "ready"),
    [
        pytest.param({}, "Pending", "False", "False", id="nothing on a node"),
        pytest.param({"scheduled": True}, "Starting", "True", "False", id="placed"),
        pytest.param({"ready": True}, "Running", "True", "True", id="ready"),
    ],
)
def test_progress_is_derived_where_the_scheduler_says_nothing(
    facts: dict[str, bool], phase: str, scheduled: str, ready: str
) -> None:
    pods = pods_of_pair(**facts)
    wanted = gangs_of(PAIR, pods, backend=KubeBackend())["d-0"]

    def pods_of(fqn: str) -> list[Pod]:
        return [one for one in pods if one.metadata.labels["grove.io/podclique"] == fqn]

    after = gang_status(observed_gang(wanted), wanted, KubeBackend(), pods_of, NOW)
    assert after.phase == phase
    assert {one.type: one.status for one in after.conditions} == {
        "Initialized": "True",
        "Scheduled": scheduled,
        "Ready": ready,
        **({"Reconciling": "True"} if ready == "False" else {}),
    }


@pytest.mark.parametrize(
    ("placed", "wanted"),
    [
        pytest.param(["d-0-a", "d-0-b"], True, id="one of each is the minimum"),
        pytest.param(["d-0-a", "d-0-a"], False, id="two of one are not one of each"),
        pytest.param([], False, id="none"),
    ],
)
def test_is_scheduled(placed: list[str], wanted: bool) -> None:
    gang = observed_gang(gangs_of(PAIR)["d-0"])
    pods = [pod(fqn, index, gang="d-0", node="n") for index, fqn in enumerate(placed)]
    assert is_scheduled(gang, lambda fqn: [one for one in pods if one.spec.hostname.startswith(fqn)]) is wanted


@pytest.mark.parametrize(
    ("initialized", "base_scheduled", "free"),
    [
        pytest.param(True, True, ["a0"], id="listed, complete, base placed"),
        pytest.param(False, True, [], id="not complete"),
        pytest.param(True, False, [], id="the base gang is not placed"),
    ],
)
def test_releasable(initialized: bool, base_scheduled: bool, free: list[str]) -> None:
    listed = pod("d-0-a", 0, gang="d-0", gated=True, name="a0")
    wanted = gangs_of(PAIR, [listed])["d-0"]
    gang = initialised(wanted) if initialized else observed_gang(wanted)
    others = [
        pod("d-0-a", 1, gang="d-0", gated=True, name="not-listed"),
        pod("d-0-a", 2, gang="d-0", gated=True, name="a0", deleting=True),
        pod("d-0-a", 3, gang="d-0", name="a0"),
    ]
    found = may_be_ungated([listed, *others], "d-0-a", gang, base_scheduled=base_scheduled)
    assert [one.metadata.name for one in found] == free


def test_nothing_is_released_without_a_gang() -> None:
    assert may_be_ungated([pod("d-0-a", 0, gated=True)], "d-0-a", None, base_scheduled=True) == []


def test_only_our_gate_comes_off() -> None:
    gated = msgspec.convert(
        {"spec": {"schedulingGates": [{"name": "other"}, {"name": "grove.io/podgang-pending-creation"}]}}, Pod
    )
    assert gate_removal(gated) == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "grove.io/podgang-pending-creation"},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


WANTED = {"key": "rack", "operator": "In", "values": ["r1"]}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("affinity", "want"),
    [
        pytest.param(None, [[WANTED]], id="a pod without affinity"),
        pytest.param({"podAffinity": {}}, [[WANTED]], id="with another kind of affinity"),
        pytest.param({"nodeAffinity": {}}, [[WANTED]], id="without anything required"),
        pytest.param(
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [SSD]}, {"matchFields": []}]}}},
            [[SSD, WANTED], [WANTED]],
            id="every alternative is narrowed",
        ),
    ],
)
def test_a_pod_let_go_may_be_held_to_nodes_with_a_label(affinity: Json | None, want: list[list[Json]]) -> None:
    raw: Json = {"spec": {"schedulingGates": [{"name": "grove.io/podgang-pending-creation"}]}}
    if affinity is not None:
        raw["spec"]["affinity"] = affinity
    patched = json_patch(raw, gate_removal(msgspec.convert(raw, Pod), {"rack": "r1"}))
    terms = patched["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchExpressions"] for term in terms] == want
    assert patched["spec"]["schedulingGates"] == []


@pytest.mark.parametrize("name", ["demo-0", "demo-1", "demo-0-grp-0", "demo-1-grp-1"])
def test_one_gang_is_found_as_in_the_whole(name: str) -> None:
    observed = set_of(worked_example())
    (whole,) = [one for one in gang_layouts(observed, live_replicas([])) if one.name == name]
    assert find_gang_layout(observed, name, live_replicas([])) == whole


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("demo-2", id="no such replica"),
        pytest.param("demo-0-grp-2", id="no such replica"),
        pytest.param("other-0", id="another set"),
        pytest.param("demo", id="no replica at all"),
    ],
)
def test_a_gang_that_is_not_wanted_is_not_found(name: str) -> None:
    assert find_gang_layout(set_of(worked_example()), name, live_replicas([])) is None


def test_the_replica_of_a_gang() -> None:
    assert find_replica("demo", "demo-12-grp-3") == 12
    assert find_replica("demo", "demo-x") is None


def test_headroom_of_a_set_is_on_its_first_base_gang_and_that_of_a_group_on_every_base_gang() -> None:
    made = group("grp", "work", replicas=2, annotations={"grove.io/headroom": "2"})
    manifest = pcs("demo", clique("router"), clique("work"), groups=[made])
    manifest["metadata"]["annotations"] = {"grove.io/headroom": "1", "grove.io/headroom-priority": "spare"}
    manifest["spec"]["replicas"] = 2
    found = gangs_of(manifest)
    of_set = {"name": "demo", "units": 1, "priorityClassName": "spare"}
    for replica, more in ((0, [of_set]), (1, [])):
        fqn = f"demo-{replica}-grp"
        of_group = {"name": fqn, "units": 2, "podGroupNames": [f"{fqn}-0-work"]}
        assert found[f"demo-{replica}"].object["spec"]["headroom"] == [*more, of_group]
        assert "headroom" not in found[f"{fqn}-0"].object["spec"], "a scaled gang has none of its own"


@pytest.mark.parametrize("said", ["0", "", "many", "-1", "101"])
def test_no_headroom_is_asked_for_without_a_number_of_replicas(said: str) -> None:
    manifest = pcs("demo", clique("router"))
    manifest["metadata"]["annotations"] = {"grove.io/headroom": said}
    assert "headroom" not in gangs_of(manifest)["demo-0"].object["spec"]
