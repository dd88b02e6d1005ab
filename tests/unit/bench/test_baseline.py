"""The baseline of the benchmarks makes what the operator makes, and nothing that makes it look cheaper or dearer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping

import pytest
from bench.baseline import KINDS, Baseline, numbered, systems_of, unavoidable
from bench.figures import Figure
from bench.scale import cell
from bench.writes_bench import ACCOUNT, working
from tests.support.manifests import clique, group, many_pairs, pcs

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.client import Client
from grove.sim.cluster import SimCluster
from grove.sim.loop import run as run_virtual
from grove.sim.topology import Topology


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


WHILE_ALL_IS_MADE_S = 60.0


async def left(client: Client) -> Mapping[str, Json]:
    """What was made, as the server has it: metadata and spec by kind and name, pods under their hostnames.

    An owner has its name here if the uid is that of the object of this name. The place of a pod is left out.
    """
    found = [one for kind in KINDS for one in (await client.list(kind.RESOURCE)).items]
    uids = {one["metadata"]["uid"]: f"uid of {one['kind']} {one['metadata']['name']}" for one in found}
    hostnames = {one["metadata"]["name"]: one["spec"]["hostname"] for one in found if one["kind"] == "Pod"}
    kept = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
    shown = {}
    for one in found:
        metadata = {field: one["metadata"][field] for field in kept if one["metadata"].get(field)}
        spec = {field: value for field, value in one["spec"].items() if field != "nodeName"}
        text = json.dumps({"metadata": metadata, "spec": spec}, sort_keys=True)
        for old, new in (uids | hostnames).items():
            text = text.replace(f'"{old}"', f'"{new}"')
        body = json.loads(text)
        for podgroup in body["spec"].get("podgroups", ()):
            podgroup["podReferences"].sort(key=lambda ref: ref["name"])
        shown[f"{one['kind']} {body['metadata']['name']}"] = body
    return shown


async def left_by_operator(manifests: list[Json], pods: int) -> Mapping[str, Json]:
    async with SimCluster(seed=1) as cluster:
        await cluster.nodes.add(Topology(racks=1, nodes=4))
        client = cluster.client()
        writers = {name: cluster.client(user=f"{ACCOUNT}:grove-{name}") for name in ("operator", "scheduler")}
        async with working(cluster, writers):
            for manifest in manifests:
                await client.create(PodCliqueSet, manifest)
            await asyncio.sleep(WHILE_ALL_IS_MADE_S)
            assert sum(pod.is_ready for pod in (await client.list(Pod)).items) == pods
            return await left(client)


async def left_by_baseline(order: Json) -> Mapping[str, Json]:
    async with SimCluster(seed=1) as cluster:
        await cluster.nodes.add(Topology(racks=1, nodes=4))
        baseline, client = Baseline(cluster.client()), cluster.client()
        await baseline.make(systems_of(order))
        made = await left(client)
        await asyncio.sleep(WHILE_ALL_IS_MADE_S)
        assert await left(client) == made, "the garbage collector took something away"
        await baseline.remove()
        await asyncio.sleep(WHILE_ALL_IS_MADE_S)
        assert not await left(client)
        return made


def nine_pods(name: str) -> Json:
    return pcs(name, clique("r", 3), clique("l"), clique("w", 2), groups=[group("g", "l", "w", replicas=2)])


@pytest.mark.parametrize(
    ("manifests", "pods", "order"),
    [
        pytest.param(
            [many_pairs("big", 12)],
            24,
            {"set": many_pairs("big", 1), "count": 12, "rename": "big-0", "to": "big-NUMBER"},
            id="one set of many replicas",
        ),
        pytest.param(
            [nine_pods(f"m{n}") for n in range(12)],
            108,
            {"set": nine_pods("m0"), "count": 12, "rename": "m0", "to": "mNUMBER"},
            id="many sets with a scaling group",
        ),
    ],
)
def test_the_baseline_leaves_on_the_server_what_the_operator_leaves_there(
    manifests: list[Json], pods: int, order: Json
) -> None:
    by_baseline = run_virtual(left_by_baseline(order | {"promised": True}))
    by_operator = run_virtual(left_by_operator(manifests, pods))
    assert by_baseline == by_operator


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


def test_a_figure_says_how_far_it_is_above_its_baseline() -> None:
    assert Figure(5.0, "s", "", 4.0).ratio == 1.25
    assert Figure(5.0, "s").ratio is None


def test_pods_that_kube_scheduler_places_are_made_for_it() -> None:
    made = unavoidable(many_pairs("big", 1), scheduler="default-scheduler")
    assert {one["spec"].get("schedulerName") for one in made if one["kind"] == "Pod"} == {"default-scheduler"}
    assert not any("schedulerName" in one["spec"] for one in made if one["kind"] == "Service")


def test_growth_is_shown_with_its_ratio_where_it_has_a_baseline() -> None:
    column = {"ten sets made, s": 30.0, "ten sets made, baseline, s": 20.0, "memory, operator, MB": 170.0}
    assert cell("ten sets made, s", column) == "30.0 (1.50 x)"
    assert cell("memory, operator, MB", column) == "170.0"
