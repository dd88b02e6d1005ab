"""Builders for scheduler tests: nodes, pods and groups in a line, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grove.api.core import Node, Pod
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.model.facts import PODS, NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reading import read_node, read_pod

GPU = "nvidia.com/gpu"
ZONE, BLOCK, RACK, HOST = "example.com/zone", "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LEVELS = (ZONE, BLOCK, RACK, HOST)
TOPOLOGY = {"cluster": LEVELS}


def node(
    name: str, gpu: int = 8, *, cpu: int = 64_000, pods: int = 110, labels: dict[str, str] | None = None, **more: Any
) -> NodeFacts:
    """`zone`, `block` and `rack` become labels; `extra` holds other resources."""
    marks = {key: more.pop(word) for word, key in (("zone", ZONE), ("block", BLOCK), ("rack", RACK)) if word in more}
    allocatable = {"cpu": cpu, "memory": 512 << 30, PODS: pods, **more.pop("extra", {})}
    if gpu:
        allocatable[GPU] = gpu
    return NodeFacts(name, allocatable, {HOST: name, **marks, **(labels or {})}, **more)


def shape(gpu: int = 0, *, cpu: int = 0, extra: dict[str, int] | None = None, **more: Any) -> Shape:
    asked = {PODS: 1, GPU: gpu, "cpu": cpu, **(extra or {})}
    return Shape(requests=tuple(sorted((name, amount) for name, amount in asked.items() if amount)), **more)


def pod(
    name: str, gpu: int = 0, *, of: Shape | None = None, on: str = "", labels: dict[str, str] | None = None, **more: Any
) -> PodFacts:
    """`cpu`, `extra` and other shape fields pass through to the shape."""
    facts = {
        key: more.pop(key)
        for key in ("priority", "gang", "group", "terminating", "created_s", "may_preempt")
        if key in more
    }
    made = of if of is not None else shape(gpu, **more)
    return PodFacts(name, "default", name, made, labels or {}, on, **facts)


def group(
    name: str,
    count: int,
    gpu: int = 1,
    *,
    minimum: int | None = None,
    required: str = "",
    preferred: str = "",
    bound: Iterable[str] = (),
    **more: Any,
) -> PodGroup:
    """`count` pending pods alike; all of them are core unless `minimum` says otherwise."""
    bound = tuple(bound)
    pods = tuple(pod(f"{name}-{i}", gpu, group=name, **more) for i in range(count))
    return PodGroup(name, count + len(bound) if minimum is None else minimum, pods, bound, required, preferred)


def branch(name: str, *children: Branch | PodGroup, required: str = "", preferred: str = "") -> Branch:
    return Branch(name, children, required, preferred)


def gang(*children: Branch | PodGroup, required: str = "", preferred: str = "", **more: Any) -> Gang:
    return Gang("default/gang", Branch("gang", children, required, preferred), **more)


def racks(counts: dict[str, int], gpu: int = 8, zone: str = "z") -> list[NodeFacts]:
    """Nodes named `<rack>-<i>`, with the number of nodes in each rack."""
    return [node(f"{rack}-{i}", gpu, zone=zone, block="b", rack=rack) for rack, n in counts.items() for i in range(n)]


def snap(nodes: Iterable[NodeFacts], pods: Iterable[PodFacts] = ()) -> Snapshot:
    return cluster(nodes, pods, TOPOLOGY)


def used(name: str, gpu: int, **more: Any) -> PodFacts:
    """A running pod that takes this number of GPUs of a node."""
    return pod(f"used-{name}-{more.pop('tag', '')}", gpu, on=name, **more)


def free_of(snapshot: Snapshot, name: str) -> dict[str, int]:
    """What is free on a node, by resource."""
    row = snapshot.nodes.row_of[name]
    return {resource: int(snapshot.free[r, row]) for r, resource in enumerate(snapshot.resources)}


def observe(snapshot: Snapshot, what: Node | Pod) -> None:
    """Takes over an object of the API as an event would bring it."""
    if isinstance(what, Node):
        snapshot.add_node(read_node(what))
    elif what.is_finished:
        snapshot.remove_pod(what.metadata.uid)
    elif what.spec.node_name:
        snapshot.add_pod(read_pod(what))
