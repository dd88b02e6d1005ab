"""What needs autoscalers, resource claims or ComputeDomains is off on a cluster without them and says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Binder, condition
from tests.support.waiting import eventually

from grove.api.core import HorizontalPodAutoscaler, ResourceClaim
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.config import load_configuration
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.operator.wiring import Operator
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fake.example.com"}}]}}
SHARED: Json = {"name": "gpu", "scope": "PerReplica"}
NAMESPACE = "default"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes that does not serve the two APIs."""
    off = {"autoscaling/v2": False, "autoscaling/v1": False, "resource.k8s.io/v1": False}
    with ControlPlane(tmp_path_factory.mktemp("bare"), controller_manager=True, runtime_config=off) as plane:
        yield plane


async def test_features_are_off_with_a_condition_and_everything_else_runs(plane: ControlPlane) -> None:
    async with HttpClient(load_config(plane.kubeconfig)) as client:
        assert not await client.serves(HorizontalPodAutoscaler)
        assert not await client.serves(ResourceClaim)
        await install(client, lambda said: None)
        config = load_configuration("network: {autoMNNVLEnabled: true}")
        nodes, operator = FakeNodes(client, SYSTEM), Operator(client, config, rng=random.Random(1))
        binder = Binder(client, NAMESPACE, "", plays_kube=False)
        placing = asyncio.get_running_loop().create_task(binder.run())
        async with nodes.running(), operator.running():
            try:
                await nodes.add(Topology(racks=1, nodes=2))
                await _sets_without_their_apis(client)
            finally:
                placing.cancel()
                await asyncio.gather(placing, return_exceptions=True)


async def _sets_without_their_apis(client: HttpClient) -> None:
    scaled = clique("w", scale={"minReplicas": 1, "maxReplicas": 3})
    shares = group("g", "m", replicas=1, resourceSharing=[SHARED])
    templates = [{"name": "gpu", "templateSpec": {"spec": DEVICES}}]
    await client.create(PodCliqueSet, pcs("plain", clique("w", 2)))
    await client.create(PodCliqueSet, pcs("auto", scaled))
    gpus = clique("w")
    gpus["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await client.create(PodCliqueSet, pcs("fast", gpus, metadata={"annotations": {"grove.io/mnnvl-group": "nv"}}))
    await client.create(PodCliqueSet, pcs("shares", clique("m"), groups=[shares], resourceClaimTemplates=templates))

    async def available(name: str) -> bool:
        found = await client.get(PodCliqueSet, name, NAMESPACE)
        return bool(found.status.available_replicas == 1)

    async def told(name: str, what: str) -> bool:
        found = await client.get(PodCliqueSet, name, NAMESPACE)
        said = next((one for one in found.status.conditions if one.type == "FeaturesUnavailable"), None)
        return said is not None and said.status == "True" and what in said.message

    await eventually(lambda: available("plain"))
    await eventually(lambda: available("auto"))  # only without its autoscaler
    await eventually(lambda: told("auto", "horizontalpodautoscalers of autoscaling/v2"))
    await eventually(lambda: told("shares", "resourceclaims of resource.k8s.io/v1"))
    await eventually(lambda: told("fast", "computedomains of resource.nvidia.com/v1beta1"))
    plain = await client.get(PodCliqueSet, "plain", NAMESPACE)
    assert condition(plain.status.conditions, "FeaturesUnavailable") is None
    assert plain.status.last_errors == ()
    auto = await client.get(PodClique, "auto-0-w", NAMESPACE)
    assert auto.status.last_errors == ()
