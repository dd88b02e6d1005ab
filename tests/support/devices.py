"""Device drivers, claims and pods that use them, for the scheduler's behaviour tests.

Claims are made from templates by Kubernetes' controller; on the simulator the test plays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grove.api.core import DeviceClass, Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from grove.api.meta import Json
from tests.support.gangs import Bench, Group, group, scheduling


class Devices:
    """A driver of this test's own, with a class, a template and devices on nodes."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.client = bench, bench.client
        self.driver = f"{bench.namespace}.example.com"
        self.slices: list[str] = []

    async def set_up(self) -> None:
        selector = {"cel": {"expression": f'device.driver == "{self.driver}"'}}
        await self.client.create(DeviceClass, {"metadata": {"name": self.driver}, "spec": {"selectors": [selector]}})
        await self.template("one")

    async def clear(self) -> None:
        for name in self.slices:
            await self.client.delete(ResourceSlice, name)
        await self.client.delete(DeviceClass, self.driver)

    async def claim(self, *names: str, count: int = 1, spec: Json | None = None) -> None:
        for name in names:
            body = {"metadata": {"name": name, "namespace": self.bench.namespace}}
            await self.client.create(ResourceClaim, {**body, "spec": spec or self.spec(count=count)})

    def spec(self, *expressions: str, count: int = 1) -> Json:
        exactly: Json = {"deviceClassName": self.driver, "count": count, "allocationMode": "ExactCount"}
        if expressions:
            exactly["selectors"] = [{"cel": {"expression": text}} for text in expressions]
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def template(self, name: str, *expressions: str, count: int = 1, spec: Json | None = None) -> None:
        body = {"metadata": {"name": name, "namespace": self.bench.namespace}}
        spec = spec or self.spec(*expressions, count=count)
        await self.client.create(ResourceClaimTemplate, {**body, "spec": {"spec": spec}})

    def model(self, name: str) -> Json:
        """The selectors of devices of one model."""
        return {"selectors": [{"cel": {"expression": f'device.attributes["{self.driver}"].model == "{name}"'}}]}

    async def put(self, node: str, *models: str) -> None:
        """Devices on a node, of these models."""
        devices = [
            {"name": f"dev-{i}", "attributes": {"model": {"string": model}}, "capacity": {"memory": {"value": "80Gi"}}}
            for i, model in enumerate(models)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
        self.slices.append(f"{node}-{self.driver}"[:60].rstrip("-."))
        await self.client.create(ResourceSlice, {"metadata": {"name": self.slices[-1]}, "spec": spec})

    async def make_claims(self, *templates: str) -> None:
        """What Kubernetes' controller does for pods with templates; on a real control plane it does."""
        if not self.bench.cluster.is_sim:
            return
        for pod in await self.bench.pods():
            name = next((c.get("resourceClaimTemplateName") for c in pod.spec.resource_claims), None)
            if name not in templates or pod.status.resource_claim_statuses:
                continue
            template = await self.client.get(ResourceClaimTemplate, name, self.bench.namespace)
            claim = f"{pod.metadata.name}-{name}"
            body = {"metadata": {"name": claim, "namespace": self.bench.namespace}, "spec": template.spec["spec"]}
            await self.client.create(ResourceClaim, body)
            status = {"resourceClaimStatuses": [{"name": "device", "resourceClaimName": claim}]}
            await self.client.patch(
                Pod, pod.metadata.name, {"status": status}, self.bench.namespace, subresource="status"
            )

    @asynccontextmanager
    async def freeing_claims(self) -> AsyncIterator[None]:
        """Claims of pods that have gone give up, a while after them; a real control plane has a controller for that."""

        async def free() -> None:
            while True:
                await asyncio.sleep(0.7)
                pods = {pod.metadata.uid for pod in await self.bench.pods()}
                for claim in (await self.client.list(ResourceClaim, self.bench.namespace)).items:
                    users = claim.status.reserved_for
                    if users and not any(user.uid in pods for user in users):
                        status = {"status": {"reservedFor": [], "allocation": None}}
                        await self.client.patch(
                            ResourceClaim, claim.metadata.name, status, self.bench.namespace, subresource="status"
                        )

        task = asyncio.get_running_loop().create_task(free()) if self.bench.cluster.is_sim else None
        yield
        if task is not None:
            task.cancel()

    async def given(self) -> dict[str, list[str]]:
        """Pools and devices by the name of the pod they are reserved for; the claims of one test."""
        found: dict[str, list[str]] = {}
        for claim in (await self.client.list(ResourceClaim, self.bench.namespace)).items:
            if claim.status.allocation is not None:
                results = claim.status.allocation["devices"]["results"]
                for user in claim.status.reserved_for:
                    found.setdefault(user.name, []).extend(f"{one['pool']}/{one['device']}" for one in results)
        return found


@asynccontextmanager
async def with_devices(cluster: Any) -> AsyncIterator[tuple[Bench, Devices]]:
    async with scheduling(cluster) as bench:
        devices = Devices(bench)
        await devices.set_up()
        try:
            yield bench, devices
        finally:
            await devices.clear()


def claiming(name: str, pods: int, **entry: str) -> Group:
    """A group whose pods claim a device, from a template or by the name of a claim."""
    claim = {"name": "device", **entry}
    spec: Json = {"resourceClaims": [claim]}
    return group(name, pods, gpus=0, spec=spec)


def sharing(name: str, pods: int, *claims: str, gpus: int = 0, **more: Any) -> Group:
    """A group whose pods all use these claims."""
    entries = [{"name": f"device-{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)]
    return group(name, pods, gpus=gpus, spec={"resourceClaims": entries}, **more)
