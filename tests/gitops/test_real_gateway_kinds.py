"""The rendered example with a gateway, on an API server that serves the real InferencePool and HTTPRoute.

`make test-gitops` runs it. No gateway runs: the kinds and their rules are the real ones.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from grove.api.core import CustomResourceDefinition, Namespace
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.config import load_config
from grove.kube.errors import Invalid
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from tests.gitops.build import GATEWAY_API, INFERENCE_EXTENSION
from tests.support.go_programs import CRDS

pytestmark = pytest.mark.soak

EXAMPLE = Path(__file__).parents[2] / "charts/inference/examples/vllm-gateway.yaml"
ROUTE = Resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
POOL = Resource("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
KINDS = {"HTTPRoute": ROUTE, "InferencePool": POOL, "PodCliqueSet": PodCliqueSet.RESOURCE}
SERVED_S = 30.0


class Place(NamedTuple):
    client: HttpClient
    namespace: str


@pytest.fixture
async def place(control_plane: ControlPlane, fresh_name: str) -> AsyncIterator[Place]:
    if not (GATEWAY_API.is_built and INFERENCE_EXTENSION.is_built):
        pytest.skip("the kinds of gateways are not there; `make test-gitops` fetches them")
    files = [
        GATEWAY_API.directory / CRDS / "gateway.networking.k8s.io_httproutes.yaml",
        INFERENCE_EXTENSION.directory / CRDS / "inference.networking.k8s.io_inferencepools.yaml",
    ]
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    async with HttpClient(load_config(control_plane.kubeconfig)) as client:
        for one in definitions:
            await client.create(CustomResourceDefinition.RESOURCE, one)
        await client.create(Namespace, {"metadata": {"name": fresh_name}})
        try:
            async with asyncio.timeout(SERVED_S):
                while not await _are_established(client, definitions):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            yield Place(client, fresh_name)
        finally:
            await client.delete(Namespace, fresh_name)
            for one in definitions:
                await client.delete(CustomResourceDefinition, one["metadata"]["name"])


async def _are_established(client: HttpClient, definitions: list[Json]) -> bool:
    found = [await client.get(CustomResourceDefinition, one["metadata"]["name"]) for one in definitions]
    return all(one.is_established for one in found)


def manifests(namespace: str) -> dict[str, Json]:
    """What the chart makes of `values/vllm-gateway.yaml`, by kind."""
    found = {one["kind"]: one for one in yaml.safe_load_all(EXAMPLE.read_text()) if one is not None}
    for one in found.values():
        one["metadata"]["namespace"] = namespace
    return found


async def test_the_rendered_example_is_accepted_as_it_is(place: Place) -> None:
    found = manifests(place.namespace)
    assert KINDS.keys() <= found.keys()
    for kind, resource in KINDS.items():
        wanted = found[kind]
        await place.client.create(resource, wanted)
        live = await place.client.get(resource, wanted["metadata"]["name"], place.namespace)
        if kind != "PodCliqueSet":
            assert _kept(wanted["spec"], live["spec"]) == [], f"the server drops fields of the {kind}"
    route = await place.client.get(ROUTE, "vllm-gateway", place.namespace)
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert (backend["group"], backend["kind"], backend["name"]) == (POOL.group, POOL.kind, "vllm-gateway")


def _kept(wanted: object, live: object, path: str = "spec") -> list[str]:
    """Paths of the manifest that the server does not have as they are. The server may add defaults."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [lost for key, one in wanted.items() for lost in _kept(one, live.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        pairs = enumerate(zip(wanted, live, strict=True))
        return [lost for index, (one, other) in pairs for lost in _kept(one, other, f"{path}[{index}]")]
    return [] if wanted == live else [path]


async def test_the_real_rules_are_in_force(place: Place) -> None:
    pool = copy.deepcopy(manifests(place.namespace)["InferencePool"])
    del pool["spec"]["targetPorts"]
    with pytest.raises(Invalid, match="targetPorts"):
        await place.client.create(POOL, pool)
