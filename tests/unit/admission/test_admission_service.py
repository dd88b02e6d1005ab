"""Admission served: certificates shared by replicas, configurations created and healed, answers to everything."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.manifests import clique, pcs
from tests.support.reviews import binding, changed, plain, review_of

from grove.admission.certs.authority import Bundle, Lifetimes, renewed
from grove.admission.rules.authorizer import Authorizer, exempt_users
from grove.admission.rules.lookups import Known, Needs
from grove.admission.rules.review import AUTHORIZE, DEFAULT_SET, VALIDATE_BINDING, VALIDATE_SET, Admission
from grove.admission.serving import server as server_module
from grove.admission.serving import service as service_module
from grove.admission.serving.hooks import sim_hooks
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import Registration, ServiceAddress, UrlAddress, configurations, healing_patch
from grove.admission.serving.server import LARGEST_BODY, WebhookServer
from grove.admission.serving.service import CertificateModeError, WebhookService, WebhookSettings
from grove.api.core import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Secret, Service
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.clock import SYSTEM
from grove.kube.errors import Forbidden, Invalid
from grove.kube.tracing import Span, Traces
from grove.sim.admission import Hook
from grove.sim.client import SimClient
from grove.sim.cluster import own_crds
from grove.sim.kinds import CRD, NAMESPACE
from grove.sim.server import SimServer

SECRET = "grove-webhook-server-cert"


@pytest.fixture
async def cluster() -> SimServer:
    server = SimServer(SYSTEM)
    for name in ("default", "grove-system"):
        await server.create(NAMESPACE, {"metadata": {"name": name}})
    for crd in own_crds():
        await server.create(CRD, crd)
    return server


@pytest.fixture
def client(cluster: SimServer) -> SimClient:
    return SimClient(cluster, latency_s=0)


def settings(**fields: object) -> WebhookSettings:
    base = {"namespace": "grove-system", "host": "127.0.0.1", "port": 0, "url": "https://127.0.0.1:9443"}
    return WebhookSettings(**{**base, **fields})


@asynccontextmanager
async def serving(
    client: SimClient, admission: Admission | None = None, *, leads: bool = True, **fields: object
) -> AsyncIterator[WebhookService]:
    """A replica that serves; one that leads has registered when the block begins."""
    service = WebhookService(client, admission or Admission(), settings(**fields))
    await service.start()
    tasks = [asyncio.create_task(service.run())]
    if leads:
        await service.registration.ensure()
        tasks.append(asyncio.create_task(service.lead()))
    try:
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def session(service: WebhookService) -> AsyncIterator[aiohttp.ClientSession]:
    trusted = (service.registration.ca_bundle or b"").decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=trusted))
    base = f"https://127.0.0.1:{service.server.port}"
    async with aiohttp.ClientSession(base, connector=connector) as opened:
        yield opened


async def ca_of(client: SimClient, name: str = "podcliqueset-validating-webhook") -> str:
    stored = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, name)
    return str(stored["webhooks"][0]["clientConfig"]["caBundle"])


async def eventually(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)


# Serving


async def test_a_review_over_tls(client: SimClient) -> None:
    async with serving(client) as service, session(service) as http:
        assert service.is_ready
        async with http.post(DEFAULT_SET, json=review_of(plain())) as answer:
            assert (await answer.json())["response"] == {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "allowed": True,
            }
        async with http.post(VALIDATE_SET, json=review_of(pcs("demo"))) as answer:
            assert (await answer.json())["response"]["status"]["code"] == 422


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"", 400, id="nothing"),
        pytest.param(b"{", 400, id="half a document"),
        pytest.param(b"[1, 2]", 400, id="a list"),
        pytest.param(b'{"request": {}}', 400, id="no uid"),
        pytest.param(b'{"request": {"uid": 5}}', 400, id="a number for a uid"),
        pytest.param(b"\xff\xfe\x00", 400, id="not text"),
        pytest.param(b'{"request": {"uid": "1", "object": "\xff"}}', 400, id="not UTF-8"),
        pytest.param(b"[" * 100_000, 400, id="a deep hole"),
        pytest.param(b'{"request":{"uid":"1","object":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_002, 400, id="a well"),
        pytest.param(b" " * (LARGEST_BODY + 1), 413, id="more than 7 MiB"),
        pytest.param(b'{"request": {"uid": "1"}}', 200, id="a request of nothing"),
        pytest.param(b'{"request": {"uid": "1", "operation": "CREATE", "object": 7}}', 200, id="a number, no object"),
    ],
)
@pytest.mark.parametrize("path", [DEFAULT_SET, VALIDATE_SET, VALIDATE_BINDING, AUTHORIZE])
async def test_any_body_gets_an_answer(client: SimClient, body: bytes, code: int, path: str) -> None:
    server = WebhookServer(Admission(), ClusterReader(client), certificate=None)  # type: ignore[arg-type]
    async with plain_session(server) as http, http.post(path, data=body) as answer:
        assert answer.status == code
        assert (await answer.json())["kind"] in ("Status", "AdmissionReview")


async def test_two_of_the_largest_objects_fit_with_their_envelope(client: SimClient) -> None:
    """An API server takes bodies up to 3 MiB. With a lower limit here such a set could be stored and never changed."""
    large = changed(plain(), ("metadata.annotations", {"note": "x" * (3 * 1024 * 1024 - 4096)}))
    review = review_of(changed(large, ("metadata.finalizers", ["a/b"])), large)
    review["request"]["userInfo"]["groups"] = [f"oidc:group-{n}" for n in range(5_000)]
    server = WebhookServer(Admission(), ClusterReader(client), certificate=None)  # type: ignore[arg-type]
    async with plain_session(server) as http, http.post(VALIDATE_SET, json=review) as answer:
        assert answer.status == 200
        assert (await answer.json())["response"]["allowed"]


@asynccontextmanager
async def plain_session(server: WebhookServer) -> AsyncIterator[aiohttp.ClientSession]:
    """The server's application without TLS."""
    runner = web.AppRunner(server.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as opened:
            yield opened
    finally:
        await runner.cleanup()


async def test_a_body_that_never_comes_is_not_waited_for(client: SimClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_S", 0.05)
    server = WebhookServer(Admission(), ClusterReader(client), certificate=None)  # type: ignore[arg-type]
    never = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"request": '
        await never.wait()

    async with plain_session(server) as http, http.post(VALIDATE_SET, data=body()) as answer:
        assert answer.status == 408
        assert (await answer.json())["reason"] == "Timeout"


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        pytest.param(("metadata.uid", "u-1"), "", id="allowed"),
        pytest.param(("spec.template.terminationDelay", "-1s"), "terminationDelay", id="refused: the error says why"),
    ],
)
async def test_validation_is_in_the_trace_of_the_set(client: SimClient, edit: tuple[str, Any], error: str) -> None:
    spans: list[Span] = []
    server = WebhookServer(Admission(), ClusterReader(client), certificate=None, traces=Traces(spans.append))  # type: ignore[arg-type]
    review = review_of(changed(plain(), ("metadata.uid", "u-1"), edit))
    async with plain_session(server) as http:
        for path in (DEFAULT_SET, VALIDATE_SET):
            await http.post(path, json=review)
        await http.post(VALIDATE_SET, json=review | {"request": review["request"] | {"dryRun": True}})
    (span,) = spans
    assert (span.uid, span.name, bool(span.error)) == ("u-1", "admission", bool(error))
    assert error in span.error


class BrokenReader:
    async def fetch(self, needs: Needs) -> Known:
        raise ZeroDivisionError("a bug of ours")


async def test_a_bug_is_an_answer_with_status_500() -> None:
    server = WebhookServer(Admission(), BrokenReader(), certificate=None)  # type: ignore[arg-type]
    async with plain_session(server) as http, http.post(VALIDATE_SET, json=review_of(plain())) as answer:
        assert answer.status == 200
        assert (await answer.json())["response"] == {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": False,
            "status": {
                "status": "Failure",
                "code": 500,
                "reason": "InternalError",
                "message": "admission failed: ZeroDivisionError: a bug of ours",
            },
        }


# Configurations


def test_configurations_point_at_the_service() -> None:
    wanted = configurations(ServiceAddress("ns"), authorizer=True, ca_bundle=b"PEM")
    told = [(one.name, one.obj["kind"], one.obj["webhooks"][0]["name"]) for one in wanted]
    assert told == [
        ("podcliqueset-defaulting-webhook", "MutatingWebhookConfiguration", "pcs.defaulting.webhooks.grove.io"),
        ("podcliqueset-validating-webhook", "ValidatingWebhookConfiguration", "pcs.validating.webhooks.grove.io"),
        (
            "clustertopology-validating-webhook",
            "ValidatingWebhookConfiguration",
            "clustertopology.validating.webhooks.grove.io",
        ),
        ("authorizer-webhook", "ValidatingWebhookConfiguration", "authorizer.webhooks.grove.io"),
    ]
    assert wanted[0].obj["webhooks"][0] == {
        "name": "pcs.defaulting.webhooks.grove.io",
        "clientConfig": {
            "service": {
                "namespace": "ns",
                "name": "grove-operator",
                "path": "/webhooks/default-podcliqueset",
                "port": 9443,
            },
            "caBundle": base64.b64encode(b"PEM").decode(),
        },
        "rules": [
            {
                "apiGroups": ["grove.io"],
                "apiVersions": ["v1alpha1"],
                "resources": ["podcliquesets"],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }
        ],
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Exact",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {},
        "objectSelector": {},
        "reinvocationPolicy": "Never",
    }
    authorizer = wanted[3].obj["webhooks"][0]
    assert authorizer["objectSelector"] == {"matchLabels": {"app.kubernetes.io/managed-by": "grove-operator"}}
    guarded = {
        (rule["apiGroups"][0], rule["apiVersions"][0], rule["resources"][0]): rule["operations"]
        for rule in authorizer["rules"]
    }
    assert guarded == {
        ("", "v1", "secrets"): ["UPDATE", "DELETE"],
        ("", "v1", "serviceaccounts"): ["UPDATE", "DELETE"],
        ("", "v1", "services"): ["UPDATE", "DELETE"],
        ("", "v1", "pods"): ["UPDATE"],
        ("rbac.authorization.k8s.io", "v1", "roles"): ["UPDATE", "DELETE"],
        ("rbac.authorization.k8s.io", "v1", "rolebindings"): ["UPDATE", "DELETE"],
        ("autoscaling", "v1", "horizontalpodautoscalers"): ["UPDATE", "DELETE"],
        ("autoscaling", "v2", "horizontalpodautoscalers"): ["UPDATE", "DELETE"],
        ("grove.io", "v1alpha1", "podcliques"): ["CREATE", "UPDATE", "DELETE"],
        ("grove.io", "v1alpha1", "podcliquescalinggroups"): ["CREATE", "UPDATE", "DELETE"],
        ("scheduler.grove.io", "v1alpha1", "podgangs"): ["CREATE", "UPDATE", "DELETE"],
    }


def test_an_operator_outside_the_cluster_is_reached_by_url() -> None:
    wanted = configurations(UrlAddress("https://127.0.0.1:9443/"), authorizer=False, ca_bundle=b"PEM")
    assert [one.obj["webhooks"][0]["clientConfig"]["url"] for one in wanted] == [
        "https://127.0.0.1:9443/webhooks/default-podcliqueset",
        "https://127.0.0.1:9443/webhooks/validate-podcliqueset",
        "https://127.0.0.1:9443/webhooks/validate-clustertopology",
    ]


def test_an_injected_ca_is_left_in_place() -> None:
    wanted = configurations(ServiceAddress("ns"), authorizer=False, ca_bundle=None, annotations={"a": "b"})[0].obj
    stored = json.loads(json.dumps(wanted))
    stored["webhooks"][0]["clientConfig"]["caBundle"] = "injected"
    stored["metadata"] |= {"resourceVersion": "7", "labels": {**stored["metadata"]["labels"], "theirs": "x"}}
    assert healing_patch(wanted, stored) is None
    stored["webhooks"][0]["failurePolicy"] = "Ignore"
    stored["metadata"]["annotations"] = {}
    patch = healing_patch(wanted, stored)
    assert patch is not None
    assert patch["webhooks"][0]["failurePolicy"] == "Fail"
    assert patch["webhooks"][0]["clientConfig"]["caBundle"] == "injected"
    assert patch["metadata"] == {"annotations": {"a": "b"}, "resourceVersion": "7"}


async def test_a_second_look_writes_nothing(client: SimClient) -> None:
    registration = Registration(client, ServiceAddress("grove-system"), authorizer=True, ca_bundle=b"PEM")
    await registration.ensure()
    before = client.writes
    await registration.ensure()
    assert client.writes == before


async def test_a_wrong_ca_and_a_deleted_configuration_are_healed(client: SimClient, cluster: SimServer) -> None:
    async with serving(client):
        right = await ca_of(client)
        stored = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, "podcliqueset-validating-webhook")
        stored["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(b"wrong").decode()
        await client.patch(
            VALIDATING_WEBHOOK_CONFIGURATION, "podcliqueset-validating-webhook", {"webhooks": stored["webhooks"]}
        )
        await client.delete(MUTATING_WEBHOOK_CONFIGURATION, "podcliqueset-defaulting-webhook")

        def healed() -> bool:
            stored = {one["metadata"]["name"]: one for one in _all_configurations(cluster)}
            config = stored["podcliqueset-validating-webhook"]["webhooks"][0]["clientConfig"]
            return config["caBundle"] == right and "podcliqueset-defaulting-webhook" in stored

        await eventually(healed)


def _all_configurations(cluster: SimServer) -> list[dict]:
    return [*cluster.all(MUTATING_WEBHOOK_CONFIGURATION), *cluster.all(VALIDATING_WEBHOOK_CONFIGURATION)]


async def test_only_the_leader_writes_the_configurations(cluster: SimServer) -> None:
    """During a rollout replicas of two versions run side by side: they must not undo each other's work."""
    leader, standby = SimClient(cluster, latency_s=0), SimClient(cluster, latency_s=0)
    guard = Authorizer(frozenset({"operator"}), frozenset())
    async with serving(leader, Admission(authorizer=guard)):
        async with serving(standby, leads=False, url="https://127.0.0.1:9555") as other, session(other) as http:
            async with http.post(DEFAULT_SET, json=review_of(plain())) as answer:
                assert answer.status == 200, "others serve"
            await leader.delete(VALIDATING_WEBHOOK_CONFIGURATION, "podcliqueset-validating-webhook")
            await eventually(lambda: len(cluster.all(VALIDATING_WEBHOOK_CONFIGURATION)) == 3)
        urls = {one["webhooks"][0]["clientConfig"]["url"] for one in _all_configurations(cluster)}
        assert {url.rpartition("/webhooks")[0] for url in urls} == {"https://127.0.0.1:9443"}
    assert {plural for _, plural in standby.calls if plural.endswith("webhookconfigurations")} == set()


async def test_the_authorizer_goes_when_it_is_switched_off(client: SimClient) -> None:
    guard = Authorizer(frozenset({"operator"}), frozenset())
    async with serving(client, Admission(authorizer=guard)):
        assert len((await client.list(VALIDATING_WEBHOOK_CONFIGURATION)).items) == 3
    async with serving(client):
        assert len((await client.list(VALIDATING_WEBHOOK_CONFIGURATION)).items) == 2


# Certificates


async def test_two_replicas_agree_on_one_certificate(client: SimClient) -> None:
    first, second = (WebhookService(client, Admission(), settings()) for _ in range(2))
    await asyncio.gather(first.start(), second.start())
    try:
        assert first.registration.ca_bundle == second.registration.ca_bundle
        for service in (first, second):
            async with session(service) as http, http.post(DEFAULT_SET, json=review_of(plain())) as answer:
                assert answer.status == 200
    finally:
        await asyncio.gather(first.stop(), second.stop())


async def test_an_empty_secret_made_by_a_chart_is_filled(client: SimClient) -> None:
    empty = {"ca.crt": "", "tls.crt": "", "tls.key": ""}
    await client.create(
        Secret,
        {"metadata": {"name": SECRET, "namespace": "grove-system"}, "type": "kubernetes.io/tls", "data": empty},
    )
    async with serving(client):
        filled = await client.get(Secret, SECRET, "grove-system")
        assert set(filled.data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_the_certificate_is_not_listed_among_what_grove_made_for_sets(client: SimClient) -> None:
    managed = "app.kubernetes.io/managed-by=grove-operator"
    async with serving(client):
        assert (await client.list(Secret, "grove-system", labels=managed)).items == []


async def test_a_label_that_an_earlier_version_gave_the_certificate_goes(client: SimClient) -> None:
    async with serving(client):
        pass
    before = await client.get(Secret, SECRET, "grove-system")
    labels = {"app.kubernetes.io/managed-by": "grove-operator", "theirs": "x"}
    await client.patch(Secret, SECRET, {"metadata": {"labels": labels}}, "grove-system")
    async with serving(client):
        after = await client.get(Secret, SECRET, "grove-system")
    assert (after.data, after.metadata.labels["theirs"]) == (before.data, "x")
    assert "app.kubernetes.io/managed-by" not in after.metadata.labels


async def test_rotation_under_load_fails_no_request(client: SimClient) -> None:
    async with serving(client) as service:
        for _ in range(2):
            # The clients of a round know the authorities of before the rotation, as an API server does whose view of
            # the configurations lags.
            async with session(service) as http, asyncio.TaskGroup() as tasks:
                load = Load(http)
                askers = [tasks.create_task(load.ask()) for _ in range(4)]
                await load.served(10)
                before = service.registration.ca_bundle
                await rotate(client)
                await eventually(lambda known=before: service.registration.ca_bundle != known)
                await load.served(20)
                load.done = True
                await asyncio.gather(*askers)
            assert load.failures == []


class Load:
    """Reviews without a pause, each on a connection of its own: the handshake is what a rotation could break."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http, self.count, self.done = http, 0, False
        self.failures: list[object] = []

    async def ask(self) -> None:
        while not self.done:
            try:
                headers = {"Connection": "close"}
                async with self._http.post(DEFAULT_SET, json=review_of(plain()), headers=headers) as answer:
                    if answer.status != 200:
                        self.failures.append(answer.status)
            except aiohttp.ClientError as error:
                self.failures.append(error)
            self.count += 1

    async def served(self, more: int) -> None:
        since = self.count
        await eventually(lambda: self.count >= since + more)


async def rotate(client: SimClient) -> None:
    """What a replica writes whose authority nears its end: a bundle with a new one."""
    secret = await client.get(Secret, SECRET, "grove-system")
    current = Bundle.from_secret({name: base64.b64decode(value) for name, value in secret.data.items()})
    made = renewed(current, settings().names, SYSTEM.now(), Lifetimes(authority_renewal=timedelta(days=4000)))
    assert made is not None
    data = {name: base64.b64encode(value).decode() for name, value in made.to_secret().items()}
    await client.patch(Secret, SECRET, {"data": data}, "grove-system")


def with_files(directory: Path) -> Bundle:
    """A new authority and a certificate of its own, as an administrator puts them into the directory."""
    made = renewed(None, settings().names, SYSTEM.now())
    assert made is not None
    for name, content in (("tls.crt", made.chain), ("tls.key", made.key), ("ca.crt", made.authorities)):
        (directory / f"{name}.new").write_bytes(content)
        (directory / f"{name}.new").rename(directory / name)
    return made


async def give_ca(client: SimClient, bundle: bytes) -> None:
    """What an administrator writes into a configuration by hand."""
    name = "podcliqueset-validating-webhook"
    stored = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, name)
    stored["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    await client.patch(VALIDATING_WEBHOOK_CONFIGURATION, name, {"webhooks": stored["webhooks"]})


async def test_a_renewed_ca_of_manual_mode_is_published_without_a_restart(
    client: SimClient, cluster: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "FILES_S", 0.05)
    with_files(tmp_path)
    async with serving(client, mode="manual", cert_dir=tmp_path) as service:
        renewed_ca = with_files(tmp_path).authorities
        await eventually(lambda: all(base64.b64decode(one) == renewed_ca for one in bundles(cluster)))
        async with session(service) as http, http.post(DEFAULT_SET, json=review_of(plain())) as answer:
            assert answer.status == 200


def bundles(cluster: SimServer) -> list[str]:
    return [one["webhooks"][0]["clientConfig"]["caBundle"] for one in _all_configurations(cluster)]


async def test_an_administrators_bundle_stays_if_it_is_right(
    client: SimClient, cluster: SimServer, tmp_path: Path
) -> None:
    """One that trusts the next authority as well is how a careful administrator begins a renewal."""
    here = with_files(tmp_path)
    (tmp_path / "next").mkdir()
    both = here.authorities + with_files(tmp_path / "next").authorities
    async with serving(client, mode="manual", cert_dir=tmp_path) as service:
        await give_ca(client, both)
        await service.registration.ensure()
        assert base64.b64decode(await ca_of(client)) == both
        wrong = with_files(tmp_path / "next").authorities
        await give_ca(client, wrong)
        right = base64.b64encode(here.authorities).decode()
        await eventually(lambda: bundles(cluster) == [right] * 3)


async def test_manual_mode_serves_files_and_publishes_their_ca(client: SimClient, tmp_path: Path) -> None:
    made = with_files(tmp_path)
    async with serving(client, mode="manual", cert_dir=tmp_path) as service, session(service) as http:
        assert base64.b64decode(await ca_of(client)) == made.authorities
        async with http.post(DEFAULT_SET, json=review_of(plain())) as answer:
            assert answer.status == 200
        assert (await client.list(Secret, "grove-system")).items == []


async def test_cert_manager_mode_asks_for_injection(client: SimClient, tmp_path: Path) -> None:
    made = renewed(None, settings().names, SYSTEM.now())
    assert made is not None
    (tmp_path / "tls.crt").write_bytes(made.chain)
    (tmp_path / "tls.key").write_bytes(made.key)
    async with serving(client, mode="cert-manager", cert_dir=tmp_path, inject_ca_from="grove-system/grove-webhook"):
        stored = await client.get(VALIDATING_WEBHOOK_CONFIGURATION, "podcliqueset-validating-webhook")
        assert stored["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "grove-system/grove-webhook"}
        assert "caBundle" not in stored["webhooks"][0]["clientConfig"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "sometimes"}, "certProvisionMode must be one of auto, manual, cert-manager, not 'sometimes'"),
        ({"mode": "cert-manager"}, "mode cert-manager needs the certificate to inject the CA from"),
        ({"mode": "manual", "cert_dir": Path("/nowhere")}, "certificate files of mode manual"),
    ],
)
async def test_a_mode_that_cannot_work_is_reported(client: SimClient, fields: dict, message: str) -> None:
    with pytest.raises(CertificateModeError, match=message):
        await WebhookService(client, Admission(), settings(**fields)).start()


# In the process


@pytest.fixture
def hooked(cluster: SimServer, client: SimClient) -> SimClient:
    """A cluster that asks admission, authorizer included, without a network."""
    guard = Authorizer(frozenset({"operator"}), exempt_users("grove-system"))
    for hook in sim_hooks(Admission(topology_enabled=True, authorizer=guard), ClusterReader(client)):
        added = Hook(hook.name, hook.handler, hook.resources, hook.operations)
        (cluster.admission.mutating if hook.mutating else cluster.admission.validating).append(added)
    return client


async def test_the_simulator_runs_the_same_rules(hooked: SimClient) -> None:
    sent = {"metadata": {"name": "demo", "namespace": "default"}, "spec": {"template": {"cliques": [clique("a", 2)]}}}
    stored = await hooked.create(PodCliqueSet.RESOURCE, sent)
    assert stored["spec"]["template"]["terminationDelay"] == "4h0m0s"
    with pytest.raises(Invalid) as refused:
        await hooked.create(PodCliqueSet, pcs("bad", clique("a", -1, min_available=1)))
    assert str(refused.value) == (
        'admission webhook "pcs.validating.webhooks.grove.io" denied the request: PodCliqueSet.grove.io "bad" is '
        "invalid: spec.template.cliques[0].spec.replicas: Invalid value: -1: must not be negative"
    )


async def test_a_binding_made_a_moment_ago_is_found(hooked: SimClient) -> None:
    rack = {"topologyName": "cluster", "pack": {"required": "rack"}}
    with pytest.raises(Invalid, match="no such ClusterTopologyBinding"):
        await hooked.create(PodCliqueSet, pcs("demo", clique("a"), topologyConstraint=rack))
    await hooked.create(ClusterTopologyBinding, binding())
    await hooked.create(PodCliqueSet, pcs("demo", clique("a"), topologyConstraint=rack))


async def test_managed_objects_are_guarded(hooked: SimClient, cluster: SimServer) -> None:
    await hooked.create(PodCliqueSet, plain())
    labels = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "demo"}
    service = {"metadata": {"name": "demo-0", "namespace": "default", "labels": labels}, "spec": {"clusterIP": "None"}}
    await hooked.create(Service, service)
    with pytest.raises(Forbidden, match=r"it is managed by Grove\. Change PodCliqueSet default/demo"):
        await hooked.delete(Service, "demo-0", "default")
    operator = SimClient(cluster, user="operator", latency_s=0)
    await operator.delete(Service, "demo-0", "default")
