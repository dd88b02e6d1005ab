"""What docs/security.md claims, asked of a real API server: what a stolen token allows, what a tenant reaches.

The chart's roles with every option on are applied; what an account may do is asked by SubjectAccessReview, what a
tenant gets is tried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
import pytest
from tests.rbac.rights import accounts, documents
from tests.support.manifests import clique, pcs
from tests.support.waiting import eventually, nothing_missing

from grove.api.core import SUBJECT_ACCESS_REVIEW, Event, Namespace, Pod
from grove.api.meta import Json, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.config import load_configuration
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, Forbidden
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.operator.shared.children import wanted_access
from grove.operator.wiring import Operator

pytestmark = pytest.mark.real

ACCOUNTS = accounts(documents())
CONSOLE = "system:serviceaccount:grove-system:grove-console"
KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
RBAC = "rbac.authorization.k8s.io"
KNOWN_S = 60.0
"""The server's authorizer follows roles by a watch of its own: what one allows is known a moment after it is there."""
T = TypeVar("T")


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[HttpClient]:
    """An administrator of a cluster in which the chart's accounts and roles are."""
    async with HttpClient(load_config(control_plane.kubeconfig)) as client:
        objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "grove-system"}}]
        objects += [one for one in documents() if one["kind"] in KINDS]
        for one in objects:
            group_, _, version = one["apiVersion"].rpartition("/")
            plural, namespaced = f"{one['kind'].lower()}s", "namespace" in one["metadata"]
            try:
                await client.create(Resource(group_, version, one["kind"], plural, namespaced), one)
            except AlreadyExists:
                pass
        yield client


@pytest.fixture
async def team(admin: HttpClient, fresh_name: str) -> AsyncIterator[str]:
    await admin.create(Namespace, {"metadata": {"name": fresh_name}})
    yield fresh_name
    await admin.delete(Namespace, fresh_name)


async def may(admin: HttpClient, user: str, verb: str, what: str, namespace: str = "team", name: str = "") -> bool:
    """`what` as `group/resource/subresource`."""
    group_, _, resource = what.partition("/")
    resource, _, subresource = resource.partition("/")
    asked = {
        "verb": verb,
        "group": group_,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    _, _, account = user.partition("system:serviceaccount:")
    groups = ["system:authenticated"]
    if account:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{account.partition(':')[0]}"]
    spec = {"user": user, "groups": groups, "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    answer: Json = await admin.create(SUBJECT_ACCESS_REVIEW, review)
    return bool(answer["status"]["allowed"])


WEBHOOKS = "admissionregistration.k8s.io/validatingwebhookconfigurations"
STOLEN: list[tuple[str, str, str, str, str, bool]] = [
    # Who, verb, what, namespace, name: what the page says of a stolen token.
    ("operator", "create", "/pods", "team", "", True),
    ("operator", "list", "/secrets", "team", "", True),
    ("operator", "create", "/pods/exec", "team", "", False),
    ("operator", "get", "/pods/log", "team", "", False),
    ("operator", "delete", "grove.io/podcliquesets", "team", "", True),  # for dialects, which keep sets of their own
    ("operator", "create", "/serviceaccounts/token", "team", "", False),
    ("operator", "impersonate", "/users", "", "", False),
    ("operator", "escalate", f"{RBAC}/roles", "team", "", False),
    ("operator", "bind", f"{RBAC}/roles", "team", "", False),
    ("operator", "create", f"{RBAC}/clusterrolebindings", "", "", False),
    ("operator", "patch", "/nodes", "", "", False),
    ("operator", "delete", "/namespaces", "", "", False),
    ("operator", "patch", WEBHOOKS, "", "podcliqueset-validating-webhook", True),
    ("operator", "patch", WEBHOOKS, "", "somebody-elses", False),
    ("operator", "patch", "apiextensions.k8s.io/customresourcedefinitions", "", "podgangs.scheduler.grove.io", True),
    ("operator", "patch", "apiextensions.k8s.io/customresourcedefinitions", "", "somebody.elses", False),
    ("scheduler", "create", "/pods/binding", "team", "", True),
    ("scheduler", "delete", "/pods", "team", "", True),
    ("scheduler", "create", "/pods", "team", "", False),
    ("scheduler", "get", "/secrets", "team", "", False),
    ("scheduler", "list", "/configmaps", "team", "", False),
    ("scheduler", "patch", "grove.io/podcliquesets", "team", "", False),
    ("scheduler", "patch", "/nodes", "", "", False),
    ("metrics", "list", "/pods", "team", "", True),
    ("metrics", "patch", "/pods", "team", "", False),
    ("metrics", "get", "/secrets", "team", "", False),
    ("metrics", "patch", "apiregistration.k8s.io/apiservices", "", "v1.somebody.else", False),
    ("console", "list", "/pods", "team", "", False),
    ("console", "get", "grove.io/podcliquesets", "team", "", False),
    ("console", "get", "/secrets", "grove-system", "", False),
    ("uninstall", "delete", WEBHOOKS, "", "podcliqueset-validating-webhook", True),
    ("uninstall", "delete", WEBHOOKS, "", "somebody-elses", False),
    ("uninstall", "list", "/pods", "team", "", False),
]


async def test_a_stolen_token_allows_what_the_page_says(admin: HttpClient) -> None:
    async def wrong() -> str:
        found = []
        for who, verb, what, namespace, name, allowed in STOLEN:
            user = CONSOLE if who == "console" else ACCOUNTS[who]
            if await may(admin, user, verb, what, namespace, name) is not allowed:
                found.append(f"{who} {verb} {what} {namespace} {name}")
        return ", ".join(found)

    await nothing_missing(wrong, KNOWN_S)


async def test_the_token_of_an_init_container_reads_pods_of_its_namespace_and_nothing_else(
    admin: HttpClient, team: str
) -> None:
    ordered = pcs("chat", clique("a"), clique("b"), namespace=team, startup="CliqueStartupTypeInOrder")
    made = msgspec.convert((await admin.create(PodCliqueSet.RESOURCE, ordered)), PodCliqueSet, strict=False)
    for one in wanted_access(made):
        group_, _, version = one["apiVersion"].rpartition("/")
        await admin.create(Resource(group_, version, one["kind"], f"{one['kind'].lower()}s"), one)
    user = f"system:serviceaccount:{team}:chat"
    await eventually(lambda: may(admin, user, "get", "/pods", team), KNOWN_S)
    allowed = {
        (verb, what)
        for verb in ("get", "list", "watch", "create", "patch", "delete")
        for what in ("/pods", "/secrets", "/configmaps", "/serviceaccounts", "/pods/exec", "grove.io/podcliquesets")
        if await may(admin, user, verb, what, team)
    }
    assert allowed == {("get", "/pods"), ("list", "/pods"), ("watch", "/pods")}
    assert not await may(admin, user, "list", "/pods", "default")
    await admin.patch(PodCliqueSet, "chat", {"metadata": {"finalizers": None}}, team)


@pytest.fixture
async def tenant(control_plane: ControlPlane, admin: HttpClient, team: str) -> AsyncIterator[HttpClient]:
    """A user who may edit one namespace: the rights of Kubernetes' own role, and those that the chart adds to it."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    who = {"apiGroup": RBAC, "kind": "User", "name": f"jane-{team}"}
    binding = {"metadata": {"name": "jane", "namespace": team}, "roleRef": role, "subjects": [who]}
    await admin.create(Resource(RBAC, "v1", "RoleBinding", "rolebindings"), binding)
    async with HttpClient(load_config(control_plane.client_kubeconfig(f"jane-{team}"))) as client:
        # The controller that aggregates roles is at work.
        await eventually(lambda: may(admin, f"jane-{team}", "create", "grove.io/podcliquesets", team))
        yield client


async def test_a_tenant_writes_sets_of_its_namespace_and_none_of_what_grove_makes_of_them(
    tenant: HttpClient, team: str
) -> None:
    await tenant.create(PodCliqueSet, pcs("chat", clique("a"), namespace=team))
    await tenant.patch(PodCliqueSet, "chat", {"spec": {"replicas": 2}}, team)
    refused = []
    for kind, obj in (
        (PodCliqueSet, pcs("chat", clique("a"), namespace="default")),
        (PodClique, {"metadata": {"name": "c", "namespace": team}, "spec": {"roleName": "a", "podSpec": {}}}),
        (PodGang, {"metadata": {"name": "g", "namespace": team}, "spec": {"podgroups": []}}),
        (ClusterTopologyBinding, {"metadata": {"name": f"t-{team}"}, "spec": {"levels": []}}),
    ):
        try:
            await tenant.create(kind, obj)
        except Forbidden:
            refused.append(kind)
    assert refused == [PodCliqueSet, PodClique, PodGang, ClusterTopologyBinding]
    with pytest.raises(Forbidden):
        await tenant.patch(PodCliqueSet, "chat", {"status": {"replicas": 9}}, team, subresource="status")
    await tenant.delete(PodCliqueSet, "chat", team)


async def test_a_pod_that_its_namespace_forbids_is_not_made_for_a_tenant_either(
    admin: HttpClient, tenant: HttpClient, team: str
) -> None:
    """Pods are made in the tenant's namespace, so its PodSecurity level, quotas and policies hold for them."""
    await admin.patch(Namespace, team, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    root = {"containers": [{"name": "main", "image": "x", "securityContext": {"privileged": True}}]}

    async def is_forbidden() -> bool:
        try:
            await admin.create(Pod, {"metadata": {"name": "root", "namespace": team}, "spec": root}, dry_run=True)
        except Forbidden as error:
            return "PodSecurity" in str(error)
        return False

    await eventually(is_forbidden)  # the label is known to the server's admission a moment later
    wanted = pcs("root", clique("a"), namespace=team, groups=[])
    wanted["spec"]["template"]["cliques"][0]["spec"]["podSpec"] = root
    await tenant.create(PodCliqueSet, wanted)
    config = load_configuration("scheduler: {profiles: [{name: default-scheduler}]}\n")
    async with Operator(admin, config, namespace=team).running():

        async def refusal() -> str:
            events = (await admin.list(Event, team)).items
            return next((one.message for one in events if "PodSecurity" in one.message), "")

        assert "privileged" in await eventually(refusal)
        assert (await admin.list(Pod, team)).items == []
        await tenant.delete(PodCliqueSet, "root", team)

        async def is_gone() -> bool:
            return not (await admin.list(PodCliqueSet, team)).items

        await eventually(is_gone)
