"""A user's own manifests on a made-up or copied cluster: what becomes of them, when, and where everything ends up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.demo.chronicle import Note
from grove.demo.scenario import Scenario, Step, load_manifests, yaml_fault
from grove.demo.stage import verdict_lines
from grove.demo.story import Story, StoryFailed
from grove.demo.summary import Summary, summarize
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.tree import State, TreeEntry, tree_of
from grove.kube.errors import ApiError
from grove.plan.copying import Copy
from grove.plan.standin import other_schedulers_remark, stood_in
from grove.plan.strict import warnings_of
from grove.plan.world import World, binding, shaped
from grove.sim.kinds import BUILT_IN
from grove.sim.topology import Topology

SHAPE = ("zones", "blocks", "racks", "nodes", "gpus", "cpu", "memory", "pods")


_KINDS: dict[str, Resource] = {
    # The core Event, not the other one of that name.
    kind.resource.kind: kind.resource
    for kind in BUILT_IN
    if kind.resource.group != "events.k8s.io"
} | {kind.RESOURCE.kind: kind.RESOURCE for kind in (ClusterTopologyBinding, Pod)}


_LEFT_OUT = frozenset({"Gateway", "HTTPRoute", "Ingress", "NetworkPolicy"})
"""Kinds of Kubernetes that manifests of real systems contain, and that do not change what the simulator plays."""


class BadCluster(ValueError):
    """The cluster file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster on which the manifests are simulated."""

    nodes: tuple[Json, ...] = ()
    copy: Copy = field(default_factory=Copy)
    has_binding: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """`placement` is node by pod. `failed` says why the story could not go on, with the `faults` of a manifest that was
    refused. `note` says what differs from a real cluster."""

    sets: tuple[TreeEntry, ...]
    timeline: tuple[Note, ...]
    placement: dict[str, str]
    summary: Summary
    failed: str = ""
    note: str = ""
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What admission warns of, each with the name of its set."""
    explained: tuple[str, ...] = ()
    """Lines of the `explain` steps: why gangs wait, and what would help."""

    @property
    def is_whole(self) -> bool:
        return not self.failed and all(tree.state is State.READY for tree in self.sets)


def load_ground(path: Path) -> Ground:
    """A cluster from a file: a shape (`zones: 2`, `racks: 4`, …), or Node and other objects as kubectl prints them."""
    try:
        trees = [tree for tree in yaml.safe_load_all(path.read_text()) if tree is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadCluster(f"{path}: not YAML: {yaml_fault(error)}") from error
    if len(trees) == 1 and isinstance(trees[0], dict) and "kind" not in trees[0]:
        return Ground(tuple(_shaped(trees[0], path)))
    try:
        items = [item for tree in trees for item in (tree.get("items") or [tree])]
        objects = [item for item in items if item["kind"] != "List"]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadCluster(f"{path}: neither a shape nor Kubernetes objects") from error
    nodes = [obj for obj in objects if obj["kind"] == "Node"]
    if not nodes:
        raise BadCluster(f"{path}: holds no nodes")
    others: list[tuple[Resource, Json]] = []
    for number, obj in enumerate(objects):
        if obj["kind"] == "Node":
            continue
        if obj["kind"] not in _KINDS:
            raise BadCluster(f"{path}: a {obj['kind']} is nothing a cluster is made of here")
        meta = {"uid": f"given-{number}", "creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"]}
        others.append((_KINDS[obj["kind"]], {**obj, "metadata": meta}))
    has_binding = any(obj["kind"] == "ClusterTopologyBinding" for obj in objects)
    return Ground(tuple(nodes), Copy(tuple(others)), has_binding)


def _shaped(tree: Json, path: Path) -> list[Json]:
    unknown = sorted(tree.keys() - set(SHAPE))
    if unknown:
        raise BadCluster(f"{path}: unknown field {unknown[0]} (a shape has {', '.join(SHAPE)})")
    wrong = [key for key in SHAPE if key in tree and key not in ("cpu", "memory") and not _is_count(tree[key])]
    if wrong:
        raise BadCluster(f"{path}: {wrong[0]} must be a whole number above 0, not {tree[wrong[0]]!r}")
    if tree.keys() <= {"nodes", "gpus"}:
        return shaped(tree.get("nodes", 64), tree.get("gpus", 8))
    given: Any = {key: str(value) if key in ("cpu", "memory") else value for key, value in tree.items()}
    return list(Topology(**given).objects())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class Listener:
    """An audience that only remembers what the `explain` steps of a scenario said."""

    def __init__(self) -> None:
        self.explained: list[str] = []

    def chapter(self, title: str, text: str) -> None:
        return None

    def tell(self, note: Note) -> None:
        return None

    def explain(self, verdict: Verdict) -> None:
        self.explained += verdict_lines(verdict)

    def picture(self, world: World) -> None:
        return None


async def simulate(
    ground: Ground, manifests: Sequence[Json], scenario: Scenario | None, *, seed: int, patience_s: float
) -> Outcome:
    """Applies the manifests together, waits until they are all there or nothing moves, then plays the scenario."""
    objects = [] if ground.has_binding else [(ClusterTopologyBinding, binding())]
    given = [stood_in(manifest) for manifest in manifests if manifest["kind"] == "PodCliqueSet"]
    systems, others = [manifest for manifest, _ in given], tuple(sorted({name for _, names in given for name in names}))
    async with World(ground.nodes, seed=seed, objects=objects, copy=ground.copy) as world:
        listener = Listener()
        story = Story(world, listener)
        failed, faults = "", tuple[str, ...]()
        try:
            for manifest in manifests:
                if manifest["kind"] != "PodCliqueSet":
                    await create_beside(world, manifest)
            await story.play(Scenario(tuple(Step("apply", {"object": system}) for system in systems)))
            names = [system["metadata"]["name"] for system in systems]
            await world.until(lambda: all(world.is_settled(name) for name in names), patience_s)
            await asyncio.sleep(1.0)
            if scenario is not None:
                await story.play(scenario)
                await world.until(lambda: all(world.is_settled(p.metadata.name) for p in world.all(PodCliqueSet)), 600)
        except StoryFailed as error:
            failed, faults = error.message, error.faults
        await asyncio.sleep(1.0)
        seen = world.seen()
        placement = {pod.metadata.name: pod.spec.node_name for pod in seen.pods if pod.is_bound}
        trees = tuple(tree_of(seen, pcs) for pcs in seen.sets)
        notes, summary = tuple(story.chronicle.notes), summarize(world, story.chronicle)
        remarks = [other_schedulers_remark(others)] if others else []
        if left_out := sorted({manifest["kind"] for manifest in manifests} & _LEFT_OUT):
            remarks.append(f"not simulated: {', '.join(left_out)}")
        warnings = () if failed else tuple(warning for system in systems for warning in warnings_of(system))
        explained = tuple(listener.explained)
        return Outcome(trees, notes, placement, summary, failed, "; ".join(remarks), faults, warnings, explained)


async def create_beside(world: World, obj: Json) -> None:
    """Makes what a manifest brings along beside its sets, unless the simulator leaves that kind out."""
    if obj["kind"] in _LEFT_OUT:
        return
    resource = _KINDS.get(obj["kind"])
    if resource is None:
        raise StoryFailed(f"a {obj['kind']} is nothing that can be simulated")
    place = {"namespace": world.namespace} if resource.namespaced else {}
    world.furnish(obj)
    try:
        for provisioned in _provisioned(obj):
            kind = _KINDS[provisioned["kind"]]
            await world.client.create(
                kind, {**provisioned, "metadata": {**(place if kind.namespaced else {}), **provisioned["metadata"]}}
            )
    except ApiError as error:
        raise StoryFailed.refused(f"{obj['kind']} {obj['metadata']['name']}", error) from error


def _provisioned(obj: Json) -> list[Json]:
    """A manifest's object; a claim without a volume comes with one, as a storage class would make it on a cluster."""
    spec = obj.get("spec") or {}
    if obj["kind"] != "PersistentVolumeClaim" or spec.get("volumeName"):
        return [obj]
    name = f"{obj['metadata'].get('namespace', 'default')}-{obj['metadata']['name']}"
    capacity = (spec.get("resources") or {}).get("requests") or {}
    claim = {"namespace": obj["metadata"].get("namespace", "default"), "name": obj["metadata"]["name"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"capacity": capacity, "accessModes": spec.get("accessModes") or [], "claimRef": claim},
    }
    return [volume, {**obj, "spec": {**spec, "volumeName": name}}]


__all__ = ["BadCluster", "Ground", "Outcome", "create_beside", "load_ground", "load_manifests", "simulate"]
