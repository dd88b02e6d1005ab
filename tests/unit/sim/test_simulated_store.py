"""The store: revisions, history, watchers; and the law that a watch tells the same story as the lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api.core import ConfigMap
from grove.api.meta import Key
from grove.kube.errors import Gone
from grove.sim.selectors import exact_labels, field_match, label_match
from grove.sim.store import Store, Watcher

RESOURCE = ConfigMap.RESOURCE


def obj(name: str, value: int = 0, **labels: str) -> dict:
    meta = {"name": name, "namespace": "n", "uid": f"uid-{name}", "labels": labels}
    return {"metadata": meta, "data": {"v": str(value)}}


def pending(watcher: Watcher) -> list[tuple[str, str]]:
    return [(change.type, change.version.json["metadata"]["name"]) for change in watcher._pending]


def test_versions_are_numbered_one_by_one():
    store = Store()
    first = store.put(RESOURCE, obj("a"))
    second = store.put(RESOURCE, obj("a", 1))

    assert second.revision == first.revision + 1 == store.revision
    assert second.json["metadata"]["resourceVersion"] == str(second.revision)
    assert first.json["data"] == {"v": "0"}


def test_a_view_is_decoded_once_per_version():
    store = Store()
    version = store.put(RESOURCE, obj("a"))

    assert version.view(ConfigMap) is version.view(ConfigMap)
    assert version.view(ConfigMap).data == {"v": "0"}


def test_the_past_can_be_read_until_it_is_compacted():
    store = Store()
    start = store.revision
    store.put(RESOURCE, obj("a"))
    middle = store.put(RESOURCE, obj("b")).revision
    store.put(RESOURCE, obj("a", 1))
    store.remove(RESOURCE, Key("n", "b"))
    collection = store.collection(RESOURCE)

    assert collection.at(start) == {}
    assert {k.name: v.json["data"]["v"] for k, v in collection.at(middle).items()} == {"a": "0", "b": "0"}
    store.compact()
    with pytest.raises(Gone):
        collection.at(middle)
    with pytest.raises(Gone):
        collection.since(middle)
    assert list(collection.since(store.revision)) == []


def test_what_a_store_is_filled_with_is_numbered_and_has_no_history():
    store = Store()
    heard = []
    store.listeners.append(lambda _resource, change: heard.append(change))
    before = store.revision
    store.fill(RESOURCE, [obj("a"), obj("b")])
    collection = store.collection(RESOURCE)

    assert [(k.name, v.revision) for k, v in collection.objects.items()] == [("a", before + 1), ("b", before + 2)]
    assert collection.objects[Key("n", "b")].json["metadata"]["resourceVersion"] == str(before + 2)
    assert heard == []
    assert list(collection.since(store.revision)) == []
    with pytest.raises(Gone):
        collection.since(before)


def test_history_is_bounded(monkeypatch):
    monkeypatch.setattr("grove.sim.store.HISTORY", 10)
    store = Store()
    for value in range(50):
        store.put(RESOURCE, obj("a", value))

    assert len(store.collection(RESOURCE).history) <= 10
    with pytest.raises(Gone):
        store.collection(RESOURCE).since(store.revision - 40)


def test_a_watcher_of_another_namespace_receives_nothing():
    store = Store()
    watcher = Watcher("other", None)
    store.collection(RESOURCE).watchers[watcher] = None
    store.put(RESOURCE, obj("a"))

    assert pending(watcher) == []


def test_a_watcher_sees_its_selection_only():
    store = Store()
    watcher = Watcher("", label_match("tier=web"))
    store.collection(RESOURCE).watchers[watcher] = None
    store.put(RESOURCE, obj("a", tier="web"))
    store.put(RESOURCE, obj("b", tier="db"))
    store.put(RESOURCE, obj("a", 1, tier="db"))
    store.put(RESOURCE, obj("a", 2, tier="db"))
    store.put(RESOURCE, obj("a", 3, tier="web"))
    store.remove(RESOURCE, Key("n", "b"))

    assert pending(watcher) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


WRITE = st.tuples(st.sampled_from("abcd"), st.sampled_from(["web", "db", None]))
"""A write to a name: a label value to store it with, or None to remove it."""


@given(st.lists(WRITE, max_size=40), st.data())
def test_a_watch_from_any_revision_leads_to_the_final_list(writes, data):
    store = Store()
    collection = store.collection(RESOURCE)
    snapshots = {store.revision: {}}
    for at, (name, tier) in enumerate(writes):
        if tier is not None:
            store.put(RESOURCE, obj(name, at, tier=tier))
        elif Key("n", name) in collection.objects:
            store.remove(RESOURCE, Key("n", name))
        snapshots[store.revision] = dict(collection.objects)

    revision = data.draw(st.sampled_from(sorted(snapshots)))
    match = data.draw(st.sampled_from([None, label_match("tier=web"), field_match("metadata.name!=a", ())]))
    assert collection.at(revision) == snapshots[revision]

    watcher = Watcher("", match)
    for change in collection.since(revision):
        watcher.offer(change)
    seen = {k: v.json["data"] for k, v in snapshots[revision].items() if match is None or match(v.json)}
    for change in watcher._pending:
        if change.type == "DELETED":
            del seen[change.version.key]
        else:
            assert (change.type == "ADDED") is (change.version.key not in seen)
            seen[change.version.key] = change.version.json["data"]

    assert seen == {v.key: v.json["data"] for v in collection.select("", match)}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["web", "db", "", None])), max_size=30),
    st.sampled_from(["tier=web", "tier=web,size=s", "tier in (web,db)", "tier!=db", "size=s", "tier=cache"]),
    st.integers(0, 30),
)
def test_a_list_by_label_finds_what_a_look_at_every_object_finds(steps, text, first_asked):
    """The index of a label begins with the first question, and follows every write after it."""
    store, match = Store(), label_match(text)
    collection = store.collection(RESOURCE)
    for number, (name, tier) in enumerate(steps):
        if tier is not None:
            store.put(RESOURCE, obj(name, number, size="s" if number % 2 else "l", **({"tier": tier} if tier else {})))
        elif Key("n", name) in collection.objects:
            store.remove(RESOURCE, Key("n", name))
        if number >= first_asked:
            assert collection.select("n", match, exact_labels(text)) == collection.select("n", match)
    assert collection.select("n", match, exact_labels(text)) == collection.select("n", match)
    assert collection.select("other", match, exact_labels(text)) == []
