"""kube-scheduler's gangs: what a cluster offers, which mapping a set gets, what pods carry, and who may go when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import binding, set_of

from grove.api.core import Pod
from grove.api.meta import Json, rfc3339
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.base import BackendError, PodSite, Refusal
from grove.backends.kube import KubeBackend, KubeOptions
from grove.backends.kube_api import Capability, capability
from grove.backends.kube_objects import gang_objects, label_name, shortened

RACK = {"pack": {"required": "rack"}}
POD_135 = {"spec": {"workloadRef": {}}}
POD_136 = {"spec": {"schedulingGroup": {}}}
ALL_136 = {"spec": {"schedulingConstraints": {"topology": [{"key": "h"}]}, "disruptionMode": "PodGroup"}}
PLAIN_136: Json = {"spec": {"disruptionMode": "Pod"}}


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param({}, Capability(), id="nothing answered"),
        pytest.param({"v1alpha1 workloads": True, "v1alpha1 pod": POD_135}, Capability("v1alpha1"), id="1.35"),
        pytest.param(
            {"v1alpha1 workloads": True, "v1alpha1 pod": {"spec": {}}}, Capability(), id="the pod's field is dropped"
        ),
        pytest.param(
            {"v1alpha1 workloads": True, "v1alpha1 pod": None}, Capability("v1alpha1"), id="a probe that was refused"
        ),
        pytest.param(
            {"v1alpha2 workloads": True, "v1alpha2": True, "v1alpha2 pod": POD_136, "v1alpha2 group": PLAIN_136},
            Capability("v1alpha2"),
            id="1.36 with the two gates",
        ),
        pytest.param(
            {"v1alpha2 workloads": True, "v1alpha2": True, "v1alpha2 pod": POD_136, "v1alpha2 group": ALL_136},
            Capability("v1alpha2", topology=True, preemption=True),
            id="1.36 with all gates",
        ),
        pytest.param({"v1alpha2 workloads": True, "v1alpha2": False}, Capability(), id="workloads without groups"),
        pytest.param(
            {"v1beta1 workloads": True, "v1beta1": True, "v1beta1 pod": POD_136, "tree": True, "v1alpha1 pod": POD_135},
            Capability("v1beta1", tree=True),
            id="the newest wins",
        ),
    ],
)
def test_what_a_cluster_offers(answers: Json, want: Capability) -> None:
    assert capability(answers) == want


ONE = pcs("d", clique("a", 3))
TWO = pcs("d", clique("a"), clique("b"))
INNER = pcs("d", clique("a", topology=RACK), clique("b"))
NINE = pcs("d", *(clique(f"c{n}") for n in range(9)))
NINE_INNER = pcs("d", clique("x", topology=RACK), *(clique(f"c{n}") for n in range(8)))
COPIES = pcs("d", clique("a"), groups=[group("g", "a", replicas=3, min_available=2)])


@pytest.mark.parametrize(
    ("manifest", "options", "offered", "want"),
    [
        pytest.param(TWO, KubeOptions(), Capability(), "", id="nothing offered"),
        pytest.param(TWO, KubeOptions(gang="Off"), Capability("v1alpha2"), "", id="switched off"),
        pytest.param(TWO, KubeOptions(), Capability("v1alpha2"), "Merged", id="several cliques go together"),
        pytest.param(ONE, KubeOptions(), Capability("v1alpha2"), "PerClique", id="one clique is a group by itself"),
        pytest.param(COPIES, KubeOptions(), Capability("v1alpha2"), "Merged", id="two copies are two groups"),
        pytest.param(INNER, KubeOptions(), Capability("v1alpha2", True), "PerClique", id="a clique's own level"),
        pytest.param(TWO, KubeOptions(mapping="PerClique"), Capability("v1alpha2"), "PerClique", id="as asked"),
        pytest.param(NINE, KubeOptions(mapping="PerClique"), Capability("v1alpha2"), "PerClique", id="nine on 1.36"),
        pytest.param(NINE, KubeOptions(mapping="PerClique"), Capability("v1alpha1"), "Merged", id="nine on 1.35"),
        pytest.param(NINE_INNER, KubeOptions(), Capability("v1alpha1"), "Merged", id="nine, one with a level, on 1.35"),
        pytest.param(TWO, KubeOptions(), Capability("v1beta1", tree=True), "Tree", id="a tree says it all"),
        pytest.param(NINE, KubeOptions(), Capability("v1beta1", tree=True), "Merged", id="too wide for a tree"),
    ],
)
def test_the_mapping_of_a_set(manifest: Json, options: KubeOptions, offered: Capability, want: str) -> None:
    assert KubeBackend(options, offered).mapping_for(set_of(manifest)) == want


def site(whole: PodCliqueSet, index: int = 0, minimum: int = 1, gang: PodGang | None = None) -> PodSite:
    return PodSite(whole, "d-0", "d-0-a", index, minimum, gang)


def gang_with(mapping: str | None, **conditions: str) -> PodGang:
    meta: Json = {"name": "d-0", "annotations": {"grove.io/gang-mapping": mapping} if mapping else {}}
    said = [{"type": type_, "status": status} for type_, status in conditions.items()]
    group_ = {"name": "d-0-a", "minReplicas": 1, "podReferences": []}
    return msgspec.convert({"metadata": meta, "spec": {"podgroups": [group_]}, "status": {"conditions": said}}, PodGang)


@pytest.mark.parametrize(
    ("offered", "index", "gang", "want"),
    [
        pytest.param(Capability(), 0, None, {}, id="no gangs, no field"),
        pytest.param(Capability("v1alpha2"), 0, None, {"schedulingGroup": {"podGroupName": "d-0"}}, id="1.36 core"),
        pytest.param(Capability("v1alpha2"), 1, None, {}, id="surplus stays outside"),
        pytest.param(Capability("v1alpha1"), 0, None, {"workloadRef": {"name": "d-0", "podGroup": "core"}}, id="1.35"),
        pytest.param(
            Capability("v1alpha2"),
            1,
            gang_with("v1alpha2/PerClique"),
            {"schedulingGroup": {"podGroupName": "d-0-d-0-a"}},
            id="what is recorded wins over today's choice",
        ),
        pytest.param(Capability("v1alpha2"), 0, gang_with(None), {}, id="a gang that was never told stays untold"),
        pytest.param(
            Capability("v1alpha2"), 0, gang_with("v1alpha1/Merged"), {}, id="told by a version that is gone: alone"
        ),
    ],
)
def test_what_a_new_pod_carries(offered: Capability, index: int, gang: PodGang | None, want: Json) -> None:
    pod: Json = {"metadata": {}, "spec": {"schedulingGroup": {"podGroupName": "somebody-elses"}}}
    KubeBackend(KubeOptions(), offered).prepare_pod(pod, site(set_of(TWO), index, gang=gang))
    assert pod["spec"] == {"schedulerName": "default-scheduler", **want}


LEFT = {"name": "d-0-a", "minReplicas": 1, "podReferences": [{"namespace": "ns", "name": "lost"}]}
BACK = {"name": "d-0-b", "minReplicas": 1, "podReferences": []}


@pytest.mark.parametrize(
    ("reason", "groups", "clique_", "joins"),
    [
        pytest.param("GangShrunk", [LEFT], "d-0-a", False, id="a replacement would wait for a clique at zero"),
        pytest.param("Told", [LEFT], "d-0-a", True, id="the group was made for what there is"),
        pytest.param("GangShrunk", [LEFT], "d-0-b", True, id="a clique that comes back fills the group"),
        pytest.param("GangShrunk", [LEFT, BACK], "d-0-a", True, id="the clique is back, the condition not yet changed"),
    ],
)
def test_a_replacement_joins_its_group_if_that_can_be_filled(
    reason: str, groups: list[Json], clique_: str, joins: bool
) -> None:
    said = [{"type": "SchedulerObjectsReady", "status": "True", "reason": reason}]
    meta: Json = {"name": "d-0", "annotations": {"grove.io/gang-mapping": "v1alpha2/Merged"}}
    gang = msgspec.convert({"metadata": meta, "spec": {"podgroups": groups}, "status": {"conditions": said}}, PodGang)
    pod: Json = {"metadata": {}, "spec": {}}
    backend = KubeBackend(KubeOptions(), Capability("v1alpha2"))
    backend.prepare_pod(pod, PodSite(set_of(TWO), "d-0", clique_, 0, 1, gang))
    assert ("schedulingGroup" in pod["spec"]) == joins


def test_a_pod_is_not_made_where_gangs_are_required_and_not_offered() -> None:
    with pytest.raises(BackendError, match="does not offer gangs"):
        KubeBackend(KubeOptions(gang="Required")).prepare_pod({"spec": {}}, site(set_of(TWO)))


@pytest.mark.parametrize(
    ("gang", "referenced", "want"),
    [
        pytest.param(gang_with(None), False, True, id="a gang that is not told holds nobody"),
        pytest.param(gang_with("v1alpha2/Merged"), True, False, id="core waits for the objects"),
        pytest.param(gang_with("v1alpha2/Merged", SchedulerObjectsReady="True"), True, True, id="core goes then"),
        pytest.param(gang_with("v1alpha2/Merged", SchedulerObjectsReady="True"), False, False, id="surplus does not"),
        pytest.param(
            gang_with("v1alpha2/Merged", SchedulerObjectsReady="True", Scheduled="True"),
            False,
            True,
            id="surplus goes when the gang stands",
        ),
    ],
)
def test_who_may_go(gang: PodGang, referenced: bool, want: bool) -> None:
    spec = {"schedulingGroup": {"podGroupName": "d-0"}} if referenced else {}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    assert KubeBackend(KubeOptions(), Capability("v1alpha2")).may_ungate(pod, gang) is want


GROUPED = pcs("d", clique("a"), clique("b"), groups=[group("g", "a", "b", topologyConstraint=RACK)])
WHOLE = pcs("d", clique("a"), clique("b"), topologyConstraint=RACK)
PATHS = {
    "clique": "spec.template.cliques[0].topologyConstraint",
    "group": "spec.template.podCliqueScalingGroups[0].topologyConstraint",
    "set": "spec.template.topologyConstraint",
}


@pytest.mark.parametrize(
    ("manifest", "options", "offered", "want"),
    [
        pytest.param(WHOLE, KubeOptions(), Capability(), [], id="no gangs: shown as a condition instead"),
        pytest.param(TWO, KubeOptions(gang="Required"), Capability(), ["spec"], id="required and not offered"),
        pytest.param(WHOLE, KubeOptions(), Capability("v1alpha1"), [PATHS["set"]], id="1.35 has no topology"),
        pytest.param(WHOLE, KubeOptions(), Capability("v1alpha2", True), [], id="the set in one domain"),
        pytest.param(INNER, KubeOptions(), Capability("v1alpha2", True), [], id="a clique in one domain"),
        pytest.param(GROUPED, KubeOptions(), Capability("v1alpha2", True), [PATHS["group"]], id="two cliques in one"),
        pytest.param(
            INNER, KubeOptions(mapping="Merged"), Capability("v1alpha2", True), [PATHS["clique"]], id="merged: not one"
        ),
        pytest.param(GROUPED, KubeOptions(), Capability("v1beta1", True, tree=True), [], id="a tree takes all"),
    ],
)
def test_what_is_refused(manifest: Json, options: KubeOptions, offered: Capability, want: list[str]) -> None:
    found: Any = KubeBackend(options, offered).validate(set_of(manifest))
    assert [one.path for one in found] == want
    assert all(isinstance(one, Refusal) for one in found)


def prioritised(name: str) -> PodCliqueSet:
    return set_of(pcs("d", clique("a"), clique("b"), priorityClassName=name))


@pytest.mark.parametrize(
    ("options", "offered", "now", "want"),
    [
        pytest.param(KubeOptions(), Capability("v1alpha2", preemption=True), "high", 1, id="groups keep theirs"),
        pytest.param(KubeOptions(), Capability("v1alpha2", preemption=True), "low", 0, id="no change"),
        pytest.param(KubeOptions(), Capability("v1alpha2"), "high", 0, id="only pods carry it"),
        pytest.param(KubeOptions(gang="Off"), Capability("v1alpha2", preemption=True), "high", 0, id="no gangs"),
    ],
)
def test_a_priority_that_groups_carry_cannot_change(
    options: KubeOptions, offered: Capability, now: str, want: int
) -> None:
    found = KubeBackend(options, offered).validate_change(prioritised(now), prioritised("low"))
    assert [one.path for one in found] == ["spec.template.priorityClassName"] * want


def test_long_names_are_cut_the_same_way_everywhere() -> None:
    assert shortened("a" * 70, 63) == "a" * 54 + "-" + shortened("a" * 70, 63)[-8:]
    assert len(shortened("a" * 70, 63)) == 63
    assert shortened("a" * 70, 63) != shortened("a" * 71, 63)
    assert label_name("a.b") == label_name("a.b")
    assert "." not in label_name("a.b")
    assert label_name("a.b") != label_name("a-b")


@pytest.mark.parametrize(
    ("name", "cliques", "kinds"),
    [
        pytest.param("d-0", 3, ["Workload", "PodGroup", "PodGroup", "PodGroup"], id="a whole base gang"),
        pytest.param("d-0", 2, ["PodGroup", "PodGroup"], id="a clique at zero may come back: no templates to outgrow"),
        pytest.param("d-0-g-0", 2, ["Workload", "PodGroup", "PodGroup"], id="a whole scaled gang"),
        pytest.param("d-0-g-0", 1, ["PodGroup"], id="a scaled gang with a clique at zero"),
    ],
)
def test_groups_without_a_workload_where_it_could_be_outgrown(name: str, cliques: int, kinds: list[str]) -> None:
    whole = set_of(pcs("d", clique("r"), clique("a"), clique("b"), groups=[group("g", "a", "b")]))
    groups = [{"name": f"c{n}", "minReplicas": 1, "podReferences": []} for n in range(cliques)]
    gang = msgspec.convert({"metadata": {"name": name}, "spec": {"podgroups": groups}}, PodGang)
    found = gang_objects(gang, whole, "PerClique", Capability("v1alpha2"))
    assert [one["kind"] for one in found] == kinds


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def member(bound_s: int | None, made_s: int = 0) -> Pod:
    """A member made this number of seconds after noon, and bound, or not."""
    spec: Json = {"schedulingGroup": {"podGroupName": "d-0"}}
    conditions: list[Json] = []
    if bound_s is not None:
        spec["nodeName"] = "n"
        at = rfc3339(NOON + timedelta(seconds=bound_s))
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
    meta = {"name": "p", "creationTimestamp": rfc3339(NOON + timedelta(seconds=made_s))}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, Pod)


@pytest.mark.parametrize(
    ("pods", "after_s", "want"),
    [
        pytest.param([member(None), member(None)], 99, None, id="nobody is bound"),
        pytest.param([member(5), member(6)], 99, None, id="all are bound"),
        pytest.param([member(5), member(None)], 15, 20.0, id="half of it, ten seconds ago"),
        pytest.param([member(5), member(None)], 99, 0.0, id="half of it, for too long"),
        pytest.param([member(5), member(None, made_s=50)], 99, None, id="the other half was lost and made anew"),
    ],
)
def test_a_scheduler_that_binds_half_a_gang_is_found_out(pods: list[Pod], after_s: int, want: float | None) -> None:
    gang = gang_with("v1alpha2/Merged")
    two = msgspec.structs.replace(gang.spec.podgroups[0], min_replicas=2)
    gang = msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, podgroups=(two,)))
    backend = KubeBackend(KubeOptions(), Capability("v1alpha2"))
    assert backend.doubt_s(gang, pods, NOON + timedelta(seconds=after_s)) == want


def test_pods_carry_the_spread_of_their_clique() -> None:
    spread = {"topologyName": "topo", "domain": "rack", "maxSkew": 2}
    manifest = pcs("d", {**clique("a", 3), "spreadConstraint": spread}, clique("b"))
    pods: dict[str, Json] = {name: {"spec": {}} for name in "ab"}
    for name, pod in pods.items():
        where = PodSite(set_of(manifest), "d-0", f"d-0-{name}", 0, 1, None, name, binding())
        KubeBackend(KubeOptions(gang="Off")).prepare_pod(pod, where)
    assert pods["a"]["spec"]["topologySpreadConstraints"] == [
        {
            "topologyKey": "example.com/rack",
            "maxSkew": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"grove.io/podclique": "d-0-a"}},
            "nodeTaintsPolicy": "Honor",
        }
    ]
    assert "topologySpreadConstraints" not in pods["b"]["spec"]
