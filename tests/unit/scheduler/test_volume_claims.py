"""What volume claims ask of a node: bound, waiting for a consumer, selected, missing."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.scheduler.kit import observe

from grove.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from grove.api.selector import Requirement
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.filters.fit import feasible_nodes
from grove.scheduler.filters.node_filters import meets, terms_mask
from grove.scheduler.model.facts import NodeFacts, NodeTerm
from grove.scheduler.model.reading import read_pod
from grove.scheduler.volumes.volume_claims import VolumeClaims, claim_names, pod_volumes
from grove.scheduler.volumes.volume_matching import share_out

ZONE = "topology.kubernetes.io/zone"


def volume(name: str, zone: str = "", *, storage: str = "10Gi", kind: str = "local", **more) -> dict:
    spec = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind, **more}
    if zone:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    labels = spec.pop("labels", {})
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"}}


def labelled(name: str, zone: str) -> dict:
    """A volume that says its zone by a label, as old drivers do."""
    return volume(name, labels={ZONE: zone})


def claim(volume: str = "", kind: str = "local", selected: str = "", storage: str = "5Gi", **more) -> dict:
    notes = {"volume.kubernetes.io/selected-node": selected} if selected else {}
    return {
        "metadata": {"name": "data", "namespace": "default", "annotations": notes},
        "spec": {
            "volumeName": volume,
            "storageClassName": kind,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            **more,
        },
    }


CLASSES = [
    {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {"metadata": {"name": "cloud"}, "provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer"},
    {
        "metadata": {"name": "zonal"},
        "provisioner": "csi.example",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}],
    },
    {"metadata": {"name": "now"}, "provisioner": "csi.example", "volumeBindingMode": "Immediate"},
]


def feasible(claims: list[dict], volumes: list[dict]) -> tuple[str, str]:
    known = {c["metadata"]["name"]: msgspec.convert(c, PersistentVolumeClaim) for c in claims}
    disks = {v["metadata"]["name"]: msgspec.convert(v, PersistentVolume) for v in volumes}
    kinds = {c["metadata"]["name"]: msgspec.convert(c, StorageClass) for c in CLASSES}
    look_up = VolumeClaims(lambda _, name: known.get(name), disks.get, kinds.get, disks.values)
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "default"}, "spec": {"volumes": mounts}}, Pod)
    needs, blocked = pod_volumes(pod, look_up)
    snapshot = Snapshot()
    for name, zone in (("a1", "a"), ("b1", "b")):
        raw = {"metadata": {"name": name, "labels": {ZONE: zone}}, "status": {"allocatable": {"pods": "5"}}}
        observe(snapshot, msgspec.convert(raw, Node))
    return " ".join(feasible_nodes(snapshot, read_pod(pod, volumes=needs, blocked=blocked))), blocked


@pytest.mark.parametrize(
    ("claims", "volumes", "want"),
    [
        pytest.param([claim("disk")], [volume("disk", "a")], "a1", id="a bound volume keeps its zone"),
        pytest.param([claim("disk")], [volume("disk")], "a1 b1", id="a bound volume that is anywhere"),
        pytest.param([claim()], [volume("d", "b")], "b1", id="a waiting claim goes where a free volume is"),
        pytest.param([claim("disk")], [labelled("disk", "a")], "a1", id="a zone label on a bound volume counts"),
        pytest.param([claim("disk")], [labelled("disk", "a__b")], "a1 b1", id="a label may name several zones"),
        pytest.param(
            [claim()],
            [volume("mine", "a", claimRef={"namespace": "default", "name": "data"}), volume("free", "b")],
            "a1",
            id="a volume that was promised to the claim is the only one",
        ),
        pytest.param(
            [claim()],
            [
                volume("old", "a", claimRef={"namespace": "default", "name": "data", "uid": "of another"}),
                volume("d", "b"),
            ],
            "b1",
            id="but not one that was given to another claim of that name",
        ),
        pytest.param(
            [claim(selector={"matchLabels": {"disk": "fast"}})],
            [volume("slow", "a"), volume("fast", "b", labels={"disk": "fast"})],
            "b1",
            id="a claim chooses volumes by their labels",
        ),
        pytest.param([claim(storage="50Gi")], [volume("d", "b")], "", id="a volume that is too small does not count"),
        pytest.param(
            [claim()], [volume("d", "b", claimRef={"namespace": "x", "name": "y"})], "", id="nor one that is taken"
        ),
        pytest.param([claim(kind="cloud")], [], "a1 b1", id="a waiting claim that can be provisioned anywhere"),
        pytest.param([claim(kind="zonal")], [], "b1", id="or only in the allowed zone"),
        pytest.param([claim(kind="cloud", selected="a1")], [], "a1", id="once a node is selected, only there"),
    ],
)
def test_where_a_claim_leads(claims, volumes, want):
    assert feasible(claims, volumes) == (want, "")


@pytest.mark.parametrize(
    ("claims", "volumes", "text"),
    [
        pytest.param([], [], 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param([claim("disk")], [], 'persistentvolume "disk" of claim "data" not found', id="no volume"),
        pytest.param([claim(kind="now")], [], 'pod has unbound immediate persistentvolumeclaim "data"', id="not bound"),
    ],
)
def test_what_holds_a_pod(claims, volumes, text):
    assert feasible(claims, volumes) == ("", text)


def test_ephemeral_claims_are_named_after_the_pod():
    spec = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "e", "emptyDir": {}}]}
    assert claim_names(msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)) == ["p-scratch"]


@pytest.mark.parametrize(
    ("suits", "needed", "given", "lacking"),
    [
        pytest.param({"a": "12", "b": "12"}, "ab", {"a": "1", "b": "2"}, "", id="one for each, the first first"),
        pytest.param({"a": "12", "b": "1"}, "ab", {"a": "2", "b": "1"}, "", id="who has a choice makes way"),
        pytest.param({"a": "1", "b": "1", "c": "2"}, "abc", {}, "ab", id="those that cannot all have one are named"),
        pytest.param({"a": "", "b": "1"}, "ab", {}, "a", id="and nobody else"),
        pytest.param({"a": "1", "b": "1"}, "b", {"b": "1"}, "", id="who may do without comes last"),
    ],
)
def test_volumes_are_shared_out(suits, needed, given, lacking):
    assert share_out(suits, needed) == (given, set(lacking))


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param((), id="none at all"),
        pytest.param((NodeTerm(),), id="an empty one"),
        pytest.param((NodeTerm(labels=(Requirement(ZONE, "In", frozenset("a")),)),), id="a label"),
        pytest.param((NodeTerm(labels=(Requirement(ZONE, "NotIn", frozenset("a")),)),), id="not a label"),
        pytest.param((NodeTerm(labels=(Requirement("other", "NotIn", frozenset("a")),)),), id="a label that none has"),
        pytest.param((NodeTerm(names=(Requirement("metadata.name", "In", frozenset(["b1"])),)),), id="a name"),
        pytest.param((NodeTerm(names=(Requirement("metadata.name", "NotIn", frozenset(["b1"])),)),), id="not a name"),
        pytest.param((NodeTerm(names=(Requirement("spec.x", "In", frozenset(["b1"])),)),), id="another field"),
    ],
)
def test_one_node_meets_terms_as_it_does_among_all(terms):
    nodes = [NodeFacts("a1", {}, {ZONE: "a"}), NodeFacts("b1", {}, {ZONE: "b"}), NodeFacts("c1", {})]
    assert [meets(node, terms) for node in nodes] == terms_mask(cluster(nodes).nodes, terms).tolist()
