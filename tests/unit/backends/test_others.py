"""KAI, Koordinator and Volcano: what pods carry, what is refused, who may go, and what the operator must be allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.backend_schemas import definitions
from tests.manifests import clique, group, pcs
from tests.observed import binding, set_of

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.backends import koord_annotations
from grove.backends.base import PodSite
from grove.backends.kai import KaiBackend, KaiFacts
from grove.backends.koord import KoordBackend, KoordOptions
from grove.backends.koord_annotations import InvalidAnnotation, Zone
from grove.backends.rights import RULES, exempt_users_for, rules_for
from grove.backends.volcano import VolcanoBackend

RACK_KEY = "topology.kubernetes.io/rack"
RACK = {"pack": {"required": "rack"}}
QUEUE = {"kai.scheduler/queue": "research"}
CHART = Path(__file__).parents[3] / "charts" / "install.yaml"


def new_pod(backend: Any, manifest: Json, index: int = 0, gang: PodGang | None = None) -> Json:
    pod: Json = {"metadata": {"namespace": "ns", "labels": {}, "annotations": {}}, "spec": {}}
    backend.prepare_pod(pod, PodSite(set_of(manifest), "d-0", "d-0-a", index, 1, gang))
    return pod


def paths(backend: Any, manifest: Json) -> list[str]:
    return [one.path for one in backend.validate(set_of(manifest))]


# KAI

NEW, OLD = KaiFacts(True, True, True), KaiFacts(True, False, False)


def test_kai_pods_are_marked_for_our_group_or_left_to_podgrouper() -> None:
    manifest = pcs("d", clique("a", labels=QUEUE))
    ours = new_pod(KaiBackend("auto", NEW), manifest)["metadata"]
    assert ours["labels"] == {**QUEUE, "kai.scheduler/subgroup-name": "d-0-a"}
    assert ours["annotations"] == {"kai.scheduler/skip-podgrouper": "true", "pod-group-name": "d-0"}
    theirs = new_pod(KaiBackend("auto", OLD), manifest)["metadata"]
    assert (theirs["labels"], theirs["annotations"]) == (QUEUE, {})


def test_a_gang_left_to_podgrouper_stays_so_after_an_upgrade() -> None:
    gang = msgspec.convert(
        {"metadata": {"name": "d-0", "annotations": {"grove.io/gang-mapping": "podgrouper"}}}, PodGang
    )
    pod = new_pod(KaiBackend("auto", NEW), pcs("d", clique("a", labels=QUEUE)), gang=gang)
    assert pod["metadata"]["annotations"] == {}
    assert KaiBackend("auto", NEW).tell_gang(gang, set_of(pcs("d", clique("a", labels=QUEUE))), []).objects == ()


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        pytest.param(pcs("d", clique("a", labels=QUEUE)), [], id="the queue on each clique"),
        pytest.param(pcs("d", clique("a"), metadata={"annotations": QUEUE}), [], id="an annotation of the set"),
        pytest.param(pcs("d", clique("a")), ["spec"], id="no queue"),
        pytest.param(
            pcs("d", clique("a", labels=QUEUE), clique("b", labels={"kai.scheduler/queue": "other"})), ["spec"],
            id="two queues",
        ),
        pytest.param(
            pcs("d", clique("a.b", labels=QUEUE)), ["spec.template.cliques[0].name"], id="a dot in a subgroup's name"
        ),
    ],
)  # fmt: skip
def test_what_kai_is_not_asked(manifest: Json, want: list[str]) -> None:
    assert paths(KaiBackend("auto", NEW), manifest) == want


def test_kai_is_refused_where_it_is_missing_or_too_old_for_what_is_asked() -> None:
    manifest = pcs("d", clique("a", labels=QUEUE))
    assert paths(KaiBackend("auto", KaiFacts()), manifest) == ["spec"]
    assert paths(KaiBackend("grove", OLD), manifest) == ["spec"]
    assert paths(KaiBackend("auto", OLD), manifest) == []
    assert paths(KaiBackend("auto"), manifest) == []  # not asked yet: nobody is refused on a guess


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param({}, KaiFacts(), id="not there"),
        pytest.param({"served": True, "group": {"spec": {"subGroups": [{"name": "p"}]}}}, OLD, id="fields are pruned"),
        pytest.param(
            {"served": True, "group": {"spec": {"subGroups": [{"minSubGroup": 1}], "stalenessGracePeriod": "-1s"}}},
            NEW, id="fields are kept",
        ),
        pytest.param({"served": True, "group": None}, OLD, id="a probe that was refused"),
    ],
)  # fmt: skip
def test_what_kai_has(answers: Json, want: KaiFacts) -> None:
    backend = KaiBackend()
    backend.learn(answers)
    assert backend.facts == want


def test_kai_topology_is_the_bindings_and_drift_is_named() -> None:
    backend = KaiBackend("auto", NEW)
    wanted = backend.wanted_topology(binding())
    assert wanted is not None
    assert backend.topology_drift(binding(), "topo", {**wanted, "metadata": {"generation": 3}}).in_sync
    assert not backend.topology_drift(binding(), "topo", None).in_sync
    other = {"metadata": {"generation": 3}, "spec": {"levels": [{"nodeLabel": "x"}]}}
    found = backend.topology_drift(binding(), "topo", other)
    assert (found.in_sync, found.observed_generation) == (False, 3)


# Koordinator


@pytest.mark.parametrize(
    ("text", "want"),
    [("90s", 90), ("10m", 600), ("45", 45), ("1500ms", 2), ("0s", None), ("soon", None), ("-5s", None), ("", None)],
)
def test_gang_timeout(text: str, want: int | None) -> None:
    if want is not None:
        assert koord_annotations.timeout_s(text) == want
        return
    with pytest.raises(InvalidAnnotation):
        koord_annotations.timeout_s(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("z1", (Zone("", "z1"),)),
        ("z1, rackLayer=r2", (Zone("", "z1"), Zone("rackLayer", "r2"))),
        ("", None), ("a,,b", None), ("=z", None), ("a b", None),
    ],
)  # fmt: skip
def test_network_topology_zone(text: str, want: tuple[Zone, ...] | None) -> None:
    if want is not None:
        assert koord_annotations.zones(text) == want
        return
    with pytest.raises(InvalidAnnotation):
        koord_annotations.zones(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("big", {"name": "big"}, id="one name"),
        pytest.param("k=v,x/y=z", {"reservationSelector": {"k": "v", "x/y": "z"}}, id="labels"),
        pytest.param('{"name":"big"}', {"name": "big"}, id="its own JSON"),
        pytest.param("a,k=v", None, id="names and labels mixed"),
        pytest.param("{", None, id="broken JSON"),
        pytest.param('{"nam":"big"}', None, id="JSON with another field"),
        pytest.param("Big", None, id="not a name"),
    ],
)
def test_reservation_ref(text: str, want: Json | None) -> None:
    if want is not None:
        assert koord_annotations.reservation_affinity(text) == want
        return
    with pytest.raises(InvalidAnnotation):
        koord_annotations.reservation_affinity(text)


def test_a_list_of_reservations_is_alternatives_of_one_name_each() -> None:
    found = koord_annotations.reservation_affinity("r1,r2")
    terms = found["requiredDuringSchedulingIgnoredDuringExecution"]["reservationSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["r1"], ["r2"]]


def test_koordinator_pods_carry_gang_quota_reservation_and_zones() -> None:
    said = {
        "scheduling.koordinator.sh/reservation-ref": "big",
        "scheduling.koordinator.sh/network-topology-zone": "r1,rackLayer=r2",
    }
    labels = {"koordinator.sh/qosClass": "LS", "quota.scheduling.koordinator.sh/name": "team"}
    manifest = pcs("d", clique("a"), metadata={"annotations": said, "labels": labels})
    backend = KoordBackend(KoordOptions({RACK_KEY: "rackLayer"}), installed=True)
    pod = new_pod(backend, manifest)
    assert pod["spec"]["schedulerName"] == "koord-scheduler"
    assert pod["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] == "d-0-d-0-a"
    assert pod["metadata"]["labels"] | labels == pod["metadata"]["labels"]
    assert json.loads(pod["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-affinity"]) == {
        "name": "big"
    }
    terms = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [(one["weight"], one["preference"]["matchExpressions"][0]["values"]) for one in terms] == [
        (100, ["r1"]),
        (50, ["r2"]),
    ]
    surplus = new_pod(backend, manifest, index=1)
    assert "pod-group.scheduling.sigs.k8s.io" not in surplus["metadata"]["labels"]


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        pytest.param(pcs("d", clique("a")), [], id="plain"),
        pytest.param(
            pcs("d", clique("a"), metadata={"annotations": {"scheduling.koordinator.sh/gang-timeout": "soon"}}),
            ["metadata.annotations[scheduling.koordinator.sh/gang-timeout]"], id="a timeout that is none",
        ),
        pytest.param(
            pcs("d", clique("a", labels={"koordinator.sh/qosClass": "LS"}), clique("b")),
            ["spec.template.cliques.labels"], id="two QoS classes",
        ),
        pytest.param(
            pcs("d", clique("a", labels={"koordinator.sh/qosClass": "GOLD"})),
            ["spec.template.cliques.labels"], id="no such QoS class",
        ),
        pytest.param(
            pcs("d", clique("a", priorityClassName="x"), clique("b")), ["spec.template.cliques.spec.podSpec"],
            id="two priorities",
        ),
        pytest.param(pcs("d", clique("a"), topologyConstraint=RACK), [], id="the set in one layer"),
        pytest.param(
            pcs("d", clique("a", topology=RACK)), ["spec.template.cliques[0].topologyConstraint"], id="a clique in one"
        ),
    ],
)  # fmt: skip
def test_what_koordinator_is_not_asked(manifest: Json, want: list[str]) -> None:
    assert paths(KoordBackend(KoordOptions({RACK_KEY: "rackLayer"}), installed=True), manifest) == want


def koord_gang(**conditions: str) -> PodGang:
    said = [{"type": type_, "status": status} for type_, status in conditions.items()]
    groups = [{"name": "d-0-a", "minReplicas": 2, "podReferences": []}]
    meta = {"name": "d-0", "namespace": "ns"}
    return msgspec.convert({"metadata": meta, "spec": {"podgroups": groups}, "status": {"conditions": said}}, PodGang)


def koord_pods(*gated: bool) -> list[Pod]:
    return [
        msgspec.convert(
            {
                "metadata": {"labels": {"grove.io/podclique": "d-0-a", "grove.io/podclique-pod-index": str(index)}},
                "spec": {"schedulingGates": [{"name": "g"}]} if one else {},
            },
            Pod,
        )
        for index, one in enumerate(gated)
    ]


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(koord_pods(True, True), (False, False), id="all gated: not yet"),
        pytest.param(koord_pods(False, True), (False, False), id="one of two let go: not yet"),
        pytest.param(koord_pods(False), (False, False), id="one is missing: not yet"),
        pytest.param(koord_pods(False, False, True), (True, True), id="surplus does not count"),
    ],
)
def test_koordinator_is_told_last(pods: list[Pod], want: tuple[bool, bool]) -> None:
    telling = KoordBackend(installed=True).tell_gang(koord_gang(), set_of(pcs("d", clique("a", 2))), pods)
    assert (telling.create, telling.ready) == want


def test_core_goes_first_and_surplus_when_the_gang_stands() -> None:
    backend, (core, surplus) = KoordBackend(installed=True), (koord_pods(True)[0], koord_pods(True, True, True)[2])
    assert backend.may_go(core, koord_gang())
    assert not backend.may_go(surplus, koord_gang())
    assert backend.may_go(surplus, koord_gang(Scheduled="True"))


# Volcano


@pytest.mark.parametrize(
    ("tiers", "manifest", "want"),
    [
        pytest.param({}, pcs("d", clique("a")), [], id="no topology"),
        pytest.param(
            {}, pcs("d", clique("a"), topologyConstraint=RACK), ["spec.template.topologyConstraint"], id="no tiers"
        ),
        pytest.param(
            {RACK_KEY: "rack"}, pcs("d", clique("a", topology=RACK), topologyConstraint=RACK), [], id="two levels"
        ),
        pytest.param(
            {RACK_KEY: "rack"},
            pcs("d", clique("a"), clique("b"), groups=[group("g", "a", "b", topologyConstraint=RACK)]),
            ["spec.template.podCliqueScalingGroups[0].topologyConstraint"], id="the level between",
        ),
    ],
)  # fmt: skip
def test_what_volcano_is_not_asked(tiers: dict[str, str], manifest: Json, want: list[str]) -> None:
    assert paths(VolcanoBackend(tiers, capable=True), manifest) == want


def test_volcano_is_asked_for_subgroups_and_tiers() -> None:
    backend = VolcanoBackend({RACK_KEY: "rack"})
    assert [one.name for one in backend.questions] == ["crd", "hypernodes", "tiers"]
    crd = next(one for one in definitions("volcano") if one["spec"]["names"]["kind"] == "PodGroup")
    backend.learn({"crd": crd, "tiers": [{"spec": {"tierName": "rack"}}]})
    assert (backend.capable, backend.known_tiers) == (True, {"rack"})
    backend.learn({"crd": None})
    assert not backend.capable
    assert paths(backend, pcs("d", clique("a"))) == ["spec"]


def test_an_unknown_tier_holds_the_gang_instead_of_being_ignored() -> None:
    spec = {"podgroups": [{"name": "d-0-a", "minReplicas": 1, "podReferences": []}]}
    level = {"topologyConstraint": {"packConstraint": {"required": RACK_KEY}}}
    gang = msgspec.convert({"metadata": {"name": "d-0"}, "spec": {**spec, **level}}, PodGang)
    telling = VolcanoBackend({RACK_KEY: "rack"}, capable=True).tell_gang(gang, set_of(pcs("d", clique("a"))), [])
    assert (telling.objects, telling.reason) == ((), "NotRepresentable")


# Rights


def test_rights_are_those_of_the_enabled_profiles() -> None:
    groups = [rule["apiGroups"][0] for rule in rules_for(["volcano", "grove-scheduler"])]
    assert groups == [
        "scheduling.volcano.sh", "scheduling.volcano.sh", "topology.volcano.sh", "apiextensions.k8s.io",
    ]  # fmt: skip
    assert exempt_users_for(["kai-scheduler"]) == [
        "system:serviceaccount:kai-scheduler:pod-grouper",
        "system:serviceaccount:kai-scheduler:binder",
    ]


def test_the_installation_gives_what_the_default_profiles_need() -> None:
    given = [
        (group_, resource, verb)
        for document in yaml.safe_load_all(CHART.read_text())
        if document and document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for group_ in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    ]
    for rule in RULES["default-scheduler"]:
        for verb in rule["verbs"]:
            for resource in rule["resources"]:
                assert (rule["apiGroups"][0], resource, verb) in given
