"""The samples do what their first lines say. That each of them comes up whole is in test_demo."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from grove.api import labels
from grove.api.core import HorizontalPodAutoscaler, Pod, PriorityClass, ResourceClaim
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.demo.scenario import load_manifests
from grove.plan.standin import stood_in
from grove.plan.world import World, binding, shaped
from grove.sim.loop import run

SAMPLES = Path(__file__).parents[2] / "samples"
COMPUTE_DOMAIN = Resource("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains")
T = TypeVar("T")


def on_stage(sample: str, look: Callable[[World], Awaitable[T]], nodes: int = 16) -> T:
    """Applies a sample to a simulated cluster, waits until it is whole, and looks."""

    async def play() -> T:
        async with World(shaped(nodes), seed=3, objects=[(ClusterTopologyBinding, binding())]) as world:
            for one in load_manifests(SAMPLES / sample):
                if one["kind"] == "PriorityClass":
                    await world.client.create(PriorityClass, one)
                elif one["kind"] == "HorizontalPodAutoscaler":
                    await world.client.create(HorizontalPodAutoscaler, in_default(one))
                else:
                    await world.apply(one)
                    assert await world.until(lambda name=one["metadata"]["name"]: world.is_settled(name))  # type: ignore[misc]
            return await look(world)

    return run(play(), seed=3)


def in_default(one: Json) -> Json:
    return {**one, "metadata": {"namespace": "default", **one["metadata"]}}


def by_clique(world: World) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in world.all(Pod):
        found.setdefault(pod.metadata.labels[labels.POD_CLIQUE], []).append(pod)
    return found


async def raw(world: World, pod: Pod) -> Any:
    return await world.client.get(Pod.RESOURCE, pod.metadata.name, pod.metadata.namespace)


def test_shared_devices_are_claimed_once_a_replica_and_once_a_replica_of_the_group() -> None:
    async def look(world: World) -> tuple[dict[str, int], dict[str, list[str]]]:
        devices = {
            claim.metadata.name: len((claim.status.allocation or {})["devices"]["results"])
            for claim in world.all(ResourceClaim)
        }
        used = {}
        for clique, pods in by_clique(world).items():
            used[clique] = [one["resourceClaimName"] for one in (await raw(world, pods[0]))["spec"]["resourceClaims"]]
        return devices, used

    devices, used = on_stage("shared-devices.yaml", look)
    assert devices == {"sharing-0-engine-0-pair": 2, "sharing-0-engine-1-pair": 2, "sharing-0-fabric": 1}
    assert used == {
        "sharing-0-engine-0-leader": ["sharing-0-fabric"],
        "sharing-0-engine-0-worker": ["sharing-0-engine-0-pair"],
        "sharing-0-engine-1-leader": ["sharing-0-fabric"],
        "sharing-0-engine-1-worker": ["sharing-0-engine-1-pair"],
    }


def test_linked_pods_with_gpus_share_one_compute_domain() -> None:
    async def look(world: World) -> tuple[list[str], dict[str, bool]]:
        domains = [one["metadata"]["name"] for one in (await world.client.list(COMPUTE_DOMAIN)).items]
        pods = {
            name: bool((await raw(world, pods[0]))["spec"].get("resourceClaims"))
            for name, pods in by_clique(world).items()
        }
        return domains, pods

    domains, claimed = on_stage("nvlink.yaml", look)
    assert domains == ["linked-0-ring"]
    assert claimed == {"linked-0-router": False, "linked-0-shard": True}


def test_on_delete_replaces_only_deleted_pods() -> None:
    async def look(world: World) -> tuple[set[str], set[str], list[str]]:
        before = {pod.metadata.uid: pod.metadata.name for pod in world.all(Pod)}
        change = [
            {
                "op": "replace",
                "path": "/spec/template/cliques/0/spec/podSpec/containers/0/image",
                "value": "example/server:2",
            }
        ]
        await world.client.patch(PodCliqueSet, "manual", change, "default")
        await asyncio.sleep(600)
        untouched = {pod.metadata.uid for pod in world.all(Pod)}
        await world.client.delete(Pod, next(iter(before.values())), "default")
        await asyncio.sleep(60)
        images = sorted(pod.spec.containers[0].image for pod in world.all(Pod))
        return set(before), untouched, images

    before, untouched, images = on_stage("on-delete.yaml", look)
    assert untouched == before
    assert images == ["example/server:1", "example/server:1", "example/server:2"]


def test_a_topology_is_kept_at_every_level() -> None:
    async def look(world: World) -> dict[str, set[str]]:
        return {clique: {pod.spec.node_name for pod in pods} for clique, pods in by_clique(world).items()}

    nodes = on_stage("topology.yaml", look)
    shards = [where for clique, where in nodes.items() if clique.endswith("-shard")]
    assert len(shards) == 4
    assert all(len(where) == 1 for where in shards)
    for copy in ("close-0-instance-0", "close-0-instance-1", "close-1-instance-0", "close-1-instance-1"):
        racks = {node.rpartition("-")[0] for part in ("shard", "cache") for node in nodes[f"{copy}-{part}"]}
        assert len(racks) == 1
    for replica in ("close-0", "close-1"):
        blocks = {
            node.rsplit("-", 2)[0] for clique, where in nodes.items() if clique.startswith(replica) for node in where
        }
        assert len(blocks) == 1


def test_replicas_are_spread_over_zones_and_each_is_in_one_rack() -> None:
    async def look(world: World) -> tuple[dict[str, set[str]], dict[str, int]]:
        racks: dict[str, set[str]] = {}
        for pod in world.all(Pod):
            racks.setdefault(pod.metadata.labels[labels.REPLICA_INDEX], set()).add(pod.spec.node_name.rsplit("-", 1)[0])
        routers = {
            clique: len({pod.spec.node_name for pod in pods})
            for clique, pods in by_clique(world).items()
            if clique.endswith("-router")
        }
        return racks, routers

    racks, routers = on_stage("spread.yaml", look, nodes=64)
    assert [len(found) for found in racks.values()] == [1, 1, 1, 1]
    zones = Counter(rack.partition("-")[0] for found in racks.values() for rack in found)
    assert zones == {"z0": 2, "z1": 2}
    assert routers == {f"apart-{i}-router": 2 for i in range(4)}


def test_autoscalers_are_made_for_the_groups_and_the_set_has_its_own() -> None:
    async def look(world: World) -> dict[str, str]:
        return {one.metadata.name: one.spec.scale_target_ref.kind for one in world.all(HorizontalPodAutoscaler)}

    assert on_stage("autoscaling.yaml", look) == {
        "elastic-0-decode": "PodCliqueScalingGroup",
        "elastic-0-prefill": "PodCliqueScalingGroup",
        "elastic": "PodCliqueSet",
    }


def test_the_priority_reaches_the_gang() -> None:
    async def look(world: World) -> list[str]:
        return [gang.spec.priority_class_name for gang in world.all(PodGang)]

    assert on_stage("priority.yaml", look) == ["production"]


@pytest.mark.parametrize(
    ("sample", "scheduler"),
    [
        pytest.param("kai.yaml", "kai-scheduler", id="KAI"),
        pytest.param("koordinator.yaml", "koord-scheduler", id="Koordinator"),
        pytest.param("volcano.yaml", "volcano", id="Volcano"),
        pytest.param("kube-scheduler.yaml", "default-scheduler", id="Kubernetes' own"),
        pytest.param("small.yaml", "", id="ours"),
    ],
)
def test_a_set_of_another_scheduler_is_played_by_ours_and_that_is_reported(sample: str, scheduler: str) -> None:
    [manifest] = load_manifests(SAMPLES / sample)
    played, others = stood_in(manifest)
    assert others == ((scheduler,) if scheduler else ())
    assert "schedulerName" not in yaml.safe_dump(played)
    assert played["metadata"] == manifest["metadata"]


def test_every_sample_is_named_in_the_table() -> None:
    listed = (SAMPLES / "README.md").read_text()
    files = [path.relative_to(SAMPLES).as_posix() for path in sorted(SAMPLES.rglob("*.yaml"))]
    assert [name for name in files if f"({name})" not in listed] == []


def test_images_that_do_not_exist_are_only_where_the_page_says_that_you_put_yours() -> None:
    page = (SAMPLES / "README.md").read_text()
    stories, features = page.split("| Four stories | |")[1].split("| One feature each | |")
    assert "Their images are called `example/…`: **put yours there**" in page
    using = {path.name for path in SAMPLES.glob("*.yaml") if "image: example/" in path.read_text()}
    assert {name for name in using if f"({name})" in stories} == {"agentic-pipeline.yaml"}
    assert "put its image where example/agent:1 stands" in (SAMPLES / "agentic-pipeline.yaml").read_text()
    assert all(f"({name})" in features for name in using - {"agentic-pipeline.yaml"})
