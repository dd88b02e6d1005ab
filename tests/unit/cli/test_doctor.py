"""`doctor`, one illness a row: what it finds, how bad it is, and that it names a remedy."""

from __future__ import annotations

import base64
import io
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.support.backend_schemas import definitions
from tests.support.dialects import gang_set

from grove import crds
from grove.admission.certs.authority import Lifetimes, renewed
from grove.admission.serving.registration import ServiceAddress, configurations
from grove.answers.answer import Answer
from grove.answers.checks_running import _remedy
from grove.answers.doctor import doctor_answer, takeover_answer
from grove.answers.findings import Finding
from grove.api.core import ConfigMap, CustomResourceDefinition, Lease, Namespace, Node, Pod, Secret
from grove.api.dynamo import PodGangSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.config import ClusterConfig
from grove.kube.errors import Forbidden, Unavailable
from grove.plan.world import binding, shaped
from grove.sim.cluster import SimCluster
from grove.sim.loop import run

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SYSTEM = "grove-system"


class Patient:
    """A client whose cluster has the faults that a test names; everything else is well."""

    def __init__(self, cluster: SimCluster) -> None:
        self._inner: Any = cluster.client()
        self.version, self.webhook_fault = "v1.36.3", None
        self.denied: tuple[str, ...] = ()
        self.authority_days, self.served_days, self.made_days_ago = 3650, 365, 0
        self.registered = True
        self.renewed_s_ago: dict[str, float | None] = {"grove-operator": 2, "grove-scheduler": 2}
        self.ended: tuple[str, ...] = ()
        """Processes that ended in good order, and gave their lease back."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def server_version(self) -> str:
        return self.version

    async def create(self, kind: Any, obj: Any, **options: Any) -> Any:
        resource = getattr(kind, "RESOURCE", kind)
        if resource.plural == "selfsubjectaccessreviews":
            wanted = obj["spec"]["resourceAttributes"]["resource"]
            return {**obj, "status": {"allowed": wanted not in self.denied and "*" not in self.denied}}
        if options.get("dry_run") and self.webhook_fault is not None:
            raise self.webhook_fault
        return await self._inner.create(kind, obj, **options)

    async def list(self, kind: Any, *args: Any, **options: Any) -> Any:
        self._ask_for(kind)
        return await self._inner.list(kind, *args, **options)

    async def get(self, kind: Any, *args: Any, **options: Any) -> Any:
        self._ask_for(kind)
        return await self._inner.get(kind, *args, **options)

    def _ask_for(self, kind: Any) -> None:
        resource = getattr(kind, "RESOURCE", kind)
        if resource.plural in self.denied or "*" in self.denied:
            raise Forbidden(f"{resource.plural} is forbidden", code=403, reason="Forbidden")

    async def furnish(self) -> None:
        """Puts what the fields say into the cluster."""
        for node in shaped(2):
            await self._inner.create(Node, node)
        await self._inner.create(ClusterTopologyBinding, binding())
        await self._inner.create(Namespace, {"metadata": {"name": SYSTEM}})
        lives = Lifetimes(timedelta(days=self.authority_days), timedelta(0), timedelta(days=self.served_days))
        bundle = renewed(None, ["grove-operator.grove-system.svc"], NOW - self.made_days_ago * DAY, lives)
        assert bundle is not None
        data = {name: base64.b64encode(value).decode() for name, value in bundle.to_secret().items()}
        meta = {"name": "grove-webhook-server-cert", "namespace": SYSTEM}
        await self._inner.create(Secret, {"metadata": meta, "type": "Opaque", "data": data})
        if self.registered:
            for one in configurations(ServiceAddress(SYSTEM), authorizer=False, ca_bundle=bundle.authorities):
                await self._inner.create(one.resource, one.obj)
        for app, ago_s in self.renewed_s_ago.items():
            if ago_s is None:
                continue
            spec = {
                "holderIdentity": "" if app in self.ended else f"{app}-1",
                "leaseDurationSeconds": 15,
                "renewTime": f"{NOW - timedelta(seconds=ago_s):%Y-%m-%dT%H:%M:%S.000000Z}",
            }
            lease = {"metadata": {"name": f"{app}-leader-election", "namespace": SYSTEM}, "spec": spec}
            await self._inner.create(Lease, lease)


def findings(ill: Callable[[Patient], Awaitable[None] | None]) -> list[Finding]:
    return list(examined(ill).data)


def examined(
    ill: Callable[[Patient], Awaitable[None] | None],
    ask: Callable[..., Awaitable[Answer]] = doctor_answer,
) -> Answer:
    async def look() -> Any:
        async with SimCluster() as cluster:
            patient = Patient(cluster)
            later = ill(patient)
            await patient.furnish()
            if later is not None:
                await later
            return await ask(patient, "default", NOW)

    found: Answer = run(look())
    return found


def setting(**fields: Any) -> Callable[[Patient], None]:
    def ill(patient: Patient) -> None:
        for name, value in fields.items():
            setattr(patient, name, value)

    return ill


def test_a_healthy_cluster_has_no_fault() -> None:
    assert [(one.check, one.state, one.text) for one in findings(lambda patient: None)] == [
        ("server", "ok", "Kubernetes v1.36.3"),
        ("kinds", "ok", "5 kinds, up to date"),
        ("admission", "ok", "registered, trusted and answering"),
        ("operator", "ok", "grove-operator-1 leads"),
        ("scheduler", "ok", "grove-scheduler-1 leads"),
        ("topology", "ok", "1 binding, 2 nodes labelled"),
        ("rights", "ok", "every command here is open to you"),
    ]


async def _unlabel(patient: Patient) -> None:
    await patient.patch(Node, "z0-b0-r0-n0", {"metadata": {"labels": {"topology.kubernetes.io/rack": None}}})


def _dialects(*, without: str = "", old: str = "", objects: int = 0) -> Callable[[Patient], Awaitable[None]]:
    """The kinds of the dialects are there, but for one, or one of an earlier schema; and objects that no controller
    follows.
    """

    async def ill(patient: Patient) -> None:
        known = {one["metadata"]["name"] for one in crds.load()}
        for crd in crds.load(dialects=True):
            name = crd["metadata"]["name"]
            if name in known or name.startswith(without or "none"):
                continue
            if name.startswith(old or "none"):
                crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].pop("spec")
            await patient.create(CustomResourceDefinition.RESOURCE, crd)
        for number in range(objects):
            obj = gang_set(f"gang-{number}")
            obj["metadata"] |= {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
            await patient.create(PodGangSet.RESOURCE, obj)

    return ill


REFUSED = 'failed calling webhook "pcs.defaulting.webhooks.grove.io": connection refused'


@pytest.mark.parametrize(
    ("ill", "check", "state", "text", "fix"),
    [
        pytest.param(
            setting(version="v1.27.4+k3s1"),
            "server",
            "failed",
            "Kubernetes v1.27.4+k3s1 is too old: Grove needs 1.29 or newer",
            "upgrade",
            id="an old Kubernetes",
        ),
        pytest.param(
            setting(registered=False),
            "admission",
            "warning",
            "sets are neither defaulted nor checked",
            "start the operator",
            id="no admission",
        ),
        pytest.param(
            setting(webhook_fault=Unavailable(REFUSED, code=500)),
            "admission",
            "failed",
            f"it does not answer, so no set can be written: {REFUSED}",
            "grove webhooks --remove",
            id="webhooks that nobody serves",
        ),
        pytest.param(
            setting(authority_days=9, made_days_ago=10),
            "admission",
            "failed",
            "its authority expired on 2026-04-30",
            "restart the operator",
            id="an authority that has expired",
        ),
        pytest.param(
            setting(authority_days=3),
            "admission",
            "warning",
            "its authority expires on 2026-05-04",
            "restart the operator",
            id="an authority about to expire",
        ),
        pytest.param(
            setting(served_days=2),
            "admission",
            "warning",
            "the served certificate (secret grove-system/grove-webhook-server-cert) expires on 2026-05-03",
            "delete secret grove-webhook-server-cert",
            id="a served certificate about to expire",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 300, "grove-scheduler": 2}),
            "operator",
            "failed",
            "no process leads for 5m: grove-operator-1 was the last leader",
            "run grove operator",
            id="an operator that died",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 2, "grove-scheduler": 300}),
            "scheduler",
            "failed",
            "no process leads for 5m: grove-scheduler-1 was the last leader",
            "run grove scheduler",
            id="a scheduler that died",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 300, "grove-scheduler": 2}, ended=("grove-operator",)),
            "operator",
            "failed",
            "no process leads for 5m: the last leader ended",
            "run grove operator",
            id="an operator that was stopped",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 5, "grove-scheduler": 2}, ended=("grove-operator",)),
            "operator",
            "warning",
            "no sign of it",
            "run grove operator",
            id="an operator that was stopped just now, so another one may lead in a moment",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 20, "grove-scheduler": 2}),
            "operator",
            "warning",
            "grove-operator-1 leads, but last renewed its lease 20s ago",
            "run grove operator",
            id="an operator that may have died just now",
        ),
        pytest.param(
            setting(renewed_s_ago={"grove-operator": 2, "grove-scheduler": None}),
            "scheduler",
            "warning",
            "no sign of it",
            "run grove scheduler",
            id="no scheduler at all",
        ),
        pytest.param(
            _unlabel,
            "topology",
            "warning",
            "fake-nodes: topology.kubernetes.io/rack is missing on 1 of 2 nodes (z0-b0-r0-n0)",
            "kubectl label node z0-b0-r0-n0 topology.kubernetes.io/rack=",
            id="a node without a label",
        ),
        pytest.param(
            setting(denied=("nodes",)),
            "rights",
            "warning",
            "you may not: list nodes (for explain, plan, topology)",
            "bind the ClusterRole grove:view",
            id="no right to see nodes",
        ),
        pytest.param(
            setting(denied=("mutatingwebhookconfigurations",)),
            "admission",
            "skipped",
            "you may not look",
            "",
            id="no right to see webhooks",
        ),
        pytest.param(_dialects(), "dialects", "ok", "3 kinds, up to date", "", id="other APIs, and all is well"),
        pytest.param(
            _dialects(without="koord"),
            "dialects",
            "warning",
            "not installed: koordpodcliquesets.grove.ai",
            "grove crds --apply --dialects",
            id="one of the other APIs' kinds is missing",
        ),
        pytest.param(
            _dialects(old="dynamopodgangsets"),
            "dialects",
            "warning",
            "older than this program: dynamopodgangsets.grove.dynamo.ai",
            "grove crds --apply --dialects",
            id="one of the other APIs' kinds is old",
        ),
        pytest.param(
            _dialects(objects=4),
            "dialects",
            "warning",
            "no controller translates 4 PodGangSets (gang-0, gang-1, gang-2 …)",
            "dialects.enabled",
            id="objects of another API that nobody looks at",
        ),
    ],
)
def test_an_illness_is_found_with_its_remedy(ill: Any, check: str, state: str, text: str, fix: str) -> None:
    found = [one for one in findings(ill) if one.check == check and one.state == state]
    assert any(text in one.text and fix in one.fix for one in found), found


def test_a_user_who_may_not_create_sets_still_learns_that_admission_is_registered() -> None:
    ill = setting(webhook_fault=Forbidden("podcliquesets.grove.io is forbidden: you may not create", code=403))
    found = [(one.state, one.text) for one in findings(ill) if one.check == "admission"]
    assert found == [
        ("ok", "registered and trusted"),
        ("skipped", "whether it answers was not tried: podcliquesets.grove.io is forbidden: you may not create"),
    ]


@pytest.mark.parametrize("ask", [doctor_answer, takeover_answer])
def test_who_may_look_at_nothing_is_reported_and_it_is_no_success(ask: Callable[..., Awaitable[Answer]]) -> None:
    told = examined(setting(denied=("*",)), ask)
    assert told.code == 1
    last = told.data[-1]
    assert (last.check, last.state) == ("rights", "failed")
    assert last.text == "nothing of Grove was checked: you may look at none of it"
    assert "grove:view" in last.fix


def test_who_may_look_at_something_gets_an_answer_about_that() -> None:
    most = ("mutatingwebhookconfigurations", "customresourcedefinitions", "podcliquesets", "podgangs")
    assert examined(setting(denied=most)).code == 0


def test_pods_that_are_not_ready_count_when_there_is_no_lease() -> None:
    async def ill(patient: Patient) -> None:
        labels = {"app.kubernetes.io/name": "grove-operator"}
        meta = {"name": "grove-operator-1", "namespace": SYSTEM, "labels": labels}
        await patient.create(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}})

    def without_lease(patient: Patient) -> Awaitable[None]:
        patient.renewed_s_ago = {"grove-operator": None, "grove-scheduler": 2}
        return ill(patient)

    [found] = [one for one in findings(without_lease) if one.check == "operator"]
    assert (found.state, found.text) == ("failed", "0 of 1 pod ready")


@pytest.mark.parametrize(
    ("server", "want"),
    [("https://127.0.0.1:6443", "grove up"), ("https://api.example:6443", "kubectl -n grove-system")],
)
def test_on_a_cluster_of_this_machine_the_remedy_is_grove_up(server: str, want: str) -> None:
    client: Any = SimpleNamespace(config=ClusterConfig(server=server))
    assert want in _remedy(client, "operator")


def _scheduler_profiles(text: str, conf: str | None) -> Callable[[Patient], Awaitable[None]]:
    """The operator runs with these profiles, and vc-scheduler with that configuration."""

    async def ill(patient: Patient) -> None:
        meta = {
            "name": "grove-operator-cm-1",
            "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/name": "grove-operator"},
        }
        await patient.create(
            ConfigMap, {"metadata": meta, "data": {"config.yaml": f"scheduler: {{profiles: [{text}]}}"}}
        )
        for crd in definitions("volcano"):
            await patient.create(CustomResourceDefinition.RESOURCE, crd)
        if conf is not None:
            await patient.create(Namespace, {"metadata": {"name": "volcano-system"}})
            meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
            await patient.create(ConfigMap, {"metadata": meta, "data": {"volcano-scheduler.conf": conf}})

    return ill


VOLCANO = "{name: volcano, config: {tiers: {topology.kubernetes.io/rack: rack}}}"


def test_other_schedulers_are_asked_for_what_the_profiles_need() -> None:
    conf = "tiers:\n- plugins:\n  - name: gang\n"
    found = {one.text: one for one in findings(_scheduler_profiles(VOLCANO, conf)) if one.check == "volcano"}
    assert found["plugin gang"].state == "ok"
    lost = "it ignores topology, and admission refuses sets that require a domain"
    plugin = found[f"plugin network-topology-aware is missing: {lost}"]
    assert (plugin.state, plugin.fix.split("\n")[-1]) == ("warning", "- name: network-topology-aware")
    assert any(text.startswith("HyperNodes of the tier rack is missing") for text in found)


def test_a_configuration_that_cannot_be_read_is_skipped_with_the_lines_it_must_have() -> None:
    found = [one for one in findings(_scheduler_profiles(VOLCANO, None)) if one.check == "volcano"]
    unknown = {one.text.partition(":")[0]: one for one in found if one.state == "skipped"}
    assert unknown["plugin network-topology-aware"].fix.endswith("\n- name: network-topology-aware")


def test_profiles_no_one_needs_anything_of_are_left_out() -> None:
    profiles = "{name: default-scheduler}, {name: grove-scheduler}"
    checks = {one.check for one in findings(_scheduler_profiles(profiles, None))}
    assert not checks & {"volcano", "default-scheduler", "kai-scheduler", "koord-scheduler"}


def test_lines_to_paste_keep_their_shape() -> None:
    found = examined(_scheduler_profiles(VOLCANO, "tiers:\n- plugins:\n  - name: gang\n"))
    out = io.StringIO()
    Console(file=out, width=60, color_system=None).print(found.paint(60))
    assert "    - name: network-topology-aware\n" in out.getvalue()
    assert "      tierName: rack\n" in out.getvalue()
