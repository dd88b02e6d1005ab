"""The garbage collector: what happens to dependents when owners go, and to owners that wait for their dependents.

Listens to the store and keeps a graph of owner references; works a little later, from a queue, as the real one does.
Background: dependents of a missing owner are deleted. Foreground: the owner keeps the `foregroundDeletion` finalizer
until no dependent with blockOwnerDeletion is left. Orphan: dependents lose the reference first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from grove.api.meta import Json, Key, Resource
from grove.kube.client import Propagation
from grove.sim.kinds import NAMESPACE
from grove.sim.metadata import FOREGROUND, ORPHAN
from grove.sim.store import Change, Version

if TYPE_CHECKING:
    from grove.sim.server import SimServer


class Node(NamedTuple):
    """An object's place in the graph."""

    resource: Resource
    key: Key


class GarbageCollector:
    def __init__(self, server: SimServer, *, delay_s: float = 0.01) -> None:
        self._server, self._delay_s = server, delay_s
        self._dependents: dict[str, dict[Node, None]] = {}
        """Owner uid to the objects that name it; dicts, because sets would walk in another order every run."""
        self._nodes: dict[str, Node] = {}
        self._queue: dict[Node, None] = {}
        self._is_due = False
        server.store.listeners.append(self._note)

    def _note(self, resource: Resource, change: Change) -> None:
        node = Node(resource, change.version.key)
        new = change.version.json["metadata"]
        old = change.previous.json["metadata"] if change.previous else {}
        if change.type == "DELETED":
            self._forget(node, new)
            return
        if change.previous is None:
            self._nodes[new["uid"]] = node
        if new.get("ownerReferences") is not old.get("ownerReferences"):
            for ref in old.get("ownerReferences") or ():
                self._dependents.get(ref["uid"], {}).pop(node, None)
            for ref in new.get("ownerReferences") or ():
                self._dependents.setdefault(ref["uid"], {})[node] = None
                if self._owner(node, ref) is None or self._is_waiting(ref):
                    self._enqueue(node)
            for ref in old.get("ownerReferences") or ():
                self._enqueue_owner(ref["uid"])
        if new.get("deletionTimestamp"):
            self._enqueue(node)
            finalizers = new.get("finalizers") or ()
            if FOREGROUND in finalizers and FOREGROUND not in (old.get("finalizers") or ()):
                for dependent in self._dependents.get(new["uid"], ()):
                    self._enqueue(dependent)

    def _forget(self, node: Node, meta: Json) -> None:
        self._nodes.pop(meta["uid"], None)
        for dependent in self._dependents.pop(meta["uid"], ()):
            self._enqueue(dependent)
        for ref in meta.get("ownerReferences") or ():
            self._dependents.get(ref["uid"], {}).pop(node, None)
            self._enqueue_owner(ref["uid"])
        if node.key.namespace:
            self._enqueue_terminating(node.key.namespace)

    def _enqueue_owner(self, uid: str) -> None:
        owner = self._nodes.get(uid)
        if owner is not None and self._is_waiting({"uid": uid}):
            self._enqueue(owner)

    def _enqueue_terminating(self, namespace: str) -> None:
        namespace_object = self._server.find(NAMESPACE, namespace)
        if namespace_object is not None and namespace_object["metadata"].get("deletionTimestamp"):
            self._enqueue(Node(NAMESPACE, Key("", namespace)))

    def _enqueue(self, node: Node) -> None:
        self._queue[node] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(self._delay_s, self._work)

    def _work(self) -> None:
        self._is_due = False
        queue, self._queue = self._queue, {}
        for node in queue:
            version = self._version(node)
            if version is not None:
                self._attempt(node, version)

    def _version(self, node: Node) -> Version | None:
        return self._server.store.collection(node.resource).objects.get(node.key)

    def _owner(self, node: Node, ref: Json) -> Version | None:
        """The live owner a reference means: kind, name and uid all fit, in the same namespace or in none."""
        kind = self._server.find_kind(ref.get("apiVersion", ""), ref.get("kind", ""))
        if kind is None:
            return None
        namespace = node.key.namespace if kind.resource.namespaced else ""
        version = self._server.store.collection(kind.resource).objects.get(Key(namespace, ref["name"]))
        return version if version is not None and version.uid == ref["uid"] else None

    def _is_waiting(self, ref: Json) -> bool:
        owner = self._nodes.get(ref["uid"])
        version = self._version(owner) if owner else None
        return version is not None and _waits_for_dependents(version.json["metadata"])

    def _attempt(self, node: Node, version: Version) -> None:
        meta = version.json["metadata"]
        if node.resource == NAMESPACE:
            self._empty_namespace(node, version)
            return
        if meta.get("deletionTimestamp"):
            if ORPHAN in (meta.get("finalizers") or ()):
                self._orphan(node, version)
            elif _waits_for_dependents(meta):
                self._continue_foreground(node, version)
            return
        refs: list[Json] = meta.get("ownerReferences") or []
        if not refs:
            return
        owners = [(ref, self._owner(node, ref)) for ref in refs]
        solid = [ref for ref, owner in owners if owner and not _blocks(ref, owner)]
        waiting = [ref for ref, owner in owners if owner and _blocks(ref, owner)]
        if solid:
            if len(solid) < len(refs):
                self._write_owners(node, version, solid)
            return
        policy: Propagation = "Background"
        if waiting and self._dependents.get(meta["uid"]):
            policy = "Foreground"
        elif ORPHAN in (meta.get("finalizers") or ()):
            policy = "Orphan"
        elif FOREGROUND in (meta.get("finalizers") or ()):
            policy = "Foreground"
        self._server.start_deletion(node.resource, version, policy)

    def _continue_foreground(self, node: Node, version: Version) -> None:
        uid = version.uid
        blocking = []
        for dependent in self._dependents.get(uid, ()):
            child = self._version(dependent)
            refs = (child.json["metadata"].get("ownerReferences") or ()) if child else ()
            if child and any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs):
                blocking.append((dependent, child))
        if not blocking:
            self._drop_finalizer(node, version, FOREGROUND)
        for dependent, blocker in blocking:
            if not blocker.json["metadata"].get("deletionTimestamp"):
                self._enqueue(dependent)

    def _orphan(self, node: Node, version: Version) -> None:
        for dependent in list(self._dependents.get(version.uid, ())):
            child = self._version(dependent)
            if child is not None:
                refs = child.json["metadata"].get("ownerReferences") or ()
                self._write_owners(dependent, child, [ref for ref in refs if ref["uid"] != version.uid])
        self._drop_finalizer(node, version, ORPHAN)

    def _write_owners(self, node: Node, version: Version, owners: list[Json]) -> None:
        meta = {k: v for k, v in version.json["metadata"].items() if k != "ownerReferences"}
        if owners:
            meta["ownerReferences"] = owners
        self._server.store.put(node.resource, {**version.json, "metadata": meta})

    def _drop_finalizer(self, node: Node, version: Version, finalizer: str) -> None:
        meta = dict(version.json["metadata"])
        meta["finalizers"] = [f for f in meta.get("finalizers") or () if f != finalizer]
        if not meta["finalizers"]:
            del meta["finalizers"]
        self._server.commit(node.resource, node.key, {**version.json, "metadata": meta})

    def _empty_namespace(self, node: Node, version: Version) -> None:
        """Deletes what is left in a terminating namespace; the last one out takes the namespace along."""
        if not version.json["metadata"].get("deletionTimestamp"):
            return
        is_empty = True
        for collection in list(self._server.store.collections.values()):
            for key, left in list(collection.objects.items()):
                if key.namespace != node.key.name:
                    continue
                if not left.json["metadata"].get("deletionTimestamp"):
                    self._server.start_deletion(collection.resource, left, "Background")
                is_empty = is_empty and key not in collection.objects
        if is_empty and not version.json["metadata"].get("finalizers"):
            self._server.store.remove(NAMESPACE, node.key)


def _waits_for_dependents(meta: Json) -> bool:
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in (meta.get("finalizers") or ())


def _blocks(ref: Json, owner: Version) -> bool:
    return bool(ref.get("blockOwnerDeletion")) and _waits_for_dependents(owner.json["metadata"])
