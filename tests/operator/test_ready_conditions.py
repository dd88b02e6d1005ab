"""`Ready`, `Reconciling` and `Stalled` over the life of a set, and that they cost no write of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, pcs, worked_example
from tests.support.operating import World, condition

from grove.api.conditions import TRUE, with_condition
from grove.api.core import Pod
from grove.api.meta import Json, Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import Forbidden
from grove.operator.shared.readiness import GRACE_S

KINDS: tuple[type[Any], ...] = (PodCliqueSet, PodCliqueScalingGroup, PodClique)
FOLLOW = {"Ready", "Reconciling", "Stalled"}


async def _all_ready(world: World) -> bool:
    found = [one for kind in KINDS for one in await world.list(kind)]
    return bool(found) and all(is_true(one.status.conditions, "Ready") for one in found)


def _alone(patch: Json, before: Any) -> bool:
    """True if a status patch says nothing but one of the three conditions."""
    said = patch["status"]
    if set(said) != {"conditions"}:
        return False
    new = {one["type"]: one["status"] for one in said["conditions"]}
    old = {one.type: one.status for one in before.status.conditions}
    return all(new.get(type_) == old.get(type_) for type_ in (new.keys() | old.keys()) - FOLLOW)


@pytest.mark.simulated
async def test_every_part_becomes_ready_and_no_write_is_for_that_alone(world: World) -> None:
    patch, alone = world.operator_client.patch, list[tuple[str, Json]]()

    async def watched(kind: type[Object], name: str, body: Json, *args: Any, **more: Any) -> Any:
        if more.get("subresource") == "status" and _alone(body, await world.get(kind, name)):
            alone.append((name, body))
        return await patch(kind, name, body, *args, **more)

    world.operator_client.patch = watched
    await world.apply(worked_example())
    await world.eventually(lambda: _all_ready(world))
    cliques = worked_example()["spec"]["template"]["cliques"]
    for one in cliques:
        one["spec"]["podSpec"]["containers"][0]["image"] = "other:2"
    await world.client.patch(PodCliqueSet, "demo", {"spec": {"template": {"cliques": cliques}}}, world.namespace)

    async def under_way() -> bool:
        found = await world.get(PodCliqueSet, "demo")
        return condition(found.status.conditions, "Reconciling") == ("True", "UpdateInProgress")

    await world.eventually(under_way)
    await world.eventually(lambda: _all_ready(world))
    found = await world.get(PodCliqueSet, "demo")
    assert found.status.updated_replicas == found.spec.replicas
    assert found.status.observed_generation == found.metadata.generation
    assert condition(found.status.conditions, "Reconciling") is None
    assert alone == []


@pytest.mark.simulated
async def test_the_first_status_says_that_the_set_is_not_ready(world: World) -> None:
    seen = list[Any]()
    patch = world.operator_client.patch

    async def watched(kind: type[Object], name: str, body: Json, *args: Any, **more: Any) -> Any:
        answer = await patch(kind, name, body, *args, **more)
        if kind is PodCliqueSet and more.get("subresource") == "status":
            seen.append(answer)
        return answer

    world.operator_client.patch = watched
    await world.apply(pcs("one", clique("w")))
    await world.eventually(lambda: _all_ready(world))
    assert condition(seen[0].status.conditions, "Ready") == ("False", "ReplicasNotAvailable")
    assert condition(seen[0].status.conditions, "Reconciling") == ("True", "ReplicasNotAvailable")


@pytest.mark.simulated
async def test_a_template_that_is_refused_stalls_its_clique_and_its_set_until_it_is_repaired(world: World) -> None:
    bad = clique("bad")
    bad["spec"]["podSpec"]["containers"][0]["image"] = ""
    await world.apply(pcs("mixed", bad, clique("good")))

    async def stalled() -> bool:
        parts = (await world.get(PodCliqueSet, "mixed"), await world.get(PodClique, "mixed-0-bad"))
        return all(condition(one.status.conditions, "Stalled") == ("True", "FailedCreate") for one in parts)

    await world.eventually(stalled)
    good = [clique("bad"), clique("good")]
    await world.client.patch(PodCliqueSet, "mixed", {"spec": {"template": {"cliques": good}}}, world.namespace)
    await world.eventually(lambda: _all_ready(world))


@pytest.mark.simulated
async def test_a_pod_that_is_lost_makes_its_parts_reconcile(world: World) -> None:
    await world.apply(pcs("one", clique("w", 2)))
    await world.eventually(lambda: _all_ready(world))
    world.binder.allow(0)
    pod = (await world.pods())[0]
    await world.client.delete(type(pod), pod.metadata.name, world.namespace)
    await asyncio.sleep(30)
    for kind, name in ((PodCliqueSet, "one"), (PodClique, "one-0-w")):
        found: Any = await world.get(kind, name)
        assert condition(found.status.conditions, "Ready") is not None
        assert not is_true(found.status.conditions, "Ready")
        assert is_true(found.status.conditions, "Reconciling")
    world.binder.allow(None)
    await world.eventually(lambda: _all_ready(world))
    assert await world.list(PodGang)


async def _standing(world: World, kind: Any, name: str) -> tuple[Any, Any]:
    found = (await world.get(kind, name)).status.conditions
    return condition(found, "Reconciling"), condition(found, "Stalled")


@pytest.mark.simulated
async def test_a_refusal_stalls_a_set_only_if_it_lasts(world: World) -> None:
    create, refuses = world.operator_client.create, True

    async def denied(kind: Any, body: Json, *args: Any, **more: Any) -> Any:
        if kind is Pod and refuses:
            raise Forbidden('admission webhook "guard" denied the request: no rules yet', code=403)
        return await create(kind, body, *args, **more)

    world.operator_client.create = denied
    await world.apply(pcs("one", clique("w", 2)))
    parts = ((PodCliqueSet, "one"), (PodClique, "one-0-w"))
    await asyncio.sleep(GRACE_S - 5)
    for kind, name in parts:
        assert await _standing(world, kind, name) == (("True", "ReplicaFailure"), None)
    await asyncio.sleep(10)  # no event comes meanwhile, and the next retry may be later
    for kind, name in parts:
        assert await _standing(world, kind, name) == (None, ("True", "FailedCreate"))
    refuses = False
    await world.eventually(lambda: _all_ready(world))


@pytest.mark.simulated
async def test_a_set_stalls_with_its_gang_and_comes_back_with_it(world: World) -> None:
    world.binder.allow(0)
    await world.apply(pcs("one", clique("w", 2)))

    async def gang() -> PodGang | None:
        return next((one for one in await world.list(PodGang) if one.status.conditions), None)

    found = await world.eventually(gang)
    now = world.cluster.clock.now()
    stalled = with_condition(found.status.conditions, "Stalled", TRUE, "InvalidPodGang", "group w has no pods", now)

    async def write(conditions: Any) -> None:
        patch = {"status": {"conditions": [msgspec.to_builtins(one) for one in conditions]}}
        await world.client.patch(PodGang, "one-0", patch, world.namespace, subresource="status")

    await write(stalled)
    await asyncio.sleep(GRACE_S - 1)
    assert await _standing(world, PodCliqueSet, "one") == (("True", "ReplicasNotAvailable"), None)
    await asyncio.sleep(2)
    assert await _standing(world, PodCliqueSet, "one") == (None, ("True", "InvalidPodGang"))
    await write(found.status.conditions)
    await asyncio.sleep(2)
    assert await _standing(world, PodCliqueSet, "one") == (("True", "ReplicasNotAvailable"), None)
    world.binder.allow(None)
    await world.eventually(lambda: _all_ready(world))
