"""Lists and watches: order, selection, paging, resuming from a version, initial events, bookmarks, and 410."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.support.cluster import BUSY_S

from grove.api.core import ConfigMap, Pod
from grove.api.podclique import PodClique
from grove.kube.errors import BadRequest, Gone


def config(namespace: str, name: str, **labels: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"mine": "yes", **labels}}}


async def collect(stream, count: int, timeout_s: float = BUSY_S) -> list:
    """The next `count` events that are not bookmarks, as (type, name)."""
    found = []
    async with asyncio.timeout(timeout_s):
        async for event in stream:
            if event.object is not None:
                found.append((event.type, event.object.metadata.name))
            if len(found) == count:
                break
    await stream.aclose()
    return found


def watch(cluster, **options):
    return cluster.client.watch(ConfigMap, cluster.namespace, **{"labels": "mine=yes", **options})


async def test_a_list_is_in_name_order_and_has_a_version(cluster):
    for name in ("b", "c", "a"):
        await cluster.client.create(ConfigMap, config(cluster.namespace, name))
    page = await cluster.client.list(ConfigMap, cluster.namespace, labels="mine")

    assert [o.metadata.name for o in page.items] == ["a", "b", "c"]
    assert int(page.resource_version) >= max(int(o.metadata.resource_version) for o in page.items)
    assert page.next_page == ""


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param("tier=web", ["a", "b"], id="equal"),
        pytest.param("tier==web", ["a", "b"], id="double equal"),
        pytest.param("tier!=web", ["c", "d"], id="not equal takes absent ones too"),
        pytest.param("tier in (web,db)", ["a", "b", "c"], id="one of several"),
        pytest.param("tier notin (web, db)", ["d"], id="none of several takes absent ones too"),
        pytest.param("tier", ["a", "b", "c"], id="has the key"),
        pytest.param("!tier", ["d"], id="has not the key"),
        pytest.param("tier=web,env=prod", ["a"], id="both must hold"),
    ],
)
async def test_labels_select(cluster, labels, want):
    objects = {"a": {"tier": "web", "env": "prod"}, "b": {"tier": "web"}, "c": {"tier": "db"}, "d": {}}
    for name, given in objects.items():
        await cluster.client.create(ConfigMap, config(cluster.namespace, name, **given))
    page = await cluster.client.list(ConfigMap, cluster.namespace, labels=f"mine,{labels}")

    assert [o.metadata.name for o in page.items] == want


async def test_names_select_by_field(cluster):
    for name in ("a", "b"):
        await cluster.client.create(ConfigMap, config(cluster.namespace, name))
    page = await cluster.client.list(ConfigMap, cluster.namespace, fields="metadata.name=b")

    assert [o.metadata.name for o in page.items] == ["b"]


async def test_pods_select_by_node(cluster):
    for name in ("bound", "free"):
        spec = {"schedulerName": "nobody", "containers": [{"name": "m", "image": "i:1"}]}
        await cluster.client.create(Pod, {"metadata": {"name": name, "namespace": cluster.namespace}, "spec": spec})
    await cluster.client.bind(cluster.namespace, "bound", cluster.nowhere)

    for fields, want in (
        (f"spec.nodeName={cluster.nowhere}", ["bound"]),
        ("spec.nodeName=", ["free"]),
        ("spec.nodeName!=", ["bound"]),
        ("status.phase=Pending,spec.schedulerName=nobody", ["bound", "free"]),
    ):
        page = await cluster.client.list(Pod, cluster.namespace, fields=fields)
        assert [o.metadata.name for o in page.items] == want, fields
    await cluster.client.delete(Pod, "bound", cluster.namespace, grace_period_s=0)


@pytest.mark.parametrize("selector", [{"fields": "spec.unknown=x"}, {"labels": "a b c"}])
async def test_a_selector_the_server_cannot_read_is_a_bad_request(cluster, selector):
    with pytest.raises(BadRequest):
        await cluster.client.list(ConfigMap, cluster.namespace, **selector)


async def test_pages_continue_one_snapshot(cluster):
    for at in range(5):
        await cluster.client.create(ConfigMap, config(cluster.namespace, f"c{at}"))
    first = await cluster.client.list(ConfigMap, cluster.namespace, labels="mine", limit=2)
    await cluster.client.create(ConfigMap, config(cluster.namespace, "c9"))
    second = await cluster.client.list(ConfigMap, cluster.namespace, labels="mine", limit=2, next_page=first.next_page)
    third = await cluster.client.list(ConfigMap, cluster.namespace, labels="mine", limit=2, next_page=second.next_page)

    names = [o.metadata.name for page in (first, second, third) for o in page.items]
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    assert third.next_page == ""
    assert first.resource_version == second.resource_version == third.resource_version


async def test_a_watch_from_a_list_misses_nothing(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace, "before"))
    page = await cluster.client.list(ConfigMap, cluster.namespace)
    await cluster.client.create(ConfigMap, config(cluster.namespace, "after"))
    await cluster.client.patch(ConfigMap, "before", {"data": {"k": "v"}}, cluster.namespace)
    await cluster.client.delete(ConfigMap, "before", cluster.namespace)

    events = await collect(watch(cluster, resource_version=page.resource_version), 3)
    assert events == [("ADDED", "after"), ("MODIFIED", "before"), ("DELETED", "before")]


async def test_a_watch_without_a_version_begins_with_what_is_there(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace, "a"))
    await cluster.client.create(ConfigMap, config(cluster.namespace, "b"))

    assert sorted(await collect(watch(cluster), 2)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_end_with_a_bookmark(cluster):
    await cluster.client.create(ConfigMap, config(cluster.namespace, "a"))
    stream = watch(cluster, initial_events=True)
    seen = []
    async with asyncio.timeout(BUSY_S):
        async for event in stream:
            seen.append((event.type, event.initial_done))
            if event.initial_done:
                version = event.resource_version
                break
    await stream.aclose()
    assert seen == [("ADDED", False), ("BOOKMARK", True)]

    await cluster.client.create(ConfigMap, config(cluster.namespace, "b"))
    assert await collect(watch(cluster, resource_version=version), 1) == [("ADDED", "b")]


async def test_events_carry_growing_versions_and_the_object_as_written(cluster):
    page = await cluster.client.list(ConfigMap, cluster.namespace)
    await cluster.client.create(ConfigMap, config(cluster.namespace, "a"))
    written = await cluster.client.patch(ConfigMap, "a", {"data": {"k": "v"}}, cluster.namespace)
    await cluster.client.delete(ConfigMap, "a", cluster.namespace)

    stream, events = watch(cluster, resource_version=page.resource_version), []
    async with asyncio.timeout(BUSY_S):
        async for event in stream:
            if event.object is not None:
                events.append(event)
            if len(events) == 3:
                break
    await stream.aclose()
    versions = [int(event.resource_version) for event in events]
    assert all(a < b for a, b in pairwise(versions))
    assert events[1].object == written
    assert events[2].type == "DELETED"
    assert events[2].object.data == {"k": "v"}
    assert int(events[2].object.metadata.resource_version) == versions[2] > int(written.metadata.resource_version)


async def test_an_object_that_leaves_the_selection_is_deleted_there(cluster):
    page = await cluster.client.list(ConfigMap, cluster.namespace)
    await cluster.client.create(ConfigMap, config(cluster.namespace, "a", tier="web"))
    await cluster.client.patch(ConfigMap, "a", {"metadata": {"labels": {"tier": "db"}}}, cluster.namespace)
    await cluster.client.patch(ConfigMap, "a", {"data": {"k": "v"}}, cluster.namespace)
    await cluster.client.patch(ConfigMap, "a", {"metadata": {"labels": {"tier": "web"}}}, cluster.namespace)

    events = await collect(watch(cluster, labels="tier=web", resource_version=page.resource_version), 3)
    assert events == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_pod_enters_a_watch_by_node_when_it_is_bound(cluster):
    page = await cluster.client.list(Pod, cluster.namespace)
    spec = {"schedulerName": "nobody", "containers": [{"name": "m", "image": "i:1"}]}
    await cluster.client.create(Pod, {"metadata": {"name": "p", "namespace": cluster.namespace}, "spec": spec})
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    stream = cluster.client.watch(
        Pod, cluster.namespace, fields=f"spec.nodeName={cluster.nowhere}", resource_version=page.resource_version
    )

    assert await collect(stream, 1) == [("ADDED", "p")]
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)


async def test_other_namespaces_stay_out(cluster):
    page = await cluster.client.list(ConfigMap, cluster.namespace)
    await cluster.client.create(ConfigMap, config("default", f"{cluster.namespace}-other"))
    await cluster.client.create(ConfigMap, config(cluster.namespace, "mine"))

    assert await collect(watch(cluster, resource_version=page.resource_version), 1) == [("ADDED", "mine")]
    await cluster.client.delete(ConfigMap, f"{cluster.namespace}-other", "default")


async def test_a_live_watch_sees_writes_as_they_happen(cluster):
    page = await cluster.client.list(ConfigMap, cluster.namespace)
    reader = asyncio.ensure_future(collect(watch(cluster, resource_version=page.resource_version), 2))
    await cluster.settle(0.2)
    await cluster.client.create(ConfigMap, config(cluster.namespace, "a"))
    await cluster.client.delete(ConfigMap, "a", cluster.namespace)

    assert await reader == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_ends_quietly_when_its_time_is_up(cluster):
    stream = watch(cluster, resource_version="", timeout_s=1.0)
    async with asyncio.timeout(BUSY_S):
        events = [event async for event in stream if event.object is not None]
    assert events == []


async def test_a_version_from_before_all_history_is_gone(cluster):
    # A custom kind: the history of the built-in ones begins with the cluster itself, at version 1.
    stream = cluster.client.watch(PodClique, cluster.namespace, resource_version="1")
    with pytest.raises(Gone):
        async with asyncio.timeout(BUSY_S):
            await anext(stream)
    await stream.aclose()
