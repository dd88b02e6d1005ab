"""Devices for claims on a made-up cluster, and those who stand between a pod and its claim.

Every node has eight devices of each class that a manifest names. Played besides: the driver that answers a
ComputeDomain with a claim template, and Kubernetes' controller that makes a pod's own claims from templates. Choosing
devices and writing them down is the real scheduler's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from grove.api import core, labels
from grove.api.fields import mapping, sequence
from grove.api.meta import Json, Key, Resource
from grove.sim.store import Change, Store

PER_NODE = 8
CHANNEL = "compute-domain-default-channel.nvidia.com"
"""The class that a ComputeDomain's template asks for: one channel of the domain on the pod's node."""
COMPUTE_DOMAINS = "computedomains"


def classes_in(manifest: Json) -> set[str]:
    """Classes of devices that a set asks for, by claims of its own or as a member of an NVLink domain."""
    classes = set(_named(manifest))
    return classes | ({CHANNEL} if labels.MNNVL_GROUP in str(manifest) else set())


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(name := value.get("deviceClassName"), str):
            yield name
        for item in value.values():
            yield from _named(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)


def furnish(store: Store, nodes: Iterable[str], classes: Iterable[str], since: str) -> None:
    """Gives every node devices of these classes; those that are there already stay as they are."""
    there = store.collection(core.DeviceClass.RESOURCE).objects
    for kind, name, spec in device_objects(nodes, [name for name in classes if Key("", name) not in there]):
        store.put(kind, _object(kind, name, "", since, spec))


def device_objects(nodes: Iterable[str], classes: Iterable[str]) -> Iterator[tuple[Resource, str, Json]]:
    """Kind, name and spec of what makes classes of devices known, and of what a driver publishes of every node's."""
    every = list(nodes)
    for name in sorted(classes):
        rule = {"cel": {"expression": f'device.driver == "{name}"'}}
        yield core.DeviceClass.RESOURCE, name, {"selectors": [rule]}
        for node in every:
            spec: Json = {
                "driver": name,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"device-{number}"} for number in range(PER_NODE)],
            }
            yield core.ResourceSlice.RESOURCE, f"{node}-{name}", spec


class ClaimMaker:
    """Listens to a store; makes templates for ComputeDomains, and pods' own claims from templates."""

    def __init__(self, store: Store, since: str) -> None:
        self._store, self._since = store, since
        self._waiting: dict[Key, set[Key]] = {}
        """Pods that wait for a template."""
        store.listeners.append(self._note_change)

    def _note_change(self, resource: Resource, change: Change) -> None:
        if change.type == "DELETED" or resource.plural not in ("pods", COMPUTE_DOMAINS, "resourceclaimtemplates"):
            return
        key = change.version.key
        # Not in the middle of a write: other watchers have not seen this one yet.
        later = asyncio.get_running_loop().call_soon
        if resource.plural == COMPUTE_DOMAINS and change.previous is None:
            later(self._template, change.version.json)
        elif resource.plural == "resourceclaimtemplates":
            for pod in sorted(self._waiting.pop(key, ())):
                later(self._claims, pod)
        elif change.previous is None and change.version.json["spec"].get("resourceClaims"):
            later(self._claims, key)

    def _template(self, domain: Json) -> None:
        wanted = mapping(mapping(mapping(domain.get("spec")).get("channel")).get("resourceClaimTemplate"))
        name, namespace = wanted.get("name", domain["metadata"]["name"]), domain["metadata"]["namespace"]
        asked = {"name": "channel", "exactly": {"deviceClassName": CHANNEL, "allocationMode": "ExactCount", "count": 1}}
        kind = core.ResourceClaimTemplate.RESOURCE
        spec = {"spec": {"devices": {"requests": [asked]}}}
        self._store.put(kind, _object(kind, name, namespace, self._since, spec, owner=domain))

    def _claims(self, key: Key) -> None:
        version = self._store.collection(core.Pod.RESOURCE).objects.get(key)
        if version is None:
            return
        pod, made = version.json, []
        templates = self._store.collection(core.ResourceClaimTemplate.RESOURCE).objects
        for entry in sequence(pod["spec"].get("resourceClaims")):
            if not (named := entry.get("resourceClaimTemplateName")):
                continue
            template = templates.get(Key(key.namespace, named))
            if template is None:
                self._waiting.setdefault(Key(key.namespace, named), set()).add(key)
                return
            name, kind = f"{key.name}-{entry['name']}", core.ResourceClaim.RESOURCE
            spec = template.json["spec"]["spec"]
            self._store.put(kind, _object(kind, name, key.namespace, self._since, spec, owner=pod))
            made.append({"name": entry["name"], "resourceClaimName": name})
        if made:
            status = {**mapping(pod.get("status")), "resourceClaimStatuses": made}
            self._store.put(core.Pod.RESOURCE, {**pod, "status": status})


def _object(kind: Resource, name: str, namespace: str, since: str, spec: Json, owner: Json | None = None) -> Json:
    meta: Json = {"name": name, "uid": f"{kind.plural}/{namespace}/{name}", "creationTimestamp": since}
    if namespace:
        meta["namespace"] = namespace
    if owner is not None:
        ref = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        meta["ownerReferences"] = [{**ref, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
