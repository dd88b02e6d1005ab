"""Admission behind a real API server: what kubectl shows, what is stored, and that nothing fails while keys change."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from tests.support.faulty_sets import COLLISIONS, ROWS, SHAPES
from tests.support.manifests import clique, pcs, pod_spec
from tests.support.mutants import mutated
from tests.support.reviews import binding, changed, plain, schedulers
from tests.support.waiting import eventually

from grove.admission.certs.authority import Bundle, Lifetimes, renewed
from grove.admission.rules.authorizer import Authorizer, exempt_users
from grove.admission.rules.review import Admission
from grove.admission.serving.service import WebhookService, WebhookSettings
from grove.admission.serving.wiring import user_of
from grove.api.core import (
    VALIDATING_WEBHOOK_CONFIGURATION,
    Namespace,
    Pod,
    ResourceClaimTemplate,
    Role,
    RoleBinding,
    Secret,
    Service,
)
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import ApiError, Forbidden, Invalid, KubeError
from grove.kube.http import HttpClient
from grove.kube.tracing import Span, Traces
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports

SET = PodCliqueSet.RESOURCE
T = "spec.template"
OPERATOR = "system:serviceaccount:grove-system:grove-operator"
SECRET = "grove-webhook-server-cert"
TWICE = changed(binding("probe"), ("spec.levels.1.domain", "zone"))


class Kubectl(NamedTuple):
    """What a person at a terminal sees."""

    code: int
    out: str
    err: str


class Admitted:
    """A namespace on an API server that asks our webhooks."""

    def __init__(
        self, plane: ControlPlane, client: HttpClient, service: WebhookService, namespace: str, spans: list[Span]
    ) -> None:
        self.plane, self.client, self.service, self.namespace = plane, client, service, namespace
        self.spans = spans

    async def kubectl(self, *arguments: str, stdin: str = "", user: str = "") -> Kubectl:
        config = self.plane.client_kubeconfig(user, ["system:masters"]) if user else self.plane.kubeconfig
        child = await asyncio.create_subprocess_exec(
            self.plane.kubectl,
            "--kubeconfig",
            config,
            "-n",
            self.namespace,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate(stdin.encode())
        return Kubectl(child.returncode or 0, out.decode(), err.decode())

    async def apply(self, *objects: Json, options: tuple[str, ...] = ()) -> Kubectl:
        return await self.kubectl("apply", *options, "-f", "-", stdin=yaml.safe_dump_all(objects))

    def own(self, obj: Json) -> Json:
        """The object as a manifest of this namespace."""
        kind = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet"}
        return {**kind, **changed(obj, ("metadata.namespace", self.namespace))}


ADMISSION = Admission(
    topology_enabled=True,
    backends=schedulers("default-scheduler", "kai-scheduler", "volcano"),
    authorizer=Authorizer(frozenset({OPERATOR}), exempt_users("grove-system")),
)


@pytest.fixture
async def admitted(control_plane: ControlPlane, client: HttpClient, fresh_name: str) -> AsyncIterator[Admitted]:
    """Our webhooks registered by URL; gone again afterwards, for the API server is shared."""
    await client.create(Namespace, {"metadata": {"name": fresh_name}})
    (port,) = free_ports(1)
    settled = WebhookSettings(namespace=fresh_name, host="127.0.0.1", port=port, url=f"https://127.0.0.1:{port}")
    spans: list[Span] = []
    service = WebhookService(client, ADMISSION, settled, traces=Traces(spans.append))
    await service.start()
    keeping = asyncio.gather(service.run(), service.lead())
    try:
        # An API server uses configurations a moment after it stores them.
        await eventually(lambda: is_guarded(client, fresh_name))
        yield Admitted(control_plane, client, service, fresh_name, spans)
    finally:
        # Configurations first, while the server still answers: others write sets to this API server too.
        await service.registration.withdraw()
        await eventually(lambda: is_forgotten(client))
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await client.delete(Namespace, fresh_name)


async def is_guarded(client: HttpClient, namespace: str) -> bool:
    """Whether the API server asks us: what only our rules refuse is refused, and the defaults are there."""
    bare = {"metadata": {"name": "probe", "namespace": namespace}, "spec": {"template": {"cliques": [clique("a")]}}}
    try:
        stored = await client.create(SET, bare, dry_run=True)
    except KubeError:
        return False
    bad = pcs("probe", clique("a"), namespace=namespace, termination_delay="-1s")
    return (
        bool(stored["spec"]["template"].get("terminationDelay"))
        and await is_refused(client.create(SET, bad, dry_run=True))
        and await is_refused(client.create(ClusterTopologyBinding, TWICE, dry_run=True))
    )


async def is_refused(write: Awaitable[object]) -> bool:
    try:
        await write
    except (Forbidden, Invalid):
        return True
    except KubeError:
        pass
    return False


async def is_forgotten(client: HttpClient) -> bool:
    """Whether the API server has stopped asking us."""
    try:
        await client.create(SET, pcs("probe", clique("a"), termination_delay="-1s"), dry_run=True)
        await client.create(ClusterTopologyBinding, TWICE, dry_run=True)
    except KubeError:
        return False
    return True


# What a person sees


async def test_kubectl_shows_every_fault_on_its_own_line(admitted: Admitted) -> None:
    bad = changed(
        plain(),
        (f"{T}.cliques.0.spec.minAvailable", 9),
        (f"{T}.terminationDelay", "-1s"),
        (f"{T}.cliques.1.spec.podSpec.containers", []),
    )
    seen = await admitted.apply(admitted.own(bad))
    assert seen.code == 1
    assert seen.err.splitlines() == [
        'The PodCliqueSet "demo" is invalid: ',
        f"* {T}.cliques[0].spec.minAvailable: Invalid value: 9: must not be greater than replicas (2)",
        f'* {T}.terminationDelay: Invalid value: "-1s": must be greater than 0',
        f"* {T}.cliques[1].spec.podSpec.containers: Required value: at least one container is required",
    ]
    assert (await admitted.client.list(PodCliqueSet, admitted.namespace)).items == []


async def test_kubectl_shows_which_clique_has_the_legacy_field(admitted: Admitted) -> None:
    bad = changed(plain(), (f"{T}.cliques.1.topologyConstraint", {"topologyName": "t", "packDomain": "rack"}))
    seen = await admitted.apply(admitted.own(bad))
    assert (seen.code, seen.err.splitlines()) == (
        1,
        [
            f'The PodCliqueSet "demo" is invalid: {T}.cliques[1].topologyConstraint.packDomain: Forbidden: '
            "packDomain is deprecated and cannot be used on new workloads; use pack.required"
        ],
    )


async def test_a_server_side_dry_run_shows_the_defaults_and_stores_nothing(admitted: Admitted) -> None:
    sent = admitted.own({"metadata": {"name": "demo"}, "spec": {"template": {"cliques": [clique("a", 3)]}}})
    del sent["spec"]["template"]["cliques"][0]["spec"]["minAvailable"]
    seen = await admitted.apply(sent, options=("--dry-run=server", "-o", "json"))
    assert seen.code == 0, seen.err
    shown = json.loads(seen.out)["spec"]
    assert shown["replicas"] == 0
    assert shown["template"]["terminationDelay"] == "4h0m0s"
    assert shown["template"]["headlessServiceConfig"] == {"publishNotReadyAddresses": True}
    assert shown["template"]["cliques"][0]["spec"]["minAvailable"] == 3
    assert (await admitted.client.list(PodCliqueSet, admitted.namespace)).items == []


async def test_applying_again_changes_nothing(admitted: Admitted) -> None:
    sent = admitted.own({"metadata": {"name": "demo"}, "spec": {"template": {"cliques": [clique("a", 3)]}}})
    first = await admitted.apply(sent)
    assert first.out == "podcliqueset.grove.io/demo created\n", first.err
    assert (await admitted.apply(sent)).out == "podcliqueset.grove.io/demo unchanged\n"


async def test_the_review_of_a_new_set_is_in_the_trace_of_the_set(admitted: Admitted) -> None:
    admitted.spans.clear()
    assert (await admitted.apply(admitted.own(plain()), options=("--dry-run=server",))).code == 0
    assert admitted.spans == [], "a dry run stores no set"
    assert (await admitted.apply(admitted.own(plain()))).code == 0
    stored = await admitted.client.get(SET, "demo", admitted.namespace)
    (span,) = admitted.spans
    assert (span.uid, span.name, span.attributes) == (stored["metadata"]["uid"], "admission", {"operation": "CREATE"})


async def test_kubectl_shows_warnings(admitted: Admitted) -> None:
    seen = await admitted.apply(admitted.own(pcs("demo", clique("a", restartPolicy="Never"))))
    assert seen.code == 0, seen.err
    assert seen.err.startswith(f"Warning: {T}.cliques[0].spec.podSpec.restartPolicy: with Never a container")


async def test_a_binding_and_its_set_in_one_file(admitted: Admitted) -> None:
    name = f"topology-{admitted.namespace}"
    rack = {"topologyName": name, "pack": {"required": "rack"}}
    try:
        seen = await admitted.apply(binding(name), admitted.own(pcs("demo", clique("a"), topologyConstraint=rack)))
        assert seen.code == 0, seen.err
        twice = changed(binding(name), ("spec.levels.1.domain", "zone"))
        refused = await admitted.apply(twice)
        assert 'spec.levels[1].domain: Duplicate value: "zone": also at levels[0]' in refused.err
    finally:
        await admitted.client.delete(ClusterTopologyBinding, name)


# The rules, through the API server


OURS = 'admission webhook "pcs.validating.webhooks.grove.io" denied the request'
# What the API server fills in itself never reaches the rules that would miss it.
NOT_REACHED = "a namespace is required"
REACHED = [row for row in (*SHAPES, *ROWS) if "after defaulting" not in str(row.id) and row.id != NOT_REACHED]


async def told(write: Awaitable[object]) -> tuple[list[str], bool]:
    """The faults of a write that must be refused, and whether it was our webhook that refused it."""
    try:
        await write
    except ApiError as refused:
        causes = refused.details.get("causes") or []
        if refused.code >= 500:
            causes = [{"field": str(refused.code), "message": str(refused)}]
        return [f"{cause.get('field')}: {cause.get('message')}" for cause in causes], str(refused).startswith(OURS)
    return ["admitted"], True


async def test_every_broken_rule_is_refused_on_creation(admitted: Admitted) -> None:
    """One test for the whole table: registering webhooks for each row would take longer than all the rows."""
    wrong: list[str] = []
    ours = 0
    for row in (*REACHED, *COLLISIONS):
        obj, want = row.values
        sent = changed(obj, ("metadata.namespace", admitted.namespace))
        found, is_ours = await told(admitted.client.create(SET, sent, dry_run=True))
        ours += is_ours
        if is_ours and found != want:
            wrong.append(f"{row.id}: {found}")
    assert wrong == []
    # The others are refused by the schema, before we are asked.
    assert ours >= 50


async def test_every_broken_rule_is_refused_on_update(admitted: Admitted) -> None:
    await admitted.client.create(SET, changed(plain(), ("metadata.namespace", admitted.namespace)))
    wrong: list[str] = []
    ours = 0
    for row in REACHED:
        obj, want = row.values
        if obj["metadata"]["name"] != "demo":
            continue
        patch = [{"op": "replace", "path": "/spec", "value": obj["spec"]}]
        patch += [
            {"op": "add", "path": f"/metadata/{field}", "value": obj["metadata"][field]}
            for field in ("labels", "annotations")
            if field in obj["metadata"]
        ]
        write = admitted.client.patch(SET, "demo", patch, admitted.namespace, dry_run=True)
        found, is_ours = await told(write)
        ours += is_ours
        # The stored set is another one, so the answer also names what cannot change.
        if is_ours and not set(want) <= set(found):
            wrong.append(f"{row.id}: {found}")
    assert wrong == []
    assert ours >= 50


async def test_what_cannot_change_does_not(admitted: Admitted) -> None:
    stored = admitted.own(plain())
    assert (await admitted.apply(stored)).code == 0
    seen = await admitted.apply(changed(stored, (f"{T}.cliques.0.spec.roleName", "other")))
    assert seen.code == 1
    assert f'{T}.cliques[0].spec.roleName: Invalid value: "other": field is immutable' in seen.err
    scaled = await admitted.kubectl("scale", "podcliqueset/demo", "--replicas=3")
    assert scaled.code == 0, scaled.err
    assert (await admitted.client.get(PodCliqueSet, "demo", admitted.namespace)).spec.replicas == 3


async def test_any_set_gets_an_answer_and_none_breaks_the_webhook(admitted: Admitted) -> None:
    broken: list[str] = []
    objects: list[Json] = []

    @settings(max_examples=150, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(obj=mutated())
    def gather(obj: Json) -> None:
        objects.append(obj)

    gather()
    for obj in objects:
        try:
            sent = changed(obj, ("metadata.namespace", admitted.namespace))
            await admitted.client.create(SET, sent, dry_run=True)
        except ApiError as refused:
            if refused.code >= 500 or "failed calling webhook" in str(refused):
                broken.append(str(refused))
        except (TypeError, ValueError, AttributeError, KeyError):
            continue  # not an object that a client can even send
    assert broken == []
    assert len(objects) >= 100


# Managed objects


async def test_managed_objects_are_for_the_operator(admitted: Admitted) -> None:
    client, namespace = admitted.client, admitted.namespace
    await client.create(SET, changed(plain(), ("metadata.namespace", namespace)))
    labels = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "demo"}
    metadata = {"name": "demo-0", "namespace": namespace, "labels": labels}
    await client.create(Service, {"metadata": metadata, "spec": {"clusterIP": "None"}})
    await client.create(Pod, {"metadata": metadata, "spec": pod_spec()})
    child = {"metadata": metadata, "spec": {"roleName": "a", "replicas": 1, "podSpec": pod_spec()}}
    await eventually(lambda: is_refused(client.create(PodClique, child, dry_run=True)))  # registered after the others

    with pytest.raises(Forbidden, match="create of PodClique demo-0 is denied for user"):
        await client.create(PodClique, child)
    with pytest.raises(Forbidden, match="delete of Service demo-0 is denied for user"):
        await client.delete(Service, "demo-0", namespace)
    with pytest.raises(Forbidden, match="update of Pod demo-0 is denied for user"):
        await client.patch(Pod, "demo-0", {"metadata": {"labels": {"a": "b"}}}, namespace)
    seen = await admitted.kubectl("label", "service/demo-0", "a=b")
    assert 'admission webhook "authorizer.webhooks.grove.io" denied the request: update of Service demo-0' in seen.err

    async with HttpClient(load_config(admitted.plane.client_kubeconfig(OPERATOR, ["system:masters"]))) as operator:
        await operator.create(PodClique, child)
        await operator.patch(Pod, "demo-0", {"metadata": {"labels": {"a": "b"}}}, namespace)
    scaled = await admitted.kubectl("scale", "podclique/demo-0", "--replicas=2")
    assert scaled.code == 0, scaled.err
    await client.delete(Pod, "demo-0", namespace, grace_period_s=0)

    switch = {"metadata": {"annotations": {"grove.io/disable-managed-resource-protection": "true"}}}
    await client.patch(SET, "demo", switch, namespace)
    await client.delete(Service, "demo-0", namespace)
    await client.delete(PodClique, "demo-0", namespace)


# Certificates


async def test_a_rotation_under_load_fails_no_request(admitted: Admitted) -> None:
    failures: list[str] = []
    served, done = 0, False

    async def ask() -> None:
        nonlocal served
        obj = changed(plain(), ("metadata.namespace", admitted.namespace))
        while not done:
            try:
                await admitted.client.create(SET, obj, dry_run=True)
            except KubeError as error:
                failures.append(str(error))
            served += 1

    async def is_published(before: bytes | None) -> bool:
        return admitted.service.registration.ca_bundle != before

    async def grew_by(since: int) -> bool:
        return served >= since + 40

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(ask())
        for _ in range(2):
            before = admitted.service.registration.ca_bundle
            await rotate(admitted)
            await eventually(lambda before=before: is_published(before))
            await eventually(lambda since=served: grew_by(since))
        done = True
    assert failures == []


async def rotate(admitted: Admitted) -> None:
    """A new authority in the Secret, as a replica writes it when the old one nears its end."""
    secret = await admitted.client.get(Secret, SECRET, admitted.namespace)
    current = Bundle.from_secret({name: base64.b64decode(value) for name, value in secret.data.items()})
    names = WebhookSettings(namespace=admitted.namespace, url="https://127.0.0.1").names
    made = renewed(current, names, SYSTEM.now(), Lifetimes(authority_renewal=timedelta(days=4000)))
    assert made is not None
    data = {name: base64.b64encode(value).decode() for name, value in made.to_secret().items()}
    await admitted.client.patch(Secret, SECRET, {"data": data}, admitted.namespace)


async def test_a_wrong_ca_is_healed(admitted: Admitted) -> None:
    client, name = admitted.client, "podcliqueset-validating-webhook"
    stored = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, name)
    right = stored["webhooks"][0]["clientConfig"]["caBundle"]
    other = renewed(None, ("elsewhere",), SYSTEM.now())
    assert other is not None
    stored["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(other.authorities).decode()
    await client.patch(VALIDATING_WEBHOOK_CONFIGURATION, name, {"webhooks": stored["webhooks"]})

    async def healed() -> bool:
        found = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, name)
        return bool(found["webhooks"][0]["clientConfig"]["caBundle"] == right)

    await eventually(healed)
    await eventually(lambda: is_guarded(client, admitted.namespace))


async def test_two_replicas_share_one_certificate(admitted: Admitted) -> None:
    (port,) = free_ports(1)
    second = WebhookService(
        admitted.client,
        ADMISSION,
        WebhookSettings(
            namespace=admitted.namespace,
            host="127.0.0.1",
            port=port,
            url=f"https://127.0.0.1:{admitted.service.server.port}",
        ),
    )
    await second.start()
    try:
        assert second.registration.ca_bundle == admitted.service.registration.ca_bundle
        assert await is_guarded(admitted.client, admitted.namespace)
    finally:
        await second.stop()


async def test_a_client_can_be_asked_who_it_is(control_plane: ControlPlane) -> None:
    async with HttpClient(load_config(control_plane.client_kubeconfig("jane", ["system:masters"]))) as jane:
        assert await user_of(jane) == "jane"


async def test_a_claim_template_of_another_namespace_is_for_those_who_may_read_it(
    admitted: Admitted, client: HttpClient, fresh_name: str
) -> None:
    """A tenant who may edit one namespace does not reach into another through us."""
    infra = f"{fresh_name}-infra"
    await client.create(Namespace, {"metadata": {"name": infra}})
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}}
    await client.create(ResourceClaimTemplate.RESOURCE, {"metadata": {"name": "gpu", "namespace": infra}, "spec": spec})
    edit = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    jane = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    bound = {"metadata": {"name": "jane", "namespace": fresh_name}, "roleRef": edit, "subjects": [jane]}
    await client.create(RoleBinding, bound)
    share = [{"name": "gpu", "namespace": infra, "scope": "AllReplicas"}]
    wanted = changed(plain(), ("metadata.namespace", fresh_name), (f"{T}.resourceSharing", share))
    try:
        async with HttpClient(load_config(admitted.plane.client_kubeconfig("jane"))) as tenant:
            own = changed(plain(), ("metadata.namespace", fresh_name))
            await eventually(lambda: tenant.create(SET, own, dry_run=True))  # the authorizer has the binding
            with pytest.raises(Invalid, match=f"may not get resourceclaimtemplates/gpu in namespace {infra}"):
                await tenant.create(SET, wanted)
            rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["get"]}
            await client.create(Role, {"metadata": {"name": "reader", "namespace": infra}, "rules": [rule]})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
            meta = {"name": "jane", "namespace": infra}
            await client.create(RoleBinding, {"metadata": meta, "roleRef": role, "subjects": [jane]})

            async def is_admitted() -> bool:
                try:
                    return bool(await tenant.create(SET, wanted, dry_run=True))
                except Invalid:
                    return False  # the authorizer gets a binding a moment later

            await eventually(is_admitted)
    finally:
        await client.delete(Namespace, infra)


@pytest.mark.parametrize(
    "options", [pytest.param((), id="three-way"), pytest.param(("--server-side",), id="server-side")]
)
async def test_kubectl_diff_finds_nothing_after_defaults(admitted: Admitted, options: tuple[str, ...]) -> None:
    """As GitOps tools compare: what was applied, again, by the API server and its admission."""
    w = clique("w", scale={"maxReplicas": 4})
    del w["spec"]["minAvailable"], w["spec"]["podSpec"]["restartPolicy"]
    manifest = admitted.own(pcs("chat", clique("front"), w, groups=[]))
    assert (await admitted.apply(manifest, options=options)).code == 0
    stored = await admitted.client.get(SET, "chat", admitted.namespace)
    assert stored["spec"]["template"]["cliques"][1]["spec"]["minAvailable"] == 1, "admission filled it in"
    found = await admitted.kubectl("diff", *options, "-f", "-", stdin=yaml.safe_dump(manifest))
    assert (found.code, found.out) == (0, ""), found
    assert (await admitted.apply(manifest, options=options)).code == 0
    again = await admitted.client.get(SET, "chat", admitted.namespace)
    assert again["metadata"]["generation"] == stored["metadata"]["generation"]


async def test_a_manifest_that_loses_its_replicas_has_a_warning(admitted: Admitted) -> None:
    """kubectl removes the field, and the schema's default is 0."""
    manifest = admitted.own(pcs("chat", clique("w"), replicas=2))
    assert (await admitted.apply(manifest)).code == 0
    del manifest["spec"]["replicas"]
    said = await admitted.apply(manifest)
    assert said.code == 0
    assert "Warning: spec.replicas: with 0 replicas the operator deletes all pods of the set" in said.err, said
    stored = await admitted.client.get(SET, "chat", admitted.namespace)
    assert stored["spec"]["replicas"] == 0
