"""Sets that the Go operator of Grove made are taken over as they run: no pod is deleted, none is changed."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from tests.support.go_operator import left_behind, put
from tests.support.mortal import DyingClient
from tests.support.operating import KUBE, Operating, World
from tests.support.workloads import Witness, change, uids, updated, versions, watching, wl1, wl2

from grove.api import labels as key
from grove.api.conditions import EventReason
from grove.api.core import (
    CustomResourceDefinition,
    Event,
    HorizontalPodAutoscaler,
    Pod,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import KubeError
from grove.operator.wiring import Operator

OWN_LENGTH = 10
CHILDREN: tuple[type[Object], ...] = (PodClique, PodCliqueScalingGroup, PodGang, Service, HorizontalPodAutoscaler)


OPERATING = Operating(config=KUBE, stopped=True)


async def moved_in(world: World, name: str, for_s: float = 1.5) -> tuple[str, Witness, dict[str, Json]]:
    """A set as the other operator left it, all its pods ready, then our operator for as long as it has to do."""
    objects = left_behind(name)
    await put(world.client, world.namespace, objects, world.nodes.names)

    async def ready() -> bool:
        return all(pod.is_ready for pod in await world.pods())

    await world.eventually(ready)
    before, parts = await raw_pods(world), await children(world)
    async with watching(world) as witness:
        await world.start()
        await world.quiet() if for_s == 1.5 else await world.cluster.settle(for_s)
    assert parts.items() <= (await children(world)).items(), "cliques, groups, gangs, Services and autoscalers stay"
    return objects[0]["metadata"]["name"], witness, before


async def raw_pods(world: World) -> dict[str, Json]:
    page = await world.client.list(Pod.RESOURCE, world.namespace)
    return {pod["metadata"]["uid"]: pod for pod in page.items}


async def children(world: World) -> dict[tuple[str, str], str]:
    return {
        (kind.RESOURCE.kind, one.metadata.name): one.metadata.uid for kind in CHILDREN for one in await world.list(kind)
    }


async def told(world: World, about: str) -> list[str]:
    events = await world.list(Event)
    return [one.message for one in events if one.involved_object.name == about and one.reason == EventReason.TAKEN_OVER]


async def test_a_settled_set_is_taken_over_with_all_its_pods(world: World) -> None:
    await is_taken_over_whole(world, "scaled")


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["groups", "start-order"])
async def test_a_set_of_another_shape_too(world: World, name: str) -> None:
    await is_taken_over_whole(world, name)


async def is_taken_over_whole(world: World, name: str) -> None:
    there = left_behind(name)
    names = {(one["kind"], one["metadata"]["name"]) for one in there}

    pcs_name, witness, before = await moved_in(world, name)

    after = await raw_pods(world)
    assert witness.deleted == []
    assert after.keys() == before.keys()
    assert {uid: pod["spec"] for uid, pod in after.items()} == {uid: pod["spec"] for uid, pod in before.items()}
    assert set(await children(world)) == {one for one in names if one[0] in {kind.RESOURCE.kind for kind in CHILDREN}}
    pcs = await world.get(PodCliqueSet, pcs_name)
    went_by = there[0]["status"]["currentGenerationHash"]
    assert pcs.status.current_generation_hash == went_by, "it keeps its name, so the way back is open as well"
    assert (pcs.status.updated_replicas, pcs.status.available_replicas) == (1, 1)
    assert pcs.status.update_progress is None
    await world.event(pcs_name, EventReason.TAKEN_OVER)
    assert await told(world, pcs_name) == ["taken over from another operator: its pods stay as they are"]

    made, hashes = await children(world), {pod["metadata"]["labels"][key.POD_TEMPLATE_HASH] for pod in after.values()}
    await world.restart()
    await world.quiet()
    assert not world.writes(), "a second look finds nothing to do"
    assert await children(world) == made
    assert {one.used_hash for one in pcs.status.adopted_hashes} == {went_by, *hashes}


async def test_a_set_in_the_middle_of_an_update_is_updated_to_its_end_and_no_further(world: World) -> None:
    objects = left_behind("in-update")
    pca = next(one for one in objects if (one["kind"], one["metadata"]["name"]) == ("PodClique", "simple1-0-pca"))
    new = pca["status"]["updateProgress"]["podTemplateHash"]
    already = {
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "Pod" and one["metadata"]["labels"][key.POD_TEMPLATE_HASH] == new
    }
    assert already == {"simple1-0-pca-hpw5h"}

    _, witness, before = await moved_in(world, "in-update")
    await updated(world, "simple1")

    after = await raw_pods(world)
    gone = {pod["metadata"]["name"] for uid, pod in before.items() if uid not in after}
    assert gone == {"simple1-0-pca-44ppx", "simple1-0-pca-lrlxp"}, "the pods of the old template, and no other"
    assert witness.worst["simple1-0-pca"] == 1, "one at a time, as the other operator did it"
    of_clique = [pod for pod in after.values() if pod["metadata"]["labels"][key.POD_CLIQUE] == "simple1-0-pca"]
    assert {pod["metadata"]["labels"][key.POD_TEMPLATE_HASH] for pod in of_clique} == {new}
    expected = "taken over from another operator in the middle of a change: updated is pca, the rest stays as it is"
    await world.event("simple1", EventReason.TAKEN_OVER)
    assert await told(world, "simple1") == [expected]


@pytest.mark.simulated
async def test_a_change_after_the_takeover_updates_what_changed_and_nothing_else(world: World) -> None:
    await moved_in(world, "scaled")
    before = await uids(world)

    await change(world, "simple1", "pcd")
    pcs = await updated(world, "simple1")

    after = await uids(world)
    changed = {host for host in before if after[host] != before[host]}
    assert changed == {"simple1-0-pcd-0", "simple1-0-pcd-1"}
    assert pcs.status.current_generation_hash != left_behind("scaled")[0]["status"]["currentGenerationHash"]


@pytest.mark.simulated
async def test_a_change_that_no_operator_saw_updates_what_changed_and_nothing_else(world: World) -> None:
    objects = left_behind("scaled")
    await put(world.client, world.namespace, objects, world.nodes.names)
    await change(world, "simple1", "pcd")
    await world.eventually(lambda: _all_ready(world))
    before = await uids(world)

    await world.start()
    await updated(world, "simple1")

    after = await uids(world)
    assert {host for host in before if after[host] != before[host]} == {"simple1-0-pcd-0", "simple1-0-pcd-1"}


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["scaled", "in-update"])
async def test_an_operator_that_dies_of_every_write_deletes_no_pod_it_should_not(world: World, name: str) -> None:
    await put(world.client, world.namespace, left_behind(name), world.nodes.names)
    await world.eventually(lambda: _all_ready(world))
    before, lives = await raw_pods(world), 0
    async with watching(world) as witness:
        while await _life_of_one_write(world):
            lives += 1
            assert lives < 200
    gone = {pod["metadata"]["name"] for uid, pod in before.items() if uid not in await raw_pods(world)}
    assert lives > 5
    assert gone == ({"simple1-0-pca-44ppx", "simple1-0-pca-lrlxp"} if name == "in-update" else set())
    assert witness.worst.get("simple1-0-pca", 0) <= 1
    pcs = await world.get(PodCliqueSet, "simple1")
    assert pcs.status.updated_replicas == 1
    assert len(pcs.status.adopted_hashes) == 5, "four templates, and all of them together"


async def _life_of_one_write(world: World) -> bool:
    """Whether an operator that dies of its first write had one to make."""
    client = DyingClient(world.cluster.sim.client(user="system:serviceaccount:grove-system:grove-operator"), lives=1)
    operator = Operator(client, world.config, clock=world.cluster.clock, rng=random.Random(7))  # type: ignore[arg-type]
    try:
        async with operator.running():
            async with asyncio.timeout(10):
                await client.died.wait()
    except TimeoutError:
        return False
    except KubeError:
        pass
    return client.is_dead


async def _all_ready(world: World) -> bool:
    return all(pod.is_ready for pod in await world.pods())


@pytest.mark.simulated
async def test_a_set_scaled_while_no_operator_ran_grows_and_keeps_its_pods(world: World) -> None:
    await put(world.client, world.namespace, left_behind("scaled"), world.nodes.names)
    await world.scale(PodCliqueSet, "simple1", 2)
    before = await uids(world)

    await world.start()
    await world.available("simple1", 2)

    after = await uids(world)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 9, "the second replica is made from the template, with one copy of its group"


@pytest.mark.simulated
async def test_nothing_moves_while_the_kind_is_still_defined_by_the_other_operator(world: World) -> None:
    definition = CustomResourceDefinition.RESOURCE, "podcliquesets.grove.io"
    crd: Json = await world.client.get(*definition)
    ours = msgspec.json.decode(msgspec.json.encode(crd["spec"]["versions"]))
    theirs = msgspec.json.decode(msgspec.json.encode(ours))
    del theirs[0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["adoptedHashes"]
    await world.client.patch(*definition, {"spec": {"versions": theirs}})

    name, witness, before = await moved_in(world, "scaled", for_s=20)
    assert (await raw_pods(world)).keys() == before.keys()
    assert witness.deleted == []
    await world.event(name, EventReason.TAKEOVER_BLOCKED)
    assert "simple1-ic-sat" in await world.names(Secret), "not even what is not needed goes"

    await world.client.patch(*definition, {"spec": {"versions": ours}})
    await world.eventually(lambda: told(world, name), 600)
    await world.quiet()
    assert (await raw_pods(world)).keys() == before.keys()
    assert witness.deleted == []


@pytest.mark.simulated
async def test_what_only_a_start_order_needs_goes_unless_a_pod_mounts_it(world: World) -> None:
    await moved_in(world, "scaled")
    assert await world.names(Secret) == []
    assert "simple1" not in await world.names(ServiceAccount)
    await world.delete(PodCliqueSet, "simple1")


@pytest.mark.simulated
async def test_an_account_that_a_clique_runs_under_stays(world: World) -> None:
    objects = left_behind("scaled")
    for clique in objects[0]["spec"]["template"]["cliques"]:
        clique["spec"]["podSpec"]["serviceAccountName"] = "simple1"
    await put(world.client, world.namespace, objects, world.nodes.names)
    await world.start()
    await world.quiet()
    assert "simple1" in await world.names(ServiceAccount)


@pytest.mark.simulated
async def test_the_token_that_pods_of_a_start_order_mount_stays_as_it_is(world: World) -> None:
    await moved_in(world, "start-order")
    assert "simple2-ic-sat" in await world.names(Secret)
    assert "simple2" in await world.names(ServiceAccount)


def renamed(hash_: str) -> str:
    """A name as the other operator would give it: another alphabet of digits, twice as long."""
    return f"{hash_}{hash_[::-1]}"


async def disguise(world: World) -> None:
    """Makes what our operator left look like the other's: its names for hashes, and nothing that only ours writes."""
    for kind in (PodCliqueSet, PodClique, PodCliqueScalingGroup, Pod):
        for obj in (await world.client.list(kind.RESOURCE, world.namespace)).items:
            meta, status = obj["metadata"], obj.get("status") or {}
            label = (meta.get("labels") or {}).get(key.POD_TEMPLATE_HASH)
            if label and len(label) == OWN_LENGTH:
                patch = {"metadata": {"labels": {key.POD_TEMPLATE_HASH: renamed(label)}}}
                await world.client.patch(kind, meta["name"], patch, world.namespace)
            if kind is Pod:
                continue
            told: Json = dict.fromkeys(("replicaRestarts", "incarnation", "adoptedHashes", "lastOperation"))
            for name in ("currentGenerationHash", "currentPodTemplateHash", "currentPodCliqueSetGenerationHash"):
                if status.get(name):
                    told[name] = renamed(status[name])
            progress = status.get("updateProgress") or {}
            hashes = {
                n: renamed(v) for n, v in progress.items() if n in ("podTemplateHash", "podCliqueSetGenerationHash")
            }
            if hashes:
                told["updateProgress"] = hashes
            await world.client.patch(kind, meta["name"], {"status": told}, world.namespace, subresource="status")


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
async def test_sets_of_any_shape_keep_their_pods_and_an_open_update_keeps_its_new_ones(world: World, seed: int) -> None:
    rng = random.Random(seed)
    await world.start()
    manifest = rng.choice([wl1, wl2])(name="any", replicas=rng.randint(1, 3))
    await world.apply(manifest)
    await world.available("any")
    if rng.random() < 0.5:
        await world.scale(PodCliqueScalingGroup, "any-0-sg-x", 3)
        await world.quiet()
    updating = seed % 2 == 1
    if updating:
        world.nodes.start_s = 0.5
        await change(world, "any", "pc-a", "pc-c")
        await asyncio.sleep(rng.uniform(0.5, 4.0))
    await world.stop()
    await world.eventually(lambda: _all_ready(world))
    told = await versions(world)
    before = {pod.metadata.uid: pod.spec.hostname for pod in await world.pods()}
    await disguise(world)

    await world.start()
    if updating:
        await updated(world, "any")
    await world.quiet()

    after = {pod.metadata.uid for pod in await world.pods()}
    gone = {host for uid, host in before.items() if uid not in after}
    if not updating:
        assert gone == set()
        return
    assert not gone & {host for host, version in told.items() if version == "two"}, "pods of the new template stay"
    now = await versions(world)
    assert {version for host, version in now.items() if "pc-b" not in host} == {"two"}
