"""Two real nodes are a cluster like any other: names, Services and readiness work across them. One may be lost."""

from __future__ import annotations

from typing import Any

import pytest

from grove.api import labels as key
from grove.api import names
from grove.api.core import Node, Service
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.images import PORT
from tests.node.seeing import PATIENCE_S, Seen, eventually, pods_of, served
from tests.support.manifests import clique, pcs

NODE_LOST_S = PATIENCE_S
"""40 s until Kubernetes calls a silent node NotReady, and what a busy machine adds."""


def at(node: str) -> Json:
    """Fields of a pod spec: the tests' server, ready at once, on one node."""
    fields = served()
    fields["containers"][0]["env"] = [{"name": "READY_AFTER", "value": "0s"}]
    return fields | {"nodeSelector": {"kubernetes.io/hostname": node}} if node else fields


async def ready_pods(
    client: HttpClient, namespace: str, name: str, count: int, timeout_s: float = PATIENCE_S
) -> list[Seen]:
    async def ready() -> list[Seen]:
        found = [
            one for one in await pods_of(client, namespace, name) if "deletionTimestamp" not in one.pod["metadata"]
        ]
        return found if len(found) == count and all(one.is_ready for one in found) else []

    found: list[Seen] = await eventually(ready, timeout_s)
    return found


@pytest.fixture
async def pair(nodes: RealCluster, client: HttpClient, namespace: str) -> tuple[Seen, Seen]:
    """A pod on each node, of two cliques of one set."""
    await client.create(
        PodCliqueSet,
        pcs("web", clique("east", 1, **at("node-1")), clique("west", 1, **at("node-2")), namespace=namespace),
    )
    (east,) = await ready_pods(client, namespace, "web-0-east", 1)
    (west,) = await ready_pods(client, namespace, "web-0-west", 1)
    return east, west


async def test_both_nodes_are_ready(nodes: RealCluster, client: HttpClient) -> None:
    found = {node.metadata.name: node for node in (await client.list(Node)).items}
    assert sorted(found) == nodes.nodes == ["node-1", "node-2"]
    for node in found.values():
        ready = find_condition(node.status.conditions, "Ready")
        assert ready is not None
        assert ready.status == "True"


async def test_a_pod_reaches_another_node_by_the_name_that_grove_gives(pair: tuple[Seen, Seen], namespace: str) -> None:
    east, west = pair
    assert (east.node, west.node) == ("node-1", "node-2")
    host, service = "web-0-west-0", names.service_dns("web", 0, namespace)
    assert await east.lookup(f"{host}.{service}") == (200, [west.address])
    assert await east.fetch(f"http://{host}.{service}:{PORT}/name") == (200, host)
    assert await west.fetch(f"http://web-0-east-0.{service}:{PORT}/name") == (200, "web-0-east-0")
    assert (await east.lookup(f"nobody.{service}"))[0] == 502, "a name that is not there is not found"


async def test_a_service_routes_from_every_node_and_skips_who_is_not_ready(
    pair: tuple[Seen, Seen], client: HttpClient, namespace: str
) -> None:
    east = pair[0]
    spec = {"selector": {key.PART_OF: "web"}, "ports": [{"port": 80, "targetPort": PORT}]}
    made: Any = await client.create(
        Service.RESOURCE, {"metadata": {"name": "front", "namespace": namespace}, "spec": spec}
    )
    both = {"web-0-east-0", "web-0-west-0"}

    async def answering(times: int = 12) -> set[str]:
        """Who answers at the cluster address, by name and by number, asked from a pod of each node."""
        said = set()
        for url in ("http://front:80/name", f"http://{made['spec']['clusterIP']}/name"):
            for pod in pair:
                answers = [await pod.fetch(url) for _ in range(times)]
                said |= {text if status == 200 else f"error {text}" for status, text in answers}
        return said

    async def is_answered_by(expected: set[str]) -> bool:
        return await answering() == expected

    await eventually(lambda: is_answered_by(both))
    await east.say("unready")
    await eventually(lambda: is_answered_by({"web-0-west-0"}))
    await east.say("ready")
    await eventually(lambda: is_answered_by(both))


async def test_names_fail_while_dns_is_down_and_come_back(
    nodes: RealCluster, pair: tuple[Seen, Seen], namespace: str
) -> None:
    east, west = pair
    name = f"web-0-west-0.{names.service_dns('web', 0, namespace)}"

    async def resolves(expected: bool) -> bool:
        return ((await east.lookup(name))[0] == 200) is expected

    nodes.hold("coredns")
    try:
        await eventually(lambda: resolves(False), 90.0)
        assert await east.fetch(f"http://{west.address}:{PORT}/name") == (200, "web-0-west-0"), "addresses still work"
    finally:
        nodes.unhold("coredns")
    await eventually(lambda: resolves(True), 90.0)


@pytest.mark.parametrize("how", ["its kubelet dies", "its cable is pulled"])
async def test_a_gang_that_loses_a_node_is_repaired_on_the_other(
    nodes: RealCluster, client: HttpClient, namespace: str, how: str
) -> None:
    system = pcs("web", clique("east", 1, **at("")), clique("west", 1, **at("")), namespace=namespace)
    system["spec"]["template"]["terminationDelay"] = "5s"
    for part in system["spec"]["template"]["cliques"]:
        # As an operator of GPUs sets it: no five minutes of waiting for a node that is gone.
        part["spec"]["podSpec"]["tolerations"] = [
            {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
            for word in ("not-ready", "unreachable")
        ]
    for part, place in zip(system["spec"]["template"]["cliques"], nodes.nodes, strict=True):
        name = {"key": "kubernetes.io/hostname", "operator": "In", "values": [place]}
        wish = {"weight": 100, "preference": {"matchExpressions": [name]}}
        part["spec"]["podSpec"]["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
        }
    await client.create(PodCliqueSet, system)
    before = [
        *await ready_pods(client, namespace, "web-0-east", 1),
        *await ready_pods(client, namespace, "web-0-west", 1),
    ]
    lost = before[0].node
    kept = next(name for name in nodes.nodes if name != lost)

    async def is_ready(expected: str) -> bool:
        ready = find_condition((await client.get(Node, lost)).status.conditions, "Ready")
        return ready is not None and ready.status == expected

    if how == "its kubelet dies":
        nodes.hold(f"{lost}-kubelet")
    else:
        nodes.cut(lost)
    try:
        await eventually(lambda: is_ready("Unknown"), NODE_LOST_S)
        for name in ("web-0-east", "web-0-west"):

            async def stands(name: str = name) -> bool:
                """A Ready pod of the clique on the node that is left."""
                return any(one.is_ready and one.node == kept for one in await pods_of(client, namespace, name))

            await eventually(stands, NODE_LOST_S)
    finally:
        nodes.unhold(f"{lost}-kubelet")
        nodes.join(lost)
    await eventually(lambda: is_ready("True"), NODE_LOST_S)
    for name in ("web-0-east", "web-0-west"):
        await ready_pods(client, namespace, name, 1, NODE_LOST_S)
