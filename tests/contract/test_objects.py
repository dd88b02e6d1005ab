"""What every object has: identity, versions, names; and how reads and creates answer when something is wrong."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from tests.support.objects import clique_manifest

from grove.api.core import ConfigMap, Namespace, Pod
from grove.api.meta import Resource
from grove.api.podclique import PodClique
from grove.kube.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound

UNKNOWN = Resource("nobody.example", "v1", "Ghost", "ghosts")


def config(namespace: str, name: str = "a", **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def test_a_new_object_gets_an_identity(cluster):
    made = await cluster.client.create(ConfigMap, config(cluster.namespace, k="v"))

    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made.metadata.uid)
    assert int(made.metadata.resource_version) > 0
    assert abs(cluster.clock.now() - made.metadata.creation_timestamp) < timedelta(minutes=5)
    assert made.metadata.creation_timestamp.microsecond == 0
    assert await cluster.client.get(ConfigMap, "a", cluster.namespace) == made


async def test_json_carries_its_kind_and_version(cluster):
    made = await cluster.client.create(PodClique.RESOURCE, clique_manifest(cluster.namespace))

    assert (made["apiVersion"], made["kind"]) == ("grove.io/v1alpha1", "PodClique")
    assert made["metadata"]["generation"] == 1


async def test_versions_grow_with_every_write_to_anything(cluster):
    first = await cluster.client.create(ConfigMap, config(cluster.namespace, "a"))
    second = await cluster.client.create(PodClique, clique_manifest(cluster.namespace))
    third = await cluster.client.patch(ConfigMap, "a", {"data": {"k": "v"}}, cluster.namespace)

    versions = [int(o.metadata.resource_version) for o in (first, second, third)]
    assert versions == sorted(set(versions))


async def test_a_taken_name_is_refused(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace))

    with pytest.raises(AlreadyExists):
        await cluster.client.create(ConfigMap, config(cluster.namespace, k="other"))


async def test_a_recreated_object_is_another_one(cluster):
    first = await cluster.client.create(ConfigMap, config(cluster.namespace))
    await cluster.client.delete(ConfigMap, "a", cluster.namespace)
    second = await cluster.client.create(ConfigMap, config(cluster.namespace))

    assert first.metadata.uid != second.metadata.uid


async def test_generated_names_are_the_prefix_and_five_characters(cluster):
    body = {"metadata": {"generateName": "web-", "namespace": cluster.namespace}}
    names = {(await cluster.client.create(ConfigMap, body)).metadata.name for _ in range(3)}

    assert len(names) == 3
    assert all(re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_a_long_generated_name_is_cut_to_63(cluster):
    body = {"metadata": {"generateName": "x" * 80, "namespace": cluster.namespace}}
    made = await cluster.client.create(ConfigMap, body)

    assert len(made.metadata.name) == 63
    assert made.metadata.name.startswith("x" * 58)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("Web", id="upper case"),
        pytest.param("-web", id="leading dash"),
        pytest.param("a_b", id="underscore"),
        pytest.param("", id="no name at all"),
    ],
)
async def test_a_bad_name_is_invalid(cluster, name):
    with pytest.raises(Invalid):
        await cluster.client.create(ConfigMap, config(cluster.namespace, name))


async def test_a_bad_label_is_invalid(cluster):
    body = {"metadata": {"name": "a", "namespace": cluster.namespace, "labels": {"k": "not valid!"}}}
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(ConfigMap, body)

    assert [c["field"] for c in refused.value.details["causes"]] == ["metadata.labels"]


async def test_a_version_on_create_is_refused(cluster):
    body = {"metadata": {"name": "a", "namespace": cluster.namespace, "resourceVersion": "1"}}
    with pytest.raises(ApiError) as refused:
        await cluster.client.create(ConfigMap, body)
    assert refused.value.code == 500


async def test_what_is_not_there_is_not_found(cluster):
    with pytest.raises(NotFound) as missing:
        await cluster.client.get(ConfigMap, "nothing", cluster.namespace)

    assert str(missing.value) == 'configmaps "nothing" not found'
    assert missing.value.code == 404


@pytest.mark.parametrize(("namespace", "name"), [("a/b", "x"), ("default", "../x"), ("..", "x"), ("default", "a%2Fb")])
async def test_what_cannot_be_one_part_of_a_path_is_a_bad_request(cluster, namespace, name):
    with pytest.raises(BadRequest, match="cannot be part of a path"):
        await cluster.client.get(ConfigMap, name, namespace)


async def test_a_namespace_must_exist_before_its_content(cluster):
    with pytest.raises(NotFound):
        await cluster.client.create(ConfigMap, config("no-such-namespace"))


async def test_an_unknown_kind_is_not_served(cluster):
    assert await cluster.client.serves(Pod)
    assert await cluster.client.serves(PodClique)
    assert not await cluster.client.serves(UNKNOWN)
    with pytest.raises(NotFound):
        await cluster.client.list(UNKNOWN, cluster.namespace)


async def test_a_dry_run_answers_and_leaves_no_trace(cluster):
    made = await cluster.client.create(ConfigMap, config(cluster.namespace), dry_run=True)
    assert made.metadata.uid

    with pytest.raises(NotFound):
        await cluster.client.get(ConfigMap, "a", cluster.namespace)


async def test_a_dry_run_refuses_what_a_real_run_would(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace))
    with pytest.raises(AlreadyExists):
        await cluster.client.create(ConfigMap, config(cluster.namespace), dry_run=True)
    body = clique_manifest(cluster.namespace)
    del body["spec"]["roleName"]
    with pytest.raises(Invalid):
        await cluster.client.create(PodClique, body, dry_run=True)


async def test_deleting_a_namespace_takes_its_content_along(cluster):
    name = f"{cluster.namespace}-b"
    await cluster.client.create(Namespace, {"metadata": {"name": name}})
    await cluster.client.create(ConfigMap, config(name))
    await cluster.client.delete(Namespace, name)

    async def is_gone() -> bool:
        try:
            await cluster.client.get(Namespace, name)
        except NotFound:
            return True
        return False

    await cluster.eventually(is_gone)
    with pytest.raises(NotFound):
        await cluster.client.get(ConfigMap, "a", name)


async def test_nothing_new_goes_into_a_terminating_namespace(cluster):
    name = f"{cluster.namespace}-t"
    await cluster.client.create(Namespace, {"metadata": {"name": name}})
    body = config(name)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.client.create(ConfigMap, body)
    await cluster.client.delete(Namespace, name)

    with pytest.raises(ApiError) as refused:
        await cluster.client.create(ConfigMap, config(name, "late"))
    assert refused.value.code == 403
    await cluster.client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}}, name)
