"""Karmada's Lua and Open Cluster Management's paths for a PodCliqueSet, run on our objects.

Karmada's module `kube` is Go code; its three functions that the scripts use are stand-ins here, as its documentation
describes them.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lua import Script
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import faults
from tests.support.standings import CURRENT, HALF, ROWS, Row, kstatus

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.review import Admission
from grove.api.quantity import format_milli, milli

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[3] / "deploy"
RULES: Json = yaml.safe_load((DEPLOY / "karmada/podcliqueset.yaml").read_text())["spec"]["customizations"]
WORK: Json = yaml.safe_load((DEPLOY / "ocm/manifestwork.yaml").read_text())
SETS = [row for row in ROWS if row.obj["kind"] == "PodCliqueSet"]


def pod_requirements(template: Json) -> Json:
    (container,) = template["spec"].get("containers") or [{}]
    return {"resourceRequest": container.get("resources", {}).get("requests", {})}


def pod_dependencies(template: Json, namespace: str) -> list[Json]:
    volumes = template["spec"].get("volumes") or []
    names = [one["secret"]["secretName"] for one in volumes if "secret" in one]
    return [{"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": name} for name in names]


KUBE = {
    "accuratePodRequirements": pod_requirements,
    "resourceAdd": lambda *amounts: format_milli(sum(milli(one) for one in amounts)),
    "getPodDependencies": pod_dependencies,
}


def asked(rule: str, function: str, *arguments: Any) -> Any:
    return Script(kube=KUBE).call(RULES[rule]["luaScript"], function, *copy.deepcopy(arguments))


def chat(**metadata: Any) -> Json:
    w = clique("w", 2)
    w["spec"]["podSpec"]["containers"][0]["resources"]["requests"] = {"cpu": "500m", "nvidia.com/gpu": "8"}
    found = pcs("chat", clique("front"), w, groups=[group("g", "w", replicas=3)])
    found["metadata"].update({"generation": 4, "namespace": "default", **metadata})
    found["spec"]["replicas"] = 5
    return found


def test_the_request_of_a_replica_is_that_of_all_its_pods() -> None:
    replicas, need = asked("replicaResource", "GetReplicas", chat())
    assert replicas == 5
    assert {name: milli(amount) for name, amount in need["resourceRequest"].items()} == {
        "cpu": milli("3100m"),  # one front with 100m, two pods with 500m in each of three replicas of the group
        "nvidia.com/gpu": milli("48"),
    }


def test_replicas_are_revised_and_nothing_else() -> None:
    before = chat()
    after = asked("replicaRevision", "ReviseReplica", before, 2)
    assert after["spec"].pop("replicas") == 2
    del before["spec"]["replicas"]
    assert after["spec"]["template"]["cliques"] == before["spec"]["template"]["cliques"]


@pytest.mark.parametrize(
    ("labels", "replicas"),
    [
        pytest.param({}, 5, id="of the template"),
        pytest.param({"resourcetemplate.karmada.io/retain-replicas": "true"}, 9, id="of the member's autoscaler"),
    ],
)
def test_replicas_that_a_member_keeps(labels: dict[str, str], replicas: int) -> None:
    observed = chat()
    observed["spec"]["replicas"] = 9
    assert asked("retention", "Retain", chat(labels=labels), observed)["spec"]["replicas"] == replicas


def item(cluster: str, row: Row, available: int, *, template_generation: int = 4) -> Json:
    obj = copy.deepcopy(row.obj)
    obj["metadata"]["annotations"] = {"resourcetemplate.karmada.io/generation": str(template_generation)}
    obj["status"].update(
        replicas=2, availableReplicas=available, observedGeneration=2, podGangStatuses=[{"name": "chat-0"}]
    )
    reflected = asked("statusReflection", "ReflectStatus", obj)
    assert "podGangStatuses" not in reflected, "a set of a thousand gangs is not copied"
    return {"clusterName": cluster, "status": reflected}


READY, MOVING, STUCK = SETS[0], SETS[1], SETS[2]


@pytest.mark.parametrize(
    ("items", "conditions", "available", "seen"),
    [
        pytest.param(
            [item("paris", READY, 2), item("oslo", READY, 2)], {"Ready": "True"}, 4, CURRENT, id="ready everywhere"
        ),
        pytest.param(
            [item("paris", READY, 2), item("oslo", MOVING, 1)],
            {"Ready": "False", "Reconciling": "True"},
            3,
            "InProgress",
            id="one on its way",
        ),
        pytest.param(
            [item("paris", STUCK, 0), item("oslo", MOVING, 1)],
            {"Ready": "False", "Stalled": "True"},
            1,
            "Failed",
            id="one stalled",
        ),
        pytest.param(
            [item("paris", READY, 2), item("oslo", READY, 2, template_generation=3)],
            {"Ready": "True"},
            4,
            "InProgress",
            id="one has the generation before",
        ),
        pytest.param(
            [item("paris", READY, 2), {"clusterName": "oslo", "applied": True}],
            {"Ready": "False", "Reconciling": "True"},
            2,
            "InProgress",
            id="one has not reported yet",
        ),
        pytest.param(
            [item("paris", READY, 2), item("oslo", READY, 2) | {"applied": False, "appliedMessage": "no such kind"}],
            {"Ready": "False", "Reconciling": "True"},
            4,
            "InProgress",
            id="one cluster refuses the set",
        ),
        pytest.param([], {"Ready": "False", "Reconciling": "True"}, 0, "InProgress", id="no cluster yet"),
    ],
)
def test_status_is_gathered(items: list[Json], conditions: dict[str, str], available: int, seen: str) -> None:
    before = chat()
    before["status"] = {"observedGeneration": 3} if items else {}
    before["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found = asked("statusAggregation", "AggregateStatus", before, items)
    status = found["status"]
    assert {one["type"]: one["status"] for one in status.get("conditions", [])} == conditions
    assert status["availableReplicas"] == available
    assert kstatus(found) == seen
    assert all(one["lastTransitionTime"] for one in status.get("conditions", [])), "the CRD requires it"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        pytest.param([], "no cluster has this set yet", id="no cluster yet"),
        pytest.param([{"clusterName": "oslo"}], "oslo: it has not reported yet", id="no report"),
        pytest.param(
            [item("paris", READY, 2), {"clusterName": "oslo", "applied": False, "appliedMessage": "no such kind"}],
            "oslo: no such kind",
            id="not applied",
        ),
        pytest.param([item("paris", STUCK, 0), item("oslo", MOVING, 1)], "paris: why", id="a person has to help"),
        pytest.param([item("paris", READY, 2)], "ready in 1 of 1 clusters", id="ready"),
    ],
)
def test_the_condition_names_the_cluster(items: list[Json], message: str) -> None:
    before = chat(creationTimestamp="2026-01-01T00:00:00Z")
    found = asked("statusAggregation", "AggregateStatus", before, items)["status"]["conditions"]
    assert {one["message"] for one in found} == {message}


@pytest.mark.parametrize("row", [pytest.param(one, id=one.id) for one in SETS])
def test_health_is_that_of_kstatus(row: Row) -> None:
    assert asked("healthInterpretation", "InterpretHealth", row.obj) == (row.health == "Healthy") or row.obj[
        "metadata"
    ].get("deletionTimestamp")


def test_what_a_set_depends_on_goes_with_it_once() -> None:
    secret = {"volumes": [{"name": "s", "secret": {"secretName": "token"}}]}
    found = pcs("chat", clique("a", **secret), clique("b", **secret), clique("c"))
    found["metadata"]["namespace"] = "default"
    assert asked("dependencyInterpretation", "GetDependencies", found) == [
        {"apiVersion": "v1", "kind": "Secret", "namespace": "default", "name": "token"}
    ]


@pytest.mark.parametrize("obj", HALF)
def test_half_an_object_is_no_error(obj: Json) -> None:
    assert asked("replicaResource", "GetReplicas", obj)[0] == 0
    assert asked("replicaRevision", "ReviseReplica", obj, 2)["spec"]["replicas"] == 2
    assert isinstance(asked("retention", "Retain", obj, obj), dict)
    assert asked("healthInterpretation", "InterpretHealth", obj) is False
    reflected = asked("statusReflection", "ReflectStatus", obj)
    assert asked("statusAggregation", "AggregateStatus", obj, [{"status": reflected}, {}])["status"]["replicas"] == 0
    assert asked("dependencyInterpretation", "GetDependencies", obj) in ({}, [])


def found_at(path: str, obj: Any) -> Any:
    """The value at a path of the two forms that the feedback rules use."""
    for name, type_ in re.findall(r"\.(\w+)(?:\[\?\(@\.type==\"(\w+)\"\)\])?", path):
        obj = (obj or {}).get(name)
        if type_:
            obj = next((one for one in obj or () if one.get("type") == type_), None)
    return obj


def test_the_example_for_open_cluster_management_can_be_applied() -> None:
    (identifier,) = (one["resourceIdentifier"] for one in WORK["spec"]["manifestConfigs"])
    (found,) = (one for one in WORK["spec"]["workload"]["manifests"] if one["kind"] == "PodCliqueSet")
    admitted = with_additions(found, missing_defaults(found))
    assert faults(Admission(), admitted) == []
    assert found["spec"]["replicas"] == 1, "0 is the default"
    assert identifier == {
        "group": "grove.io",
        "resource": "podcliquesets",
        "namespace": found["metadata"]["namespace"],
        "name": found["metadata"]["name"],
    }


def test_feedback_of_open_cluster_management() -> None:
    ((rules,),) = (one["feedbackRules"] for one in WORK["spec"]["manifestConfigs"])
    paths = {one["name"]: one["path"] for one in rules["jsonPaths"]}
    obj = copy.deepcopy(STUCK.obj)
    obj["status"].update(observedGeneration=2, replicas=2, availableReplicas=1, updatedReplicas=1)
    assert {name: found_at(path, obj) for name, path in paths.items()} == {
        "Ready": "False",
        "ReadyReason": "FailedCreate",
        "ReadyMessage": "why",
        "Stalled": "True",
        "ObservedGeneration": 2,
        "Replicas": 2,
        "AvailableReplicas": 1,
        "UpdatedReplicas": 1,
    }
    for half in HALF:
        assert found_at(paths["Ready"], half) in (None, "False")
