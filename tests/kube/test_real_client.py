"""The client against a real API server: every call it offers, and the errors that come back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.objects import pod_manifest
from tests.support.waiting import eventually

from grove.api.core import ConfigMap, Namespace, Pod, ServiceAccount
from grove.api.meta import Resource
from grove.api.podgang import PodGang
from grove.kube.config import load_config
from grove.kube.credentials import Credential, Fixed, TokenFile
from grove.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane

PDB = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NODE = Resource("", "v1", "Node", "nodes", namespaced=False)


@pytest.fixture
async def ns(client: HttpClient, fresh_name: str) -> str:
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    await eventually(lambda: client.get(ServiceAccount, "default", fresh_name))  # no pod is admitted before
    return fresh_name


def config_map(ns: str, name: str = "a", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": ns, "labels": {"app": "x"}}, "data": data}


async def test_an_object_lives_and_dies(client: HttpClient, ns: str) -> None:
    made = await client.create(ConfigMap, config_map(ns, colour="red"))
    assert made.data == {"colour": "red"}
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, config_map(ns))
    merged = await client.patch(ConfigMap, "a", {"data": {"size": "9", "colour": None}}, ns)
    assert merged.data == {"size": "9"}
    by_json = await client.patch(ConfigMap, "a", [{"op": "replace", "path": "/data/size", "value": "8"}], ns)
    assert (await client.get(ConfigMap, "a", ns)).data == by_json.data == {"size": "8"}
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", ns, uid="00000000-0000-0000-0000-000000000000")
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"size": "7"}}
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, "a", stale, ns)
    await client.delete(ConfigMap, "a", ns, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "a", ns)


async def test_a_dry_run_changes_nothing(client: HttpClient, ns: str) -> None:
    await client.create(ConfigMap, config_map(ns), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", ns)


async def test_lists_have_pages_and_pages_can_grow_too_old(client: HttpClient, ns: str) -> None:
    for n in range(5):
        await client.create(ConfigMap, config_map(ns, f"m{n}"))
    names, more = [], ""
    while True:
        page = await client.list(ConfigMap, ns, labels="app=x", limit=2, next_page=more)
        names += [m.metadata.name for m in page.items]
        more = page.next_page
        if not more:
            break
    assert names == ["m0", "m1", "m2", "m3", "m4"]
    assert [m.metadata.name for m in (await client.list(ConfigMap, ns, fields="metadata.name=m3")).items] == ["m3"]
    await client.delete_collection(ConfigMap, ns, labels="app=x")
    assert (await client.list(ConfigMap, ns, labels="app=x")).items == []
    with pytest.raises((BadRequest, Gone)):
        await client.list(ConfigMap, ns, limit=2, next_page="nonsense")


async def test_a_watch_streams_a_list_then_the_changes(client: HttpClient, ns: str) -> None:
    await client.create(ConfigMap, config_map(ns))
    seen: list[tuple[str, str]] = []
    async with aclosing(client.watch(ConfigMap, ns, labels="app=x", initial_events=True, timeout_s=60)) as events:
        async for event in events:
            if event.object is not None or event.initial_done:
                seen.append((event.type, event.object.data.get("v", "") if event.object else ""))
            if event.initial_done:
                await client.patch(ConfigMap, "a", {"data": {"v": "2"}}, ns)
                await client.delete(ConfigMap, "a", ns)
            if event.type == "DELETED":
                break
    assert seen == [("ADDED", ""), ("BOOKMARK", ""), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_refusals_are_typed(client: HttpClient, control_plane: ControlPlane, ns: str) -> None:
    with pytest.raises(Invalid) as invalid:
        await client.create(ConfigMap, config_map(ns, "Not A Name"))
    assert invalid.value.details["causes"][0]["field"] == "metadata.name"
    await client.create(ConfigMap, config_map(ns))
    with pytest.raises(Invalid):
        await client.patch(ConfigMap, "a", [{"op": "test", "path": "/metadata/name", "value": "b"}], ns)
    with pytest.raises(BadRequest):
        await client.create(ConfigMap, {**config_map(ns, "b"), "data": ["not", "a", "mapping"]})
    async with HttpClient(load_config(control_plane.client_kubeconfig("jane"))) as jane:
        with pytest.raises(Forbidden, match='User "jane" cannot list resource "configmaps"'):
            await jane.list(ConfigMap, ns)


async def test_server_side_apply_installs_and_upgrades(client: HttpClient, ns: str) -> None:
    kind = ConfigMap.RESOURCE
    await client.apply(kind, config_map(ns, v="1"), field_manager="grove")
    found = await client.apply(kind, config_map(ns, v="2"), field_manager="grove")
    assert found["data"] == {"v": "2"}
    assert found["metadata"]["managedFields"][0]["manager"] == "grove"


async def test_discovery_has_what_is_served(client: HttpClient) -> None:
    assert await client.serves(Pod)
    assert await client.serves(PodGang)
    assert not await client.serves(Resource("grove.io", "v1alpha1", "Nothing", "nothings"))
    assert not await client.serves(Resource("no.such.group", "v1", "Thing", "things"))


async def test_binding_a_pod_and_what_forbids_it(client: HttpClient, ns: str) -> None:
    node = f"node-{ns}"
    await client.create(NODE, {"metadata": {"name": node}})
    made = await client.create(Pod, pod_manifest(ns, "free"))
    await client.create(Pod, pod_manifest(ns, "gated", schedulingGates=[{"name": "example.com/wait"}]))
    with pytest.raises(Conflict):
        await client.bind(ns, "free", node, uid="00000000-0000-0000-0000-000000000000")
    await client.bind(ns, "free", node, uid=made.metadata.uid)
    assert (await client.get(Pod, "free", ns)).spec.node_name == node
    with pytest.raises(Conflict):
        await client.bind(ns, "free", node)
    with pytest.raises((Conflict, BadRequest)):
        await client.bind(ns, "gated", node)
    with pytest.raises(NotFound):
        await client.bind(ns, "missing", node)
    await client.delete(Pod, "free", ns, grace_period_s=0)
    await client.delete(NODE, node)


async def test_an_eviction_asks_the_budget(client: HttpClient, ns: str) -> None:
    made = await client.create(Pod, pod_manifest(ns, "kept", labels={"app": "x"}))
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await client.patch(Pod, "kept", running, ns, subresource="status")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await client.create(PDB, {"metadata": {"name": "b", "namespace": ns}, "spec": budget})
    with pytest.raises(TooManyRequests, match="disruption budget"):
        await client.evict(ns, "kept", uid=made.metadata.uid)
    await client.delete(PDB, "b", ns)
    await client.evict(ns, "kept", uid=made.metadata.uid, dry_run=True)
    assert not (await client.get(Pod, "kept", ns)).metadata.is_deleting
    await client.evict(ns, "kept", uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(Pod, "kept", ns)


async def test_a_rotated_token_is_taken_over_without_an_error(
    client: HttpClient, control_plane: ControlPlane, ns: str, tmp_path: Path
) -> None:
    """The old token ends with the Secret it is bound to; programs that use the file do not notice."""
    await client.create(ServiceAccount, {"metadata": {"name": "robot", "namespace": ns}})
    secret = Resource("", "v1", "Secret", "secrets")
    role, binding = (
        Resource("rbac.authorization.k8s.io", "v1", kind, plural)
        for kind, plural in (("Role", "roles"), ("RoleBinding", "rolebindings"))
    )
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    await client.create(role, {"metadata": {"name": "r", "namespace": ns}, "rules": rules})
    await client.create(
        binding,
        {
            "metadata": {"name": "r", "namespace": ns},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        },
    )

    async def token(bound_to: str) -> str:
        made = await client.create(secret, {"metadata": {"name": bound_to, "namespace": ns}})
        bound = {"kind": "Secret", "apiVersion": "v1", "name": bound_to, "uid": made["metadata"]["uid"]}
        request = {"metadata": {"name": "robot", "namespace": ns}, "spec": {"audiences": [], "boundObjectRef": bound}}
        tokens = Resource("", "v1", "ServiceAccount", "serviceaccounts")
        answer = await client.create(
            tokens,
            {
                **request,
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
            },
            subresource="token",
        )
        return str(answer["status"]["token"])

    file = tmp_path / "token"
    first, second = await token("first"), await token("second")
    admin = load_config(control_plane.kubeconfig)
    file.write_text(first)
    async with HttpClient(replace(admin, credentials=TokenFile(file))) as robot:
        async with asyncio.timeout(60):
            while True:
                try:
                    await robot.list(ConfigMap, ns)
                    break
                except Forbidden:  # the role is not known to the authorizer yet
                    await asyncio.sleep(0.1)
        await client.delete(secret, "first", ns)
        file.write_text(second)
        # The API server remembers a good token for ten seconds: until then the old one works, after that only the new.
        former = replace(admin, credentials=Fixed(Credential(first)))
        async with HttpClient(former) as left_behind, asyncio.timeout(120):
            while True:
                await robot.list(ConfigMap, ns)
                try:
                    await left_behind.list(ConfigMap, ns)
                except Unauthorized:
                    break
                await asyncio.sleep(0.2)
        await robot.list(ConfigMap, ns)
