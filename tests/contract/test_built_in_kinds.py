"""The other built-in kinds that Grove writes: what the server fills in, what it refuses, what it keeps as it was."""

from __future__ import annotations

import pytest

from grove.api.core import (
    ConfigMap,
    CustomResourceDefinition,
    Event,
    HorizontalPodAutoscaler,
    Lease,
    Node,
    Pod,
    PriorityClass,
    ResourceClaim,
    Role,
    RoleBinding,
    Secret,
    Service,
)
from grove.api.podclique import PodClique
from grove.crds import load
from grove.kube.errors import ApiError, Invalid, NotFound
from grove.sim.topology import Topology


def meta(cluster, name: str = "a", **more: object) -> dict:
    return {"name": name, "namespace": cluster.namespace, **more}


async def test_a_headless_service_needs_no_ports(cluster):
    spec = {"clusterIP": "None", "selector": {"app": "web"}, "publishNotReadyAddresses": True}
    made = await cluster.client.create(Service.RESOURCE, {"metadata": meta(cluster), "spec": spec})

    assert {key: made["spec"][key] for key in spec} == spec
    assert (made["spec"]["type"], made["spec"]["sessionAffinity"]) == ("ClusterIP", "None")
    assert made["spec"]["clusterIPs"] == ["None"]


async def test_a_service_with_an_address_gets_one_and_needs_ports(cluster):
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    made = await cluster.client.create(Service.RESOURCE, {"metadata": meta(cluster), "spec": spec})
    assert made["spec"]["clusterIP"].count(".") == 3
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]

    with pytest.raises(Invalid):
        await cluster.client.create(Service, {"metadata": meta(cluster, "b"), "spec": {"selector": {"app": "web"}}})


async def test_a_service_selector_may_change(cluster):
    spec = {"clusterIP": "None", "selector": {"app": "web"}}
    await cluster.client.create(Service, {"metadata": meta(cluster), "spec": spec})
    patch = {"spec": {"selector": {"app": None, "tier": "db"}, "publishNotReadyAddresses": True}}
    changed = await cluster.client.patch(Service, "a", patch, cluster.namespace)

    assert (changed.spec.selector, changed.spec.publish_not_ready_addresses) == ({"tier": "db"}, True)


async def test_a_binding_keeps_its_role(cluster):
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch"]}]
    await cluster.client.create(Role, {"metadata": meta(cluster), "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    subject = {"kind": "ServiceAccount", "name": "sa", "namespace": cluster.namespace}
    await cluster.client.create(RoleBinding, {"metadata": meta(cluster), "roleRef": ref, "subjects": [subject]})

    changed = await cluster.client.patch(RoleBinding, "a", {"subjects": [{**subject, "name": "sb"}]}, cluster.namespace)
    assert [s["name"] for s in changed.subjects] == ["sb"]
    with pytest.raises(Invalid):
        await cluster.client.patch(RoleBinding, "a", {"roleRef": {"name": "other"}}, cluster.namespace)


async def test_an_autoscaler_gets_its_defaults(cluster):
    target = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "a"}
    body = {"metadata": meta(cluster), "spec": {"scaleTargetRef": target, "maxReplicas": 5}}
    made = await cluster.client.create(HorizontalPodAutoscaler, body)

    assert (made.spec.min_replicas, made.spec.max_replicas) == (1, 5)
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert made.spec.metrics == ({"type": "Resource", "resource": cpu},)


async def test_an_autoscaler_comes_back_with_amounts_as_the_server_spells_them(cluster):
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}

    def waiting(amount: object) -> dict:
        target = {"type": "AverageValue", "averageValue": amount}
        return {"type": "Pods", "pods": {"metric": {"name": "waiting"}, "target": target}}

    written = ("1000m", "0.5", 1500, "2048Mi")
    target = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "a"}
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "metrics": [cpu, *map(waiting, written)]}
    await cluster.client.create(HorizontalPodAutoscaler, {"metadata": meta(cluster), "spec": spec})

    made = await cluster.client.get(HorizontalPodAutoscaler, "a", cluster.namespace)

    first, *others = made.spec.metrics
    assert first == cpu
    assert [one["pods"]["target"]["averageValue"] for one in others] == ["1", "500m", "1500", "2Gi"]

    again = await cluster.client.patch(HorizontalPodAutoscaler, "a", {"spec": spec}, cluster.namespace)
    assert again.metadata.resource_version == made.metadata.resource_version, "the same, for the server"


async def test_an_autoscaler_whose_bounds_cross_is_invalid(cluster):
    target = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": "a"}
    body = {"metadata": meta(cluster), "spec": {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 5}}
    with pytest.raises(Invalid):
        await cluster.client.create(HorizontalPodAutoscaler, body)


async def test_a_secret_takes_plain_text_and_keeps_its_type(cluster):
    made = await cluster.client.create(Secret.RESOURCE, {"metadata": meta(cluster), "stringData": {"k": "v"}})
    assert (made["type"], made["data"]) == ("Opaque", {"k": "dg=="})
    assert "stringData" not in made

    with pytest.raises(Invalid):
        await cluster.client.patch(Secret, "a", {"type": "example.com/other"}, cluster.namespace)


async def test_a_lease_keeps_microseconds(cluster):
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"}
    made = await cluster.client.create(Lease.RESOURCE, {"metadata": meta(cluster), "spec": spec})
    assert made["spec"] == spec

    patched = await cluster.client.patch(Lease, "a", {"spec": {"holderIdentity": None}}, cluster.namespace)
    assert patched.spec.holder_identity is None
    assert patched.spec.renew_time.microsecond == 123456


async def test_an_event_is_stored_and_found_by_its_object(cluster):
    involved = {"kind": "Pod", "name": "p", "namespace": cluster.namespace}
    body = {"metadata": meta(cluster), "involvedObject": involved, "reason": "R", "message": "m", "type": "Normal"}
    await cluster.client.create(Event, body)

    for fields, count in (("involvedObject.name=p,reason=R", 1), ("involvedObject.name=q", 0)):
        assert len((await cluster.client.list(Event, cluster.namespace, fields=fields)).items) == count


async def test_a_priority_class_keeps_its_value(cluster):
    name = f"{cluster.namespace}-c"
    made = await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": 7})
    assert made.preemption_policy == "PreemptLowerPriority"

    with pytest.raises(Invalid):
        await cluster.client.patch(PriorityClass, name, {"value": 8})
    await cluster.client.delete(PriorityClass, name)


async def test_the_spec_of_a_claim_never_changes(cluster):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    await cluster.client.create(
        ResourceClaim, {"metadata": meta(cluster), "spec": {"devices": {"requests": [request]}}}
    )
    labelled = await cluster.client.patch(ResourceClaim, "a", {"metadata": {"labels": {"k": "v"}}}, cluster.namespace)
    assert labelled.metadata.labels == {"k": "v"}

    other = {"spec": {"devices": {"requests": [{**request, "name": "other"}]}}}
    with pytest.raises(Invalid):
        await cluster.client.patch(ResourceClaim, "a", other, cluster.namespace)


async def test_a_node_is_cordoned_by_its_spec(cluster):
    nodes = await cluster.add_nodes(Topology())
    await nodes.cordon(nodes.names[0])
    page = await cluster.client.list(
        Node, fields="spec.unschedulable=true", labels=f"kubernetes.io/hostname={nodes.names[0]}"
    )
    assert [n.metadata.name for n in page.items] == nodes.names

    await nodes.cordon(nodes.names[0], unschedulable=False)
    assert not (await cluster.client.get(Node, nodes.names[0])).spec.unschedulable


async def test_applying_the_same_definition_again_changes_nothing(cluster):
    document = next(d for d in load() if d["spec"]["names"]["kind"] == "PodGang")
    resource, manager = CustomResourceDefinition.RESOURCE, f"grove-{cluster.namespace}"
    first = await cluster.client.apply(resource, document, field_manager=manager)
    second = await cluster.client.apply(resource, document, field_manager=manager)

    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert first["metadata"]["generation"] == second["metadata"]["generation"]


async def test_apply_creates_what_is_not_there(cluster):
    body = {"metadata": meta(cluster), "data": {"k": "v"}}
    made = await cluster.client.apply(ConfigMap.RESOURCE, body, field_manager="test")
    assert made["data"] == {"k": "v"}

    body["data"] = {"k": "w"}
    changed = await cluster.client.apply(ConfigMap.RESOURCE, body, field_manager="test")
    assert (changed["data"], changed["metadata"]["uid"]) == ({"k": "w"}, made["metadata"]["uid"])


async def test_a_list_without_a_namespace_covers_all(cluster):
    label = f"{cluster.namespace}-all"
    for namespace in ("default", cluster.namespace):
        await cluster.client.create(
            ConfigMap, {"metadata": {"name": label, "namespace": namespace, "labels": {"set": label}}}
        )
    page = await cluster.client.list(ConfigMap, labels=f"set={label}")

    assert sorted(o.metadata.namespace for o in page.items) == sorted(("default", cluster.namespace))
    await cluster.client.delete(ConfigMap, label, "default")


async def test_subresources_that_are_not_there(cluster):
    await cluster.client.create(ConfigMap, {"metadata": meta(cluster)})
    with pytest.raises(ApiError) as refused:
        await cluster.client.patch(ConfigMap, "a", {"spec": {"replicas": 1}}, cluster.namespace, subresource="scale")
    assert refused.value.code == 404

    with pytest.raises(NotFound):
        await cluster.client.patch(
            PodClique, "nothing", {"status": {"replicas": 1}}, cluster.namespace, subresource="status"
        )


async def test_a_status_takes_a_json_patch_too(cluster):
    spec = {"schedulerName": "nobody", "containers": [{"name": "m", "image": "i:1"}]}
    await cluster.client.create(Pod, {"metadata": meta(cluster), "spec": spec})
    operations = [
        {"op": "add", "path": "/status/reason", "value": "Because"},
        {"op": "add", "path": "/spec/hostname", "value": "ignored-here"},
    ]
    changed = await cluster.client.patch(Pod, "a", operations, cluster.namespace, subresource="status")

    assert (changed.status.reason, changed.spec.hostname) == ("Because", "")
