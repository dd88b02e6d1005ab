"""The APIServices that lead the aggregator to grove-metrics. They are written once it can answer.

An APIService that does not answer slows discovery for all clients, so it is written last. Only one server can have
each. If prometheus-adapter or KEDA has it already, it stays theirs. They can read our numbers from our own page.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import ClassVar

import structlog

from grove.api.labels import COMPONENT, MANAGED_BY, PART_OF
from grove.api.meta import Json, Object, Resource
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, NotFound
from grove.kube.healing import heal
from grove.metrics.wire import VERSIONS

API_SERVICE = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
CLUSTER_ROLE = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
METRICS = "grove-metrics"
OWNER = "grove:system:grove-metrics"
"""The ClusterRole that comes and goes with the installation, and takes the APIServices along."""

log = structlog.get_logger(__name__)


class ApiService(Object):
    RESOURCE: ClassVar[Resource] = API_SERVICE


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    namespace: str
    name: str = METRICS
    port: int = 443


def wanted_services(address: ServiceAddress, ca_bundle: bytes, owner_uid: str = "") -> list[Json]:
    """One APIService for each version of the two groups."""
    owner = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind, "name": OWNER, "uid": owner_uid}
    return [
        {
            "apiVersion": API_SERVICE.api_version,
            "kind": API_SERVICE.kind,
            "metadata": {
                "name": f"{version}.{group}",
                "labels": {MANAGED_BY: METRICS, PART_OF: "grove", COMPONENT: "metrics"},
                **({"ownerReferences": [owner]} if owner_uid else {}),
            },
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 200 - position,
                "caBundle": base64.b64encode(ca_bundle).decode(),
                "service": {"namespace": address.namespace, "name": address.name, "port": address.port},
            },
        }
        for group, versions in VERSIONS.items()
        for position, version in enumerate(versions)
    ]


def is_ours(stored: Json) -> bool:
    return (stored["metadata"].get("labels") or {}).get(MANAGED_BY) == METRICS


def healing_patch(wanted: Json, stored: Json) -> Json | None:
    """The merge patch that makes our own APIService right again; None when it is."""
    have = stored.get("spec") or {}
    wrong = {key: value for key, value in wanted["spec"].items() if have.get(key) != value}
    if not wrong:
        return None
    return {"metadata": {"resourceVersion": stored["metadata"].get("resourceVersion", "")}, "spec": wrong}


@dataclass(slots=True)
class Registration:
    """Keeps our APIServices in a cluster. Any number of replicas may: all of them want the same."""

    client: Client
    address: ServiceAddress
    ca_bundle: bytes = b""
    foreign: set[str] = field(default_factory=set)
    """Names that another server has."""
    _owner_uid: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def trust(self, ca_bundle: bytes) -> None:
        """These authorities sign our certificate from now on; `keep` publishes them."""
        self.ca_bundle = ca_bundle
        self._changed.set()

    async def ensure(self) -> None:
        """One pass: create what is missing, heal what is ours, leave what is not."""
        try:
            role = await self.client.get(CLUSTER_ROLE, OWNER)
            self._owner_uid = role["metadata"]["uid"]
        except NotFound:
            if self._owner_uid:
                return  # we are being uninstalled: what goes with the owner must not come back without it
        for wanted in wanted_services(self.address, self.ca_bundle, self._owner_uid):
            await self._ensure_one(wanted)

    async def _ensure_one(self, wanted: Json) -> None:
        name = wanted["metadata"]["name"]
        while True:
            try:
                stored = await self.client.get(API_SERVICE, name)
                if not is_ours(stored):
                    if name not in self.foreign:
                        whose = ((stored.get("spec") or {}).get("service") or {}).get("name", "the API server itself")
                        log.warning("another program serves the APIService; it stays", name=name, service=whose)
                    self.foreign.add(name)
                    return
                self.foreign.discard(name)
                patch = healing_patch(wanted, stored)
                if patch is not None:
                    await self.client.patch(API_SERVICE, name, patch)
                    log.info("APIService healed", name=name)
                return
            except NotFound:
                try:
                    await self.client.create(API_SERVICE, wanted)
                    self.foreign.discard(name)
                    log.info("APIService created", name=name)
                    return
                except AlreadyExists:
                    continue  # another replica was quicker: look at what it wrote
            except Conflict:
                continue

    async def keep(self) -> None:
        """Heals for as long as it runs, and takes up what another server gave back."""
        names = {service["metadata"]["name"] for service in wanted_services(self.address, b"")}
        await heal(self.client, [ApiService], names, self._changed, self.ensure)
