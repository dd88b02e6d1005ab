"""Admission hooks: what they receive, what they may change, how a refusal reads, and when they run."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from grove.api.core import ConfigMap
from grove.api.podclique import PodClique
from grove.kube.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from grove.sim.admission import Hook

ALLOWED = {"allowed": True}


def config(name: str = "a", **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def patching(*operations: dict):
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


async def test_a_hook_gets_the_user_and_the_request(cluster):
    requests = []
    cluster.server.admission.validating.append(
        Hook("h", lambda r: requests.append(r) or ALLOWED, [ConfigMap.RESOURCE], ("CREATE", "UPDATE", "DELETE"))
    )
    client = cluster.client(user="system:serviceaccount:grove:operator")
    await client.create(ConfigMap, config(k="1"))
    await client.patch(ConfigMap, "a", {"data": {"k": "2"}}, "default")
    await client.delete(ConfigMap, "a", "default")

    assert [r["operation"] for r in requests] == ["CREATE", "UPDATE", "DELETE"]
    assert {r["userInfo"]["username"] for r in requests} == {"system:serviceaccount:grove:operator"}
    assert {(r["namespace"], r["name"]) for r in requests} == {("default", "a")}
    assert requests[0]["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert requests[0]["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    values = [[o and o["data"]["k"] for o in (r["object"], r["oldObject"])] for r in requests]
    assert values == [["1", None], ["2", "1"], [None, "2"]]


async def test_mutating_hooks_build_on_each_other(cluster):
    hooks = cluster.server.admission.mutating
    hooks.append(Hook("first", patching({"op": "add", "path": "/data/a", "value": "1"}), [ConfigMap.RESOURCE]))
    hooks.append(Hook("second", patching({"op": "copy", "from": "/data/a", "path": "/data/b"}), [ConfigMap.RESOURCE]))
    made = await cluster.client().create(ConfigMap, config(k="v"))

    assert made.data == {"k": "v", "a": "1", "b": "1"}


async def test_a_hook_sees_the_object_defaulted_and_pruned(cluster):
    seen = []
    hook = Hook("h", lambda r: seen.append(r["object"]["spec"]) or ALLOWED, [PodClique.RESOURCE])
    cluster.server.admission.mutating.append(hook)
    container = {"name": "m", "ports": [{"containerPort": 80}]}
    spec = {"roleName": "r", "replicas": 1, "podSpec": {"containers": [container]}, "unknown": 1}
    await cluster.client().create(PodClique, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})

    assert "unknown" not in seen[0]
    assert seen[0]["podSpec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_what_a_hook_makes_is_validated(cluster):
    broken = patching({"op": "replace", "path": "/spec/replicas", "value": "many"})
    cluster.server.admission.mutating.append(Hook("h", broken, [PodClique.RESOURCE]))
    spec = {"roleName": "r", "replicas": 1, "podSpec": {"containers": [{"name": "m"}]}}
    with pytest.raises(Invalid):
        await cluster.client().create(PodClique, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        pytest.param(
            {"code": 403, "reason": "Forbidden", "message": "not you"},
            Forbidden,
            'admission webhook "guard" denied the request: not you',
            id="with code and words",
        ),
        pytest.param(
            {"code": 422, "reason": "Invalid", "message": "no"},
            Invalid,
            'admission webhook "guard" denied the request: no',
            id="as invalid",
        ),
        pytest.param(
            {"message": "no"}, BadRequest, 'admission webhook "guard" denied the request: no', id="without a code"
        ),
        pytest.param(
            None, BadRequest, 'admission webhook "guard" denied the request without explanation', id="without a word"
        ),
    ],
)
async def test_a_refusal_becomes_an_error_and_nothing_is_written(cluster, status, error, message):
    response = {"allowed": False} | ({"status": status} if status else {})
    cluster.server.admission.validating.append(Hook("guard", lambda _r: response, [ConfigMap.RESOURCE]))
    with pytest.raises(error) as refused:
        await cluster.client().create(ConfigMap, config())

    assert str(refused.value) == message
    with pytest.raises(NotFound):
        await cluster.client().get(ConfigMap, "a", "default")


async def test_a_deletion_can_be_refused(cluster):
    client = cluster.client()
    await client.create(ConfigMap, config())
    cluster.server.admission.validating.append(
        Hook("guard", lambda _r: {"allowed": False}, [ConfigMap.RESOURCE], ("DELETE",))
    )
    with pytest.raises(ApiError):
        await client.delete(ConfigMap, "a", "default")

    assert await client.get(ConfigMap, "a", "default")


async def test_subresources_are_seen_only_when_named(cluster):
    seen = []
    for name, subresources in (("main", ("",)), ("status", ("status",))):
        hook = Hook(name, lambda r, n=name: seen.append(n) or ALLOWED, [PodClique.RESOURCE], subresources=subresources)
        cluster.server.admission.validating.append(hook)
    spec = {"roleName": "r", "replicas": 1, "podSpec": {"containers": [{"name": "m"}]}}
    client = cluster.client()
    await client.create(PodClique, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
    await client.patch(PodClique, "c", {"status": {"replicas": 1}}, "default", subresource="status")

    assert seen == ["main", "status"]


async def test_a_write_that_waited_for_a_hook_starts_over_when_the_object_moved(cluster):
    client = cluster.client()
    await client.create(ConfigMap, config(k="0"))
    seen = []

    async def slow(request):
        seen.append(request["oldObject"]["data"])
        if len(seen) == 1:
            await asyncio.sleep(1)
        return ALLOWED

    cluster.server.admission.validating.append(Hook("slow", slow, [ConfigMap.RESOURCE], ("UPDATE",)))
    first = asyncio.ensure_future(client.patch(ConfigMap, "a", {"data": {"mine": "1"}}, "default"))
    await asyncio.sleep(0.5)
    await client.patch(ConfigMap, "a", {"data": {"other": "2"}}, "default")
    done = await first

    assert done.data == {"k": "0", "mine": "1", "other": "2"}
    assert seen == [{"k": "0"}, {"k": "0"}, {"k": "0", "other": "2"}]
