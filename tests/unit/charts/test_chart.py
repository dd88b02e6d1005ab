"""The rendered chart against the code it runs: rights, files, names, ports, and that the rendering is the newest."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of

import grove
from grove import crds
from grove.admission.rules.lookups import LISTED
from grove.admission.serving.registration import ServiceAddress, configurations
from grove.api.core import COMPUTE_DOMAIN, SUBJECT_ACCESS_REVIEW, Event, Pod, Service
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.env import INIT_CONTAINER_IMAGE
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Object, Resource
from grove.api.node import PriorityClass
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends import KNOWN, build_backends
from grove.backends.base import TopologyBackend
from grove.cli.metrics import metrics
from grove.config import OperatorConfiguration, load_configuration
from grove.diagnosis.reasons import sentence
from grove.kube.client import Client
from grove.kube.handover import HAND_OVER_S
from grove.kube.run import STOP_S
from grove.metrics.apiservices import API_SERVICE, OWNER, wanted_services
from grove.metrics.apiservices import ServiceAddress as MetricsAddress
from grove.metrics.service import SECRET, MetricsService, MetricsSettings
from grove.operator.shared.children import wanted_access
from grove.operator.shared.cluster.optional_kinds import OPTIONAL
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import load_configuration as load_scheduler_configuration

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/grove"
INSTALL, EVERY_OPTION = ROOT / "charts/install.yaml", Path(__file__).with_name("every-option.rendered.yaml")
TWO_FILES = ROOT / "charts/grove-crds.yaml", ROOT / "charts/grove-scheduler.yaml"
"""Everything, with the dialects, for `kubectl apply -f`."""
OPERATOR, SCHEDULER = "grove:system:grove-operator", "grove:system:grove-scheduler"
CHANGE = ("get", "list", "watch", "create", "patch", "delete")

Rights = set[tuple[str, str, str]]
"""Verb, group, plural."""


@functools.cache
def documents(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(file.read_text(), yaml.CSafeLoader) if one]


def named(file: Path, kind: str, prefix: str) -> dict[str, Any]:
    (one,) = (d for d in documents(file) if d["kind"] == kind and d["metadata"]["name"].startswith(prefix))
    return one


def rights(rules: Iterable[dict[str, Any]], *, by_name: bool = False) -> Rights:
    """What rules allow for any object, or for those they name."""
    return {
        (verb, group, resource)
        for rule in rules
        if ("resourceNames" in rule) is by_name
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def held(file: Path, role: str) -> Rights:
    (rules,) = (d["rules"] for d in documents(file) if d["kind"] == "ClusterRole" and d["metadata"]["name"] == role)
    return rights(rules)


def needed(resource: Resource, *verbs: str) -> Rights:
    return {(verb, resource.group, resource.plural) for verb in verbs}


def followed(cache: Any) -> Iterator[type[Object]]:
    yield from cache._informers


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION, TWO_FILES[1]], ids=lambda file: file.name)
def test_the_rendering_is_the_newest(file: Path):
    parts = [
        CHART / "Chart.yaml",
        CHART / "values.yaml",
        *sorted((CHART / "templates").iterdir()),
        *sorted((CHART / "files").iterdir()),
        ROOT / "charts/every-option.yaml",
    ]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:16]
    assert f"(digest {digest})" in file.read_text().splitlines()[0], "run charts/render.sh"


def test_the_chart_has_the_version_of_the_code():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == grove.__version__
    containers = named(INSTALL, "Deployment", "grove-operator")["spec"]["template"]["spec"]["containers"]
    assert [one["image"] for one in containers] == [f"grove:{grove.__version__}"]


# Rights


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION], ids=lambda file: file.name)
async def test_each_process_may_follow_every_kind_that_it_follows(file: Path):
    client: Any = object()
    for role, kinds in (
        (OPERATOR, {*followed(Operator(client).cache), *OPTIONAL}),
        (SCHEDULER, {*followed(Scheduler(client, say=sentence).cache)}),
    ):
        assert len(kinds) > 5
        for kind in kinds:
            assert needed(kind.RESOURCE, "list", "watch") <= held(file, role), f"{role}: {kind.RESOURCE}"


def test_the_operator_may_look_at_what_its_warnings_are_about():
    for resource in LISTED.values():
        assert needed(resource, "list") <= held(EVERY_OPTION, OPERATOR), resource
    assert needed(PriorityClass.RESOURCE, "list") <= held(INSTALL, OPERATOR)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_operator_may_make_the_objects_of_each_scheduler(name: str):
    config = load_configuration(f"scheduler: {{profiles: [{{name: {name}}}]}}")
    allowed = held(EVERY_OPTION, OPERATOR)
    (backend,) = (one for one in build_backends(config.scheduler).all if one.name == name)
    for resource in backend.gang_resources:
        assert needed(resource, *CHANGE) <= allowed, resource
    named_too = allowed | rights(named(EVERY_OPTION, "ClusterRole", OPERATOR)["rules"], by_name=True)
    verbs = {"served": (), "get": ("get",), "list": ("list",), "dry_run": ("create",)}
    for question in backend.questions:
        assert needed(question.resource, *verbs[question.ask]) <= named_too, question
    if isinstance(backend, TopologyBackend) and backend.topology_resource is not None:
        changes = "delete" if backend.topology_frozen else "patch"
        assert needed(backend.topology_resource, "get", "create", changes) <= allowed


def test_rights_for_other_schedulers_come_with_their_profiles():
    def groups(file: Path) -> set[str]:
        """The API groups in which the operator may do something, but for KAI's queues, which it lists for warnings."""
        return {group for verb, group, resource in held(file, OPERATOR) if (verb, resource) != ("list", "queues")}

    optional = {
        "scheduling.run.ai",
        "kai.scheduler",
        "scheduling.volcano.sh",
        "topology.volcano.sh",
        "grove.dynamo.ai",
        "grove.ai",
    }
    assert groups(EVERY_OPTION) - groups(INSTALL) == optional


def test_compute_domains_can_be_let_go_when_they_are_not_made_any_more():
    assert needed(COMPUTE_DOMAIN, "list", "patch", "delete") <= held(INSTALL, OPERATOR)
    assert not needed(COMPUTE_DOMAIN, "create") <= held(INSTALL, OPERATOR)
    assert needed(COMPUTE_DOMAIN, "list", "watch", "create", "patch", "delete") <= held(EVERY_OPTION, OPERATOR)


def test_children_of_a_set_that_goes_are_deleted_by_collection():
    for kind in (Pod, Service, PodGang):
        assert needed(kind.RESOURCE, "deletecollection") <= held(INSTALL, OPERATOR)


def test_the_operator_holds_what_it_gives_to_init_containers():
    # Otherwise the API server refuses the Role: a user can give only rights that they have.
    ordered = set_of(pcs("s", clique("a"), clique("b"), startup="CliqueStartupTypeInOrder"))
    (role,) = (one for one in wanted_access(ordered) if one["kind"] == "Role")
    assert rights(role["rules"]) <= held(INSTALL, OPERATOR)


def test_rights_by_name_name_what_there_is():
    rules = named(INSTALL, "ClusterRole", OPERATOR)["rules"]
    by_kind: dict[str, set[str]] = {}
    for rule in rules:
        if "resourceNames" in rule:
            by_kind.setdefault(rule["apiGroups"][0], set()).update(rule["resourceNames"])
    assert by_kind == {
        "admissionregistration.k8s.io": {
            one.name for one in configurations(ServiceAddress("x"), authorizer=True, dialects=True, ca_bundle=None)
        },
        "apiextensions.k8s.io": {one["metadata"]["name"] for one in crds.load()},
    }


def test_the_operator_removes_webhooks_of_parts_that_can_be_switched_off_and_no_other():
    rules = named(INSTALL, "ClusterRole", OPERATOR)["rules"]
    (rule,) = (
        one for one in rules if one["apiGroups"] == ["admissionregistration.k8s.io"] and "delete" in one["verbs"]
    )
    always = configurations(ServiceAddress("x"), authorizer=False, dialects=False, ca_bundle=None)
    every = configurations(ServiceAddress("x"), authorizer=True, dialects=True, ca_bundle=None)
    assert rule["resources"] == ["validatingwebhookconfigurations"]
    assert set(rule["resourceNames"]) == {one.name for one in every} - {one.name for one in always}


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION], ids=lambda file: file.name)
def test_no_rule_has_a_wildcard(file: Path):
    for one in documents(file):
        for rule in one.get("rules") or ():
            assert not any("*" in part for parts in rule.values() for part in parts)


# The dialects


@pytest.mark.parametrize("file", [EVERY_OPTION, TWO_FILES[1]], ids=lambda file: file.name)
def test_who_keeps_sets_for_dialects_may_do_so(file: Path):
    allowed = held(file, OPERATOR)
    for kind in (PodGangSet, PlacementPodClique, KoordPodCliqueSet):
        assert needed(kind.RESOURCE, "list", "watch") <= allowed
        assert ("patch", kind.RESOURCE.group, f"{kind.RESOURCE.plural}/status") in allowed
    assert needed(PodCliqueSet.RESOURCE, *CHANGE) <= allowed
    by_name = [rule for rule in named(file, "ClusterRole", OPERATOR)["rules"] if "resourceNames" in rule]
    looked_at = {name for rule in by_name if "get" in rule["verbs"] for name in rule["resourceNames"]}
    assert {str(PodGangSet.RESOURCE), str(KoordPodCliqueSet.RESOURCE)} <= looked_at


def test_without_dialects_the_operator_makes_no_sets():
    assert not needed(PodCliqueSet.RESOURCE, "create") <= held(INSTALL, OPERATOR)


def test_two_files_are_a_whole_installation():
    crds_file, rest = TWO_FILES
    assert crds_file.read_text() == crds.load_text(dialects=True), "run make crds"
    longest = max(len(json.dumps(one, separators=(",", ":"))) for one in documents(crds_file))
    assert longest < 262_144  # what `kubectl apply` can remember of an object
    assert next(one["metadata"]["name"] for one in documents(rest)) == "grove-system"
    assert load_configuration(named(rest, "ConfigMap", "grove-operator-cm")["data"]["config.yaml"]).dialects.enabled
    scheduler = named(rest, "Deployment", "grove-scheduler")
    assert scheduler["metadata"]["namespace"] == "grove-system"
    service = named(rest, "Service", "grove-scheduler-metrics")
    assert [one["port"] for one in service["spec"]["ports"]] == [8080]
    labels = scheduler["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


# Files


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION], ids=lambda file: file.name)
def test_the_processes_accept_their_files_and_find_them(file: Path):
    for process, load in (("operator", load_configuration), ("scheduler", load_scheduler_configuration)):
        config = named(file, "ConfigMap", f"grove-{process}-cm")
        load(config["data"]["config.yaml"])  # type: ignore[operator]
        pod = named(file, "Deployment", f"grove-{process}")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert container["args"] == [process, f"--config={mounts[f'{process}-config']}/config.yaml"]
        (volume,) = (one for one in pod["volumes"] if one["name"] == f"{process}-config")
        assert volume["configMap"]["name"] == config["metadata"]["name"]


def operator_config(file: Path) -> OperatorConfiguration:
    return load_configuration(named(file, "ConfigMap", "grove-operator-cm")["data"]["config.yaml"])


def test_topology_can_be_switched_on_as_other_guides_write_it():
    """`helm upgrade -i grove … --set topologyAwareScheduling.enabled=true`."""
    assert yaml.safe_load((ROOT / "charts/every-option.yaml").read_text())["config"]["topologyAwareScheduling"] == {
        "enabled": False
    }
    assert operator_config(EVERY_OPTION).topology_aware_scheduling.enabled


def test_admission_finds_that_the_gate_of_the_scheduler_is_off():
    (ours,) = (one for one in operator_config(EVERY_OPTION).scheduler.profiles if one.name == "grove-scheduler")
    assert ours.config == {"groveIntegration": False}
    (ours,) = (one for one in operator_config(INSTALL).scheduler.profiles if one.name == "grove-scheduler")
    assert ours.config is None


def test_a_renamed_scheduler_account_is_still_exempt_from_the_guard():
    assert operator_config(EVERY_OPTION).authorizer.exempt_service_account_user_names == (
        "system:serviceaccount:dynamo-system:dynamo-operator",
        "system:serviceaccount:grove-system:gang-scheduler",
    )


def test_cert_managers_certificate_is_mounted_and_named():
    webhooks = operator_config(EVERY_OPTION).server.webhooks
    certificate = named(EVERY_OPTION, "Certificate", "grove-operator")
    assert webhooks.cert_manager_certificate == "grove-system/grove-operator"
    assert certificate["spec"]["secretName"] == webhooks.secret_name
    assert "grove-operator.grove-system.svc" in certificate["spec"]["dnsNames"]
    pod = named(EVERY_OPTION, "Deployment", "grove-operator")["spec"]["template"]["spec"]
    assert webhooks.server_cert_dir in [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]


@pytest.mark.parametrize(
    ("file", "image"),
    [(INSTALL, "grove-initc"), (EVERY_OPTION, "registry.example/other-initc")],
    ids=["from initImage", "from deployment.env, which wins"],
)
def test_the_operator_gets_one_image_for_init_containers(file: Path, image: str):
    (container,) = named(file, "Deployment", "grove-operator")["spec"]["template"]["spec"]["containers"]
    assert [one["value"] for one in container["env"] if one["name"] == INIT_CONTAINER_IMAGE] == [image]


# Pods and Services


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION], ids=lambda file: file.name)
def test_every_pod_meets_the_restricted_security_standard(file: Path):
    pods = [one["spec"]["template"]["spec"] for one in documents(file) if one["kind"] in ("Deployment", "Job")]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            # Certificates pass through a temporary file on their way into the TLS library.
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


@pytest.mark.parametrize("file", [INSTALL, EVERY_OPTION], ids=lambda file: file.name)
def test_services_lead_to_the_pods_ports(file: Path):
    for service in (one for one in documents(file) if one["kind"] == "Service"):
        name = service["metadata"]["name"]
        name = name if name == "grove-metrics" else name.removesuffix("-metrics")
        template = named(file, "Deployment", name)["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        ports = {one["name"]: one["containerPort"] for one in template["spec"]["containers"][0]["ports"]}
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports
            if port["name"] == "webhooks":  # webhook configurations name the number that the operator listens on
                assert port["port"] == ports["webhooks"]


def test_network_policies_let_in_what_pods_serve_and_nothing_else():
    objects = documents(EVERY_OPTION)
    policies = [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]
    deployments = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
    assert len(policies) == len(deployments) == 4
    for template in deployments:
        labels = template["metadata"]["labels"].items()
        (policy,) = (one for one in policies if one["podSelector"]["matchLabels"].items() <= labels)
        assert policy["policyTypes"] == ["Ingress", "Egress"], "what no rule names is refused"
        served = {port["containerPort"] for one in template["spec"]["containers"] for port in one["ports"]}
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == served
        pages = [rule for rule in policy["ingress"] if "from" in rule]
        assert pages, "metrics and the console are for those who are named"
        assert {"ports": [{"protocol": "TCP", "port": 6443}], "to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}]} in policy[
            "egress"
        ]
    assert not [one for one in documents(INSTALL) if one["kind"] == "NetworkPolicy"], "off unless asked for"


def test_the_schedulers_metrics_have_an_address_of_their_own():
    (port,) = named(INSTALL, "Service", "grove-scheduler-metrics")["spec"]["ports"]
    assert (port["name"], port["port"]) == ("metrics", 8080)


def test_webhooks_find_the_operators_service():
    address = ServiceAddress("grove-system", port=operator_config(INSTALL).server.webhooks.port)
    service = named(INSTALL, "Service", address.name)
    assert service["metadata"]["namespace"] == address.namespace
    assert address.port in [one["port"] for one in service["spec"]["ports"]]


# Images


def test_the_build_may_read_what_it_copies():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for source in (one for line in copies for one in line.split()):
        assert (ROOT / source).exists(), source
        assert source in kept or source.split("/")[0] in kept, source


def test_metrics_have_the_rights_they_use_and_are_off_by_default():
    role = "grove:system:grove-metrics"
    assert not [d for d in documents(INSTALL) if "grove-metrics" in d["metadata"]["name"]]
    service = MetricsService(cast("Client", None), MetricsSettings("grove-system"))
    wanted = {
        right
        for cache in (service._pods, service._gpus)
        for kind in followed(cache)
        for right in needed(kind.RESOURCE, "list", "watch")
    }
    wanted |= needed(SUBJECT_ACCESS_REVIEW, "create") | needed(Event.RESOURCE, "create", "patch")
    wanted |= needed(API_SERVICE, "list", "watch", "create")
    assert held(EVERY_OPTION, role) == wanted
    (by_name,) = (
        one
        for one in named(EVERY_OPTION, "ClusterRole", role)["rules"]
        if one["resources"] == ["apiservices"] and "resourceNames" in one
    )
    assert by_name["verbs"] == ["get", "patch"]
    ours = {one["metadata"]["name"] for one in wanted_services(MetricsAddress("grove-system"), b"")}
    assert set(by_name["resourceNames"]) == ours, "and no APIService of anybody else"
    assert role == OWNER, "the APIServices go with the chart"


@pytest.mark.parametrize("name", ["grove-operator", "grove-metrics"])
def test_a_server_has_the_time_to_leave_its_service(name: str):
    pod = named(EVERY_OPTION, "Deployment", name)["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > HAND_OVER_S + STOP_S


@pytest.mark.parametrize("name", ["grove-operator", "grove-metrics"])
def test_a_rollout_is_complete_when_every_node_routes_to_the_new_pods(name: str):
    """A kube-proxy uses a new endpoint up to a second after the pod is Ready, and later in a large cluster."""
    assert named(EVERY_OPTION, "Deployment", name)["spec"]["minReadySeconds"] >= 5


def test_metrics_are_started_with_arguments_they_know():
    deployment = named(EVERY_OPTION, "Deployment", "grove-metrics")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    command, *arguments = container["args"]
    assert command == "metrics"
    known = {name for option in metrics.params for name in (*option.opts, *option.secondary_opts)}
    assert {one.partition("=")[0] for one in arguments} <= known
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    defaults = {option.name: option.default for option in metrics.params}
    assert (ports["https"], ports["metrics"]) == (defaults["port"], defaults["probe_port"])
    service = named(EVERY_OPTION, "Service", "grove-metrics")
    assert service["metadata"]["name"] == defaults["service"]
    assert service["spec"]["ports"][0]["port"] == defaults["service_port"]
    secret = named(EVERY_OPTION, "Role", "grove:system:grove-metrics-certificate")
    assert secret["rules"][1]["resourceNames"] == [SECRET]


# Two of everything


@pytest.mark.parametrize("name", ["grove-operator", "grove-scheduler"])
def test_there_are_two_that_keep_apart_and_are_not_drained_at_once(name: str):
    deployment = named(INSTALL, "Deployment", name)
    assert deployment["spec"]["replicas"] == 2
    budget = named(INSTALL, "PodDisruptionBudget", name)["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    pod = deployment["spec"]["template"]["spec"]
    (zones,) = pod["topologySpreadConstraints"]
    (hosts,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    apart = {one["topologyKey"]: one["labelSelector"]["matchLabels"] for one in (zones, hosts["podAffinityTerm"])}
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert apart == {"topology.kubernetes.io/zone": selector, "kubernetes.io/hostname": selector}
    assert zones["whenUnsatisfiable"] == "ScheduleAnyway", "one zone must do"


def test_whatever_has_several_replicas_has_a_budget_that_finds_them():
    for file in (INSTALL, EVERY_OPTION):
        several = [d for d in documents(file) if d["kind"] == "Deployment" and d["spec"]["replicas"] > 1]
        budgets = {d["metadata"]["name"]: d["spec"] for d in documents(file) if d["kind"] == "PodDisruptionBudget"}
        assert budgets.keys() == {one["metadata"]["name"] for one in several}
        for one in several:
            assert budgets[one["metadata"]["name"]]["selector"] == one["spec"]["selector"]


def test_a_leader_that_dies_is_replaced_within_fifteen_seconds():
    """A lease of 15 s would be over after 15 s and the takeover."""
    for name, load in (("grove-operator-cm", load_configuration), ("grove-scheduler-cm", load_scheduler_configuration)):
        election = load(named(INSTALL, "ConfigMap", name)["data"]["config.yaml"]).leader_election
        assert election.lease_duration <= 12
        assert election.lease_duration - election.renew_deadline >= 3, "time for a write that is on its way"
