"""Claims that sets share, as tests write and read them."""

from __future__ import annotations

from grove.api.core import COMPUTE_DOMAIN, CustomResourceDefinition, Pod
from grove.api.meta import Json
from tests.support.operating import World

DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fake.example.com"}}]}}
TEMPLATE: Json = {"name": "gpu", "templateSpec": {"spec": DEVICES}}
MNNVL = "network: {autoMNNVLEnabled: true}\n"


async def pod_claims(world: World, clique_name: str) -> dict[str, list[str]]:
    """Claims of each pod of a clique, by host name."""
    found: dict[str, list[str]] = {}
    for pod in await world.pods(clique_name):
        raw = await world.client.get(Pod.RESOURCE, pod.metadata.name, world.namespace)
        found[pod.spec.hostname] = [one["resourceClaimName"] for one in raw["spec"].get("resourceClaims") or ()]
        used = [one["name"] for one in raw["spec"]["containers"][0]["resources"].get("claims") or ()]
        assert used == found[pod.spec.hostname]
    return found


async def install_compute_domains(cluster: object) -> None:
    """The kind of the NVIDIA driver, as much of it as we write."""
    client = cluster.client  # type: ignore[attr-defined]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"}
    spec = {"group": "resource.nvidia.com", "scope": "Namespaced", "names": names, "versions": [version]}
    if not await client.serves(COMPUTE_DOMAIN):
        body = {"metadata": {"name": "computedomains.resource.nvidia.com"}, "spec": spec}
        await client.create(CustomResourceDefinition, body)
        await cluster.eventually(lambda: client.serves(COMPUTE_DOMAIN))  # type: ignore[attr-defined]
        await cluster.eventually(lambda: client.list(COMPUTE_DOMAIN))  # type: ignore[attr-defined]


async def domains(world: World) -> list[str]:
    page = await world.client.list(COMPUTE_DOMAIN, world.namespace)
    return sorted(one["metadata"]["name"] for one in page.items)
