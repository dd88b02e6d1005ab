"""Deletion: preconditions, finalizers, graceful deletion of pods, and what a deletion does to generation."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.objects import clique_manifest, pod_manifest

from grove.api.core import ConfigMap, Pod
from grove.api.podclique import PodClique
from grove.kube.errors import Conflict, Invalid, NotFound

HOLD = "example.com/hold"


def config(namespace: str, name: str = "a", **meta: object) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, **meta}}


async def gone(cluster, kind, name):
    try:
        await cluster.client.get(kind, name, cluster.namespace)
    except NotFound:
        return True
    return False


async def test_a_deleted_object_is_gone_at_once(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace))
    await cluster.client.delete(ConfigMap, "a", cluster.namespace)

    assert await gone(cluster, ConfigMap, "a")


async def test_deleting_what_is_not_there_is_not_found(cluster):
    with pytest.raises(NotFound):
        await cluster.client.delete(ConfigMap, "nothing", cluster.namespace)


@pytest.mark.parametrize("precondition", ["uid", "resource_version"])
async def test_a_deletion_of_another_object_conflicts(cluster, precondition):
    made = await cluster.client.create(ConfigMap, config(cluster.namespace))
    other = {"uid": "00000000-0000-4000-8000-000000000000", "resource_version": "1"}[precondition]

    with pytest.raises(Conflict):
        await cluster.client.delete(ConfigMap, "a", cluster.namespace, **{precondition: other})
    right = {"uid": made.metadata.uid, "resource_version": made.metadata.resource_version}[precondition]
    await cluster.client.delete(ConfigMap, "a", cluster.namespace, **{precondition: right})


async def test_a_finalizer_holds_an_object_back(cluster):
    made = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.delete(PodClique, "c", cluster.namespace)

    held = await cluster.client.get(PodClique, "c", cluster.namespace)
    assert held.metadata.is_deleting
    assert held.metadata.uid == made.metadata.uid
    await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": None}}, cluster.namespace)
    assert await gone(cluster, PodClique, "c")


async def test_marking_for_deletion_counts_as_a_generation(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.delete(PodClique, "c", cluster.namespace)

    held = await cluster.client.get(PodClique.RESOURCE, "c", cluster.namespace)
    assert held["metadata"]["generation"] == 2
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": None}}, cluster.namespace)


async def test_a_second_delete_changes_nothing(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.delete(PodClique, "c", cluster.namespace)
    first = await cluster.client.get(PodClique, "c", cluster.namespace)
    await cluster.client.delete(PodClique, "c", cluster.namespace)

    assert await cluster.client.get(PodClique, "c", cluster.namespace) == first
    await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": None}}, cluster.namespace)


async def test_a_deleting_object_still_changes_but_takes_no_new_finalizer(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.delete(PodClique, "c", cluster.namespace)

    changed = await cluster.client.patch(PodClique, "c", {"metadata": {"labels": {"k": "v"}}}, cluster.namespace)
    assert changed.metadata.labels == {"k": "v"}
    patch = {"metadata": {"finalizers": [HOLD, "example.com/more"]}}
    with pytest.raises(Invalid):
        await cluster.client.patch(PodClique, "c", patch, cluster.namespace)
    await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": None}}, cluster.namespace)


async def test_removing_the_last_of_two_finalizers_removes_the_object(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=[HOLD, "example.com/b"]))
    await cluster.client.delete(PodClique, "c", cluster.namespace)
    held = await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": [HOLD]}}, cluster.namespace)
    assert not await gone(cluster, PodClique, "c")

    last = await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": []}}, cluster.namespace)
    assert last.metadata.finalizers == ()
    assert last.metadata.resource_version == held.metadata.resource_version, "the change is not stored any more"
    assert await gone(cluster, PodClique, "c")


async def test_built_in_kinds_want_finalizers_with_a_domain_and_custom_ones_do_not(cluster):
    with pytest.raises(Invalid):
        await cluster.client.create(ConfigMap, config(cluster.namespace, finalizers=["plain"]))
    made = await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=["plain"]))
    assert made.metadata.finalizers == ("plain",)
    await cluster.client.patch(PodClique, "c", {"metadata": {"finalizers": None}}, cluster.namespace)


async def test_a_collection_is_deleted_by_label(cluster):
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await cluster.client.create(ConfigMap, config(cluster.namespace, name, labels={"k": label}))
    await cluster.client.delete_collection(ConfigMap, cluster.namespace, labels="k=x")

    left = await cluster.client.list(ConfigMap, cluster.namespace, labels="k")
    assert [o.metadata.name for o in left.items] == ["c"]


async def test_an_unbound_pod_goes_at_once(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    await cluster.client.delete(Pod, "p", cluster.namespace)

    assert await gone(cluster, Pod, "p")


async def test_a_bound_pod_gets_its_grace_period(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    await cluster.client.delete(Pod, "p", cluster.namespace)

    held = await cluster.client.get(Pod.RESOURCE, "p", cluster.namespace)
    assert held["metadata"]["deletionGracePeriodSeconds"] == 30
    left = (await cluster.client.get(Pod, "p", cluster.namespace)).metadata.deletion_timestamp - cluster.clock.now()
    assert timedelta(seconds=20) < left <= timedelta(seconds=31)
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)
    assert await gone(cluster, Pod, "p")


async def test_a_second_delete_can_only_shorten_the_grace_period(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=20)
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=25)
    longer = await cluster.client.get(Pod.RESOURCE, "p", cluster.namespace)
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=10)
    shorter = await cluster.client.get(Pod.RESOURCE, "p", cluster.namespace)

    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)


async def test_a_finalizer_outlasts_a_forced_deletion(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)

    assert (await cluster.client.get(Pod, "p", cluster.namespace)).metadata.is_deleting
    await cluster.client.patch(Pod, "p", {"metadata": {"finalizers": None}}, cluster.namespace)
    assert await gone(cluster, Pod, "p")


async def test_a_finalizer_that_goes_early_leaves_the_grace_period(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, finalizers=[HOLD]))
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    await cluster.client.delete(Pod, "p", cluster.namespace)
    await cluster.client.patch(Pod, "p", {"metadata": {"finalizers": None}}, cluster.namespace)

    assert (await cluster.client.get(Pod, "p", cluster.namespace)).metadata.is_deleting
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)


async def test_a_finished_pod_needs_no_grace(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    await cluster.client.patch(Pod, "p", {"status": {"phase": "Failed"}}, cluster.namespace, subresource="status")
    await cluster.client.delete(Pod, "p", cluster.namespace)

    assert await gone(cluster, Pod, "p")
