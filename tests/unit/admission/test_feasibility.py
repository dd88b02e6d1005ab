"""Warnings about what cannot fit now, and about fields that will not do what they seem to say."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import binding, changed, plain, warnings

from grove.admission.rules.feasibility import NodeFacts, NodeSummary
from grove.admission.rules.lookups import Known
from grove.admission.rules.review import Admission
from grove.admission.serving.node_watch import NodeWatch
from grove.api.core import Node
from grove.api.podrequest import pod_request
from grove.api.topology import ClusterTopologyBinding
from grove.kube.cache import Cache
from grove.sim.client import SimClient
from grove.sim.cluster import own_crds
from grove.sim.kinds import CRD
from grove.sim.loop import LoopClock, run
from grove.sim.server import SimServer

GPU = "nvidia.com/gpu"
GI = 1024**3
T = "spec.template"
KEYS = ("topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname")


def gpu_node(name: str, rack: str = "r1", *, gpus: int = 8, cpu_milli: int = 64_000) -> NodeFacts:
    labels = {"kubernetes.io/hostname": name, "example.com/rack": rack}
    return NodeFacts(labels, {"cpu": cpu_milli, "memory": 512 * GI, GPU: gpus, "pods": 110})


NODES = NodeSummary(
    [gpu_node("n1"), gpu_node("n2"), gpu_node("n3", "r2"), gpu_node("c1", "r2", gpus=0, cpu_milli=128_000)],
    level_keys=KEYS,
)
ADMISSION = Admission(topology_enabled=True, nodes=lambda: NODES)
KNOWN = Known(topologies={"cluster": binding()})


def asks(gpus: int = 0, cpu: str = "1", replicas: int = 1, name: str = "a", **fields: object) -> dict:
    limits = {GPU: gpus} if gpus else {}
    main = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}, "limits": limits}}
    return clique(name, replicas, containers=[main], **fields)


def packed(domain: str) -> dict:
    return {"topologyName": "cluster", "pack": {"required": domain}}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(pcs("demo", asks(8)), [], id="a pod that fits"),
        pytest.param(
            pcs("demo", asks(16)),
            [
                f"{T}.cliques[0].spec.podSpec: a pod asks for more than any node has: 16 nvidia.com/gpu "
                "(largest node: 8); it cannot be placed now"
            ],
            id="a pod larger than any node",
        ),
        pytest.param(
            pcs("demo", asks(8, cpu="100")),
            [
                f"{T}.cliques[0].spec.podSpec: no node has all that a pod asks for together (8 nvidia.com/gpu, 100 "
                "cpu); "
                "it cannot be placed now"
            ],
            id="a pod whose parts fit on different nodes only",
        ),
        pytest.param(
            changed(pcs("demo", asks(8, replicas=3)), (f"{T}.topologyConstraint", packed("rack"))),
            [
                f'{T}.topologyConstraint: no "rack" is large enough for one replica of the set, which needs '
                "24 nvidia.com/gpu (largest: 16); it cannot be placed now"
            ],
            id="a domain too small for the gang",
        ),
        pytest.param(
            changed(pcs("demo", asks(8, replicas=2)), (f"{T}.topologyConstraint", packed("rack"))),
            [],
            id="a domain that just holds the gang",
        ),
        pytest.param(
            pcs("demo", asks(8, replicas=6, min_available=2, topology=packed("rack"))),
            [],
            id="only the floor has to fit",
        ),
        pytest.param(
            pcs(
                "demo",
                asks(8, name="lead"),
                asks(8, replicas=2, name="work"),
                groups=[group("g", "lead", "work", topologyConstraint=packed("rack"))],
            ),
            [
                f'{T}.podCliqueScalingGroups[0].topologyConstraint: no "rack" is large enough for one replica of '
                "scaling "
                'group "g", which needs 24 nvidia.com/gpu (largest: 16); it cannot be placed now'
            ],
            id="a group's replica is counted whole",
        ),
        pytest.param(
            pcs("demo", asks(1, topology=packed("zone"))),
            [
                f"{T}.cliques[0].topologyConstraint: no node carries label topology.kubernetes.io/zone of topology "
                'level "zone"'
            ],
            id="a level no node carries",
        ),
        pytest.param(
            pcs("demo", clique("a", restartPolicy="Never")),
            [
                f"{T}.cliques[0].spec.podSpec.restartPolicy: with Never a container that has ended is not started "
                "again; "
                "once fewer than 1 pod runs, the whole gang is terminated after terminationDelay"
            ],
            id="a restart policy that matters",
        ),
        pytest.param(pcs("demo", clique("a", restartPolicy="Always")), [], id="the usual restart policy is not noted"),
        pytest.param(
            pcs("demo", clique("a", hostname="mine", subdomain="ours")),
            [
                f"{T}.cliques[0].spec.podSpec.hostname: Grove sets this field, the value given here is not used",
                f"{T}.cliques[0].spec.podSpec.subdomain: Grove sets this field, the value given here is not used",
            ],
            id="fields that Grove sets",
        ),
    ],
)
def test_a_warning_is_no_refusal(obj: dict, want: list[str]) -> None:
    assert warnings(ADMISSION, obj, lookups=KNOWN) == want


@pytest.mark.parametrize("nodes", [None, NodeSummary([])], ids=["unknown", "none"])
def test_nothing_is_said_about_unknown_nodes(nodes: NodeSummary | None) -> None:
    assert warnings(Admission(nodes=lambda: nodes), pcs("demo", asks(1000))) == []


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"containers": [_c := {"resources": {"requests": {"cpu": "1"}}}, _c]},
            {"cpu": 2000, "pods": 1},
            id="containers add up",
        ),
        pytest.param(
            {"initContainers": [{"resources": {"requests": {"cpu": "5"}}}], "containers": [_c]},
            {"cpu": 5000, "pods": 1},
            id="the largest init step counts",
        ),
        pytest.param(
            {
                "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
                "containers": [_c],
            },
            {"cpu": 3000, "pods": 1},
            id="a sidecar stays",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {GPU: "4"}}}], "overhead": {"memory": "1Gi"}},
            {GPU: 4, "memory": GI, "pods": 1},
            id="a limit counts as a request, overhead on top",
        ),
        pytest.param(
            {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}, {"pods": 1}, id="nonsense is left out"
        ),
    ],
)
def test_what_a_pod_reserves(spec: dict, want: dict) -> None:
    assert pod_request(spec) == want


def test_ten_thousand_nodes_are_not_looked_through_one_by_one() -> None:
    """Counted in calls, the same for few and for many: arrays are compared, not nodes."""

    def calls(count: int) -> int:
        nodes = NodeSummary([gpu_node(f"n{i}", f"r{i // 16}") for i in range(count)], level_keys=KEYS)
        admission = Admission(topology_enabled=True, nodes=lambda: nodes)
        obj = changed(plain(), (f"{T}.topologyConstraint", packed("rack")))
        warnings(admission, obj, lookups=KNOWN)  # what is remembered from a first review does not count
        seen = Counter[str]()
        sys.setprofile(lambda frame, event, arg: seen.update((event,)))
        try:
            warnings(admission, obj, lookups=KNOWN)
        finally:
            sys.setprofile(None)
        return seen["call"] + seen["c_call"]

    assert calls(10_000) == calls(160)


def test_the_summary_follows_the_cluster_but_not_its_heartbeats() -> None:
    async def live() -> None:
        server = SimServer(LoopClock())
        await server.create(CRD, next(crd for crd in own_crds() if crd["metadata"]["name"].startswith("clustertop")))
        client = SimClient(server)
        cache = Cache(client)
        watch = NodeWatch(cache)
        assert watch.summary() is None
        async with cache:
            labels = {"example.com/rack": "r1"}
            status = {"allocatable": {"cpu": "8", "pods": "110"}}
            await client.create(Node, {"metadata": {"name": "n1", "labels": labels}, "status": status})
            await client.create(ClusterTopologyBinding, binding(rack="example.com/rack"))
            await asyncio.sleep(3)
            first = watch.summary()
            assert first is not None
            assert (first.count, first.largest("cpu"), first.has_level("example.com/rack")) == (1, 8000, True)
            beat = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await client.patch(Node, "n1", beat, subresource="status")
            await asyncio.sleep(3)
            assert watch.summary() is first
            await client.patch(Node, "n1", {"status": {"allocatable": {"cpu": "16"}}}, subresource="status")
            await asyncio.sleep(3)
            second = watch.summary()
            assert second is not None
            assert second.largest("cpu") == 16_000

    run(live())
