"""Owner references: what the garbage collector deletes, when an owner waits, and what it leaves alone."""

from __future__ import annotations

from uuid import uuid4

import pytest
from tests.support.objects import clique_manifest

from grove.api.core import ConfigMap, Secret
from grove.api.podclique import PodClique
from grove.kube.errors import Invalid, NotFound

HOLD = "example.com/hold"


def owned(namespace: str, name: str, *owners, block: bool = True, **meta: object) -> dict:
    refs = [
        {
            "apiVersion": o.RESOURCE.api_version,
            "kind": o.RESOURCE.kind,
            "name": o.metadata.name,
            "uid": o.metadata.uid,
            "controller": at == 0,
            "blockOwnerDeletion": block,
        }
        for at, o in enumerate(owners)
    ]
    return {"metadata": {"name": name, "namespace": namespace, "ownerReferences": refs, **meta}}


async def exists(cluster, kind, name):
    try:
        return await cluster.client.get(kind, name, cluster.namespace)
    except NotFound:
        return None


async def until_gone(cluster, kind, name):
    async def look() -> bool:
        return await exists(cluster, kind, name) is None

    # A real garbage collector needs up to half a minute to learn of a kind that was installed a moment ago.
    await cluster.eventually(look, timeout_s=90)


async def until_known(cluster, *kinds):
    """Returns when the garbage collector follows all objects of these kinds: when it deleted one that was made after
    them.

    A real one has a watch for each kind. It deletes an owner at once if it has not received its dependents yet.
    """
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": str(uuid4())}
    for kind in kinds:
        meta = {"name": "canary", "namespace": cluster.namespace, "ownerReferences": [nobody]}
        await cluster.client.create(kind, {"metadata": meta})
        await until_gone(cluster, kind, "canary")


async def test_background_takes_the_owner_first_and_then_all_below(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    child = await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner))
    await cluster.client.create(Secret, owned(cluster.namespace, "grandchild", child))

    await cluster.client.delete(PodClique, "owner", cluster.namespace)
    assert await exists(cluster, PodClique, "owner") is None
    await until_gone(cluster, ConfigMap, "child")
    await until_gone(cluster, Secret, "grandchild")


async def test_foreground_keeps_the_owner_until_blocking_dependents_are_gone(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner, finalizers=[HOLD]))
    await until_known(cluster, ConfigMap)

    await cluster.client.delete(PodClique, "owner", cluster.namespace, propagation="Foreground")
    waiting = await cluster.client.get(PodClique, "owner", cluster.namespace)
    assert waiting.metadata.finalizers == ("foregroundDeletion",)
    assert waiting.metadata.is_deleting

    async def child_is_deleting() -> bool:
        return (await cluster.client.get(ConfigMap, "child", cluster.namespace)).metadata.is_deleting

    await cluster.eventually(child_is_deleting, timeout_s=90)
    assert await exists(cluster, PodClique, "owner") is not None
    await cluster.client.patch(ConfigMap, "child", {"metadata": {"finalizers": None}}, cluster.namespace)
    await until_gone(cluster, PodClique, "owner")


async def test_foreground_does_not_wait_for_dependents_that_do_not_block(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    body = owned(cluster.namespace, "child", owner, block=False, finalizers=[HOLD])
    await cluster.client.create(ConfigMap, body)

    await cluster.client.delete(PodClique, "owner", cluster.namespace, propagation="Foreground")
    await until_gone(cluster, PodClique, "owner")
    await cluster.client.patch(ConfigMap, "child", {"metadata": {"finalizers": None}}, cluster.namespace)
    await until_gone(cluster, ConfigMap, "child")


async def test_foreground_reaches_grandchildren_before_children(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    child = await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner))
    await cluster.client.create(Secret, owned(cluster.namespace, "grandchild", child, finalizers=[HOLD]))
    await until_known(cluster, ConfigMap, Secret)

    await cluster.client.delete(PodClique, "owner", cluster.namespace, propagation="Foreground")

    async def grandchild_is_deleting() -> bool:
        return (await cluster.client.get(Secret, "grandchild", cluster.namespace)).metadata.is_deleting

    await cluster.eventually(grandchild_is_deleting, timeout_s=90)
    assert await exists(cluster, ConfigMap, "child") is not None
    await cluster.client.patch(Secret, "grandchild", {"metadata": {"finalizers": None}}, cluster.namespace)
    await until_gone(cluster, PodClique, "owner")
    assert await exists(cluster, ConfigMap, "child") is None


async def test_orphan_frees_the_dependents(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner))
    await until_known(cluster, ConfigMap)

    await cluster.client.delete(PodClique, "owner", cluster.namespace, propagation="Orphan")
    await until_gone(cluster, PodClique, "owner")
    await cluster.settle()
    assert (await cluster.client.get(ConfigMap, "child", cluster.namespace)).metadata.owner_references == ()


async def test_a_dependent_with_another_owner_stays(cluster):
    first = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "first"))
    second = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "second"))
    await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", first, second))

    await cluster.client.delete(PodClique, "first", cluster.namespace)

    async def has_one_owner() -> bool:
        child = await cluster.client.get(ConfigMap, "child", cluster.namespace)
        return [ref.name for ref in child.metadata.owner_references] == ["second"]

    await cluster.eventually(has_one_owner, timeout_s=90)


async def test_an_owner_that_never_was_is_no_owner(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    body = owned(cluster.namespace, "child", owner)
    body["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000"
    await cluster.client.create(ConfigMap, body)

    await until_gone(cluster, ConfigMap, "child")


async def test_a_new_object_of_the_owners_name_is_no_owner(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner))
    await cluster.client.delete(PodClique, "owner", cluster.namespace)
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))

    await until_gone(cluster, ConfigMap, "child")
    assert await exists(cluster, PodClique, "owner") is not None


async def test_a_finalizer_on_a_dependent_is_respected(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    await cluster.client.create(ConfigMap, owned(cluster.namespace, "child", owner, finalizers=[HOLD]))
    await cluster.client.delete(PodClique, "owner", cluster.namespace)

    async def child_is_deleting() -> bool:
        return (await cluster.client.get(ConfigMap, "child", cluster.namespace)).metadata.is_deleting

    await cluster.eventually(child_is_deleting, timeout_s=90)
    await cluster.client.patch(ConfigMap, "child", {"metadata": {"finalizers": None}}, cluster.namespace)
    await until_gone(cluster, ConfigMap, "child")


async def test_two_controllers_of_one_object_are_invalid(cluster):
    owner = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, "owner"))
    body = owned(cluster.namespace, "child", owner, owner)
    body["metadata"]["ownerReferences"][1]["controller"] = True
    body["metadata"]["ownerReferences"][1]["name"] = "another"
    with pytest.raises(Invalid):
        await cluster.client.create(ConfigMap, body)
