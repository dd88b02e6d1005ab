"""What other schedulers need switched on: met, missing or unknown, with the lines to add."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.backend_schemas import definitions

from grove.api.meta import Json
from grove.backends import KNOWN
from grove.backends.needs import Use, needs_of, questions_for

RACK = "topology.kubernetes.io/rack"
TIERS = Use({"tiers": {RACK: "rack"}})
LAYERS = Use({"topologyLayers": {RACK: "rackLayer"}})
GANGS = Use({"gangScheduling": True})
CHART = "tiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: predicates\n"


def crd(scheduler: str) -> Json:
    return next(one for one in definitions(scheduler) if one["spec"]["names"]["kind"] == "PodGroup")


def volcano(**more: Any) -> Json:
    return {"crd": crd("volcano"), "flows": True, "hypernodes": True, "tiers": [{"spec": {"tierName": "rack"}}], **more}


def conf(text: str) -> Json:
    return {"data": {"volcano-scheduler.conf": text}}


KOORD_CONFIG = """
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins: {reserve: {enabled: [{name: Coscheduling}%s]}}
  pluginConfig:
  - name: Coscheduling
    args: {defaultTimeout: 600s%s}
"""


def koord(reservation: str = ", {name: Reservation}", aware: str = ", awareNetworkTopology: true", *args: str) -> Json:
    return {
        "podgroups": True,
        "topologies": True,
        "topology": {"metadata": {"name": "default"}},
        "config": {"data": {"koord-scheduler-config": KOORD_CONFIG % (reservation, aware)}},
        "deployment": {"spec": {"template": {"spec": {"containers": [{"args": list(args)}]}}}},
    }


MANAGER = "--enable-network-topology-manager=true"


def queue(name: str, parent: str = "") -> Json:
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent}}


KAI = {"crd": crd("kai"), "queue kind": True, "shard kind": True, "shards": [{"spec": {}}]}
QUEUED = Use({}, frozenset({"research"}))


def plane(**gates: str) -> list[Json]:
    return [
        {
            "metadata": {"labels": {"component": name.replace("_", "-")}},
            "spec": {"containers": [{"command": [name, f"--feature-gates={said}"]}]},
        }
        for name, said in gates.items()
    ]


BOTH = "GenericWorkload=true,GangScheduling=true"
SERVED = {"v1alpha2 workloads": True}


@pytest.mark.parametrize(
    ("scheduler", "use", "answers", "missing", "unknown"),
    [
        pytest.param(
            "volcano",
            TIERS,
            volcano(config=conf(f"{CHART}  - name: network-topology-aware\n")),
            [],
            [],
            id="Volcano with everything",
        ),
        pytest.param(
            "volcano",
            TIERS,
            volcano(config=conf(CHART)),
            ["plugin network-topology-aware"],
            [],
            id="Volcano as its chart installs it",
        ),
        pytest.param("volcano", Use({}), volcano(config=conf(CHART)), [], [], id="Volcano without topology"),
        pytest.param(
            "volcano",
            Use({}, requires_domain=True),
            volcano(config=conf(CHART)),
            ["plugin network-topology-aware"],
            [],
            id="a gang that requires a domain",
        ),
        pytest.param(
            "volcano",
            TIERS,
            volcano(config=None),
            [],
            ["plugin gang", "plugin network-topology-aware"],
            id="Volcano's configuration is elsewhere",
        ),
        pytest.param(
            "volcano",
            TIERS,
            {},
            [],
            [
                "Volcano 1.14 or later",
                "plugin gang",
                "plugin network-topology-aware",
                "HyperNodes of the tier rack",
                "kind jobflows.flow.volcano.sh",
            ],
            id="Volcano, and nothing may be read",
        ),
        pytest.param(
            "volcano",
            TIERS,
            {"crd": None, "flows": False, "hypernodes": False, "config": conf("")},
            [
                "Volcano 1.14 or later",
                "plugin gang",
                "plugin network-topology-aware",
                "HyperNodes of the tier rack",
                "kind jobflows.flow.volcano.sh",
            ],
            [],
            id="no Volcano",
        ),
        pytest.param(
            "koord-scheduler",
            LAYERS,
            koord(", {name: Reservation}", ", awareNetworkTopology: true", MANAGER),
            [],
            [],
            id="Koordinator with everything",
        ),
        pytest.param(
            "koord-scheduler",
            LAYERS,
            koord("", ""),
            [
                "plugin Reservation under reserve",
                "awareNetworkTopology of Coscheduling",
                f"flag {MANAGER}",
            ],
            [],
            id="the sample configuration of Koordinator",
        ),
        pytest.param(
            "koord-scheduler",
            Use({}),
            koord("", ""),
            ["plugin Reservation under reserve"],
            [],
            id="Koordinator without topology",
        ),
        pytest.param(
            "koord-scheduler",
            LAYERS,
            {"podgroups": True, "topologies": False},
            [
                "ClusterNetworkTopology default",
            ],
            ["plugin Reservation under reserve", "awareNetworkTopology of Coscheduling", f"flag {MANAGER}"],
            id="Koordinator's configuration may not be read",
        ),
        pytest.param(
            "kai-scheduler",
            QUEUED,
            {**KAI, "queues": [queue("root"), queue("research", "root")]},
            [],
            [],
            id="KAI with everything",
        ),
        pytest.param(
            "kai-scheduler",
            QUEUED,
            {**KAI, "queues": [queue("root")]},
            ["Queue research, without queues below it"],
            [],
            id="a queue that does not exist",
        ),
        pytest.param(
            "kai-scheduler",
            QUEUED,
            {**KAI, "queues": [queue("research"), queue("a", "research")]},
            ["Queue research, without queues below it"],
            [],
            id="a queue with queues below it",
        ),
        pytest.param(
            "kai-scheduler",
            QUEUED,
            {**KAI, "queues": [queue("research")], "shards": []},
            ["a SchedulingShard"],
            [],
            id="no shard",
        ),
        pytest.param(
            "kai-scheduler",
            Use({}),
            {**KAI, "shards": [{"spec": {"partitionLabelValue": "blue"}}]},
            [],
            ["a SchedulingShard for all nodes, or sets with the label of one"],
            id="a shard for one pool",
        ),
        pytest.param(
            "default-scheduler",
            GANGS,
            {
                **SERVED,
                "control plane": plane(kube_apiserver=BOTH, kube_scheduler=BOTH, kube_controller_manager=BOTH),
            },
            [],
            [],
            id="kube-scheduler with its gates",
        ),
        pytest.param(
            "default-scheduler",
            GANGS,
            {
                **SERVED,
                "control plane": plane(kube_apiserver=BOTH, kube_scheduler="GangScheduling=false"),
            },
            ["feature gates GenericWorkload, GangScheduling of kube-scheduler"],
            ["feature gates GenericWorkload of kube-controller-manager"],
            id="a scheduler with its gates off",
        ),
        pytest.param(
            "default-scheduler",
            Use({}, requires_domain=True),
            {
                **SERVED,
                "control plane": plane(kube_apiserver=BOTH, kube_scheduler=BOTH, kube_controller_manager=BOTH),
            },
            [
                "feature gates GenericWorkload, GangScheduling, TopologyAwareWorkloadScheduling of kube-apiserver",
                "feature gates GenericWorkload, GangScheduling, TopologyAwareWorkloadScheduling of kube-scheduler",
            ],
            [],
            id="a domain needs one gate more",
        ),
        pytest.param("default-scheduler", Use({"gangScheduling": False}), {}, [], [], id="gangs are not wanted"),
    ],
)
def test_what_a_scheduler_lacks(
    scheduler: str, use: Use, answers: Json, missing: list[str], unknown: list[str]
) -> None:
    found = needs_of(scheduler, use, answers)
    assert [one.what for one in found if one.met is False] == missing
    assert [one.what for one in found if one.met is None] == unknown
    assert all(one.lines and one.without for one in found)


def test_the_lines_are_those_to_add() -> None:
    by_name = {one.what: one for one in needs_of("volcano", TIERS, volcano(config=conf(CHART)))}
    assert by_name["plugin network-topology-aware"].lines == (
        "kubectl -n volcano-system edit configmap volcano-scheduler-configmap; "
        "in volcano-scheduler.conf, under plugins:\n"
        "- name: network-topology-aware"
    )
    by_name = {one.what: one for one in needs_of("koord-scheduler", LAYERS, koord("", ""))}
    assert by_name["awareNetworkTopology of Coscheduling"].lines.split("\n", 1)[1] == (
        "- name: Coscheduling\n  args:\n    awareNetworkTopology: true"
    )


@pytest.mark.parametrize("scheduler", sorted(KNOWN - {"grove-scheduler"}))
def test_every_other_scheduler_has_questions(scheduler: str) -> None:
    asked = questions_for(scheduler, Use({}))
    assert asked
    assert {one.ask for one in asked} <= {"served", "get", "list"}  # nothing is tried out
    assert questions_for("grove-scheduler", Use({})) == ()
