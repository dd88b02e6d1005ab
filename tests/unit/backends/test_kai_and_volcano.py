"""KAI and Volcano: what pods carry, what is refused, and what of the cluster they know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.backend_schemas import definitions
from tests.support.manifests import clique, group, pcs
from tests.support.observed import binding, set_of

from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.backends import volcano
from grove.backends.base import PodSite, TopologyBackend
from grove.backends.kai import KaiBackend, KaiFacts
from grove.backends.volcano import VolcanoBackend
from grove.config import ConfigError

RACK_KEY = "topology.kubernetes.io/rack"
RACK = {"pack": {"required": "rack"}}
PACKED = group("g", "a", min_available=2, topologyConstraint=RACK)
QUEUE = {"kai.scheduler/queue": "research"}
ROOT = Path(__file__).parents[3]


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
    assert KaiBackend("auto", NEW).gang_objects(gang, set_of(pcs("d", clique("a", labels=QUEUE))), []).objects == ()


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        pytest.param(pcs("d", clique("a", labels=QUEUE)), [], id="the queue on each clique"),
        pytest.param(pcs("d", clique("a"), metadata={"annotations": QUEUE}), [], id="an annotation of the set"),
        pytest.param(pcs("d", clique("a")), ["spec"], id="no queue"),
        pytest.param(
            pcs("d", clique("a", labels=QUEUE), clique("b", labels={"kai.scheduler/queue": "other"})),
            ["spec"],
            id="two queues",
        ),
        pytest.param(
            pcs("d", clique("a.b", labels=QUEUE)), ["spec.template.cliques[0].name"], id="a dot in a subgroup's name"
        ),
        pytest.param(
            pcs("d", clique("g-1", labels=QUEUE), clique("a"), groups=[PACKED]),
            ["spec.template.cliques[0].name"],
            id="a clique and a replica of a group are one subgroup",
        ),
        pytest.param(
            pcs("d", clique("g-2", labels=QUEUE), clique("a"), groups=[PACKED]),
            [],
            id="a replica of a group that has a gang of its own",
        ),
        pytest.param(
            pcs("d", clique("g-1", labels=QUEUE), clique("a"), groups=[group("g", "a", min_available=2)]),
            [],
            id="no subgroup for a group without topology",
        ),
    ],
)
def test_what_kai_is_not_asked(manifest: Json, want: list[str]) -> None:
    assert paths(KaiBackend("auto", NEW), manifest) == want


def test_kai_is_refused_where_it_is_missing_or_too_old_for_what_is_asked() -> None:
    manifest = pcs("d", clique("a", labels=QUEUE))
    assert paths(KaiBackend("auto", KaiFacts()), manifest) == ["spec"]
    assert paths(KaiBackend("grove", OLD), manifest) == ["spec"]
    assert paths(KaiBackend("auto", OLD), manifest) == []
    assert paths(KaiBackend("auto"), manifest) == []  # not asked yet: no set is refused on a guess


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param({}, KaiFacts(), id="not there"),
        pytest.param({"served": True, "group": {"spec": {"subGroups": [{"name": "p"}]}}}, OLD, id="fields are pruned"),
        pytest.param(
            {"served": True, "group": {"spec": {"subGroups": [{"minSubGroup": 1}], "stalenessGracePeriod": "-1s"}}},
            NEW,
            id="fields are kept",
        ),
        pytest.param({"served": True, "group": None}, OLD, id="a probe that was refused"),
    ],
)
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


LEVELS = (("block", "example.com/block"), ("rack", "example.com/rack"), ("host", "kubernetes.io/hostname"))


# Volcano


def test_volcano_compares_tiers_with_the_levels_of_a_binding() -> None:
    backend = volcano.build({"tiers": {"example.com/block": "spine", "example.com/rack": "leaf"}}, "p")
    assert isinstance(backend, TopologyBackend)
    assert not isinstance(volcano.build({}, "p"), TopologyBackend)

    def drift(*nodes: tuple[str, int]) -> str:
        backend.learn({"tiers": [{"spec": {"tierName": name, "tier": tier}} for name, tier in nodes]})
        return str(backend.topology_drift(binding("topo", *LEVELS), "hypernodes", None).message)

    assert drift(("leaf", 1), ("spine", 2)) == ""
    assert drift(("leaf", 1)) == "no HyperNode has the tier spine"
    assert drift(("leaf", 2), ("spine", 1)) == (
        "tiers do not go from broad to narrow as the levels do: spine (1), leaf (2)"
    )


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
            ["spec.template.podCliqueScalingGroups[0].topologyConstraint"],
            id="the level between",
        ),
    ],
)
def test_what_volcano_is_not_asked(tiers: dict[str, str], manifest: Json, want: list[str]) -> None:
    assert paths(VolcanoBackend(tiers, capable=True), manifest) == want


def test_volcano_is_asked_for_subgroups_and_tiers() -> None:
    backend = VolcanoBackend({RACK_KEY: "rack"})
    assert [one.name for one in backend.questions] == ["crd", "hypernodes", "tiers", "config"]
    crd = next(one for one in definitions("volcano") if one["spec"]["names"]["kind"] == "PodGroup")
    backend.learn({"crd": crd, "tiers": [{"spec": {"tierName": "rack"}}]})
    assert (backend.capable, backend.known_tiers) == (True, {"rack"})
    backend.learn({"crd": None})
    assert not backend.capable
    assert paths(backend, pcs("d", clique("a"))) == ["spec"]


CONF = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
- plugins:
  - name: predicates
"""
WITH_PLUGIN = f"{CONF}  - name: network-topology-aware\n    arguments: {{weight: 10}}\n"
CRD = next(one for one in definitions("volcano") if one["spec"]["names"]["kind"] == "PodGroup")


def config(text: str) -> Json:
    return {"data": {"volcano-scheduler.conf": text}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(config(CONF), False, id="as the chart installs it"),
        pytest.param(config(WITH_PLUGIN), True, id="switched on"),
        pytest.param(config('actions: "allocate"'), False, id="no plugins at all"),
        pytest.param(config(""), False, id="an empty file"),
        pytest.param(None, None, id="it cannot be read"),
        pytest.param({"data": {"other.conf": CONF}}, None, id="another file"),
        pytest.param(config("tiers: [[["), None, id="no YAML"),
        pytest.param(config("tiers: {a: b}"), None, id="another shape"),
    ],
)
def test_whether_volcano_looks_at_topology(found: Json | None, want: bool | None) -> None:
    backend = VolcanoBackend({RACK_KEY: "rack"})
    backend.learn({"crd": CRD, "config": found})
    assert backend.has_plugin is want


def test_a_required_level_is_refused_while_volcano_is_known_to_ignore_it() -> None:
    backend = volcano.build({"tiers": {RACK_KEY: "rack"}, "schedulerConfig": "batch/v-scheduler-configmap"}, "p")
    asked = next(one for one in backend.questions if one.name == "config")
    assert (asked.namespace, asked.object_name) == ("batch", "v-scheduler-configmap")
    required = pcs("d", clique("a"), topologyConstraint=RACK)
    for text, want in ((WITH_PLUGIN, []), (CONF, ["spec.template.topologyConstraint"])):
        backend.learn({"crd": CRD, "config": config(text)})
        assert paths(backend, required) == want
    (refusal,) = backend.validate(set_of(required))
    assert refusal.message == (
        "Volcano ignores topology here, because its plugin network-topology-aware is off; add `- name: "
        "network-topology-aware` to a list of plugins in volcano-scheduler.conf of the ConfigMap "
        "batch/v-scheduler-configmap"
    )
    assert paths(backend, pcs("d", clique("a"), topologyConstraint={"pack": {"preferred": "rack"}})) == []
    backend.learn({"crd": CRD})
    assert paths(backend, required) == []  # nothing is known: the result is watched


@pytest.mark.parametrize("place", ["", "name", "/name", "namespace/"])
def test_where_volcanos_configuration_is_has_a_namespace_and_a_name(place: str) -> None:
    with pytest.raises(ConfigError, match="namespace/name"):
        volcano.build({"schedulerConfig": place}, "p")


@pytest.mark.parametrize(
    ("level", "scheduled", "want"),
    [
        pytest.param("required", False, (False, "NotRepresentable"), id="a gang without nodes waits"),
        pytest.param("required", True, (True, "ToldInPart"), id="a gang that runs gets its replacements"),
        pytest.param("preferred", False, (True, "ToldInPart"), id="a preference holds nobody up"),
    ],
)
def test_what_a_gang_gets_while_volcano_ignores_topology(level: str, scheduled: bool, want: tuple[bool, str]) -> None:
    backend = VolcanoBackend({RACK_KEY: "rack"}, capable=True, known=frozenset({"rack"}))
    backend.has_plugin = False
    status = {"conditions": [{"type": "Scheduled", "status": "True"}]} if scheduled else {}
    spec = {
        "podgroups": [{"name": "d-0-a", "minReplicas": 1, "podReferences": []}],
        "topologyConstraint": {"packConstraint": {level: RACK_KEY}},
    }
    gang = msgspec.convert({"metadata": {"name": "d-0"}, "spec": spec, "status": status}, PodGang)
    telling = backend.gang_objects(gang, set_of(pcs("d", clique("a"))), [])
    assert (telling.ready, telling.reason) == want
    assert len(telling.objects) == 1
    assert "- name: network-topology-aware" in telling.message


def test_an_unknown_tier_holds_the_gang_instead_of_being_ignored() -> None:
    spec = {"podgroups": [{"name": "d-0-a", "minReplicas": 1, "podReferences": []}]}
    level = {"topologyConstraint": {"packConstraint": {"required": RACK_KEY}}}
    gang = msgspec.convert({"metadata": {"name": "d-0"}, "spec": {**spec, **level}}, PodGang)
    telling = VolcanoBackend({RACK_KEY: "rack"}, capable=True).gang_objects(gang, set_of(pcs("d", clique("a"))), [])
    assert (telling.objects, telling.reason) == ((), "NotRepresentable")
