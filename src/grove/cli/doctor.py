"""`doctor`: is Grove installed, reachable and complete here? Every finding comes with its remedy.

Each check is one function that asks one question. A check the user has no rights for is skipped and says so; the others
still answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import RUNNING, Answer, Options, answer, cluster_command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from grove.kube.client import Client

OK, WARN, FAIL, SKIP = "ok", "warning", "failed", "skipped"
FAILED = 1
"""Exit code when a check failed; warnings are for people."""
EXPIRES_SOON = timedelta(days=7)
STALE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: str
    text: str
    fix: str = ""


@click.command()
@cluster_command()
def doctor(options: Options) -> int:
    """Check CRDs, admission, operator, scheduler, node labels and your rights; say how to mend what is wrong."""
    return answer(options, lambda client, namespace: doctor_answer(client, namespace, datetime.now(UTC)))


async def doctor_answer(client: Client, namespace: str, now: datetime) -> Answer:
    from grove.kube.errors import Forbidden

    checks: list[tuple[str, Callable[[], Awaitable[list[Finding]]]]] = [
        ("kinds", lambda: _kinds(client)),
        ("admission", lambda: _admission(client, now)),
        ("operator", lambda: _operator(client, now)),
        ("scheduler", lambda: _scheduler(client, now)),
        ("topology", lambda: _topology(client)),
        ("rights", lambda: _rights(client, namespace)),
    ]
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += await check()
        except Forbidden as error:
            found.append(Finding(name, SKIP, f"you may not look: {error}"))
        if name == "kinds" and any(one.state == FAIL for one in found):
            break  # without the kinds every other question has the same answer
    code = FAILED if any(one.state == FAIL for one in found) else RUNNING
    return Answer(found, lambda width: _paint(found, width), code)


async def _kinds(client: Client) -> list[Finding]:
    """The CRDs: served at all, and with the schema this program was made with."""
    from grove import crds
    from grove.api.core import CustomResourceDefinition
    from grove.api.podcliqueset import PodCliqueSet
    from grove.api.podgang import PodGang
    from grove.kube.errors import Forbidden, NotFound

    fix = "grove crds --apply"
    ours = {one["metadata"]["name"]: one for one in crds.load()}
    missing, old = [], []
    for name, crd in ours.items():
        try:
            live = await client.get(CustomResourceDefinition.RESOURCE, name)
        except NotFound:
            missing.append(name)
            continue
        except Forbidden:
            # Whoever may not read definitions can still see whether the kinds answer.
            served = await client.serves(PodCliqueSet) and await client.serves(PodGang)
            state, text = (OK, "served; their version cannot be read") if served else (FAIL, "not served")
            return [Finding("kinds", state, text, "" if served else fix)]
        if _lacks(live["spec"]["versions"][0].get("schema"), crd["spec"]["versions"][0]["schema"]):
            old.append(name)
    if missing:
        return [Finding("kinds", FAIL, f"not installed: {', '.join(sorted(missing))}", fix)]
    if old:
        return [Finding("kinds", WARN, f"older than this program: {', '.join(sorted(old))}", fix)]
    return [Finding("kinds", OK, f"{len(ours)} kinds, up to date")]


def _lacks(live: Any, ours: Any) -> bool:
    """Whether a schema has lost properties that ours has; what a server adds does not matter."""
    if not isinstance(ours, dict):
        return False
    if not isinstance(live, dict):
        return True
    mine, theirs = ours.get("properties"), live.get("properties")
    if isinstance(mine, dict) and (not isinstance(theirs, dict) or mine.keys() - theirs.keys()):
        return True
    return any(_lacks(live.get(key), value) for key, value in ours.items() if isinstance(value, dict) and key in live)


async def _admission(client: Client, now: datetime) -> list[Finding]:
    """The webhook configurations, and the certificate authority they trust."""
    from grove.api.core import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION

    fix = "start the operator with admission (charts/grove, or grove operator --webhook-url); it registers itself"
    names = {
        MUTATING_WEBHOOK_CONFIGURATION: ("podcliqueset-defaulting-webhook",),
        VALIDATING_WEBHOOK_CONFIGURATION: ("podcliqueset-validating-webhook", "clustertopology-validating-webhook"),
    }
    found: list[Finding] = []
    missing: list[str] = []
    for kind, wanted in names.items():
        there = {one["metadata"]["name"]: one for one in (await client.list(kind)).items}
        for name in wanted:
            if name not in there:
                missing.append(name)
                continue
            for hook in there[name].get("webhooks") or ():
                found += _trust(name, hook.get("clientConfig") or {}, now)
    if missing:
        text = f"no admission: {', '.join(missing)} missing; sets are neither defaulted nor checked"
        found.append(Finding("admission", WARN, text, fix))
    return found or [Finding("admission", OK, "registered, and its authority is valid")]


def _trust(name: str, config: dict[str, Any], now: datetime) -> list[Finding]:
    import base64

    from cryptography import x509

    fix = "restart the operator: it makes and registers a fresh certificate"
    bundle = config.get("caBundle")
    if not bundle:
        return [
            Finding("admission", FAIL, f"{name} trusts nobody (no caBundle): the API server refuses every set", fix)
        ]
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        return [Finding("admission", FAIL, f"{name}: its caBundle is no certificate", fix)]
    last = max((one.not_valid_after_utc for one in authorities), default=now)
    if last <= now:
        return [Finding("admission", FAIL, f"{name}: its authority expired on {last:%Y-%m-%d}", fix)]
    if last - now < EXPIRES_SOON:
        return [Finding("admission", WARN, f"{name}: its authority expires on {last:%Y-%m-%d}", fix)]
    return []


async def _operator(client: Client, now: datetime) -> list[Finding]:
    """The operator: somebody holds its lease or runs as its pod, and sets are being looked at."""
    from grove.api.podcliqueset import PodCliqueSet
    from grove.config import LeaderElection
    from grove.show.seen import every

    sets = await every(client, PodCliqueSet)
    behind = [
        one for one in sets
        if one.status.observed_generation != one.metadata.generation and _is_old(one.metadata.creation_timestamp, now)
    ]  # fmt: skip
    sign = await _sign_of_life(client, "grove-operator", LeaderElection().resource_name, now)
    fix = "kubectl -n grove-system get pods -l app.kubernetes.io/name=grove-operator; or run grove operator"
    if behind:
        names = ", ".join(str(one.metadata.key) for one in behind[:3])
        return [
            Finding(
                "operator", FAIL, f"{len(behind)} sets wait to be looked at ({names}); {sign or 'no sign of it'}", fix
            )
        ]
    if not sign:
        return [Finding("operator", WARN, "no sign of it: no lease is held and no pod carries its label", fix)]
    return [Finding("operator", OK, sign)]


async def _scheduler(client: Client, now: datetime) -> list[Finding]:
    """The scheduler: the same, and gangs are being answered."""
    from grove.api import conditions as words
    from grove.api import labels
    from grove.api.meta import find_condition, is_true
    from grove.api.podgang import PodGang
    from grove.scheduler.config import LeaderElection
    from grove.show.seen import every

    gangs = await every(client, PodGang)
    silent = [
        one for one in gangs
        if one.metadata.labels.get(labels.SCHEDULER_NAME, labels.GROVE_SCHEDULER) == labels.GROVE_SCHEDULER
        and is_true(one.status.conditions, words.INITIALIZED)
        and find_condition(one.status.conditions, words.SCHEDULED) is None
        and _is_old(one.metadata.creation_timestamp, now)
    ]  # fmt: skip
    sign = await _sign_of_life(client, "grove-scheduler", LeaderElection().resource_name, now)
    fix = "kubectl -n grove-system get pods -l app.kubernetes.io/name=grove-scheduler; or run grove scheduler"
    if silent:
        text = f"{len(silent)} complete gangs have had no answer for a minute; {sign or 'no sign of the scheduler'}"
        return [Finding("scheduler", FAIL, text, fix)]
    if not sign:
        return [Finding("scheduler", WARN, "no sign of it: no lease is held and no pod carries its label", fix)]
    return [Finding("scheduler", OK, sign)]


def _is_old(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since > STALE


async def _sign_of_life(client: Client, app: str, lease_name: str, now: datetime) -> str:
    from grove.api.core import Lease, Pod
    from grove.api.labels import NAME
    from grove.kube.errors import Forbidden

    try:
        for lease in (await client.list(Lease)).items:
            if lease.metadata.name != lease_name or lease.spec.renew_time is None or not lease.spec.holder_identity:
                continue
            quiet = now - lease.spec.renew_time
            if quiet < timedelta(seconds=2 * (lease.spec.lease_duration_seconds or 15)):
                return f"{lease.spec.holder_identity} leads"
    except Forbidden:
        pass
    pods = [one for one in (await client.list(Pod, labels=f"{NAME}={app}")).items if one.is_ready]
    return f"{len(pods)} ready pods" if pods else ""


async def _topology(client: Client) -> list[Finding]:
    """Every level's label on every node that has accelerators, and schedulers that agree about the levels."""
    from grove.api import conditions as words
    from grove.api.core import Node
    from grove.api.meta import is_true
    from grove.api.topology import ClusterTopologyBinding
    from grove.show.layout import accelerator
    from grove.show.seen import every

    bindings = await every(client, ClusterTopologyBinding)
    nodes = await every(client, Node)
    if not bindings:
        text = "no ClusterTopologyBinding: gangs cannot ask for racks or blocks"
        return [Finding("topology", WARN, text, "create one that names your node labels (docs, samples)")]
    resource = accelerator(nodes)
    loaded = [one for one in nodes if one.status.allocatable.get(resource) not in (None, "0", 0)] or nodes
    found: list[Finding] = []
    for binding in bindings:
        for level in binding.spec.levels:
            lacking = [one.metadata.name for one in loaded if level.key not in one.metadata.labels]
            if lacking:
                names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
                text = f"{binding.metadata.name}: {len(lacking)} of {len(loaded)} nodes lack {level.key} ({names})"
                fix = f"kubectl label node {lacking[0]} {level.key}=…"
                found.append(Finding("topology", WARN, text, fix))
        if is_true(binding.status.conditions, words.SCHEDULER_TOPOLOGY_DRIFT):
            text = f"{binding.metadata.name} and a scheduler's own topology differ"
            found.append(Finding("topology", WARN, text, f"kubectl describe ctb {binding.metadata.name}"))
    return found or [Finding("topology", OK, f"{len(bindings)} bindings, {len(loaded)} nodes labelled")]


ACCESS_REVIEW = ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
_NEEDS = (
    ("list", "grove.io", "podcliquesets", "", "status, tree, explain"),
    ("list", "scheduler.grove.io", "podgangs", "", "tree, explain, queue"),
    ("list", "", "pods", "", "tree, explain"),
    ("list", "", "nodes", "", "explain, plan, topology"),
    ("patch", "grove.io", "podcliquescalinggroups", "scale", "scale"),
)


async def _rights(client: Client, namespace: str) -> list[Finding]:
    """What the user may do, command by command."""
    from grove.api.meta import Resource
    from grove.kube.errors import NotFound

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
        fix = "bind the ClusterRole grove:view or grove:edit to you (charts/grove, rbac-users)"
        return [Finding("rights", WARN, f"you may not: {'; '.join(lacking)}", fix)]
    return [Finding("rights", OK, "every command here is open to you")]


def _paint(found: Iterable[Finding], width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from grove.show.columns import indented

    styles = {OK: ("✔", "green"), WARN: ("!", "yellow"), FAIL: ("✖", "bold red"), SKIP: ("-", "dim")}
    parts: list[RenderableType] = []
    for one in found:
        mark, style = styles[one.state]
        line = Text(f"{mark} ", style=style)
        line.append(f"{one.check}: ", style="bold")
        line.append(one.text)
        parts.append(line)
        if one.fix:
            parts += indented(f"→ {one.fix}", width)
    return Group(*parts)
