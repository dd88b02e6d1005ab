"""What `doctor` asks about what is installed: the server's version, Grove's kinds, admission, and the user's rights."""

from __future__ import annotations

import base64
import re
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.x509 import Certificate

from grove import crds
from grove.answers.findings import FAIL, OK, SKIP, WARN, Finding
from grove.api.core import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    CustomResourceDefinition,
    Secret,
)
from grove.api.dynamo import PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Json, Resource, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.words import many
from grove.config import Webhooks
from grove.kube.client import Client
from grove.kube.errors import ApiError, Forbidden, NotFound, Unavailable

OLDEST = (1, 29)
"""The oldest Kubernetes minor that has what Grove relies on (the chart says the same)."""

EXPIRES_SOON = timedelta(days=7)
TAKEN_UP = timedelta(minutes=1)
"""By then an operator whose dialects are on has looked at an object."""

TRIAL: Json = {
    "metadata": {"name": "grove-doctor-trial"},
    "spec": {
        "replicas": 1,
        "template": {
            "cliques": [
                {
                    "name": "trial",
                    "spec": {
                        "roleName": "trial",
                        "replicas": 1,
                        "podSpec": {"containers": [{"name": "trial", "image": "trial"}]},
                    },
                }
            ]
        },
    },
}


async def server(client: Client) -> list[Finding]:
    """The API server: new enough."""
    ask = getattr(client, "server_version", None)
    if ask is None:
        return []  # a cluster inside the process has no version
    version = await ask()
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers is None:
        return [Finding("server", SKIP, "the API server does not report its version")]
    if tuple(map(int, numbers.groups())) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        text = f"Kubernetes {version} is too old: Grove needs {needed} or newer"
        return [Finding("server", FAIL, text, "upgrade the cluster's control plane")]
    return [Finding("server", OK, f"Kubernetes {version}")]


async def kinds(client: Client) -> list[Finding]:
    """The CRDs: served at all, and with the schema this program was made with."""
    fix = "grove crds --apply"
    ours = crds.load()
    try:
        missing, old = await _compared(client, ours)
    except Forbidden:
        # A caller without the right to read definitions can still see whether the kinds answer.
        served = await client.serves(PodCliqueSet) and await client.serves(PodGang)
        state, text = (OK, "served; their version cannot be read") if served else (FAIL, "not served")
        return [Finding("kinds", state, text, "" if served else fix)]
    if missing:
        return [Finding("kinds", FAIL, f"not installed: {', '.join(missing)}", fix)]
    if old:
        return [Finding("kinds", WARN, f"older than this program: {', '.join(old)}", fix)]
    return [Finding("kinds", OK, f"{len(ours)} kinds, up to date")]


async def dialects(client: Client, now: datetime) -> list[Finding]:
    """The CRDs of other APIs, where there are any: all are there and up to date, and a controller translates their
    objects.
    """
    known = {crd["metadata"]["name"] for crd in crds.load()}
    theirs = [crd for crd in crds.load(dialects=True) if crd["metadata"]["name"] not in known]
    missing, old = await _compared(client, theirs)
    if len(missing) == len(theirs):
        return []  # they are not wanted here
    fix = "grove crds --apply --dialects"
    findings = [Finding("dialects", WARN, f"not installed: {', '.join(missing)}", fix)] if missing else []
    findings += [Finding("dialects", WARN, f"older than this program: {', '.join(old)}", fix)] if old else []
    for kind in (PodGangSet, KoordPodCliqueSet):
        if f"{kind.RESOURCE.plural}.{kind.RESOURCE.group}" in missing:
            continue
        objects: list[Any] = list((await client.list(kind)).items)
        ignored = [
            obj.metadata.name
            for obj in objects
            if find_condition(obj.status.conditions, "Translated") is None
            and now - (obj.metadata.creation_timestamp or now) > TAKEN_UP
        ]
        if ignored:
            named = f"{', '.join(ignored[:3])}{' …' if len(ignored) > 3 else ''}"
            text = f"no controller translates {many(len(ignored), kind.RESOURCE.kind)} ({named})"
            switch = "switch the operator's dialects on (dialects.enabled; locally grove down, grove up --dialects)"
            findings.append(Finding("dialects", WARN, text, switch))
    return findings or [Finding("dialects", OK, f"{len(theirs)} kinds, up to date")]


async def _compared(client: Client, ours: list[Json]) -> tuple[list[str], list[str]]:
    """Names of the definitions that the cluster does not have, and of those that it has in an older form."""
    missing, old = [], []
    for crd in ours:
        name = crd["metadata"]["name"]
        try:
            live = await client.get(CustomResourceDefinition.RESOURCE, name)
        except NotFound:
            missing.append(name)
            continue
        if _lacks(live["spec"]["versions"][0].get("schema"), crd["spec"]["versions"][0]["schema"]):
            old.append(name)
    return sorted(missing), sorted(old)


def _lacks(live: Any, ours: Any) -> bool:
    """True if a schema lacks properties of ours. Properties that a server adds do not matter."""
    if not isinstance(ours, dict):
        return False
    if not isinstance(live, dict):
        return True
    mine, theirs = ours.get("properties"), live.get("properties")
    if isinstance(mine, dict) and (not isinstance(theirs, dict) or mine.keys() - theirs.keys()):
        return True
    return any(_lacks(live.get(key), value) for key, value in ours.items() if isinstance(value, dict) and key in live)


async def admission(client: Client, namespace: str, now: datetime) -> list[Finding]:
    """Admission: registered, trusted, with a certificate that lasts, and answering."""
    fix = "start the operator with admission (charts/grove, or grove operator --webhook-url); it registers itself"
    names = {
        MUTATING_WEBHOOK_CONFIGURATION: ("podcliqueset-defaulting-webhook",),
        VALIDATING_WEBHOOK_CONFIGURATION: ("podcliqueset-validating-webhook", "clustertopology-validating-webhook"),
    }
    findings: list[Finding] = []
    missing: list[str] = []
    place = ""
    for kind, wanted in names.items():
        there = {item["metadata"]["name"]: item for item in (await client.list(kind)).items}
        for name in wanted:
            if name not in there:
                missing.append(name)
                continue
            for hook in there[name].get("webhooks") or ():
                config = hook.get("clientConfig") or {}
                place = (config.get("service") or {}).get("namespace", "")
                findings += _trust(name, config, now)
    if missing:
        text = f"no admission: {', '.join(missing)} missing; sets are neither defaulted nor checked"
        findings.append(Finding("admission", WARN, text, fix))
    if len(missing) == sum(map(len, names.values())):
        return findings
    findings += await _certificate(client, place, now)
    findings += await _reachable(client, namespace)
    good = all(finding.state == SKIP for finding in findings)
    text = (
        "registered and trusted"
        if any(finding.state == SKIP for finding in findings)
        else "registered, trusted and answering"
    )
    return [Finding("admission", OK, text), *findings] if good else findings


def _trust(name: str, config: dict[str, Any], now: datetime) -> list[Finding]:
    fix = "restart the operator: it makes and registers a fresh certificate"
    bundle = config.get("caBundle")
    if not bundle:
        text = f"{name} has no caBundle, so the API server trusts no webhook and refuses every set"
        return [Finding("admission", FAIL, text, fix)]
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        return [Finding("admission", FAIL, f"{name}: its caBundle is no certificate", fix)]
    return _lasting(
        f"{name}: its authority", max(authorities, key=lambda authority: authority.not_valid_after_utc), now, fix
    )


def _lasting(what: str, certificate: Certificate, now: datetime, fix: str) -> list[Finding]:
    last = certificate.not_valid_after_utc
    if last <= now:
        return [Finding("admission", FAIL, f"{what} expired on {last:%Y-%m-%d}", fix)]
    if last - now < EXPIRES_SOON:
        return [Finding("admission", WARN, f"{what} expires on {last:%Y-%m-%d}", fix)]
    return []


async def _certificate(client: Client, place: str, now: datetime) -> list[Finding]:
    """The certificate that is served, from the Secret the operator keeps it in; few people may read that."""
    try:
        secrets = (await client.list(Secret.RESOURCE, place, fields=f"metadata.name={Webhooks().secret_name}")).items
    except Forbidden:
        return []
    findings: list[Finding] = []
    for secret in secrets:
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        where, fix = f"{namespace}/{name}", f"kubectl -n {namespace} delete secret {name}; restart the operator"
        try:
            chain = x509.load_pem_x509_certificates(base64.b64decode((secret.get("data") or {}).get("tls.crt", "")))
        except ValueError:
            findings.append(Finding("admission", FAIL, f"secret {where} holds no certificate", fix))
            continue
        findings += _lasting(f"the served certificate (secret {where})", chain[0], now, fix)
    return findings


async def _reachable(client: Client, namespace: str) -> list[Finding]:
    """Checks that the webhooks answer: creates a set as a dry run, which calls them and stores nothing."""
    trial = {**TRIAL, "metadata": {**TRIAL["metadata"], "namespace": namespace or "default"}}
    try:
        await client.create(PodCliqueSet.RESOURCE, trial, dry_run=True)
    except Unavailable as error:
        if "webhook" not in str(error):
            raise
        fix = "start the operator, which answers; or grove webhooks --remove, and sets go through unchecked"
        return [Finding("admission", FAIL, f"it does not answer, so no set can be written: {error}", fix)]
    except Forbidden as error:
        if "webhook" not in str(error):  # a right is missing, or something else refuses sets here
            return [Finding("admission", SKIP, f"whether it answers was not tried: {error}")]
    except ApiError:
        pass  # it was refused, so the webhook answered
    return []


BIND = "bind the ClusterRole grove:view or grove:edit to you (charts/grove, rbac-users)"
ACCESS_REVIEW = ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
_NEEDS = (
    ("list", "grove.io", "podcliquesets", "", "status, tree, explain"),
    ("list", "scheduler.grove.io", "podgangs", "", "tree, explain, queue"),
    ("list", "", "pods", "", "tree, explain"),
    ("list", "", "nodes", "", "explain, plan, topology"),
    ("patch", "grove.io", "podcliquescalinggroups", "scale", "scale"),
)


async def rights(client: Client, namespace: str) -> list[Finding]:
    """The rights of the user, command by command."""
    lacking: list[str] = []
    for verb, group, resource, sub, commands in _NEEDS:
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
        if resource != "nodes":
            attributes["namespace"] = namespace
        body = {"metadata": {}, "spec": {"resourceAttributes": attributes}}
        try:
            review = await client.create(Resource(*ACCESS_REVIEW), body)
        except NotFound:
            return [Finding("rights", SKIP, "this cluster answers no access reviews")]
        if not (review.get("status") or {}).get("allowed"):
            what = f"{resource}/{sub}" if sub else resource
            lacking.append(f"{verb} {what} (for {commands})")
    if lacking:
        return [Finding("rights", WARN, f"you may not: {'; '.join(lacking)}", BIND)]
    return [Finding("rights", OK, "every command here is open to you")]
