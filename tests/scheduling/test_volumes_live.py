"""Volumes that exist before their pods: given by name where the pod goes, and to one pod only where that is asked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.gangs import Bench, gang, group, scheduling

from grove.api.core import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from grove.api.meta import Json
from grove.kube.errors import Forbidden


def mounting(claim: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


async def make_class(bench: Bench) -> str:
    name = f"{bench.namespace}-local"
    kind = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await bench.client.create(StorageClass, {"metadata": {"name": name}, **kind})
    return name


async def make_volume(bench: Bench, node: str, kind: str, storage: str = "10Gi", mode: str = "ReadWriteOnce") -> str:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": storage},
        "accessModes": [mode],
        "storageClassName": kind,
        "local": {"path": "/x"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    name = f"{node}-{storage.lower()}"
    await bench.client.create(PersistentVolume, {"metadata": {"name": name}, "spec": spec})
    if bench.cluster.is_sim:
        await bench.client.patch(PersistentVolume, name, {"status": {"phase": "Available"}}, subresource="status")
    return name


async def make_claim(bench: Bench, name: str, kind: str, mode: str = "ReadWriteOnce") -> None:
    spec = {"accessModes": [mode], "storageClassName": kind, "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": name, "namespace": bench.namespace}
    await bench.client.create(PersistentVolumeClaim, {"metadata": meta, "spec": spec})


async def bind_claims(bench: Bench, *claims: str) -> None:
    """What Kubernetes' volume controller does once a volume names a claim; on a real control plane it does."""

    async def all_bound() -> bool:
        volumes = (await bench.client.list(PersistentVolume)).items
        for name in claims:
            claim = await bench.client.get(PersistentVolumeClaim, name, bench.namespace)
            if claim.spec.volume_name:
                continue
            mine = [v.metadata.name for v in volumes if (v.spec.claim_ref or {}).get("uid") == claim.metadata.uid]
            if mine and bench.cluster.is_sim:
                await bench.client.patch(
                    PersistentVolumeClaim, name, {"spec": {"volumeName": mine[0]}}, bench.namespace
                )
            return False
        return True

    await bench.cluster.eventually(all_bound)


async def test_a_local_volume_is_given_where_the_pod_goes(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        one, other = await bench.add_nodes(2)
        kind = await make_class(bench)
        volumes = [await make_volume(bench, one, kind), await make_volume(bench, other, kind)]
        large = await make_volume(bench, one, kind, "20Gi")
        for name in ("data-0", "data-1"):
            await make_claim(bench, name, kind)
        parts = [group(f"w{n}", 1, spec=mounting(f"data-{n}")) for n in range(2)]
        await bench.apply(gang("g", *parts))
        await bind_claims(bench, "data-0", "data-1")
        await bench.expect({"g/w0": 1, "g/w1": 1})
        taken = {}
        for name in (*volumes, large):
            ref = (await bench.client.get(PersistentVolume, name)).spec.claim_ref
            if ref is not None:
                taken[name] = ref["name"]
        assert set(taken) == set(volumes), "a small claim takes a small volume"
        assert sorted(taken.values()) == ["data-0", "data-1"]
        for name in (*volumes, large):
            await bench.client.delete(PersistentVolume, name)
        await bench.client.delete(StorageClass, kind)


@pytest.mark.simulated
async def test_pods_with_local_volumes_go_apart_where_a_node_has_one_and_none_is_bound_alone(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        nodes = await bench.add_nodes(2, gpus=2)
        kind = await make_class(bench)
        await make_volume(bench, nodes[0], kind)
        for name in ("data-0", "data-1"):
            await make_claim(bench, name, kind)
        await bench.apply(gang("g", *(group(f"w{n}", 1, spec=mounting(f"data-{n}")) for n in range(2))))
        said = await bench.condition("g", status="False", reason="Unschedulable")
        assert "has not the free volumes for persistentvolumeclaims" in said.message
        await cluster.settle(5)
        (only,) = (await bench.client.list(PersistentVolume)).items
        assert only.spec.claim_ref is None, "nothing is given to a gang that cannot have all it needs"
        await make_volume(bench, nodes[1], kind)
        await bind_claims(bench, "data-0", "data-1")
        await bench.expect({"g/w0": 1, "g/w1": 1})
        assert sorted((await bench.nodes_of("g")).values()) == sorted(nodes)


async def test_a_claim_for_one_pod_is_left_to_the_next_when_it_has_gone(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        kind = await make_class(bench)
        volume = await make_volume(bench, node, kind, mode="ReadWriteOncePod")
        await make_claim(bench, "data", kind, "ReadWriteOncePod")
        await bench.apply(gang("first", group("w", 1, spec=mounting("data"))))
        await bind_claims(bench, "data")
        await bench.expect({"first/w": 1})
        await bench.apply(gang("second", group("w", 1, spec=mounting("data"))))
        said = await bench.condition("second", status="False", reason="Unschedulable")
        assert "for one pod only" in said.message
        await bench.expect({"first/w": 1})
        (pod,) = await bench.nodes_of("first")
        await bench.client.delete(Pod, pod, bench.namespace, grace_period_s=0)
        await bench.expect({"second/w": 1})
        await bench.client.delete(PersistentVolume, volume)
        await bench.client.delete(StorageClass, kind)


@pytest.mark.simulated
@pytest.mark.parametrize("together", [False, True], ids=["two units", "one gang"])
async def test_of_two_pods_that_wait_for_a_claim_for_one_pod_one_is_bound(cluster: Any, together: bool) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1, gpus=2)
        await bench.stop()
        await Driver(bench).claim("data", mode="ReadWriteOncePod")
        if together:
            await bench.apply(gang("g", group("w", 2, 1, spec=mounting("data"))))
        else:
            await bench.apply(*(gang(name, group("w", 1, spec=mounting("data"))) for name in ("g", "h")))
        await bench.start()
        await bench.expect({"g/w": 1})
        if not together:
            said = await bench.condition("h", status="False", reason="Unschedulable")
            assert "for one pod only" in said.message
        (pod,) = await bench.nodes_of("g")
        await bench.client.patch(Pod, pod, {"status": {"phase": "Succeeded"}}, bench.namespace, subresource="status")
        await bench.expect({"g/w": 2} if together else {"g/w": 1, "h/w": 1})


@pytest.mark.simulated
async def test_a_claim_for_one_pod_is_left_to_the_next_when_the_first_may_not_be_bound(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = type(cluster.client).bind

    async def refused(self: Any, namespace: str, pod: str, node: str, **more: Any) -> None:
        if pod.startswith("g"):
            await cluster.settle(1)
            raise Forbidden("an admission policy says no", code=403)
        await bind(self, namespace, pod, node, **more)

    monkeypatch.setattr(type(cluster.client), "bind", refused)
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1, gpus=2)
        await Driver(bench).claim("data", mode="ReadWriteOncePod")
        await bench.apply(*(gang(name, group("w", 1, spec=mounting("data"))) for name in ("g", "h")))
        await bench.condition("h", status="False", words="for one pod only")
        await bench.expect({"h/w": 1})


@pytest.mark.simulated
async def test_a_gang_whose_pods_share_a_claim_for_one_pod_is_not_placed_at_all(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1, gpus=2)
        await Driver(bench).claim("data", mode="ReadWriteOncePod")
        await bench.apply(gang("g", group("w", 2, spec=mounting("data"))))
        said = await bench.condition("g", status="False", reason="Unschedulable")
        assert "for one pod only" in said.message
        await bench.expect({})


class Driver:
    """A storage driver of this test's own: limits of nodes, volumes, and claims bound to them."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.client, self.name = bench, bench.client, f"{bench.namespace}.example.com"
        self._made: list[tuple[Any, str]] = []

    async def limit(self, **count_of_node: int) -> None:
        for node, count in count_of_node.items():
            driver = {"name": self.name, "nodeID": node, "topologyKeys": None, "allocatable": {"count": count}}
            await self.client.create(CSINode, {"metadata": {"name": node}, "spec": {"drivers": [driver]}})
            self._made.append((CSINode, node))

    async def claim(self, *names: str, mode: str = "ReadWriteOnce") -> None:
        for name in names:
            volume = f"{self.bench.namespace}-{name}"
            ref = {"namespace": self.bench.namespace, "name": name}
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": [mode],
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": self.name, "volumeHandle": name},
                "claimRef": ref,
            }
            await self.client.create(PersistentVolume, {"metadata": {"name": volume}, "spec": spec})
            self._made.append((PersistentVolume, volume))
            wants = {
                "accessModes": [mode],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            }
            await self.client.create(PersistentVolumeClaim, {"metadata": ref, "spec": wants})

    async def clear(self) -> None:
        for kind, name in self._made:
            await self.client.delete(kind, name)


async def test_a_node_gets_no_more_volumes_than_it_can_attach(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        one, other = await bench.add_nodes(2, gpus=8)
        driver = Driver(bench)
        await driver.limit(**{one: 2, other: 1})
        claims = [f"data-{n}" for n in range(4)]
        await driver.claim(*claims)
        await bench.apply(gang("g", *(group(f"w{n}", 1, spec=mounting(f"data-{n}")) for n in range(3))))
        await bench.expect({f"g/w{n}": 1 for n in range(3)})
        assert sorted((await bench.nodes_of("g")).values()) == sorted([one, one, other])
        await bench.stop()
        await bench.start()  # what is attached is found again
        await bench.apply(gang("late", group("w", 1, spec=mounting("data-3"))))
        said = await bench.condition("late", status="False", reason="Unschedulable")
        assert f"attachable-volumes-csi-{driver.name}" in said.message
        await bench.expect({f"g/w{n}": 1 for n in range(3)})
        pod, node = next((pod, node) for pod, node in (await bench.nodes_of("g")).items() if node == other)
        await bench.client.delete(Pod, pod, bench.namespace, grace_period_s=0)
        assert await cluster.eventually(lambda: bench.nodes_of("late")) == {"late-w-0": node}
        await driver.clear()


async def test_a_volume_that_several_pods_use_is_attached_once(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=8)
        driver = Driver(bench)
        await driver.limit(**{node: 3})
        await driver.claim("shared", mode="ReadWriteMany")
        await driver.claim("own")
        await bench.apply(gang("g", group("w", 3, spec=mounting("shared"))))
        await bench.expect({"g/w": 3})
        await bench.apply(gang("h", group("w", 1, spec=mounting("own"))))
        await bench.expect({"g/w": 3, "h/w": 1})
        await driver.clear()
