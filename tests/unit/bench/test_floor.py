"""The floor of the benchmarks makes what the operator makes, and nothing that makes it look cheaper or dearer."""

from __future__ import annotations

from collections import Counter

from tests.bench.figures import Figure
from tests.bench.floor import numbered, unavoidable
from tests.bench.scale import cell
from tests.support.manifests import clique, group, many_pairs, pcs

from grove.api.meta import Json


def named(objects: list[Json]) -> Counter[tuple[str, str, str]]:
    """Kinds, names and replicas; a pod by its hostname, since its name ends at random."""
    return Counter(
        (
            one["kind"],
            one["spec"]["hostname"] if one["kind"] == "Pod" else one["metadata"]["name"],
            one["metadata"].get("labels", {}).get("grove.io/podcliqueset-replica-index", ""),
        )
        for one in objects
    )


def test_replicas_made_from_one_are_those_of_a_set_of_so_many() -> None:
    one = unavoidable(many_pairs("big", 1))
    several = [obj for n in range(3) for obj in numbered(one, "big-0", f"big-{n}", n)]
    assert named(several) == named(unavoidable(many_pairs("big", 3)))


def test_sets_made_from_one_have_its_parts_under_their_own_name() -> None:
    def manifest(name: str) -> Json:
        return pcs(name, clique("r", 3), clique("l"), groups=[group("g", "l", replicas=2)])

    made = numbered(unavoidable(manifest("m0")), "m0", "m12", 12)
    assert named(made) == named(unavoidable(manifest("m12")))


def test_nothing_ties_the_objects_to_an_operator() -> None:
    for obj in unavoidable(many_pairs("big", 1)):
        assert not {"ownerReferences", "finalizers", "uid", "resourceVersion"} & obj["metadata"].keys()
        assert "status" not in obj
        assert "nodeName" not in obj["spec"]


def test_what_is_promised_is_the_status_that_a_settled_system_has() -> None:
    made = {one["kind"]: one for one in unavoidable(many_pairs("big", 1), promised=True)}
    assert {kind for kind, one in made.items() if "status" in one} == {"PodClique", "PodGang"}
    told = made["PodClique"]["status"]
    assert (told["replicas"], told["readyReplicas"], told["updatedReplicas"]) == (2, 2, 2)
    assert {one["type"] for one in told["conditions"]} >= {"PodCliqueScheduled", "MinAvailableBreached"}
    assert made["PodGang"]["status"]["phase"] == "Running"
    assert made["PodClique"]["metadata"]["finalizers"]
    assert "finalizers" not in made["Pod"]["metadata"]


def test_a_figure_says_how_far_it_is_above_its_floor() -> None:
    assert Figure(5.0, "s", "", 4.0).ratio == 1.25
    assert Figure(5.0, "s").ratio is None


def test_pods_that_kube_scheduler_places_are_made_for_it() -> None:
    made = unavoidable(many_pairs("big", 1), scheduler="default-scheduler")
    assert {one["spec"].get("schedulerName") for one in made if one["kind"] == "Pod"} == {"default-scheduler"}
    assert not any("schedulerName" in one["spec"] for one in made if one["kind"] == "Service")


def test_growth_is_shown_with_its_ratio_where_it_has_a_floor() -> None:
    column = {"ten sets made, s": 30.0, "ten sets made, floor, s": 20.0, "memory, operator, MB": 170.0}
    assert cell("ten sets made, s", column) == "30.0 (1.50 x)"
    assert cell("memory, operator, MB", column) == "170.0"
