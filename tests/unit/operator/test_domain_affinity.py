"""Required pack domains as pod affinity: what the operator adds for node autoscalers, and what our scheduler skips."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs

from grove.api.core import Pod
from grove.api.labels import DOMAIN_AFFINITY
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.operator.podclique.domain_affinity import REQUIRED, domain_terms, with_domain_affinity
from grove.operator.shared.layout import replica_layouts
from grove.scheduler.model.reading import read_pod

ZONE, RACK, HOST = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "kubernetes.io/hostname"
LEVELS = [{"domain": "zone", "key": ZONE}, {"domain": "rack", "key": RACK}, {"domain": "host", "key": HOST}]
BINDING = msgspec.convert({"metadata": {"name": "dc"}, "spec": {"levels": LEVELS}}, ClusterTopologyBinding)


def pack(domain: str, kind: str = "required") -> Json:
    return {"topologyName": "dc", "pack": {kind: domain}}


def terms_of(asks: bool = True, **template: Any) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Topology key and selected labels by unit, of a set with a router and a group of two cliques."""
    annotations = {DOMAIN_AFFINITY: "true"} if asks else {}
    of_group = template.pop("of_group", None)
    of_clique = template.pop("of_clique", None)
    manifest = pcs(
        "chat",
        clique("router"),
        clique("lead"),
        clique("work", 2, topology=of_clique),
        groups=[group("grp", "lead", "work", replicas=2, **({"topologyConstraint": of_group} if of_group else {}))],
        metadata={"annotations": annotations},
        **template,
    )
    made = msgspec.convert(manifest, PodCliqueSet)
    layouts = replica_layouts(made, 0, lambda _, config: range(config.replicas))
    units = [unit for layout in layouts for unit in layout.units]
    return {
        unit.fqn: [
            (term["topologyKey"], term["labelSelector"]["matchLabels"]) for term in domain_terms(made, unit, BINDING)
        ]
        for unit in units
    }


REPLICA = {"app.kubernetes.io/part-of": "chat", "grove.io/podcliqueset-replica-index": "0"}


def test_a_requirement_of_the_set_holds_for_all_pods_of_the_replica_those_of_scaled_gangs_too() -> None:
    found = terms_of(topologyConstraint=pack("zone"))
    assert len(found) == 5
    assert all(terms == [(ZONE, REPLICA)] for terms in found.values())


def test_requirements_of_group_and_clique_are_narrower() -> None:
    found = terms_of(topologyConstraint=pack("zone"), of_group=pack("rack"), of_clique=pack("host"))
    of_group = {"grove.io/podcliquescalinggroup": "chat-0-grp", "grove.io/podcliquescalinggroup-replica-index": "1"}
    assert found["chat-0-router"] == [(ZONE, REPLICA)]
    assert found["chat-0-grp-1-lead"] == [(ZONE, REPLICA), (RACK, of_group)]
    own = {"grove.io/podclique": "chat-0-grp-1-work"}
    assert found["chat-0-grp-1-work"] == [(ZONE, REPLICA), (RACK, of_group), (HOST, own)]


@pytest.mark.parametrize(
    "options",
    [
        {"asks": False, "topologyConstraint": pack("zone")},
        {"topologyConstraint": pack("zone", "preferred")},
        {"topologyConstraint": pack("block")},
        {},
    ],
    ids=["not asked for", "preferred only", "unknown domain", "no constraint"],
)
def test_nothing_is_added_without_a_requirement_that_is_asked_for(options: dict[str, Any]) -> None:
    assert not any(terms_of(**options).values())


TERM: Json = {"topologyKey": ZONE, "labelSelector": {"matchLabels": REPLICA}}
USERS: Json = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "cache"}}}


def test_terms_stand_beside_those_of_the_template() -> None:
    before: Json = {"affinity": {"nodeAffinity": {"x": 1}, "podAffinity": {REQUIRED: [USERS]}}}
    after = with_domain_affinity(before, [TERM])
    assert after == {"affinity": {"nodeAffinity": {"x": 1}, "podAffinity": {REQUIRED: [USERS, TERM]}}}
    assert before["affinity"]["podAffinity"][REQUIRED] == [USERS]


@pytest.mark.parametrize(("marked", "keys"), [(True, [HOST]), (False, [HOST, ZONE])])
def test_our_scheduler_skips_the_terms_that_the_podgang_repeats(marked: bool, keys: list[str]) -> None:
    meta = {"name": "p", "namespace": "default", "annotations": {DOMAIN_AFFINITY: "true"} if marked else {}}
    spec = with_domain_affinity({"containers": [], "affinity": {"podAffinity": {REQUIRED: [USERS]}}}, [TERM])
    pod = msgspec.convert({"metadata": meta, "spec": spec}, Pod)
    assert [term.topology_key for term in read_pod(pod).shape.affinity] == keys
