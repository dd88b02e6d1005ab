"""Two long stories of shared devices: claims of every level, scope and filter, and NVLink domains of three layers."""

from __future__ import annotations

import pytest
from tests.support.claims import DEVICES, MNNVL, TEMPLATE, domains, install_compute_domains, pod_claims
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, operating

from grove.api.core import COMPUTE_DOMAIN, Namespace, ResourceClaim, ResourceClaimTemplate
from grove.api.labels import MNNVL_GROUP
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.simulated  # one case of each family runs on both, in tests/sharing/test_claims_of_sets.py


def shared(name: str, scope: str, **fields: object) -> Json:
    return {"name": name, "scope": scope, **fields}


def sharing() -> Json:
    """Two claims of the set, and ten of each replica: four of them in the two replicas of `sga`."""
    return pcs(
        "rs",
        clique("router", sharing=[shared("gpu", "AllReplicas")]),
        clique("worker-a", sharing=[shared("gpu", "PerReplica")]),
        clique("worker-b", sharing=[shared("gpu", "AllReplicas")]),
        groups=[
            group(
                "sga",
                "worker-a",
                replicas=2,
                resourceSharing=[shared("gpu", "AllReplicas"), shared("nic", "PerReplica", namespace="templates")],
            ),
            group(
                "sgb",
                "worker-b",
                resourceSharing=[
                    shared("gpu", "AllReplicas", filter={"childCliqueNames": ["worker-b"]}),
                    shared("gpu", "PerReplica"),
                ],
            ),
        ],
        resourceClaimTemplates=[TEMPLATE],
        resourceSharing=[
            shared("gpu", "AllReplicas"),
            shared("nic", "AllReplicas", namespace="templates", filter={"childCliqueNames": ["router"]}),
            shared("gpu", "PerReplica", filter={"childScalingGroupNames": ["sga"]}),
        ],
    )


async def test_rs1_claims_follow_every_scale(world: World) -> None:
    await world.client.create(Namespace, {"metadata": {"name": "templates"}})
    nic = {"metadata": {"name": "nic", "namespace": "templates"}, "spec": {"spec": DEVICES}}
    await world.client.create(ResourceClaimTemplate, nic)
    await world.apply(sharing())

    async def claims(count: int) -> None:
        async def so_many() -> bool:
            return len(await world.names(ResourceClaim)) == count

        await world.eventually(so_many)
        await world.quiet()
        assert len(await world.names(ResourceClaim)) == count

    await claims(12)
    assert await pod_claims(world, "rs-0-router") == {
        "rs-0-router-0": ["rs-all-gpu", "rs-all-nic", "rs-0-router-all-gpu"]
    }
    assert await pod_claims(world, "rs-0-sga-1-worker-a") == {
        "rs-0-sga-1-worker-a-0": [
            "rs-all-gpu",
            "rs-0-gpu",
            "rs-0-sga-all-gpu",
            "rs-0-sga-1-nic",
            "rs-0-sga-1-worker-a-0-gpu",
        ]
    }
    assert await pod_claims(world, "rs-0-sgb-0-worker-b") == {
        "rs-0-sgb-0-worker-b-0": ["rs-all-gpu", "rs-0-sgb-all-gpu", "rs-0-sgb-0-gpu", "rs-0-sgb-0-worker-b-all-gpu"]
    }

    for kind, name, replicas, left in (
        (PodCliqueScalingGroup, "rs-0-sga", 1, 10),
        (PodCliqueScalingGroup, "rs-0-sga", 3, 14),
        (PodClique, "rs-0-sga-0-worker-a", 2, 15),
        (PodClique, "rs-0-sga-0-worker-a", 1, 14),
        (PodCliqueSet, "rs", 2, 24),
        (PodCliqueSet, "rs", 1, 14),
    ):
        await world.scale(kind, name, replicas)
        await claims(left)
    await world.delete(PodCliqueSet, "rs")
    await claims(0)


def gpus(template: Json) -> Json:
    template["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return template


def told(name: str) -> dict[str, str]:
    return {MNNVL_GROUP: name}


def mixed() -> Json:
    """Said for the set, and for some groups and cliques: inherited, overridden, opted out."""
    return pcs(
        "mn",
        gpus(clique("inherits")),
        gpus(clique("overrides", annotations=told("solo"))),
        gpus(clique("opts-out", annotations=told("none"))),
        clique("without-gpu"),
        gpus(clique("of-its-group")),
        gpus(clique("of-its-own", annotations=told("own"))),
        gpus(clique("out-of-group", annotations=told("none"))),
        gpus(clique("out-with-it")),
        gpus(clique("in-by-itself", annotations=told("in"))),
        gpus(clique("inherits-twice")),
        gpus(clique("inherits-too")),
        clique("of-cpu"),
        groups=[
            group("says", "of-its-group", "of-its-own", "out-of-group", annotations=told("says")),
            group("outs", "out-with-it", "in-by-itself", annotations=told("none")),
            group("mute", "inherits-twice", "inherits-too", "of-cpu"),
        ],
        metadata={"annotations": told("base")},
    )


async def test_mnnvl_is_inherited_overridden_and_declined_at_three_layers(cluster: object) -> None:
    await install_compute_domains(cluster)
    async with operating(cluster, config=MNNVL) as world:
        await world.apply(mixed())
        await world.available("mn")
        assert await domains(world) == ["mn-0-base", "mn-0-in", "mn-0-own", "mn-0-says", "mn-0-solo"]
        claimed: dict[str, str] = {}
        for one in await world.list(PodClique):
            (claim, *_) = [*(one.spec.pod_spec.get("resourceClaims") or ()), {"resourceClaimTemplateName": ""}]
            claimed[one.metadata.name.removeprefix("mn-0-")] = claim["resourceClaimTemplateName"]
        assert claimed == {
            "inherits": "mn-0-base",
            "overrides": "mn-0-solo",
            "opts-out": "",
            "without-gpu": "",
            "says-0-of-its-group": "mn-0-says",
            "says-0-of-its-own": "mn-0-own",
            "says-0-out-of-group": "",
            "outs-0-out-with-it": "",
            "outs-0-in-by-itself": "mn-0-in",
            "mute-0-inherits-twice": "mn-0-base",
            "mute-0-inherits-too": "mn-0-base",
            "mute-0-of-cpu": "",
        }

        await world.client.delete(COMPUTE_DOMAIN, "mn-0-base", world.namespace)
        await world.quiet()
        assert len(await domains(world)) == 5, "its finalizer holds a domain that pods use"
        for replicas, count in ((4, 20), (2, 10)):
            await world.scale(PodCliqueSet, "mn", replicas)
            await world.eventually(lambda count=count: _are(world, count))
            await world.quiet()
            assert len(await domains(world)) == count
        await world.delete(PodCliqueSet, "mn")
        await world.eventually(lambda: _are(world, 0))


async def _are(world: World, count: int) -> bool:
    return len(await domains(world)) == count
