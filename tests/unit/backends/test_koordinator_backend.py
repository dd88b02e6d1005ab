"""Koordinator: the grammar of its annotations, what pods carry, what is refused, who may go, and its topology."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.support.backend_schemas import faults as schema_faults
from tests.support.manifests import clique, group, pcs
from tests.support.observed import binding, set_of

from grove.api.core import Pod
from grove.api.koordinator import Reservation
from grove.api.meta import Json, ObjectMeta
from grove.api.podgang import GangTopologyConstraint, PackConstraint, PodGang
from grove.api.reservation_ref import InvalidAnnotation, is_meant, reservation_affinity
from grove.backends import koord, koord_annotations
from grove.backends.base import PodSite, TopologyBackend
from grove.backends.koord import KoordBackend, KoordOptions, LayeredKoordBackend
from grove.backends.koord_annotations import Zone

RACK_KEY = "topology.kubernetes.io/rack"
RACK = {"pack": {"required": "rack"}}
BIG = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}


def new_pod(backend: Any, manifest: Json, index: int = 0) -> Json:
    pod: Json = {"metadata": {"namespace": "ns", "labels": {}, "annotations": {}}, "spec": {}}
    backend.prepare_pod(pod, PodSite(set_of(manifest), "d-0", "d-0-a", index, 1))
    return pod


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("90s", 90),
        ("10m", 600),
        ("45", 45),
        ("1500ms", 2),
        ("0s", None),
        ("soon", None),
        ("-5s", None),
        ("", None),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("2147483647s", 2147483647),
        ("1000000h", None),
        pytest.param("9" * 5000, None, id="longer than any number"),
    ],
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
        ("", None),
        ("a,,b", None),
        ("=z", None),
        ("a b", None),
    ],
)
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
        assert reservation_affinity(text) == want
        return
    with pytest.raises(InvalidAnnotation):
        reservation_affinity(text)


def test_a_list_of_reservations_is_alternatives_of_one_name_each() -> None:
    found = reservation_affinity("r1,r2")
    terms = found["requiredDuringSchedulingIgnoredDuringExecution"]["reservationSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["r1"], ["r2"]]


@pytest.mark.parametrize(
    ("ref", "want"),
    [
        pytest.param("r1", {"r1"}, id="a name"),
        pytest.param("r1,r3", {"r1", "r3"}, id="names"),
        pytest.param("team=a", {"r1", "r2"}, id="labels"),
        pytest.param("team=a,big=yes", {"r2"}, id="all of several labels"),
        pytest.param("nobody", set(), id="nobody"),
        pytest.param(
            '{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[{"matchExpressions":'
            '[{"key":"team","operator":"NotIn","values":["a"]}]},{"matchFields":'
            '[{"key":"metadata.name","operator":"In","values":["r1"]}]}]}}',
            {"r1", "r3"},
            id="terms are alternatives",
        ),
    ],
)
def test_which_reservations_a_reference_means(ref: str, want: set[str]) -> None:
    known = {"r1": {"team": "a"}, "r2": {"team": "a", "big": "yes"}, "r3": {"team": "b"}}
    there = [Reservation(metadata=ObjectMeta(name=name, labels=labels)) for name, labels in known.items()]
    assert {one.metadata.name for one in there if is_meant(reservation_affinity(ref), one)} == want


def test_no_pod_carries_the_selector_that_crashes_koord_scheduler_without_a_topology() -> None:
    backend = KoordBackend(KoordOptions({RACK_KEY: "rackLayer"}), installed=True)
    for index in (0, 1):
        said = new_pod(backend, pcs("d", clique("a")), index)["metadata"]["annotations"]
        assert not [name for name in said if "network-topology-selector" in name]


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
            ["metadata.annotations[scheduling.koordinator.sh/gang-timeout]"],
            id="a timeout that is none",
        ),
        pytest.param(
            pcs("d", clique("a", labels={"koordinator.sh/qosClass": "LS"}), clique("b")),
            ["spec.template.cliques.labels"],
            id="two QoS classes",
        ),
        pytest.param(
            pcs("d", clique("a", labels={"koordinator.sh/qosClass": "GOLD"})),
            ["spec.template.cliques.labels"],
            id="no such QoS class",
        ),
        pytest.param(
            pcs("d", clique("a", priorityClassName="x"), clique("b")),
            ["spec.template.cliques.spec.podSpec"],
            id="two priorities",
        ),
        pytest.param(
            pcs("d", clique("a"), metadata={"annotations": {"grove.io/mnnvl-group": "g"}}),
            ["metadata.annotations[grove.io/mnnvl-group]"],
            id="an NVLink domain",
        ),
        pytest.param(
            pcs("d", clique("a"), metadata={"annotations": {"grove.io/mnnvl-group": "none"}}), [], id="none of them"
        ),
        pytest.param(pcs("d", clique("a"), topologyConstraint=RACK), [], id="the set in one layer"),
        pytest.param(pcs("d", clique("a"), clique("b", 3), topologyConstraint=RACK), [], id="equal pods"),
        pytest.param(
            pcs("d", clique("a"), clique("b", containers=[BIG]), topologyConstraint=RACK),
            ["spec.template.topologyConstraint"],
            id="unequal pods in one layer",
        ),
        pytest.param(
            pcs("d", clique("a"), clique("b", containers=[BIG]), topologyConstraint={"pack": {"preferred": "rack"}}),
            ["spec.template.topologyConstraint"],
            id="unequal pods, only preferred",
        ),
        pytest.param(
            pcs("d", clique("a"), clique("b", 0, min_available=0, containers=[BIG]), topologyConstraint=RACK),
            [],
            id="unequal pods that the gang does not need",
        ),
        pytest.param(pcs("d", clique("a"), clique("b", containers=[BIG])), [], id="unequal pods without topology"),
        pytest.param(
            pcs("d", clique("a", topology=RACK)), ["spec.template.cliques[0].topologyConstraint"], id="a clique in one"
        ),
    ],
)
def test_what_koordinator_is_not_asked(manifest: Json, want: list[str]) -> None:
    backend = KoordBackend(KoordOptions({RACK_KEY: "rackLayer"}), installed=True)
    assert [one.path for one in backend.validate(set_of(manifest))] == want


@pytest.mark.parametrize(
    ("required", "nodes", "want"),
    [
        pytest.param(RACK_KEY, [], {}, id="nobody is placed: the scheduler chooses"),
        pytest.param(RACK_KEY, ["r1"], {RACK_KEY: "r1"}, id="one is placed: the others follow it"),
        pytest.param(RACK_KEY, ["r2", "r1", "r2"], {RACK_KEY: "r2"}, id="torn apart before: where most are"),
        pytest.param(RACK_KEY, ["r2", "r1"], {RACK_KEY: "r1"}, id="a tie goes to the first name"),
        pytest.param("", ["r1"], {}, id="nothing is required"),
        pytest.param("other", ["r1"], {}, id="a level that Koordinator was not told"),
    ],
)
def test_who_joins_a_gang_later_is_held_to_its_domain(required: str, nodes: list[str], want: dict[str, str]) -> None:
    gang = koord_gang()
    gang = structs.replace(
        gang,
        spec=structs.replace(
            gang.spec,
            topology_constraint=GangTopologyConstraint(pack_constraint=PackConstraint(required=required)),
        ),
    )
    backend = KoordBackend(KoordOptions({RACK_KEY: "rackLayer"}), installed=True)
    assert backend.node_labels_to_keep(gang, [{RACK_KEY: one} for one in nodes]) == want


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
def test_koordinator_gets_its_objects_last(pods: list[Pod], want: tuple[bool, bool]) -> None:
    telling = KoordBackend(installed=True).gang_objects(koord_gang(), set_of(pcs("d", clique("a", 2))), pods)
    assert (telling.create, telling.ready) == want


def test_core_goes_first_and_surplus_when_the_gang_stands() -> None:
    backend, (core, surplus) = KoordBackend(installed=True), (koord_pods(True)[0], koord_pods(True, True, True)[2])
    assert backend.may_ungate(core, koord_gang())
    assert not backend.may_ungate(surplus, koord_gang())
    assert backend.may_ungate(surplus, koord_gang(Scheduled="True"))


LEVELS = (("block", "example.com/block"), ("rack", "example.com/rack"), ("host", "kubernetes.io/hostname"))
LAYERED = LayeredKoordBackend(KoordOptions({"example.com/rack": "rackLayer"}), installed=True)
CHAIN = [
    {"topologyLayer": "block", "labelKey": ["example.com/block"]},
    {"topologyLayer": "rackLayer", "parentTopologyLayer": "block", "labelKey": ["example.com/rack"]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "rackLayer"},
]


def test_koordinators_topology_is_the_bindings_as_a_chain_that_ends_in_the_node() -> None:
    made = LAYERED.wanted_topology(binding("topo", *LEVELS))
    assert made is not None
    assert made["spec"] == {"networkTopologySpec": CHAIN}
    assert (made["metadata"]["name"], LAYERED.topology_name(binding())) == ("default", "default")
    assert schema_faults("koord", made) == []


@pytest.mark.parametrize(
    ("reference", "chain", "want"),
    [
        pytest.param("default", CHAIN, "", id="the same"),
        pytest.param("default", [CHAIN[2], CHAIN[0], CHAIN[1]], "", id="in another order"),
        pytest.param(
            "default", [{**CHAIN[0], "parentTopologyLayer": "ClusterTopologyLayer"}, *CHAIN[1:]], "", id="with its root"
        ),
        pytest.param(
            "default",
            [CHAIN[0], {**CHAIN[2], "parentTopologyLayer": "block"}],
            "ClusterNetworkTopology default has layers block(example.com/block), NodeTopologyLayer, not "
            "block(example.com/block), rackLayer(example.com/rack), NodeTopologyLayer",
            id="a layer is missing",
        ),
        pytest.param("default", None, "there is no ClusterNetworkTopology default", id="not there"),
        pytest.param(
            "mine", CHAIN, "Koordinator reads only the ClusterNetworkTopology default, not mine", id="not read by it"
        ),
    ],
)
def test_whether_koordinator_has_the_levels(reference: str, chain: list[Json] | None, want: str) -> None:
    observed = {"metadata": {"generation": 2}, "spec": {"networkTopologySpec": chain}} if chain else None
    found = LAYERED.topology_drift(binding("topo", *LEVELS), reference, observed)
    assert (found.in_sync, found.message) == (not want, want)


def test_koordinator_takes_part_in_topology_only_with_layers() -> None:
    assert isinstance(koord.build({"topologyLayers": {RACK_KEY: "rackLayer"}}, "p"), TopologyBackend)
    assert not isinstance(koord.build({}, "p"), TopologyBackend)


@pytest.mark.parametrize(
    ("clique_", "index", "want"),
    [("d-0-r", 0, 0), ("d-0-g-0-a", 0, 3), ("d-0-g-0-b", 2, 8), ("d-0-g-1-a", 0, 12), ("d-0-g-1-b", 0, 15)],
)
def test_core_pods_are_numbered_through_the_gang(clique_: str, index: int, want: int) -> None:
    whole = set_of(pcs("d", clique("r"), clique("a"), clique("b", 3), groups=[group("g", "a", "b", replicas=2)]))
    assert koord.gang_index(PodSite(whole, "d-0", clique_, index, 1)) == want
