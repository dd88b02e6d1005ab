"""Shared ResourceClaims at all three levels, and ComputeDomains: made, used by the right pods, and removed again."""

from __future__ import annotations

import pytest
from tests.support.claims import DEVICES, MNNVL, TEMPLATE, domains, install_compute_domains, pod_claims
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, condition, operating

from grove.api.core import COMPUTE_DOMAIN, CustomResourceDefinition, Pod, ResourceClaim, ResourceClaimTemplate
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.config import load_configuration
from grove.kube.errors import Forbidden

pytestmark = pytest.mark.older_too


def shared(scope: str, **filters: list[str]) -> Json:
    return {"name": "gpu", "scope": scope, **({"filter": filters} if filters else {})}


async def test_claims_of_every_level_and_scope_are_made_and_used(world: World) -> None:
    members = group("grp", "m", replicas=2, resourceSharing=[shared("PerReplica")])
    manifest = pcs(
        "rs",
        clique("w", 2, sharing=[shared("PerReplica")]),
        clique("m"),
        groups=[members],
        resourceClaimTemplates=[TEMPLATE],
        resourceSharing=[shared("AllReplicas", childCliqueNames=["w"])],
    )
    await world.apply(manifest)
    await world.eventually(lambda: world.has_pods(4))
    await world.quiet()

    assert await world.names(ResourceClaim) == [
        "rs-0-grp-0-gpu",
        "rs-0-grp-1-gpu",
        "rs-0-w-0-gpu",
        "rs-0-w-1-gpu",
        "rs-all-gpu",
    ]
    assert await pod_claims(world, "rs-0-w") == {
        "rs-0-w-0": ["rs-all-gpu", "rs-0-w-0-gpu"],
        "rs-0-w-1": ["rs-all-gpu", "rs-0-w-1-gpu"],
    }
    assert await pod_claims(world, "rs-0-grp-1-m") == {"rs-0-grp-1-m-0": ["rs-0-grp-1-gpu"]}

    await world.scale(PodCliqueScalingGroup, "rs-0-grp", 1)
    await world.scale(PodClique, "rs-0-w", 3)

    async def followed() -> bool:
        return await world.names(ResourceClaim) == [
            "rs-0-grp-0-gpu",
            "rs-0-w-0-gpu",
            "rs-0-w-1-gpu",
            "rs-0-w-2-gpu",
            "rs-all-gpu",
        ]

    await world.eventually(followed)

    await world.delete(PodCliqueSet, "rs")

    async def gone() -> bool:
        return not await world.list(ResourceClaim)

    await world.eventually(gone)


@pytest.mark.real_in("soak")
async def test_claims_deleted_by_hand_come_back_at_every_level(world: World) -> None:
    every = [shared("AllReplicas")]
    members = group("grp", "m", resourceSharing=every)
    await world.apply(
        pcs(
            "rs",
            clique("w", sharing=every),
            clique("m"),
            groups=[members],
            resourceClaimTemplates=[TEMPLATE],
            resourceSharing=every,
        )
    )
    await world.eventually(lambda: world.has_pods(2))
    await world.quiet()
    claims = ["rs-0-grp-all-gpu", "rs-0-w-all-gpu", "rs-all-gpu"]
    assert await world.names(ResourceClaim) == claims
    old = {one.metadata.uid for one in await world.list(ResourceClaim)}

    for name in claims:
        await world.delete(ResourceClaim, name)

    async def back() -> bool:
        found = [one for one in await world.list(ResourceClaim) if one.metadata.uid not in old]
        return [one.metadata.name for one in found] == claims

    await world.eventually(back, 20)


async def test_a_template_that_is_missing_is_waited_for(world: World) -> None:
    await world.apply(pcs("rs", clique("w"), resourceSharing=[shared("AllReplicas")]))

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "rs")
        return any("ResourceClaimTemplate" in error.description for error in found.status.last_errors)

    await world.eventually(told)

    meta = {"name": "gpu", "namespace": world.namespace}
    await world.client.create(ResourceClaimTemplate, {"metadata": meta, "spec": {"spec": DEVICES}})

    async def healed() -> bool:
        found = await world.get(PodCliqueSet, "rs")
        return await world.names(ResourceClaim) == ["rs-all-gpu"] and found.status.last_errors == ()

    await world.eventually(healed, 90)


@pytest.mark.real_in("soak")
@pytest.mark.parametrize("level", ["set", "group", "clique"])
async def test_claims_outlive_the_template_they_were_made_from(world: World, level: str) -> None:
    """Pods use them: without theirs no pod could be replaced."""
    meta = {"name": "gpu", "namespace": world.namespace}
    await world.client.create(ResourceClaimTemplate, {"metadata": meta, "spec": {"spec": DEVICES}})
    every = [shared("AllReplicas")]
    members = group("grp", "m", **({"resourceSharing": every} if level == "group" else {}))
    of_set = {"resourceSharing": every} if level == "set" else {}
    await world.apply(
        pcs("rs", clique("w", sharing=every if level == "clique" else ()), clique("m"), groups=[members], **of_set)
    )
    await world.eventually(lambda: world.has_pods(2))
    await world.quiet()
    before = [one.metadata.uid for one in await world.list(ResourceClaim)]
    assert len(before) == 1

    await world.delete(ResourceClaimTemplate, "gpu")
    old = {pod.metadata.uid for pod in await world.pods()}
    for pod in await world.pods():
        await world.delete(Pod, pod.metadata.name)
    look = {"metadata": {"annotations": {"grove.io/reconcile-trigger": "now"}}}
    await world.client.patch(PodCliqueSet, "rs", look, world.namespace)

    async def replaced() -> bool:
        now = {pod.metadata.uid for pod in await world.pods()}
        return len(now) == 2 and not now & old

    await world.eventually(replaced)
    await world.quiet()
    assert [one.metadata.uid for one in await world.list(ResourceClaim) if not one.metadata.is_deleting] == before
    assert (await world.get(PodCliqueSet, "rs")).status.last_errors == ()


async def test_compute_domains_come_and_go_with_their_replica(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, replicas=2, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))
        await world.available("mn")

        assert await domains(world) == ["mn-0-fast", "mn-1-fast"]
        (pod,) = await world.pods("mn-1-w")
        raw = await world.client.get(Pod.RESOURCE, pod.metadata.name, world.namespace)
        (claim,) = raw["spec"]["resourceClaims"]
        assert claim == {"name": "mnnvl-claim", "resourceClaimTemplateName": "mn-1-fast"}

        await world.client.patch(COMPUTE_DOMAIN, "mn-0-fast", {"metadata": {"finalizers": None}}, world.namespace)
        old = await world.client.get(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)
        await world.client.delete(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)

        async def back() -> bool:
            now = await world.client.get(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)
            return bool(now["metadata"]["uid"] != old["metadata"]["uid"])

        await world.eventually(back)

        await world.scale(PodCliqueSet, "mn", 1)
        await world.eventually(lambda: _domains_are(world, ["mn-0-fast"]))
        await world.delete(PodCliqueSet, "mn")
        await world.eventually(lambda: _domains_are(world, []))


@pytest.mark.simulated
async def test_a_domain_of_another_client_is_reported_and_not_taken_for_ours(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        theirs = {"metadata": {"name": "mn-0-fast", "namespace": world.namespace}, "spec": {"numNodes": 0}}
        await world.client.create(COMPUTE_DOMAIN, theirs)
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))

        async def told() -> bool:
            errors = (await world.get(PodCliqueSet, "mn")).status.last_errors
            return any("mn-0-fast exists and does not belong to mn" in one.description for one in errors)

        await world.eventually(told)
        assert "ComputeDomainCreateSuccessful" not in await world.event_reasons("mn")

        await world.client.delete(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)

        async def healed() -> bool:
            return not (await world.get(PodCliqueSet, "mn")).status.last_errors

        await world.eventually(healed, 120)
        assert await domains(world) == ["mn-0-fast"]


@pytest.mark.simulated  # the refusal is our own
async def test_domains_that_cannot_be_listed_hold_up_nothing_else(cluster: object) -> None:
    """They are missing and the set says why; its other children and its status go on."""
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        may = world.operator_client.list

        async def refuse(kind: object, *args: object, **options: object) -> object:
            if kind is COMPUTE_DOMAIN:
                raise Forbidden("no rights on computedomains")
            return await may(kind, *args, **options)

        world.operator_client.list = refuse
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))

        async def told() -> bool:
            status = (await world.get(PodCliqueSet, "mn")).status
            return [one.code for one in status.last_errors] == ["ERR_SYNC_COMPUTEDOMAIN"]

        await world.eventually(told)
        assert await world.names(PodClique) == ["mn-0-w"]

        world.operator_client.list = may
        await world.eventually(lambda: _domains_are(world, ["mn-0-fast"]), 90)


@pytest.mark.simulated  # the refusal is our own
async def test_a_set_that_cannot_go_because_of_its_domains_says_so(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))
        await world.available("mn")
        may, refused = world.operator_client.patch, Forbidden("no rights on computedomains")

        async def refuse(kind: object, *args: object, **options: object) -> object:
            if kind is COMPUTE_DOMAIN:
                raise refused
            return await may(kind, *args, **options)

        world.operator_client.patch = refuse
        await world.delete(PodCliqueSet, "mn")

        async def told() -> bool:
            status = (await world.get(PodCliqueSet, "mn")).status
            is_event = "ComputeDomainDeleteFailed" in await world.event_reasons("mn")
            return is_event and [one.code for one in status.last_errors] == ["ERR_DELETE_COMPUTEDOMAIN"]

        await world.eventually(told)
        operation = (await world.get(PodCliqueSet, "mn")).status.last_operation
        assert operation is not None
        assert (operation.type, operation.state) == ("Delete", "Error")

        world.operator_client.patch = may
        await world.eventually(lambda: _domains_are(world, []), 90)


@pytest.mark.simulated  # test_real_optional has a cluster without the kind; on the shared one another test installs it
async def test_domains_without_their_kind_switch_the_feature_off_and_not_the_operator(cluster: object) -> None:
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))
        await world.apply(pcs("plain", clique("w")))

        await world.available("plain")

        async def told() -> bool:
            found = await world.get(PodCliqueSet, "mn")
            return condition(found.status.conditions, "FeaturesUnavailable") == ("True", "APINotServed")

        await world.eventually(told)


async def test_a_kind_that_is_uninstalled_is_missed_and_holds_up_no_deletion(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        grouped = {"annotations": {"grove.io/mnnvl-group": "fast"}}
        await world.apply(pcs("first", gpu, metadata=grouped))
        await world.available("first")

        await world.client.delete(CustomResourceDefinition, "computedomains.resource.nvidia.com")

        async def uninstalled() -> bool:
            if not await world.client.serves(COMPUTE_DOMAIN):
                return True
            for name in await domains(world):  # what holds the kind, as an administrator would take it off
                await world.client.patch(COMPUTE_DOMAIN, name, {"metadata": {"finalizers": None}}, world.namespace)
            return False

        await world.eventually(uninstalled)
        await world.apply(pcs("second", gpu, metadata=grouped))

        async def told() -> bool:
            found = await world.get(PodCliqueSet, "second")
            return condition(found.status.conditions, "FeaturesUnavailable") == ("True", "APINotServed")

        await world.eventually(told, 90)
        await world.delete(PodCliqueSet, "first")

        async def gone() -> bool:
            return await world.names(PodCliqueSet) == ["second"]

        await world.eventually(gone)


@pytest.mark.simulated  # a real garbage collector learns of a new kind half a minute later, and till then orphans none
@pytest.mark.parametrize("away", [False, True], ids=["the operator at work", "the operator away until it is settled"])
async def test_domains_of_a_set_deleted_without_its_children_stay_and_the_next_one_takes_them_on(
    cluster: object, away: bool
) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        manifest = pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}})
        await world.apply(manifest)
        await world.available("mn")
        before = await world.client.get(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)
        await world.delete_without_children("mn", away=away)
        left = await world.client.get(COMPUTE_DOMAIN, "mn-0-fast", world.namespace)
        assert left["metadata"]["uid"] == before["metadata"]["uid"]
        assert "deletionTimestamp" not in left["metadata"]
        assert not left["metadata"].get("finalizers"), "nobody is left to take it off"
        assert "ComputeDomainDeleteFailed" not in await world.event_reasons("mn")

        made = await world.apply(manifest)
        await world.available("mn")
        again = (await world.client.get(COMPUTE_DOMAIN, "mn-0-fast", world.namespace))["metadata"]
        assert again["uid"] == before["metadata"]["uid"]
        assert again["finalizers"] == before["metadata"]["finalizers"]
        assert [one["uid"] for one in again["ownerReferences"]] == [made.metadata.uid]
        assert (await world.get(PodCliqueSet, "mn")).status.last_errors == ()


@pytest.mark.real_in("soak")
async def test_domains_go_with_their_set_also_after_the_operators_switch_is_off(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        gpu = clique("w")
        gpu["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await world.apply(pcs("mn", gpu, metadata={"annotations": {"grove.io/mnnvl-group": "fast"}}))
        await world.available("mn")
        assert await domains(world) == ["mn-0-fast"]

        await world.stop()
        world.config = load_configuration("")
        await world.start()
        await world.delete(PodCliqueSet, "mn")

        await world.eventually(lambda: _domains_are(world, []))


async def _domains_are(world: World, names: list[str]) -> bool:
    return await domains(world) == names
