"""The rendered chart on a bare cluster: it is accepted, and its accounts may do all that Grove does and little else.

The processes run here as their ServiceAccounts, with the configuration files of the rendered ConfigMaps. Only addresses
differ from a pod's: ports of this machine, and webhooks reached by URL.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
import yaml
from tests.support.installed_chart import (
    INSTALL,
    OPERATOR,
    ROOT,
    SCHEDULER,
    SYSTEM_NAMESPACE,
    UNINSTALL,
    Installed,
    documents,
    found,
    process,
)
from tests.support.waiting import eventually, wait_until

from grove.admission.serving.registration import Registration, ServiceAddress
from grove.api.core import Event, Lease, Pod, Secret
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, KubeError
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.local.ports import free_ports
from grove.sim.nodes import FakeNodes
from grove.sim.topology import LEVELS, Topology

pytestmark = pytest.mark.real

EVERY_OPTION = ROOT / "tests/unit/charts/every-option.rendered.yaml"
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
LONG_S = 300.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    # A control plane of its own: webhook configurations stop every test beside this one, and there must be no CRDs yet.
    directory = tmp_path_factory.mktemp("chart")
    with ControlPlane(directory / "kube", "1.36.3", controller_manager=True) as plane:
        world = Installed(plane, directory)
        world.kubectl("apply", "--server-side", "--filename", str(INSTALL))
        yield world


@pytest.fixture
async def admin(installed: Installed) -> AsyncIterator[HttpClient]:
    async with HttpClient(load_config(installed.plane.kubeconfig)) as client:
        yield client


@pytest.fixture(scope="module")
def with_crds(installed: Installed) -> Installed:
    """The same after the operator's init container, and with a namespace for a team."""
    installed.kubectl("create", "namespace", "team")
    (container,) = found("Deployment", "grove-operator")["spec"]["template"]["spec"]["initContainers"]
    assert run(*container["args"], *installed.access_of(OPERATOR)).count("is served") == 5
    return installed


def run(*arguments: str) -> str:
    """What `grove` says when it is run to its end."""
    done = subprocess.run([sys.executable, "-m", "grove", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_applied_again_the_manifest_changes_nothing(installed: Installed):
    before = installed.kubectl("get", "deployments", "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={..generation}")
    installed.kubectl("apply", "--server-side", "--filename", str(INSTALL))
    after = installed.kubectl("get", "deployments", "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={..generation}")
    assert before == after == "1 1"


def test_with_every_option_the_api_server_accepts_all_it_serves(installed: Installed):
    served = [
        one
        for one in documents(EVERY_OPTION)
        if one["apiVersion"] not in ("cert-manager.io/v1", "monitoring.coreos.com/v1")
    ]
    text = yaml.safe_dump_all(served)
    answer = installed.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename=-", stdin=text
    )
    assert len(answer.splitlines()) == len(served)


MAY = [
    (OPERATOR, "create", "resource.k8s.io/resourceclaims"),
    (OPERATOR, "get", "resource.k8s.io/resourceclaimtemplates"),
    (OPERATOR, "update", "grove.io/podcliquesets/finalizers"),
    (SCHEDULER, "patch", "/persistentvolumeclaims"),
    (SCHEDULER, "list", "storage.k8s.io/storageclasses"),
    (SCHEDULER, "list", "resource.k8s.io/resourceslices"),
    (SCHEDULER, "patch", "resource.k8s.io/resourceclaims/status"),
    (SCHEDULER, "create", "/pods/eviction"),
    (SCHEDULER, "delete", "/pods"),
]
MAY_NOT = [
    (OPERATOR, "delete", "grove.io/podcliquesets"),
    (OPERATOR, "create", "/pods/exec"),
    (OPERATOR, "create", "/pods/binding"),
    (OPERATOR, "patch", "/nodes"),
    (OPERATOR, "create", "rbac.authorization.k8s.io/clusterrolebindings"),
    (OPERATOR, "escalate", "rbac.authorization.k8s.io/roles"),
    (OPERATOR, "delete", "apiextensions.k8s.io/customresourcedefinitions"),
    (OPERATOR, "patch", "admissionregistration.k8s.io/validatingwebhookconfigurations"),
    (OPERATOR, "patch", "coordination.k8s.io/leases"),  # outside its own namespace
    (SCHEDULER, "list", "/secrets"),
    (SCHEDULER, "create", "/pods"),
    (SCHEDULER, "patch", "/nodes"),
    (SCHEDULER, "patch", "scheduler.grove.io/podgangs"),
]


@pytest.mark.parametrize(
    ("user", "verb", "what", "allowed"),
    [(*one, True) for one in MAY] + [(*one, False) for one in MAY_NOT],
    ids=lambda value: str(value).rpartition(":")[2],
)
def test_what_the_accounts_may_do(installed: Installed, user: str, verb: str, what: str, allowed: bool):
    wait_until(lambda: installed.may(user, verb, what, "team") is allowed)


def operator_arguments(installed: Installed) -> tuple[list[str], dict[str, str]]:
    """`grove operator` as the Deployment runs it, with this machine's addresses and the guard of managed objects on."""
    config = yaml.safe_load(found("ConfigMap", "grove-operator-cm")["data"]["config.yaml"])
    ports = dict(zip(("webhooks", "healthProbes", "metrics"), free_ports(3), strict=True))
    for name, port in ports.items():
        config["server"][name] |= {"bindAddress": "127.0.0.1", "port": port}
    config["authorizer"]["enabled"] = True
    file = installed.directory / "operator.yaml"
    file.write_text(yaml.safe_dump(config))
    (container,) = found("Deployment", "grove-operator")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "operator"
    url = f"https://127.0.0.1:{ports['webhooks']}"
    environment = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    arguments = ["operator", *installed.access_of(OPERATOR), "--config", str(file), "--webhook-url", url]
    return arguments, environment


def scheduler_arguments(installed: Installed) -> list[str]:
    file = installed.directory / "scheduler.yaml"
    file.write_text(found("ConfigMap", "grove-scheduler-cm")["data"]["config.yaml"])
    return ["scheduler", *installed.access_of(SCHEDULER), "--config", str(file), "--port", "0"]


async def is_whole(admin: HttpClient, name: str) -> bool:
    """Whether the set's one replica is available and up to date."""
    status = (await admin.get(PodCliqueSet, name, "team")).status
    return status.available_replicas == status.updated_replicas == 1


async def is_empty(admin: HttpClient) -> bool:
    kinds = (PodCliqueSet, PodClique, PodGang, Pod)
    return not any([(await admin.list(kind, "team")).items for kind in kinds])


async def pods_that_stay(admin: HttpClient, name: str) -> int:
    pods = (await admin.list(Pod, "team", labels=f"app.kubernetes.io/part-of={name}")).items
    return sum(not pod.metadata.is_deleting for pod in pods)


async def run_systems(admin: HttpClient) -> None:
    """One system started, updated, put out by a more urgent one, and both deleted: most of what Grove ever does."""
    await admin.create(
        ClusterTopologyBinding.RESOURCE,
        {
            "metadata": {"name": "fake-nodes"},
            "spec": {"levels": [{"domain": d, "key": k} for d, k in LEVELS]},
        },
    )
    chat = yaml.safe_load((ROOT / "samples/disaggregated.yaml").read_text())
    chat["metadata"]["namespace"] = "team"
    router = chat["spec"]["template"]["cliques"][0]["spec"]
    router["autoScalingConfig"] = {
        "minReplicas": 2,
        "maxReplicas": 4,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ],
    }
    await admin.create(PodCliqueSet, chat)
    await eventually(lambda: is_whole(admin, "chat"), LONG_S, "chat is available")

    image = "example/router:2"
    change = [{"op": "replace", "path": "/spec/template/cliques/0/spec/podSpec/containers/0/image", "value": image}]
    await admin.patch(PodCliqueSet, "chat", change, "team")
    router_pods = "grove.io/podclique=chat-0-router"

    async def routers_run_it() -> bool:
        pods = (await admin.list(Pod.RESOURCE, "team", labels=router_pods)).items
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        return images == [image, image] and await is_whole(admin, "chat")

    await eventually(routers_run_it, LONG_S, "the router was updated")
    whole = await pods_that_stay(admin, "chat")

    urgent = yaml.safe_load((ROOT / "samples/small.yaml").read_text())
    urgent["metadata"] |= {"name": "urgent", "namespace": "team"}
    urgent["spec"]["template"]["priorityClassName"] = "urgent"
    server = urgent["spec"]["template"]["cliques"][0]["spec"]
    server["replicas"] = 8
    server["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 8}}
    await admin.create(PodCliqueSet, urgent)
    await eventually(lambda: is_whole(admin, "urgent"), LONG_S, "urgent put chat out")

    async def chat_waits_whole() -> bool:
        return await pods_that_stay(admin, "chat") == whole

    # A pod that is created while its set is deleted is refused, because its ServiceAccount is gone.
    await eventually(chat_waits_whole, LONG_S, "all pods of chat exist again, and wait")
    for name in ("chat", "urgent"):
        await admin.delete(PodCliqueSet, name, "team")
    await eventually(lambda: is_empty(admin), LONG_S, "everything is gone")


async def test_the_accounts_bring_up_update_preempt_and_remove_systems(with_crds: Installed, admin: HttpClient):
    installed = with_crds
    installed.kubectl("create", "priorityclass", "urgent", "--value=1000")
    before = installed.refused_requests()
    arguments, environment = operator_arguments(installed)
    nodes = FakeNodes(admin, SYSTEM)
    await nodes.add(Topology(racks=2, nodes=4))
    with (
        process(installed, "operator", *arguments, **environment) as operator,
        process(installed, "scheduler", *scheduler_arguments(installed)) as scheduler,
    ):
        try:
            async with nodes.running():
                await eventually(lambda: asyncio.to_thread(is_registered, installed), LONG_S, "admission is served")
                await run_systems(admin)
        except BaseException:
            print(operator.said[-5000:], scheduler.said[-5000:], sep="\n-- scheduler\n")
            raise
        await eventually(lambda: was_told(admin), LONG_S, "Events of both, and of the preemption")
        assert (operator.stop(), scheduler.stop()) == (0, 0)
        for log in (operator.said, scheduler.said):
            assert "forbidden" not in log.lower()
    assert installed.refused_requests() == before


async def was_told(admin: HttpClient) -> bool:
    """Whether both processes wrote Events, one of them of the preemption: they are written behind everything else."""
    events = (await admin.list(Event, "team")).items
    both = {"grove-operator", "grove-scheduler"} <= {event.source.get("component") for event in events}
    return both and "GangPreempted" in {event.reason for event in events}


def is_registered(installed: Installed) -> bool:
    return installed.kubectl("get", "validatingwebhookconfigurations", "-o", "name").count("\n") == 3


async def test_after_an_uninstall_the_hook_removes_webhooks_and_what_the_processes_made_for_themselves(
    with_crds: Installed, admin: HttpClient
):
    gone = ServiceAddress(SYSTEM_NAMESPACE)
    await Registration(admin, gone, authorizer=True, ca_bundle=b"").ensure()
    small = yaml.safe_load((ROOT / "samples/small.yaml").read_text())
    small["metadata"] = {"name": "small", "namespace": "team"}

    async def is_refused() -> bool:
        try:
            await admin.create(PodCliqueSet, small, dry_run=True)
        except KubeError as error:
            return "webhook" in str(error)
        return False

    await eventually(is_refused, LONG_S, "the webhooks are asked")

    made = {
        Lease: ("grove-operator-leader-election", "grove-scheduler-leader-election"),
        Secret: ("grove-metrics-server-cert", "grove-webhook-server-cert"),
    }
    for kind, names in made.items():
        for name in names:
            with suppress(AlreadyExists):  # left by processes of the tests before
                await admin.create(kind.RESOURCE, {"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}})

    hook = [one for one in documents(EVERY_OPTION) if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    with_crds.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(hook))
    (job,) = (one for one in hook if one["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]

    def may_begin() -> bool:
        ours = f"admissionregistration.k8s.io/{CONFIGURATIONS[0]}", "", "podcliqueset-defaulting-webhook"
        lease = "coordination.k8s.io/leases", SYSTEM_NAMESPACE, "grove-operator-leader-election"
        return all(with_crds.may(UNINSTALL, "delete", *one) for one in (ours, lease))

    wait_until(may_begin)
    run(*container["args"], *with_crds.access_of(UNINSTALL))

    assert with_crds.kubectl("get", ",".join(CONFIGURATIONS), "-o", "name") == ""
    left = with_crds.kubectl("get", "leases,secrets", "-n", SYSTEM_NAMESPACE, "-o", "name").split()
    assert left == ["secret/grove-webhook-server-cert"], "which is cert-manager's here, and not ours to remove"
    await eventually(lambda: admin.create(PodCliqueSet, small), LONG_S, "the webhooks are not asked any more")
