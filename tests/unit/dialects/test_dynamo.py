"""A PodGangSet becomes a set of one clique whose pods are one gang; what it cannot become is reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.support.dialects import gang_set, gang_sets, pod_template, seed

from grove.api.dynamo import GROUP
from grove.api.meta import Json
from grove.dialects.dynamo import to_set
from grove.dialects.reverse import to_dialect


def pod_spec(obj: Json) -> Json:
    found: Json = to_set(obj).manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    return found


def test_the_first_example_is_a_gang_of_eight_on_nodes_of_its_type() -> None:
    obj = seed("podgangset")
    spec = to_set(obj).manifest["spec"]
    assert spec["replicas"] == 1
    [clique] = spec["template"]["cliques"]
    assert (clique["name"], clique["spec"]["replicas"], clique["spec"]["minAvailable"]) == ("gang", 8, 8)
    assert clique["spec"]["podSpec"]["schedulerName"] == "grove-scheduler"
    assert clique["spec"]["podSpec"]["affinity"]["nodeAffinity"] == obj["spec"]["scheduling"]["nodeAffinity"]
    [container] = clique["spec"]["podSpec"]["containers"]
    assert container["image"] == "dynamo/worker:latest"
    assert container["resources"] == {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}


def test_labels_of_the_template_reach_the_clique() -> None:
    found = to_set(seed("multinode-serving"))
    assert found.manifest["spec"]["template"]["cliques"][0]["labels"] == {"app": "dynamo-worker"}
    assert found.warnings == ()


def test_what_the_author_left_open_is_reported() -> None:
    warnings = to_set(gang_set(replicas=3)).warnings
    assert [one.partition(":")[0] for one in warnings] == ["spec.template.spec.schedulerName", "spec.minAvailable"]


def test_the_set_carries_the_labels_and_annotations_of_the_object_but_not_words_to_the_translator() -> None:
    obj = gang_set()
    obj["metadata"] |= {
        "labels": {"team": "a"},
        "annotations": {
            "note": "1",
            "grove.dynamo.ai/recreate": "true",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    metadata = to_set(obj).manifest["metadata"]
    assert metadata["labels"] == {"team": "a", "grove.io/translated-from": "grove.dynamo.ai"}
    assert metadata["annotations"] == {"note": "1", "grove.io/translated-name": "gang"}
    assert "ownerReferences" not in metadata


def expression(key: str) -> Json:
    return {"key": key, "operator": "Exists"}


def test_node_affinity_of_template_and_scheduling_both_hold() -> None:
    def required(*keys: str) -> Json:
        terms = [{"matchExpressions": [expression(key)]} for key in keys]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    obj = gang_set(scheduling=required("c", "d"))
    obj["spec"]["template"] = pod_template(affinity=required("a", "b"))
    found = pod_spec(obj)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    pairs = [[one["key"] for one in term["matchExpressions"]] for term in found["nodeSelectorTerms"]]
    assert pairs == [["a", "c"], ["a", "d"], ["b", "c"], ["b", "d"]]


def test_preferences_tolerations_and_selectors_are_added_to_those_of_the_template() -> None:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    obj = gang_set(
        scheduling={
            "nodeAffinity": {preferred: [{"weight": 2, "preference": {}}]},
            "podAntiAffinity": {preferred: [{"weight": 1}]},
            "nodeSelector": {"b": "2"},
            "tolerations": [{"key": "b"}],
        }
    )
    obj["spec"]["template"] = pod_template(
        affinity={"nodeAffinity": {preferred: [{"weight": 1, "preference": {}}]}},
        nodeSelector={"a": "1"},
        tolerations=[{"key": "a"}],
    )
    found = pod_spec(obj)
    assert [one["weight"] for one in found["affinity"]["nodeAffinity"][preferred]] == [1, 2]
    assert found["affinity"]["podAntiAffinity"] == {preferred: [{"weight": 1}]}
    assert found["nodeSelector"] == {"a": "1", "b": "2"}
    assert found["tolerations"] == [{"key": "a"}, {"key": "b"}]


@pytest.mark.parametrize(
    ("scheduler", "label", "annotation"),
    [
        pytest.param("grove-scheduler", {"kai.scheduler/queue": "team"}, None, id="ours reads KAI's"),
        pytest.param("kai-scheduler", {"kai.scheduler/queue": "team"}, None, id="KAI reads a label"),
        pytest.param("koord-scheduler", {"quota.scheduling.koordinator.sh/name": "team"}, None, id="an ElasticQuota"),
        pytest.param(
            "koordinator-scheduler", {"quota.scheduling.koordinator.sh/name": "team"}, None, id="by its other name"
        ),
        pytest.param("volcano", {}, "team", id="Volcano reads an annotation"),
    ],
)
def test_a_queue_is_written_for_the_scheduler_that_the_pods_name(
    scheduler: str, label: dict[str, str], annotation: str | None
) -> None:
    obj = gang_set(scheduling={"queue": "team"})
    obj["spec"]["template"] = pod_template(schedulerName=scheduler)
    found = to_set(obj)
    assert found.faults == ()
    assert label.items() <= found.manifest["metadata"]["labels"].items()
    assert len(found.manifest["metadata"]["labels"]) == len(label) + 1
    assert found.manifest["metadata"]["annotations"].get("scheduling.grove.io/volcano-queue") == annotation


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        pytest.param({"minAvailable": 3}, "spec.minAvailable", "replicas (2)", id="a floor above the replicas"),
        pytest.param({"minAvailable": 0}, "spec.minAvailable", "at least 1", id="a floor of nothing"),
        pytest.param({"minMember": 2}, "spec.minMember", "use spec.minAvailable", id="a word of another API"),
        pytest.param({"replica": 2}, "spec.replica", "did you mean replicas?", id="a slip of the pen"),
        pytest.param(
            {"scheduling": {"gpus": 1}}, "spec.scheduling.gpus", "there are nodeAffinity", id="a field nobody knows"
        ),
        pytest.param(
            {"scheduling": {"queue": "q"}, "template": pod_template(schedulerName="default-scheduler")},
            "spec.scheduling.queue",
            "has no queues",
            id="a queue of nobody",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_the_way_out(spec: Json, path: str, words: str) -> None:
    [fault] = to_set(gang_set(**spec)).faults
    assert fault.path == path
    assert words in fault.message


LEVELS = {"topology.kubernetes.io/zone": ("datacenter", "zone"), "example.com/rack": ("datacenter", "rack")}


def spread_of(*given: Json) -> tuple[Json | None, list[tuple[str, str]]]:
    """The spreadConstraint that these entries become, and the faults."""
    found = to_set(gang_set(scheduling={"topologySpread": list(given)}), levels=LEVELS)
    [clique] = found.manifest["spec"]["template"]["cliques"]
    return clique.get("spreadConstraint"), [(one.path, one.message) for one in found.faults]


def test_a_spread_over_a_level_of_a_topology_becomes_the_spread_of_the_clique() -> None:
    wanted = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    spread, faults = spread_of(wanted)
    assert spread == {
        "topologyName": "datacenter",
        "domain": "zone",
        "maxSkew": 2,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    assert faults == []


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        pytest.param([{"topologyKey": "row"}], "topologySpread[0].topologyKey", "not a level", id="an unknown level"),
        pytest.param(
            [{"topologyKey": "example.com/rack"}, {"topologyKey": "topology.kubernetes.io/zone"}],
            "topologySpread[1]",
            "keep one entry",
            id="two levels",
        ),
        pytest.param(
            [{"topologyKey": "example.com/rack", "labelSelector": {"matchLabels": {"app": "other"}}}],
            "topologySpread[0].labelSelector",
            "leave it out",
            id="pods of others",
        ),
        pytest.param(
            [{"topologyKey": "example.com/rack", "minDomains": 3}],
            "topologySpread[0].minDomains",
            "not supported",
            id="a field without counterpart",
        ),
    ],
)
def test_a_spread_that_has_no_counterpart_is_refused(given: list[Json], path: str, words: str) -> None:
    [(at, message)] = spread_of(*given)[1]
    assert at == f"spec.scheduling.{path}"
    assert words in message


def test_without_the_topologies_of_the_cluster_a_spread_is_left_out_and_not_judged() -> None:
    found = to_set(gang_set(scheduling={"topologySpread": [{"topologyKey": "row"}]}))
    assert found.faults == ()
    assert "spreadConstraint" not in found.manifest["spec"]["template"]["cliques"][0]


def test_a_minimum_is_free_while_there_are_no_pods() -> None:
    assert to_set(gang_set(replicas=0, minAvailable=3)).faults == ()


def test_a_name_too_long_for_pods_is_cut_the_same_way_every_time() -> None:
    long = "a-name-of-fifty-characters-that-is-far-too-long-xy"
    found = to_set(gang_set(long))
    assert found.name == "a-name-of-fifty-characters-that-is-f-91af"
    assert len(found.name) <= 41
    assert found.name != to_set(gang_set(long + "z")).name
    assert found.faults == ()
    assert any(found.name in one for one in found.warnings)
    assert len(to_set(gang_set("x" * 41)).name) == 41


@pytest.mark.parametrize(
    ("path", "theirs"),
    [
        ("spec.template.cliques[0].spec.podSpec.containers[0].image", "spec.template.spec.containers[0].image"),
        ("spec.template.cliques[0].spec.minAvailable", "spec.minAvailable"),
        ("spec.template.cliques.spec.minAvailable", "spec.minAvailable"),
        ("spec.template.cliques.spec.podSpec.schedulerName", "spec.template.spec.schedulerName"),
        ("spec.template.cliques[0].labels", "spec.template.metadata.labels"),
        ("spec.template.priorityClassName", "spec.scheduling.priorityClassName"),
        ("metadata.name", "metadata.name"),
    ],
)
def test_paths_of_the_set_are_spelled_as_the_author_would(path: str, theirs: str) -> None:
    assert to_set(gang_set()).spelled(path) == theirs


@pytest.mark.parametrize("value", [None, 1, "x", [], {"spec": None}, {"spec": {"template": [1]}}, {"metadata": 3}])
def test_nonsense_is_translated_without_stumbling(value: Any) -> None:
    to_set(value if isinstance(value, dict) else {"metadata": {"name": "x"}, "spec": value})


@given(gang_sets())
def test_there_and_back_and_there_again_is_the_same_set(obj: Json) -> None:
    there = to_set(obj).manifest
    back, lost = to_dialect(there, GROUP)
    assert lost == ()
    assert to_set(back).manifest == there
    assert back["metadata"] == obj["metadata"]


@given(gang_sets())
def test_every_gang_set_drawn_is_sound(obj: Json) -> None:
    assert to_set(obj).faults == ()
