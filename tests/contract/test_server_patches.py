"""How objects change: merge and JSON patch, preconditions, generation, and the status and scale subresources."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.objects import clique_manifest

from grove.api.core import ConfigMap
from grove.api.podclique import PodClique
from grove.kube.errors import ApiError, Conflict, Invalid, NotFound

CLIQUE = PodClique.RESOURCE


@pytest.fixture
async def made(cluster):
    body = {"metadata": {"name": "a", "namespace": cluster.namespace}, "data": {"keep": "1", "drop": "2"}}
    return await cluster.client.create(ConfigMap, body)


async def test_a_merge_patch_adds_replaces_and_removes(cluster, made):
    changed = await cluster.client.patch(ConfigMap, "a", {"data": {"drop": None, "new": "3"}}, cluster.namespace)

    assert changed.data == {"keep": "1", "new": "3"}
    assert int(changed.metadata.resource_version) > int(made.metadata.resource_version)


async def test_a_merge_patch_replaces_lists_whole(cluster):
    owners = ["example.com/a", "example.com/b"]
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace, finalizers=owners))
    patch = {"metadata": {"finalizers": ["example.com/b"]}}
    changed = await cluster.client.patch(PodClique, "c", patch, cluster.namespace)
    assert changed.metadata.finalizers == ("example.com/b",)

    cleared = await cluster.client.patch(CLIQUE, "c", {"metadata": {"finalizers": []}}, cluster.namespace)
    assert "finalizers" not in cleared["metadata"]


async def test_a_patch_that_changes_nothing_writes_nothing(cluster, made):
    same = await cluster.client.patch(ConfigMap, "a", {"data": {"keep": "1", "gone": None}}, cluster.namespace)

    assert same.metadata.resource_version == made.metadata.resource_version


async def test_a_json_patch_applies_its_operations_in_order(cluster, made):
    operations = [
        {"op": "test", "path": "/data/keep", "value": "1"},
        {"op": "remove", "path": "/data/drop"},
        {"op": "add", "path": "/data/new", "value": "3"},
        {"op": "replace", "path": "/data/keep", "value": "4"},
    ]
    changed = await cluster.client.patch(ConfigMap, "a", operations, cluster.namespace)

    assert changed.data == {"keep": "4", "new": "3"}


async def test_a_json_patch_may_replace_a_key_that_is_not_there(cluster, made):
    operations = [{"op": "replace", "path": "/data/new", "value": "3"}]
    changed = await cluster.client.patch(ConfigMap, "a", operations, cluster.namespace)

    assert changed.data == {"keep": "1", "drop": "2", "new": "3"}


async def test_a_json_patch_escapes_slashes_in_keys(cluster, made):
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1k", "value": "v"},
    ]
    changed = await cluster.client.patch(ConfigMap, "a", operations, cluster.namespace)

    assert changed.metadata.annotations == {"example.com/k": "v"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/data/keep", "value": "other"}, id="a test that does not hold"),
        pytest.param({"op": "remove", "path": "/data/nothing"}, id="removing what is not there"),
        pytest.param({"op": "replace", "path": "/spec/deep/er", "value": "x"}, id="replacing under what is not there"),
        pytest.param({"op": "add", "path": "/spec/deep/er", "value": "x"}, id="adding under what is not there"),
    ],
)
async def test_a_json_patch_that_cannot_apply_is_invalid_and_changes_nothing(cluster, made, operation):
    with pytest.raises(Invalid):
        await cluster.client.patch(
            ConfigMap, "a", [{"op": "add", "path": "/data/x", "value": "y"}, operation], cluster.namespace
        )

    assert await cluster.client.get(ConfigMap, "a", cluster.namespace) == made


async def test_a_patch_with_an_old_version_conflicts(cluster, made):
    await cluster.client.patch(ConfigMap, "a", {"data": {"new": "3"}}, cluster.namespace)
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"new": "4"}}

    with pytest.raises(Conflict):
        await cluster.client.patch(ConfigMap, "a", stale, cluster.namespace)
    assert (await cluster.client.get(ConfigMap, "a", cluster.namespace)).data["new"] == "3"


async def test_a_patch_with_the_current_version_passes(cluster, made):
    patch = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"new": "3"}}
    changed = await cluster.client.patch(ConfigMap, "a", patch, cluster.namespace)

    assert changed.data["new"] == "3"


async def test_of_two_writers_with_one_version_one_wins(cluster, made):
    def patch(value: str) -> dict:
        return {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"who": value}}

    writers = (cluster.client.patch(ConfigMap, "a", patch(who), cluster.namespace) for who in ("one", "two"))
    results = await asyncio.gather(*writers, return_exceptions=True)

    assert sorted(type(r).__name__ for r in results) == ["ConfigMap", "Conflict"]


async def test_a_patch_for_another_uid_is_invalid(cluster, made):
    patch = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}, "data": {"new": "3"}}
    with pytest.raises(Invalid):
        await cluster.client.patch(ConfigMap, "a", patch, cluster.namespace)


async def test_a_patch_of_nothing_is_not_found(cluster):
    with pytest.raises(NotFound):
        await cluster.client.patch(ConfigMap, "nothing", {"data": {}}, cluster.namespace)


async def test_a_dry_run_patch_leaves_the_object_alone(cluster, made):
    changed = await cluster.client.patch(ConfigMap, "a", {"data": {"new": "3"}}, cluster.namespace, dry_run=True)
    assert changed.data["new"] == "3"
    assert await cluster.client.get(ConfigMap, "a", cluster.namespace) == made


async def test_generation_counts_spec_changes_only(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace))

    labelled = await cluster.client.patch(PodClique, "c", {"metadata": {"labels": {"k": "v"}}}, cluster.namespace)
    reported = await cluster.client.patch(
        PodClique, "c", {"status": {"replicas": 1}}, cluster.namespace, subresource="status"
    )
    changed = await cluster.client.patch(PodClique, "c", {"spec": {"replicas": 3}}, cluster.namespace)
    same = await cluster.client.patch(PodClique, "c", {"spec": {"replicas": 3}}, cluster.namespace)

    assert [o.metadata.generation for o in (labelled, reported, changed, same)] == [1, 1, 2, 2]


async def test_status_changes_only_through_its_own_door(cluster):
    body = clique_manifest(cluster.namespace)
    body["status"] = {"replicas": 7}
    made = await cluster.client.create(CLIQUE, body)
    assert "status" not in made

    patched = await cluster.client.patch(
        CLIQUE, "c", {"spec": {"replicas": 5}, "status": {"replicas": 7}}, cluster.namespace
    )
    assert patched["spec"]["replicas"] == 5
    assert "status" not in patched


async def test_the_status_door_takes_nothing_but_status(cluster):
    made = await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace, labels={"a": "1"}))
    patch = {
        "metadata": {"labels": {"a": "2"}, "annotations": {"b": "3"}, "finalizers": ["example.com/x"]},
        "spec": {"replicas": 9},
        "status": {"replicas": 2},
    }
    patched = await cluster.client.patch(CLIQUE, "c", patch, cluster.namespace, subresource="status")

    assert patched["status"]["replicas"] == 2
    assert patched["spec"] == made["spec"]
    assert patched["metadata"]["labels"] == {"a": "1"}
    assert "annotations" not in patched["metadata"]
    assert "finalizers" not in patched["metadata"]


async def test_a_status_that_says_the_same_is_not_written(cluster):
    await cluster.client.create(PodClique, clique_manifest(cluster.namespace))
    patch = {"status": {"replicas": 2, "readyReplicas": 1}}
    first = await cluster.client.patch(PodClique, "c", patch, cluster.namespace, subresource="status")
    second = await cluster.client.patch(PodClique, "c", patch, cluster.namespace, subresource="status")

    assert first.metadata.resource_version == second.metadata.resource_version


async def test_a_kind_without_status_has_no_such_door(cluster, made):
    with pytest.raises(ApiError) as refused:
        await cluster.client.patch(ConfigMap, "a", {"data": {}}, cluster.namespace, subresource="status")
    assert refused.value.code in (404, 405)


async def test_scale_changes_replicas_and_nothing_else(cluster):
    made = await cluster.client.create(CLIQUE, clique_manifest(cluster.namespace))
    status = {"status": {"replicas": 2, "hpaPodSelector": "app=web"}}
    await cluster.client.patch(CLIQUE, "c", status, cluster.namespace, subresource="status")

    scale = await cluster.client.patch(CLIQUE, "c", {"spec": {"replicas": 5}}, cluster.namespace, subresource="scale")
    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": "app=web"}

    now = await cluster.client.get(CLIQUE, "c", cluster.namespace)
    assert now["spec"] == {**made["spec"], "replicas": 5}
    assert now["metadata"]["generation"] == 2


async def test_no_client_renames_or_backdates_an_object(cluster, made):
    with pytest.raises(ApiError) as refused:
        await cluster.client.patch(ConfigMap, "a", {"metadata": {"name": "b"}}, cluster.namespace)
    assert refused.value.code == 400

    patch = {"metadata": {"labels": {"k": "v"}, "generation": 7}}
    changed = await cluster.client.patch(ConfigMap, "a", patch, cluster.namespace)
    assert changed.metadata.creation_timestamp == made.metadata.creation_timestamp
