"""The webhook configurations: how the API server reaches the operator, which requests it sends, and which authority it
trusts.

`configurations` is pure. `Registration` creates missing configurations and corrects changed ones, whether a chart or a
person changed them. Only the leader runs it, because replicas of two versions or with two settings would undo each
other's work. Every field is written out, so the stored object equals the wanted one and a check costs no write.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import structlog

from grove.admission.rules.dialects import RESOURCES as DIALECTS
from grove.admission.rules.review import AUTHORIZE, DEFAULT_SET, VALIDATE_BINDING, VALIDATE_DIALECT, VALIDATE_SET
from grove.api.core import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    HorizontalPodAutoscaler,
    Pod,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.labels import COMPONENT, MANAGED_BY, NAME, OPERATOR, PART_OF
from grove.api.meta import Json, Object, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, NotFound
from grove.kube.healing import heal

WEBHOOK_NAMES = {
    DEFAULT_SET: "pcs.defaulting.webhooks.grove.io",
    VALIDATE_SET: "pcs.validating.webhooks.grove.io",
    VALIDATE_BINDING: "clustertopology.validating.webhooks.grove.io",
    VALIDATE_DIALECT: "dialects.validating.webhooks.grove.io",
    AUTHORIZE: "authorizer.webhooks.grove.io",
}
_CREATED_OR_CHANGED = ("CREATE", "UPDATE")
_CHANGED_OR_DELETED = ("UPDATE", "DELETE")
_ANY = ("CREATE", "UPDATE", "DELETE")
_HPA = HorizontalPodAutoscaler.RESOURCE
GUARDED: tuple[tuple[Resource, tuple[str, ...]], ...] = (
    (Secret.RESOURCE, _CHANGED_OR_DELETED),
    (ServiceAccount.RESOURCE, _CHANGED_OR_DELETED),
    (Service.RESOURCE, _CHANGED_OR_DELETED),
    (Pod.RESOURCE, ("UPDATE",)),
    (Role.RESOURCE, _CHANGED_OR_DELETED),
    (RoleBinding.RESOURCE, _CHANGED_OR_DELETED),
    (_HPA._replace(version="v1"), _CHANGED_OR_DELETED),
    (_HPA._replace(version="v2"), _CHANGED_OR_DELETED),
    (PodClique.RESOURCE, _ANY),
    (PodCliqueScalingGroup.RESOURCE, _ANY),
    (PodGang.RESOURCE, _ANY),
)
"""What the authorizer is asked about, when it is labelled as managed by Grove."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Reached through a Service, inside the cluster."""

    namespace: str
    name: str = "grove-operator"
    port: int = 9443

    def client_config(self, path: str) -> Json:
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}}


@dataclass(frozen=True, slots=True)
class UrlAddress:
    """Reached by URL (`https://127.0.0.1:9443`), when the operator runs outside the cluster."""

    base: str

    def client_config(self, path: str) -> Json:
        return {"url": self.base.rstrip("/") + path}


Address = ServiceAddress | UrlAddress


@dataclass(frozen=True, slots=True)
class Wanted:
    resource: Resource
    name: str
    obj: Json


def configurations(
    address: Address,
    *,
    authorizer: bool,
    ca_bundle: bytes | None,
    annotations: Mapping[str, str] | None = None,
    dialects: bool = False,
) -> list[Wanted]:
    """The configuration objects; without a CA bundle that field is left to the program that injects it."""

    def wanted(kind: Resource, name: str, label: str, path: str, rules: list[Json], selector: Json) -> Wanted:
        client_config = address.client_config(path)
        if ca_bundle is not None:
            client_config["caBundle"] = base64.b64encode(ca_bundle).decode()
        webhook: Json = {
            "name": WEBHOOK_NAMES[path],
            "clientConfig": client_config,
            "rules": rules,
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "matchPolicy": "Exact",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "namespaceSelector": {},
            "objectSelector": selector,
        }
        if kind == MUTATING_WEBHOOK_CONFIGURATION:
            webhook["reinvocationPolicy"] = "Never"
        metadata: Json = {"name": name, "labels": {COMPONENT: f"operator-{label}", NAME: label, PART_OF: "grove"}}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return Wanted(kind, name, kind.manifest(metadata, webhooks=[webhook]))

    sets = [_rule(PodCliqueSet.RESOURCE, _CREATED_OR_CHANGED)]
    bindings = [_rule(ClusterTopologyBinding.RESOURCE, _CREATED_OR_CHANGED)]
    mutating, validating = MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
    configurations_wanted = [
        wanted(mutating, "podcliqueset-defaulting-webhook", "pcs-defaulting-webhook", DEFAULT_SET, sets, {}),
        wanted(validating, "podcliqueset-validating-webhook", "pcs-validating-webhook", VALIDATE_SET, sets, {}),
        wanted(validating, BINDING_CONFIGURATION, BINDING_CONFIGURATION, VALIDATE_BINDING, bindings, {}),
    ]
    if dialects:
        spoken = [_rule(resource, _CREATED_OR_CHANGED) for resource in DIALECTS]
        configurations_wanted.append(
            wanted(validating, DIALECTS_CONFIGURATION, DIALECTS_CONFIGURATION, VALIDATE_DIALECT, spoken, {})
        )
    if authorizer:
        guarded = [_rule(resource, operations) for resource, operations in GUARDED]
        selector = {"matchLabels": {MANAGED_BY: OPERATOR}}
        configurations_wanted.append(
            wanted(validating, AUTHORIZER_CONFIGURATION, "authorizer-webhook", AUTHORIZE, guarded, selector)
        )
    return configurations_wanted


BINDING_CONFIGURATION = "clustertopology-validating-webhook"
AUTHORIZER_CONFIGURATION = "authorizer-webhook"
DIALECTS_CONFIGURATION = "dialects-validating-webhook"


def _rule(resource: Resource, operations: tuple[str, ...]) -> Json:
    return {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural],
        "operations": list(operations),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }


def healing_patch(
    wanted: Json, stored: Json, is_good_bundle: Callable[[bytes], bool] = lambda bundle: False
) -> Json | None:
    """The merge patch that makes a stored configuration ours again, or None. Foreign metadata stays.

    Someone else's CA bundle stays if we have none ourselves (cert-manager injects it) or if it is good.
    """
    want, have = wanted["webhooks"][0], (stored.get("webhooks") or [{}])[0]
    theirs = have.get("clientConfig", {}).get("caBundle")
    if theirs and ("caBundle" not in want["clientConfig"] or is_good_bundle(_decoded(theirs))):
        want = {**want, "clientConfig": {**want["clientConfig"], "caBundle": theirs}}
    patch: Json = {}
    if stored.get("webhooks") != [want]:
        patch["webhooks"] = [want]
    for kind in ("labels", "annotations"):
        mine, known = wanted["metadata"].get(kind, {}), stored.get("metadata", {}).get(kind) or {}
        if missing := {key: value for key, value in mine.items() if known.get(key) != value}:
            patch.setdefault("metadata", {})[kind] = missing
    if patch:
        patch.setdefault("metadata", {})["resourceVersion"] = stored.get("metadata", {}).get("resourceVersion", "")
    return patch or None


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""


class MutatingWebhookConfiguration(Object):
    RESOURCE: ClassVar[Resource] = MUTATING_WEBHOOK_CONFIGURATION
    webhooks: tuple[Any, ...] = ()


class ValidatingWebhookConfiguration(Object):
    RESOURCE: ClassVar[Resource] = VALIDATING_WEBHOOK_CONFIGURATION
    webhooks: tuple[Any, ...] = ()


@dataclass(slots=True)
class Registration:
    """Keeps the configurations in a cluster; one process at a time."""

    client: Client
    address: Address
    authorizer: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    dialects: bool = False
    ca_bundle: bytes | None = None
    is_good_bundle: Callable[[bytes], bool] = lambda bundle: False
    """Whether another CA bundle than ours serves as well, and is left in place."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _withdrawn: bool = False

    def trust(self, ca_bundle: bytes | None) -> None:
        """These authorities sign our certificates from now on; `keep` publishes them."""
        self.ca_bundle = ca_bundle
        self._changed.set()

    async def ensure(self) -> None:
        """One pass: create, heal, and remove what was registered for a part that is switched off."""
        if self._withdrawn:
            return
        wanted = configurations(
            self.address,
            authorizer=self.authorizer,
            ca_bundle=self.ca_bundle,
            annotations=self.annotations,
            dialects=self.dialects,
        )
        for configuration in wanted:
            await self._ensure_one(configuration)
        for name, is_on in ((AUTHORIZER_CONFIGURATION, self.authorizer), (DIALECTS_CONFIGURATION, self.dialects)):
            if not is_on:
                with suppress(NotFound):
                    await self.client.get(VALIDATING_WEBHOOK_CONFIGURATION, name)
                    await self.client.delete(VALIDATING_WEBHOOK_CONFIGURATION, name)
                    log.info("webhook configuration removed", name=name)

    async def withdraw(self) -> None:
        """Removes the configurations for good, when an operator is taken away: writes must not wait for it."""
        self._withdrawn = True
        for configuration in configurations(self.address, authorizer=True, dialects=True, ca_bundle=None):
            with suppress(NotFound):
                await self.client.delete(configuration.resource, configuration.name)

    async def _ensure_one(self, wanted: Wanted) -> None:
        while True:
            try:
                stored = await self.client.get(wanted.resource, wanted.name)
                patch = healing_patch(wanted.obj, stored, self.is_good_bundle)
                if patch is not None:
                    await self.client.patch(wanted.resource, wanted.name, patch)
                    log.info("webhook configuration healed", name=wanted.name)
                return
            except NotFound:
                try:
                    await self.client.create(wanted.resource, wanted.obj)
                    log.info("webhook configuration created", name=wanted.name)
                    return
                except AlreadyExists:
                    continue  # a chart, or a former leader's last word: look at what it wrote
            except Conflict:
                continue

    async def keep(self) -> None:
        """Registers, and heals for as long as it runs: every change of one of our configurations is looked at."""
        names = {
            configuration.name
            for configuration in configurations(self.address, authorizer=True, dialects=True, ca_bundle=None)
        }
        self._changed.set()
        kinds = (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
        await heal(self.client, kinds, names, self._changed, self.ensure)
