"""What the API server does for pods: defaults, gates, binding, immutability, quota, eviction, account tokens."""

from __future__ import annotations

import asyncio
import base64

import pytest
from tests.support.objects import pod_manifest

from grove.api.core import Pod, PodDisruptionBudget, PriorityClass, Secret, ServiceAccount
from grove.api.meta import Resource
from grove.kube.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests

POD = Pod.RESOURCE
QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")
GATE = "grove.io/podgang-pending-creation"


async def force_delete(cluster, name="p"):
    await cluster.client.delete(Pod, name, cluster.namespace, grace_period_s=0)


async def test_the_server_fills_a_pods_defaults(cluster):
    resources = {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}}
    containers = [
        {"name": "tagged", "image": "registry.example/m:1", "resources": resources, "ports": [{"containerPort": 80}]},
        {"name": "latest", "image": "registry.example/m"},
    ]
    body = pod_manifest(cluster.namespace, containers=containers)
    del body["spec"]["schedulerName"]
    body["spec"]["nodeSelector"] = {"nowhere": "at-all"}
    made = await cluster.client.create(POD, body)
    spec, first, second = made["spec"], *made["spec"]["containers"]

    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["enableServiceLinks"] is True
    assert spec["securityContext"] == {}
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert (first["imagePullPolicy"], second["imagePullPolicy"]) == ("IfNotPresent", "Always")
    assert first["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "2"}
    assert first["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert (first["terminationMessagePath"], first["terminationMessagePolicy"]) == ("/dev/termination-log", "File")
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "Burstable")
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        pytest.param({}, "BestEffort", id="asks for nothing"),
        pytest.param({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort", id="devices do not count"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="asks for some"),
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits are requests"),
    ],
)
async def test_quality_of_service_follows_resources(cluster, resources, want):
    container = {"name": "m", "image": "i:1", "resources": resources}
    made = await cluster.client.create(POD, pod_manifest(cluster.namespace, containers=[container]))

    assert made["status"]["qosClass"] == want


async def test_a_submitted_status_is_ignored(cluster):
    body = pod_manifest(cluster.namespace)
    body["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
    made = await cluster.client.create(Pod, body)

    assert (made.status.phase, made.status.pod_ip) == ("Pending", "")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": []}, id="no containers"),
        pytest.param({"containers": [{"image": "i:1"}]}, id="container without a name"),
        pytest.param({"containers": [{"name": "m"}]}, id="container without an image"),
        pytest.param({"schedulingGates": [{"name": GATE}], "nodeName": "n1"}, id="gated and bound at once"),
    ],
)
async def test_a_pod_that_cannot_be_is_invalid(cluster, spec):
    with pytest.raises(Invalid):
        await cluster.client.create(Pod, pod_manifest(cluster.namespace, **spec))


async def test_a_pod_needs_its_service_account(cluster):
    with pytest.raises(Forbidden, match="service account"):
        await cluster.client.create(Pod, pod_manifest(cluster.namespace, serviceAccountName="nobody"))


async def test_a_priority_class_becomes_a_number(cluster):
    name = f"{cluster.namespace}-high"
    await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"})

    async def made() -> Pod:
        # A real server's admission plugin learns of new classes from a watch.
        return await cluster.client.create(Pod, pod_manifest(cluster.namespace, priorityClassName=name))

    found = await cluster.eventually(made)
    assert (found.spec.priority, found.spec.preemption_policy) == (1000, "Never")
    await cluster.client.delete(PriorityClass, name)
    with pytest.raises(Forbidden, match="no PriorityClass"):
        await cluster.client.create(Pod, pod_manifest(cluster.namespace, "q", priorityClassName="not-there"))


async def test_a_gated_pod_says_so(cluster):
    made = await cluster.client.create(Pod, pod_manifest(cluster.namespace, schedulingGates=[{"name": GATE}]))

    assert made.is_gated
    assert made.is_held_by_gate
    with pytest.raises(Conflict, match="schedulingGates"):
        await cluster.client.bind(cluster.namespace, "p", "n1")


async def test_a_gate_goes_and_never_comes_back(cluster):
    gates = [{"name": GATE}, {"name": "example.com/other"}]
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, schedulingGates=gates))
    test = {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE}
    removed = await cluster.client.patch(
        Pod, "p", [test, {"op": "remove", "path": "/spec/schedulingGates/0"}], cluster.namespace
    )
    assert [gate.name for gate in removed.spec.scheduling_gates] == ["example.com/other"]
    assert removed.metadata.generation == 2

    with pytest.raises(Invalid):
        await cluster.client.patch(Pod, "p", {"spec": {"schedulingGates": gates}}, cluster.namespace)
    free = await cluster.client.patch(POD, "p", {"spec": {"schedulingGates": None}}, cluster.namespace)
    assert "schedulingGates" not in free["spec"]


async def test_the_gated_condition_stays_until_the_pod_is_bound(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, schedulingGates=[{"name": GATE}]))
    free = await cluster.client.patch(Pod, "p", {"spec": {"schedulingGates": []}}, cluster.namespace)
    assert free.is_held_by_gate
    assert not free.is_gated

    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere)
    bound = await cluster.client.get(Pod, "p", cluster.namespace)
    assert bound.is_scheduled
    assert not bound.is_held_by_gate
    await force_delete(cluster)


async def test_binding_names_the_node_and_marks_the_pod_scheduled(cluster):
    made = await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    assert made.status.conditions == ()
    await cluster.client.bind(cluster.namespace, "p", cluster.nowhere, uid=made.metadata.uid)

    bound = await cluster.client.get(POD, "p", cluster.namespace)
    assert bound["spec"]["nodeName"] == cluster.nowhere
    scheduled = [c for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert [c["status"] for c in scheduled] == ["True"]
    assert scheduled[0]["lastTransitionTime"] is not None
    assert bound["status"]["phase"] == "Pending"
    assert bound["metadata"]["generation"] == 1
    await force_delete(cluster)


async def test_a_pod_is_bound_once(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    results = await asyncio.gather(
        *(cluster.client.bind(cluster.namespace, "p", node) for node in (cluster.nowhere, f"{cluster.nowhere}-2")),
        return_exceptions=True,
    )

    assert sorted(type(r).__name__ for r in results) == ["Conflict", "NoneType"]
    await force_delete(cluster)


async def test_binding_another_pod_of_the_name_conflicts(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    with pytest.raises(Conflict):
        await cluster.client.bind(cluster.namespace, "p", "n1", uid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(NotFound):
        await cluster.client.bind(cluster.namespace, "nothing", "n1")


async def test_a_deleting_pod_is_not_bound(cluster):
    body = pod_manifest(cluster.namespace)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.client.create(Pod, body)
    await cluster.client.delete(Pod, "p", cluster.namespace)

    with pytest.raises(Conflict):
        await cluster.client.bind(cluster.namespace, "p", "n1")
    await cluster.client.patch(Pod, "p", {"metadata": {"finalizers": None}}, cluster.namespace)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"nodeName": "n1"}}, id="node name"),
        pytest.param({"spec": {"schedulerName": "other"}}, id="scheduler"),
        pytest.param({"spec": {"hostname": "other"}}, id="hostname"),
        pytest.param({"spec": {"containers": [{"name": "x", "image": "i:1"}]}}, id="containers"),
        pytest.param({"spec": {"nodeSelector": {"a": "b"}}}, id="node selector of a pod without gates"),
        pytest.param({"spec": {"schedulingGates": [{"name": GATE}]}}, id="a gate on a pod without gates"),
        pytest.param({"spec": {"tolerations": []}}, id="fewer tolerations than it came with"),
    ],
)
async def test_most_of_a_pods_spec_never_changes(cluster, patch):
    await cluster.client.create(
        Pod, pod_manifest(cluster.namespace, tolerations=[{"key": "own", "operator": "Exists"}])
    )
    with pytest.raises(Invalid):
        await cluster.client.patch(Pod, "p", patch, cluster.namespace)


async def test_the_servers_own_tolerations_come_back(cluster):
    made = await cluster.client.create(POD, pod_manifest(cluster.namespace))
    same = await cluster.client.patch(POD, "p", {"spec": {"tolerations": []}}, cluster.namespace)

    assert same["spec"]["tolerations"] == made["spec"]["tolerations"]
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_images_and_labels_of_a_pod_may_change(cluster):
    made = await cluster.client.create(POD, pod_manifest(cluster.namespace))
    containers = [{**made["spec"]["containers"][0], "image": "registry.example/m:2"}]
    changed = await cluster.client.patch(
        Pod, "p", {"spec": {"containers": containers}, "metadata": {"labels": {"k": "v"}}}, cluster.namespace
    )

    assert changed.spec.containers[0].image == "registry.example/m:2"
    assert (changed.metadata.labels, changed.metadata.generation) == ({"k": "v"}, 2)


async def test_a_gated_pods_node_selector_may_only_grow(cluster):
    await cluster.client.create(
        Pod, pod_manifest(cluster.namespace, schedulingGates=[{"name": GATE}], nodeSelector={"a": "1"})
    )
    grown = await cluster.client.patch(Pod, "p", {"spec": {"nodeSelector": {"b": "2"}}}, cluster.namespace)
    assert grown.spec.node_selector == {"a": "1", "b": "2"}

    with pytest.raises(Invalid):
        await cluster.client.patch(Pod, "p", {"spec": {"nodeSelector": {"a": "2"}}}, cluster.namespace)


async def test_status_of_a_pod_is_patched_by_its_kubelet(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace))
    patch = {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}
    changed = await cluster.client.patch(Pod, "p", patch, cluster.namespace, subresource="status")

    assert (changed.status.phase, changed.status.pod_ip) == ("Running", "10.0.0.1")
    assert changed.metadata.generation == 1


async def test_a_quota_on_pods_is_kept(cluster):
    quota = {"metadata": {"name": "few", "namespace": cluster.namespace}, "spec": {"hard": {"pods": "2"}}}
    await cluster.client.create(QUOTA, quota)

    async def is_accounted() -> bool:
        found = await cluster.client.get(QUOTA, "few", cluster.namespace)
        return found.get("status", {}).get("used") == {"pods": "0"}

    await cluster.eventually(is_accounted)
    # A real server's admission plugin learns of it from a watch, and refuses every pod until then.
    await cluster.eventually(lambda: cluster.client.create(Pod, pod_manifest(cluster.namespace, "a")))
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, "b"))
    with pytest.raises(Forbidden, match="exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"):
        await cluster.client.create(Pod, pod_manifest(cluster.namespace, "c"))


async def ready_pods(cluster, *names: str) -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    for name in names:
        await cluster.client.create(Pod, pod_manifest(cluster.namespace, name, labels={"app": "web"}))
        await cluster.client.bind(cluster.namespace, name, cluster.nowhere)
        status = {"status": {"phase": "Running", "conditions": ready}}
        await cluster.client.patch(Pod, name, status, cluster.namespace, subresource="status")


async def budget(cluster, allowed: int, **spec: object) -> None:
    body = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    await cluster.client.create(
        PodDisruptionBudget, {"metadata": {"name": "pdb", "namespace": cluster.namespace}, "spec": body}
    )

    async def is_settled() -> bool:
        status = (await cluster.client.get(PodDisruptionBudget, "pdb", cluster.namespace)).status
        return status.observed_generation == 1 and status.disruptions_allowed == allowed

    await cluster.eventually(is_settled)


async def test_an_eviction_without_a_budget_is_a_deletion(cluster):
    await ready_pods(cluster, "a")
    await cluster.client.evict(cluster.namespace, "a")

    assert (await cluster.client.get(Pod, "a", cluster.namespace)).metadata.is_deleting
    await force_delete(cluster, "a")


async def test_a_budget_allows_so_many_evictions_and_no_more(cluster):
    await ready_pods(cluster, "a", "b", "c")
    await budget(cluster, 1, minAvailable=2)

    await cluster.client.evict(cluster.namespace, "a")
    with pytest.raises(TooManyRequests) as refused:
        await cluster.client.evict(cluster.namespace, "b")
    assert refused.value.details["causes"][0]["reason"] == "DisruptionBudget"
    assert not (await cluster.client.get(Pod, "b", cluster.namespace)).metadata.is_deleting
    for name in ("a", "b", "c"):
        await force_delete(cluster, name)


async def test_a_dry_run_eviction_asks_without_spending(cluster):
    await ready_pods(cluster, "a", "b")
    await budget(cluster, 1, minAvailable=1)

    await cluster.client.evict(cluster.namespace, "a", dry_run=True)
    await cluster.client.evict(cluster.namespace, "a", dry_run=True)
    assert not (await cluster.client.get(Pod, "a", cluster.namespace)).metadata.is_deleting
    for name in ("a", "b"):
        await force_delete(cluster, name)


async def test_a_pending_pod_is_evicted_whatever_the_budget(cluster):
    await cluster.client.create(Pod, pod_manifest(cluster.namespace, "a", labels={"app": "web"}))
    await budget(cluster, 0, minAvailable=1)
    await cluster.client.evict(cluster.namespace, "a")

    with pytest.raises(NotFound):
        await cluster.client.get(Pod, "a", cluster.namespace)


async def test_evicting_another_pod_of_the_name_conflicts(cluster):
    await ready_pods(cluster, "a")
    with pytest.raises(Conflict):
        await cluster.client.evict(cluster.namespace, "a", uid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(NotFound):
        await cluster.client.evict(cluster.namespace, "nothing")
    await force_delete(cluster, "a")


def token_secret(namespace: str, account: str) -> dict:
    annotations = {"kubernetes.io/service-account.name": account}
    meta = {"name": "token", "namespace": namespace, "annotations": annotations}
    return {"metadata": meta, "type": "kubernetes.io/service-account-token"}


async def test_a_token_secret_is_filled_for_its_account(cluster):
    account = await cluster.client.create(ServiceAccount, {"metadata": {"name": "sa", "namespace": cluster.namespace}})
    await cluster.client.create(Secret, token_secret(cluster.namespace, "sa"))

    async def filled() -> Secret | None:
        found = await cluster.client.get(Secret, "token", cluster.namespace)
        return found if found.data.get("token") else None

    secret = await cluster.eventually(filled)
    assert sorted(secret.data) == ["ca.crt", "namespace", "token"]
    assert base64.b64decode(secret.data["namespace"]).decode() == cluster.namespace
    assert secret.metadata.annotations["kubernetes.io/service-account.uid"] == account.metadata.uid


@pytest.mark.parametrize("account_first", [True, False], ids=["the account is deleted later", "it never was"])
async def test_a_token_secret_without_its_account_is_deleted(cluster, account_first):
    if account_first:
        await cluster.client.create(ServiceAccount, {"metadata": {"name": "sa", "namespace": cluster.namespace}})
    await cluster.client.create(Secret, token_secret(cluster.namespace, "sa"))
    if account_first:
        await cluster.client.delete(ServiceAccount, "sa", cluster.namespace)

    async def is_gone() -> bool:
        try:
            await cluster.client.get(Secret, "token", cluster.namespace)
        except NotFound:
            return True
        return False

    await cluster.eventually(is_gone)


async def test_a_token_secret_must_name_an_account(cluster):
    body = token_secret(cluster.namespace, "sa")
    del body["metadata"]["annotations"]
    with pytest.raises(Invalid):
        await cluster.client.create(Secret, body)
