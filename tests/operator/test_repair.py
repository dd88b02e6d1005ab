"""The operator repairs what is edited or deleted by hand, and leaves objects of other owners alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs, pod_spec
from tests.support.operating import World

from grove.api import labels as key
from grove.api.core import HorizontalPodAutoscaler, Pod, Role, RoleBinding, Secret, Service, ServiceAccount
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

BOUNDS = {"minReplicas": 1, "maxReplicas": 3}


EDITS = [
    pytest.param(PodClique, "demo-0-w", {"spec": {"minAvailable": 1}}, "spec.minAvailable", id="a clique's minimum"),
    pytest.param(
        PodClique,
        "demo-0-w",
        {"metadata": {"labels": {"grove.io/podgang": "x"}}},
        "metadata.labels.grove~1io/podgang",
        id="a clique's gang label",
    ),
    pytest.param(
        PodClique,
        "demo-0-g-0-m",
        {"spec": {"roleName": "x"}},
        "spec.roleName",
        id="a member's role",
    ),
    pytest.param(
        PodCliqueScalingGroup, "demo-0-g", {"spec": {"minAvailable": 2}}, "spec.minAvailable", id="a group minimum"
    ),
    pytest.param(PodGang, "demo-0", {"spec": {"podgroups": []}}, "spec.podgroups", id="a gang's pods"),
    pytest.param(
        Service,
        "demo-0",
        {"spec": {"publishNotReadyAddresses": False}},
        "spec.publishNotReadyAddresses",
        id="a service",
    ),
    pytest.param(
        ServiceAccount,
        "demo",
        {"automountServiceAccountToken": False},
        "automountServiceAccountToken",
        id="the service account",
    ),
    pytest.param(
        Secret,
        "demo-ic-sat",
        {"metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}}},
        "metadata.annotations.kubernetes~1io/service-account~1name",
        id="the token's account",
    ),
    pytest.param(
        PodCliqueScalingGroup,
        "demo-0-g",
        {"metadata": {"labels": {"app.kubernetes.io/component": "x"}}},
        "metadata.labels.app~1kubernetes~1io/component",
        id="a group's labels",
    ),
    pytest.param(
        PodClique,
        "demo-0-g-0-m",
        {"metadata": {"labels": {"grove.io/podcliquescalinggroup": None}}},
        "metadata.labels.grove~1io/podcliquescalinggroup",
        id="whose member a clique is",
    ),
    pytest.param(
        PodCliqueScalingGroup,
        "demo-0-g",
        {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}},
        "metadata.labels.app~1kubernetes~1io/part-of",
        id="whose a group is",
    ),
    pytest.param(
        PodGang,
        "demo-0",
        {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}},
        "metadata.labels.app~1kubernetes~1io/part-of",
        id="whose a gang is",
    ),
    pytest.param(
        PodGang,
        "demo-0",
        {"metadata": {"labels": {"grove.io/scheduler-name": "x"}}},
        "metadata.labels.grove~1io/scheduler-name",
        id="a gang's scheduler",
    ),
    pytest.param(Role, "grove.io:pcs:demo", {"rules": []}, "rules", id="the role's rules"),
    pytest.param(RoleBinding, "grove.io:pcs:demo", {"subjects": []}, "subjects", id="the binding's subjects"),
    pytest.param(
        HorizontalPodAutoscaler, "demo-0-g", {"spec": {"maxReplicas": 9}}, "spec.maxReplicas", id="an autoscaler"
    ),
]


@pytest.fixture
async def world(world: World) -> World:
    """The operator at work, and a set that has every kind of child."""
    members = group("g", "m", replicas=2, scale=BOUNDS)
    in_order = "CliqueStartupTypeInOrder"
    await world.apply(pcs("demo", clique("w", 2), clique("m"), groups=[members], startup=in_order))
    await world.ready(4)
    await world.available("demo")
    return world


CHILDREN = [
    pytest.param(PodClique, "demo-0-w", id="a standalone clique"),
    pytest.param(PodClique, "demo-0-g-1-m", id="a member clique"),
    pytest.param(PodCliqueScalingGroup, "demo-0-g", id="a scaling group"),
    pytest.param(PodGang, "demo-0", id="a base gang"),
    pytest.param(PodGang, "demo-0-g-0", id="a scaled gang"),
    pytest.param(Service, "demo-0", id="a service"),
    pytest.param(ServiceAccount, "demo", id="the service account"),
    pytest.param(Role, "grove.io:pcs:demo", id="the role"),
    pytest.param(RoleBinding, "grove.io:pcs:demo", id="the role binding"),
    pytest.param(Secret, "demo-ic-sat", id="the token secret"),
    pytest.param(HorizontalPodAutoscaler, "demo-0-g", id="an autoscaler"),
]


CHILDREN_OF_A_REPLICA = [
    pytest.param(PodClique, "demo-0-w", id="a standalone clique"),
    pytest.param(PodClique, "demo-0-g-1-m", id="a member clique", marks=pytest.mark.simulated),
    pytest.param(PodCliqueScalingGroup, "demo-0-g", id="a scaling group", marks=pytest.mark.simulated),
    pytest.param(Service, "demo-0", id="a service", marks=pytest.mark.simulated),
]


@pytest.mark.simulated  # in a world of its own each only there; on a real API server one after another is enough
@pytest.mark.parametrize(("kind", "name"), CHILDREN)
async def test_a_child_deleted_by_hand_comes_back(world: World, kind: type[Object], name: str) -> None:
    await _deleted_and_back(world, kind, name)


@pytest.mark.real_in("test")
async def test_children_deleted_by_hand_one_after_another_come_back(world: World) -> None:
    for child in CHILDREN:
        await _deleted_and_back(world, *child.values)


async def _deleted_and_back(world: World, kind: Any, name: Any) -> None:
    old = await world.get(kind, name)

    await world.delete(kind, name)

    async def back() -> bool:
        return (await world.get(kind, name)).metadata.uid != old.metadata.uid

    await world.eventually(back)
    await world.ready(4)
    await world.available("demo")
    assert (await world.get(PodCliqueSet, "demo")).status.last_errors == ()


@pytest.mark.simulated  # one by one only there; on a real API server all at once is enough
@pytest.mark.parametrize(("kind", "name", "edit", "path"), EDITS)
async def test_a_child_edited_by_hand_is_put_right(
    world: World, kind: type[Object], name: str, edit: Json, path: str
) -> None:
    await _edited_and_put_right(world, [(kind, name, edit, path)])


@pytest.mark.real_in("test")
async def test_children_edited_by_hand_all_at_once_are_put_right(world: World) -> None:
    await _edited_and_put_right(world, [edit.values for edit in EDITS])


async def _edited_and_put_right(world: World, edits: Sequence[Any]) -> None:
    async def look() -> list[object]:
        return [
            _at(await world.client.get(kind.RESOURCE, name, world.namespace), path) for kind, name, _, path in edits
        ]

    before = await look()
    for kind, name, edit, _ in edits:
        await world.client.patch(kind.RESOURCE, name, edit, world.namespace)

    async def put_right() -> bool:
        return await look() == before

    await world.eventually(put_right)


@pytest.mark.parametrize(("kind", "name"), CHILDREN_OF_A_REPLICA)
async def test_a_child_labelled_with_a_replica_that_is_not_wanted_is_put_right_and_stays(
    world: World, kind: type[Object], name: str
) -> None:
    """What replica it is of is said by its name; else an edit would take it down with its pods."""
    before, pods = await world.get(kind, name), {pod.metadata.uid for pod in await world.pods()}

    await world.client.patch(
        kind, name, {"metadata": {"labels": {"grove.io/podcliqueset-replica-index": "5"}}}, world.namespace
    )

    async def put_right() -> bool:
        return (await world.get(kind, name)).metadata.labels == before.metadata.labels

    await world.eventually(put_right)
    await world.quiet()
    assert (await world.get(kind, name)).metadata.uid == before.metadata.uid
    assert {pod.metadata.uid for pod in await world.pods()} == pods


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("kind", "name", "edit", "path"),
    [
        pytest.param(
            PodGang,
            "demo-0",
            {"metadata": {"labels": {"grove.io/scheduler-name": "x"}}},
            "metadata.labels.grove~1io/scheduler-name",
            id="a gang",
        ),
        pytest.param(
            PodCliqueScalingGroup,
            "demo-0-g",
            {"metadata": {"labels": {"app.kubernetes.io/component": "x"}}},
            "metadata.labels.app~1kubernetes~1io/component",
            id="a group",
        ),
        pytest.param(PodClique, "demo-0-w", {"spec": {"minAvailable": 1}}, "spec.minAvailable", id="a clique"),
        pytest.param(
            PodClique,
            "demo-0-g-0-m",
            {"metadata": {"labels": {"grove.io/podgang": "x"}}},
            "metadata.labels.grove~1io/podgang",
            id="a member of a group",
        ),
    ],
)
async def test_an_edit_that_comes_while_another_is_put_right_is_put_right_too(
    world: World, kind: type[Object], name: str, edit: Json, path: str
) -> None:
    """The first edit removes the labels that name the owner, so the second edit is on a child without an owner.

    The answer to our own write shows the second edit, as if it were ours.
    """
    before = _at(await world.client.get(kind.RESOURCE, name, world.namespace), path)
    patch, edits = world.operator_client.patch, [edit]

    async def late(of: Any, name_: str, *rest: Any, **more: Any) -> Any:
        if of is kind and name_ == name and edits:
            await world.client.patch(kind.RESOURCE, name, edits.pop(), world.namespace)
        return await patch(of, name_, *rest, **more)

    world.operator_client.patch = late
    nobodys = dict.fromkeys(("app.kubernetes.io/part-of", "grove.io/podcliquescalinggroup"))
    await world.client.patch(kind.RESOURCE, name, {"metadata": {"labels": nobodys}}, world.namespace)

    async def put_right() -> bool:
        found = await world.client.get(kind.RESOURCE, name, world.namespace)
        named = found["metadata"]["labels"].get("app.kubernetes.io/part-of")
        return not edits and named == "demo" and _at(found, path) == before

    await world.eventually(put_right)


@pytest.mark.simulated
async def test_a_child_is_made_again_although_the_first_try_ended_in_a_bug(world: World) -> None:
    create, bugs = world.operator_client.create, [RuntimeError("a bug")]

    async def stumble(kind: type[Object], obj: Json, **options: Any) -> Any:
        if kind is Service and bugs:
            raise bugs.pop()
        return await create(kind, obj, **options)

    world.operator_client.create = stumble
    await world.delete(Service, "demo-0")

    async def back() -> bool:
        return await world.names(Service) == ["demo-0"]

    await world.eventually(back)
    assert not bugs


async def test_labels_that_tell_the_place_of_a_pod_are_put_right(world: World) -> None:
    pod = (await world.pods("demo-0-g-1-m"))[0]
    labels = {"grove.io/podgang": "x", "grove.io/base-podgang": None, "grove.io/podclique-pod-index": "7", "mine": "y"}

    await world.client.patch(Pod, pod.metadata.name, {"metadata": {"labels": labels}}, world.namespace)

    async def put_right() -> bool:
        return (await world.get(Pod, pod.metadata.name)).metadata.labels == {**pod.metadata.labels, "mine": "y"}

    await world.eventually(put_right)
    await world.available("demo")
    gang = await world.get(PodGang, "demo-0-g-0")
    assert [ref.name for ref in gang.spec.podgroups[0].pod_references] == [pod.metadata.name]
    assert [one.metadata.uid for one in await world.pods("demo-0-g-1-m")] == [pod.metadata.uid]


async def test_replicas_of_a_live_child_belong_to_any_client_that_scales_it(world: World) -> None:
    await world.client.patch(PodClique, "demo-0-w", {"spec": {"replicas": 3}}, world.namespace)

    await world.eventually(lambda: world.has_pods(3, "demo-0-w"))
    await world.quiet()
    assert (await world.get(PodClique, "demo-0-w")).spec.replicas == 3


async def test_a_pod_deleted_by_hand_is_replaced_under_its_own_index(world: World) -> None:
    first = next(pod for pod in await world.pods("demo-0-w") if pod.spec.hostname == "demo-0-w-0")

    await world.delete(Pod, first.metadata.name)

    async def replaced() -> bool:
        pods = await world.pods("demo-0-w")
        return len(pods) == 2 and first.metadata.uid not in {pod.metadata.uid for pod in pods}

    await world.eventually(replaced)
    await world.available("demo")
    assert await world.hostnames("demo-0-w") == ["demo-0-w-0", "demo-0-w-1"]
    gang = await world.get(PodGang, "demo-0")
    listed = {ref.name for one in gang.spec.podgroups if one.name == "demo-0-w" for ref in one.pod_references}
    assert listed == {pod.metadata.name for pod in await world.pods("demo-0-w")}


async def test_a_pod_that_is_taken_out_of_its_clique_is_replaced(world: World) -> None:
    """A person takes the object away from its owner to look at it: it keeps running, and has no owner."""
    first = next(pod for pod in await world.pods("demo-0-w") if pod.spec.hostname == "demo-0-w-0")

    await world.client.patch(Pod, first.metadata.name, {"metadata": {"ownerReferences": None}}, world.namespace)

    async def replaced() -> bool:
        gang = await world.get(PodGang, "demo-0")
        listed = {ref.name for one in gang.spec.podgroups if one.name == "demo-0-w" for ref in one.pod_references}
        owned = {pod.metadata.name for pod in await world.pods("demo-0-w") if pod.metadata.owner_references}
        return len(owned) == 2 and listed == owned

    await world.eventually(replaced)
    assert first.metadata.uid in {pod.metadata.uid for pod in await world.pods("demo-0-w")}
    await world.delete(Pod, first.metadata.name)


async def test_conditions_of_others_on_a_gang_stay(world: World) -> None:
    gang = await world.get(PodGang, "demo-0")
    theirs = {
        "type": "Unhealthy",
        "status": "False",
        "reason": "Fine",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    ours = await world.client.get(PodGang.RESOURCE, "demo-0", world.namespace)
    conditions = [*ours["status"]["conditions"], theirs]
    patch = {"metadata": {"resourceVersion": gang.metadata.resource_version}, "status": {"conditions": conditions}}
    await world.client.patch(PodGang, "demo-0", patch, world.namespace, subresource="status")

    await world.scale(PodClique, "demo-0-w", 3)
    await world.eventually(lambda: world.has_pods(3, "demo-0-w"))
    await world.quiet()

    types = {one.type for one in (await world.get(PodGang, "demo-0")).status.conditions}
    assert {"Initialized", "Unhealthy"} <= types


async def test_the_token_secret_of_old_stays_while_a_pod_mounts_it(world: World) -> None:
    owner = await world.get(PodCliqueSet, "demo")
    labels = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "demo"}
    owners = [
        {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "name": "demo",
            "uid": owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    await world.stop()
    old = {"name": "demo-initc-sa-token-secret", "namespace": world.namespace, "labels": labels}
    await world.client.create(Secret, {"metadata": {**old, "ownerReferences": owners}, "type": "Opaque"})
    volume = {"name": "t", "secret": {"secretName": "demo-initc-sa-token-secret"}}
    meta = {"name": "older", "namespace": world.namespace, "labels": labels}
    await world.client.create(Pod, {"metadata": meta, "spec": pod_spec(volumes=[volume], schedulerName="nobody")})

    await world.start()
    await world.quiet()
    assert await world.names(Secret) == ["demo-ic-sat", "demo-initc-sa-token-secret"]

    await world.delete(Pod, "older")
    await world.client.patch(PodCliqueSet, "demo", {"metadata": {"labels": {"look": "again"}}}, world.namespace)

    async def gone() -> bool:
        return await world.names(Secret) == ["demo-ic-sat"]

    await world.eventually(gone)


def _at(obj: Json, path: str) -> object:
    found: object = obj
    for part in path.split("."):
        found = found.get(part.replace("~1", ".")) if isinstance(found, dict) else None
    return found


async def test_a_pod_that_is_labelled_as_another_owners_gets_no_twin(world: World) -> None:
    """The cache follows pods by that label, and shows the pod no longer; the API server still has it."""
    before = {pod.metadata.uid for pod in await world.pods("demo-0-w")}
    (first, *_) = await world.pods("demo-0-w")

    await world.client.patch(
        Pod, first.metadata.name, {"metadata": {"labels": {key.MANAGED_BY: "me"}}}, world.namespace
    )

    async def put_right() -> bool:
        found = await world.get(Pod, first.metadata.name)
        return found.metadata.labels.get(key.MANAGED_BY) == key.OPERATOR

    await world.eventually(put_right)
    await world.quiet()
    assert {pod.metadata.uid for pod in await world.pods("demo-0-w")} == before
