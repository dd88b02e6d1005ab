"""One PodCliqueSet becomes exactly the objects of the contract: the worked example, and the golden graphs."""

from __future__ import annotations

import json

import pytest
from tests.support import golden
from tests.support.manifests import clique, pcs, worked_example
from tests.support.operating import KUBE, TOPOLOGY, World, operating

from grove.api import labels as key
from grove.api.core import HorizontalPodAutoscaler, Pod, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.meta import Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

MEMBERS = [f"demo-{i}-grp-{j}-{clique}" for i in (0, 1) for j in (0, 1, 2) for clique in ("lead", "work")]


@pytest.mark.real_in("test")
async def test_the_worked_example_has_every_object_of_the_contract_and_no_other(world: World) -> None:
    await world.apply(worked_example())

    pcs = await world.available("demo")

    assert await world.names(PodClique) == sorted(["demo-0-router", "demo-1-router", *MEMBERS])
    assert await world.names(PodCliqueScalingGroup) == ["demo-0-grp", "demo-1-grp"]
    assert await world.names(PodGang) == [
        "demo-0",
        "demo-0-grp-0",
        "demo-0-grp-1",
        "demo-1",
        "demo-1-grp-0",
        "demo-1-grp-1",
    ]
    assert await world.names(Service) == ["demo-0", "demo-1"]
    assert "demo" not in await world.names(ServiceAccount)
    assert await world.names(Secret) == await world.names(Role) == await world.names(RoleBinding) == []
    assert await world.names(HorizontalPodAutoscaler) == []
    assert len(await world.pods()) == 22
    assert pcs.status.available_replicas == pcs.status.updated_replicas == 2
    assert pcs.metadata.finalizers == (key.SET_FINALIZER,)


@pytest.mark.simulated  # whole graphs are compared on both clusters below
async def test_every_child_has_one_owner(world: World) -> None:
    await world.apply(worked_example())
    pcs = await world.available("demo")
    group = await world.get(PodCliqueScalingGroup, "demo-0-grp")
    clique = await world.get(PodClique, "demo-0-grp-1-work")

    owners: dict[type[Object], Object] = {
        PodCliqueScalingGroup: pcs,
        PodGang: pcs,
        Service: pcs,
        Role: pcs,
        RoleBinding: pcs,
        Secret: pcs,
    }
    for kind, owner in owners.items():
        for child in await world.list(kind):
            assert [ref.uid for ref in child.metadata.owner_references] == [owner.metadata.uid], child.metadata.name
    assert clique.metadata.controller is not None
    assert clique.metadata.controller.uid == group.metadata.uid
    for pod in await world.pods("demo-0-grp-1-work"):
        assert [ref.uid for ref in pod.metadata.owner_references] == [clique.metadata.uid]


@pytest.mark.simulated  # whole graphs are compared on both clusters below
async def test_gangs_list_their_pods_and_minimums(world: World) -> None:
    await world.apply(worked_example())
    await world.available("demo")

    shapes = {
        gang.metadata.name: [
            (group.name, group.min_replicas, len(group.pod_references)) for group in gang.spec.podgroups
        ]
        for gang in await world.list(PodGang)
    }

    assert shapes["demo-0"] == [
        ("demo-0-router", 1, 2),
        ("demo-0-grp-0-lead", 1, 1),
        ("demo-0-grp-0-work", 2, 2),
    ]
    assert shapes["demo-0-grp-0"] == [("demo-0-grp-1-lead", 1, 1), ("demo-0-grp-1-work", 2, 2)]
    assert shapes["demo-1-grp-1"] == [("demo-1-grp-2-lead", 1, 1), ("demo-1-grp-2-work", 2, 2)]
    for gang in await world.list(PodGang):
        assert is_true(gang.status.conditions, "Initialized")
        assert gang.metadata.labels[key.SCHEDULER_NAME] == "grove-scheduler"


@pytest.mark.simulated  # whole graphs are compared on both clusters below
async def test_only_pods_of_scaled_gangs_name_their_base_gang(world: World) -> None:
    await world.apply(worked_example())
    await world.available("demo")

    based = {
        pod.metadata.labels[key.POD_CLIQUE]: pod.metadata.labels.get(key.BASE_POD_GANG) for pod in await world.pods()
    }

    assert based["demo-0-router"] is None
    assert based["demo-0-grp-0-work"] is None
    assert based["demo-0-grp-1-work"] == "demo-0"
    assert based["demo-1-grp-2-lead"] == "demo-1"


async def test_a_pod_has_its_place_in_labels_and_variables(world: World) -> None:
    await world.apply(worked_example())
    await world.available("demo")

    (first, second) = await world.pods("demo-0-grp-1-work")

    assert sorted((first.spec.hostname, second.spec.hostname)) == ["demo-0-grp-1-work-0", "demo-0-grp-1-work-1"]
    assert first.spec.subdomain == "demo-0"
    assert first.spec.scheduler_name == "grove-scheduler"
    assert not first.spec.scheduling_gates
    assert first.metadata.name.startswith("demo-0-grp-1-work-")
    assert len(first.metadata.name) == len("demo-0-grp-1-work-") + 5
    raw = await world.client.get(Pod.RESOURCE, first.metadata.name, world.namespace)
    names = [variable["name"] for variable in raw["spec"]["containers"][0]["env"]]
    assert names == [
        "GROVE_PCS_NAME",
        "GROVE_PCS_INDEX",
        "GROVE_PCLQ_NAME",
        "GROVE_HEADLESS_SERVICE",
        "GROVE_PCLQ_POD_INDEX",
        "GROVE_REVISION",
        "GROVE_PCSG_NAME",
        "GROVE_PCSG_TEMPLATE_NUM_PODS",
        "GROVE_PCSG_INDEX",
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.real_in("test" if name == "complete-inference-pipeline" else "soak"))
        for name in golden.NAMES
    ],
)
async def test_golden_graphs_are_met(cluster: object, name: str) -> None:
    wanted = golden.load(name)
    async with operating(cluster, config=KUBE + TOPOLOGY) as world:
        manifest = {**wanted.set, "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet"}
        manifest.pop("status", None)
        await world.apply(manifest)
        await world.available(wanted.set["metadata"]["name"])

        async def every_pod_is_ready() -> bool:  # a set is available before its scaled gangs are
            return all(pod.is_ready for pod in await world.pods())

        await world.eventually(every_pod_is_ready)
        await world.quiet()
        here = json.dumps(await world.graph()).replace(world.namespace, "default")  # where the golden ones were made
        assert golden.differences(golden.normalise(json.loads(here)), wanted.children) == []


async def test_a_service_account_of_another_client_is_given_nothing(world: World) -> None:
    """Every namespace has an account `default`; a set of this name with a start order must not give it rights."""
    ordered = pcs("default", clique("a"), clique("b", starts_after=["a"]), startup="CliqueStartupTypeExplicit")
    await world.apply(ordered)
    told = await world.eventually(lambda: _errors(world, "default"))
    assert any("ServiceAccount default exists and does not belong to default" in one for one in told), told
    await world.quiet()
    assert [one for one in await world.names(RoleBinding) if "default" in one] == []
    assert "default-ic-sat" not in await world.names(Secret)


async def _errors(world: World, name: str) -> list[str]:
    return [one.description for one in (await world.get(PodCliqueSet, name)).status.last_errors]
